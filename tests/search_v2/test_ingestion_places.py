"""Nodes that overlap, or that a step adds, are cited at their lines; what was given comes back."""

from datetime import date

import pytest
from llama_index.core import Document, StorageContext
from llama_index.core.node_parser import (
    HierarchicalNodeParser,
    SentenceSplitter,
    TokenTextSplitter,
    get_leaf_nodes,
)
from llama_index.core.retrievers import AutoMergingRetriever
from llama_index.core.schema import MetadataMode, NodeRelationship, TextNode, TransformComponent
from llama_index.core.storage.docstore import SimpleDocumentStore

from catalog.core.errors import UnknownFieldError
from catalog.library.get import DocumentPlaces, cut_part
from catalog.library.names import WHOLE
from catalog.search_v2 import (
    AnswerQueryEngine,
    CatalogRetriever,
    IngestionPipelineBuilderV2,
    SearchServiceV2,
)
from catalog.store.chunks import find_by_path
from fakes import open_library
from llama_parts import Tell, embedded_texts

ANIMALS = ["turbine", "walrus", "compass", "violin", "granite", "saffron"]
LINES = "\n".join(
    f"Line {number} tells of the {animal}, in words enough."
    for number, animal in enumerate(ANIMALS)
)


@pytest.fixture
def service(tmp_path):
    made = SearchServiceV2(open_library(tmp_path / "home", max_chunks_per_doc=0))
    yield made
    made.close()


def run(service, splitter, *steps, **document):
    pipeline = IngestionPipelineBuilderV2(service).build_pipeline("notes", splitter=splitter)
    pipeline.transformations += steps
    return pipeline.run(documents=[Document(**{"text": LINES, "doc_id": "lines.txt", **document})])


def retrieve(service, query, **search):
    return CatalogRetriever("notes", service=service, top_k=20, **search).retrieve(query)


def is_cited_at_its_lines(node, text=LINES):
    first, last = node.metadata["line_start"], node.metadata["line_end"]
    return node.text in "\n".join(text.split("\n")[first - 1 : last])


COWS = {"text": "Cows eat grass.", "doc_id": " cows "}
LEVELS = HierarchicalNodeParser.from_defaults(chunk_sizes=[128, 32], chunk_overlap=0)


class Leaves(TransformComponent):
    def __call__(self, nodes, **_):
        return get_leaf_nodes(nodes)


@pytest.mark.slow
@pytest.mark.parametrize("text", [LINES, "\n".join([*["Same words again."] * 60, LINES])])
def test_nodes_of_a_hierarchy_are_cited_at_their_lines(service, text):
    nodes = run(service, LEVELS, text=text)
    assert len(nodes) > 3
    children = [node for node in nodes if node.parent_node]
    places = [node.metadata["line_start"] for node in children]
    assert places == sorted(places)
    found = retrieve(service, "line tells of the violin")
    assert found
    assert all(is_cited_at_its_lines(node, text) for node in found)


def test_parents_and_children_are_known_and_merged(service):
    nodes = run(service, LEVELS)
    by_id = {node.node_id: node for node in nodes}
    (parent,) = [node for node in nodes if node.child_nodes]
    assert all(by_id[child.node_id].text in parent.text for child in parent.child_nodes)
    found = retrieve(service, "line tells of the violin")
    named = {node.node.parent_node.node_id for node in found if node.node.parent_node}
    assert named == {parent.node_id}
    storage = StorageContext.from_defaults()
    storage.docstore.add_documents(nodes)
    ours = CatalogRetriever("notes", service=service, top_k=20)
    merged = AutoMergingRetriever(ours, storage).retrieve("line tells of the violin")
    assert {node.node.node_id for node in merged} == {parent.node_id}


def test_leaves_alone_keep_the_parent_that_the_splitter_drew(service):
    (one, *_) = run(service, LEVELS, Leaves())
    assert one.parent_node is not None
    (found, *_) = retrieve(service, "violin")
    assert found.node.parent_node.node_id == one.parent_node.node_id
    assert is_cited_at_its_lines(found)


class Summarise(TransformComponent):
    def __call__(self, nodes, **_):
        made_of = {NodeRelationship.SOURCE: nodes[0].source_node}
        return [*nodes, TextNode(text="A summary\nof all.", relationships=made_of)]


def test_a_node_that_a_step_adds_moves_no_other(service):
    run(service, SentenceSplitter(chunk_size=20, chunk_overlap=0), Summarise())
    *others, added = sorted(
        retrieve(service, "line tells of summary"), key=lambda node: node.metadata["line_start"]
    )
    assert len(others) == len(ANIMALS)
    assert all(is_cited_at_its_lines(node) for node in others)
    assert (added.text, added.metadata["place"]) == ("A summary\nof all.", "lines 7-8")


class Redact(TransformComponent):
    def __call__(self, nodes, **_):
        for node in nodes:
            node.set_content(node.get_content().replace("violin", "[name]"))
        return nodes


def test_a_word_that_a_step_removes_is_nowhere(service):
    run(service, SentenceSplitter(chunk_size=20, chunk_overlap=0), Redact())
    assert retrieve(service, "violin", mode="lexical") == []
    with service.library.database.read() as connection:
        assert "violin" not in find_by_path(connection, "notes", "lines.txt").text


def test_the_users_own_keys_and_nested_values_come_back(service):
    said = {
        "citation": "Smith 2020", "relevance": 77, "line_start": 99, "number": 5,
        "geo": {"lat": 1, "tags": ["a", "b"]}, "authors": [{"name": "Ann"}],
    }  # fmt: skip
    run(service, None, text="Cows eat grass.", metadata=said)
    (one,) = retrieve(service, "cows", filters={"geo.lat": 1})
    (source,) = AnswerQueryEngine("notes", service=service).query("cows").source_nodes
    for node in (one, source):
        assert {name: node.metadata[name] for name in said} == said


@pytest.mark.parametrize("mode", ["lexical", "vector"])
def test_an_excluded_title_is_neither_searched_nor_read(service, mode):
    keys = {"excluded_embed_metadata_keys": ["title"], "excluded_llm_metadata_keys": ["title"]}
    cows = {"text": "Cows eat grass.", "metadata": {"title": "Flamingo"}, **keys}
    run(service, None, **cows)
    pipeline = IngestionPipelineBuilderV2(service).build_pipeline("notes")
    (embedded,) = embedded_texts(pipeline, Document(doc_id="lines.txt", **cows))
    assert "Flamingo" not in embedded
    found = retrieve(service, "flamingo", mode=mode)
    assert mode == "vector" or found == []
    (node,) = retrieve(service, "cows")
    assert node.metadata["title"] == "Flamingo"
    for reader in (MetadataMode.LLM, MetadataMode.EMBED):
        assert "Flamingo" not in node.node.get_content(reader)


def test_prompts_have_the_templates_of_the_document(service):
    templates = {
        "text_template": "<{metadata_str}|{content}>",
        "metadata_template": "{key}={value}",
        "metadata_separator": ";",
    }
    run(service, None, text="Cows eat grass.", metadata={"title": "Farm"}, **templates)
    (node,) = retrieve(service, "cows")
    assert node.node.get_content(MetadataMode.LLM) == "<title=Farm;place=line 1|Cows eat grass.>"
    assert not any(name.startswith("llama_index") for name in node.metadata)


def test_metadata_come_back_as_they_were_given(service):
    said = {
        "big": 2**70, "none": None, "empty": [], "padded": "  x ", "tags": "a, b",
        "Page Title": "Farm", " spaced ": 1, "inf": float("inf"),
        "geo": {"lat": 1.5, "by": {"a": 1}}, "url": "https://a.example/b ",
    }  # fmt: skip
    run(service, None, Tell(told={"step": {"n": 2**70}, "nothing": None}), **COWS, metadata=said)
    (node,) = retrieve(service, "cows", filters=[{"field": "geo.lat", "value": 1.5}, "tag=a"])
    given = said | {"step": {"n": 2**70}, "nothing": None, "doc_id": " cows "}
    assert {name: node.metadata[name] for name in given} == given
    assert node.node.ref_doc_id == " cows "
    assert len(retrieve(service, "cows", filters={"doc_id": " cows "})) == 1
    ours = node.metadata.keys() - given.keys()
    assert ours == {
        *("title", "place", "citation", "link", "line_start", "line_end", "unit"),
        *("dataset", "source_doc_id", "path", "heading_path", "relevance"),
    }


def test_values_that_json_lacks_come_back_as_text(service):
    said = {"day": date(2024, 1, 2), "bytes": b"x", "set": {1}, "keys": {(1, 2): 3, None: 4}}
    (node,) = run(service, None, **COWS, metadata=said)
    told = {name: node.metadata[name] for name in said}
    assert told == {
        "day": "2024-01-02", "bytes": "b'x'", "set": [1], "keys": {"(1, 2)": 3, "null": 4},
    }  # fmt: skip


def test_what_only_nodes_show_is_no_field_to_filter_by(service):
    run(service, None, **COWS, metadata={"geo": {"lat": 1.5}})
    with pytest.raises(UnknownFieldError) as refused:
        retrieve(service, "cows", filters={"gee": 1})
    assert "geo.lat" in str(refused.value)
    assert "llama_index" not in str(refused.value)
    with service.library.database.read() as connection:
        document = find_by_path(connection, "notes", " cows ")
        part = cut_part(document, DocumentPlaces.read(connection, document.source_doc_id), WHOLE)
    assert part.to_dict()["metadata"] == {"geo.lat": 1.5, "doc_id": " cows "}


def test_a_run_returns_the_nodes_that_searches_return(service):
    made = run(service, LEVELS, metadata={"tags": "a, b", "nested": {"n": [1]}})
    docstore = SimpleDocumentStore()
    docstore.add_documents(made)
    assert all(node.embedding for node in made)
    found = retrieve(service, "line tells of the violin")
    for node in (one.node for one in found):
        (own,) = [one for one in made if one.node_id == node.node_id]
        stored = docstore.get_document(node.node_id)
        assert own.hash == node.hash == stored.hash
        assert own.ref_doc_id == node.ref_doc_id == stored.ref_doc_id
        assert node.metadata.pop("relevance") is not None
        assert own.metadata == node.metadata == stored.metadata
        assert own.relationships.items() >= node.relationships.items()
        assert own.get_content(MetadataMode.LLM) == node.get_content(MetadataMode.LLM)


CODE = "\n    def rest():\n        return 1\n\n    def nap():\n        return rest() + 2\n"


class Recase(TransformComponent):
    def __call__(self, nodes, **_):
        for node in nodes:
            node.set_content(node.text.upper())
        return nodes


@pytest.mark.parametrize(
    "splitter", [None, TokenTextSplitter(chunk_size=12, chunk_overlap=0, separator="\n")]
)
@pytest.mark.parametrize("steps", [[], [Recase()]])
def test_the_first_line_of_a_passage_keeps_its_indentation(service, splitter, steps):
    nodes = run(service, splitter, *steps, text=CODE)
    written = CODE.upper() if steps else CODE
    assert nodes[0].text.startswith("    DEF REST" if steps else "    def rest")
    assert all(line in written.split("\n") for node in nodes for line in node.text.split("\n"))
    if not steps:  # lines of a rewritten text are its own
        assert [one.metadata["line_start"] for one in nodes] == ([2, 5, 6] if splitter else [2])
