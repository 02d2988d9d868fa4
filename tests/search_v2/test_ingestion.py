"""Pipelines over LlamaIndex documents: what goes in is found, whole, under its own name."""

import asyncio
import pickle
import uuid
from copy import deepcopy

import pytest
from llama_index.core import Document, MockEmbedding, SimpleDirectoryReader, VectorStoreIndex
from llama_index.core import Settings as LlamaSettings
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import MetadataMode, TextNode, TransformComponent
from llama_index.core.storage.docstore import SimpleDocumentStore
from pydantic import PrivateAttr

from catalog.core.errors import EmbeddingMismatchError, InputError
from catalog.core.settings import RAGv2Settings, Settings
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.search_v2 import EmbeddingPrefixTransform, IngestionPipelineBuilderV2, SearchServiceV2
from catalog.store.embedding_cache import read_stored_model
from fakes import DIM, open_library, write
from tables import table

KEYS = (
    "# Keys\n\n## Rotating\n\nRotate the API keys every ninety days.\n\n"
    "## Revoking\n\nA leaked key is revoked at once.\n"
)


@pytest.fixture
def service(tmp_path):
    made = SearchServiceV2(
        open_library(tmp_path / "home", chunk_min_size=4, chunk_size=20, chunk_overlap=0)
    )
    yield made
    made.close()


def run(service, *documents, **built):
    pipeline = IngestionPipelineBuilderV2(service).build_pipeline("notes", **built)
    return pipeline.run(documents=list(documents))


def found(service, query="keys", **search):
    return service.search(query, dataset="notes", top_k=50, **search)


def paths(service, query="keys", **search):
    return sorted({result.path for result in found(service, query, **search)})


class Told(MockEmbedding):
    """Embeds queries and passages unlike."""

    def _get_query_embedding(self, query):
        return [1.0, *[0.0] * (self.embed_dim - 1)]

    def _get_text_embedding(self, text):
        return [0.0, *[1.0] * (self.embed_dim - 1)]


def test_another_model_than_the_stores_is_refused_and_nothing_written(service):
    builder = IngestionPipelineBuilderV2(service)
    for dim in (DIM, 384):
        with pytest.raises(EmbeddingMismatchError, match=f"searched by words .*{dim} numbers"):
            builder.build_pipeline("notes", embed_model=MockEmbedding(embed_dim=dim))
    assert service.library.datasets() == []
    assert read_stored_model(service.library.database) is None


def test_a_store_that_took_another_model_on_meanwhile_refuses_the_run(service, tmp_path):
    pipeline = IngestionPipelineBuilderV2(service).build_pipeline("notes")
    other = Library(Settings(home=tmp_path / "home"), model=MockEmbedding(embed_dim=8))
    with other:
        IngestionPipelineBuilderV2(SearchServiceV2(other)).build_pipeline("other").run(
            documents=[Document(text="walrus")]
        )
    with pytest.raises(EmbeddingMismatchError):
        pipeline.run(documents=[Document(text=KEYS)])
    assert service.library.datasets() == ["other"]


def test_any_llama_index_model_is_wrapped_and_keeps_its_two_sides(tmp_path):
    settings = Settings(home=tmp_path / "home", rag_v2=RAGv2Settings())
    with Library(settings, model=Told(embed_dim=8)) as library:
        service = SearchServiceV2(library)
        run(service, Document(text=KEYS), embed_model=Told(embed_dim=8))
        own = IngestionPipelineBuilderV2(service).build_pipeline("notes")
        own.transformations.append(Told(embed_dim=8))  # the usual last step of LlamaIndex
        own.run(documents=[Document(text=KEYS)])
        (vector, _), (passage, _) = (
            service.parts.query_vectors.embed("keys", side) for side in ("query", "document")
        )
        assert vector.tolist() == [1.0, *[0.0] * 7]
        assert passage.tolist() == [0.0, *[1.0] * 7]
        assert len(found(service, mode="vector")) == 1


@table("arguments, expected", list)
def test_metadata_or_the_id_gives_the_path(service, arguments, expected):
    run(service, Document(text=KEYS, **arguments))
    assert paths(service) == [expected]
    run(service, Document(text=KEYS.replace("ninety", "thirty"), **arguments))
    assert paths(service) == [expected]
    assert "thirty days" in " ".join(result.text for result in found(service))


def test_the_same_text_twice_is_one_document(service):
    run(service, Document(text=KEYS), Document(text=KEYS))
    once = [result.chunk_id for result in found(service)]
    run(service, Document(text=KEYS))
    assert [result.chunk_id for result in found(service)] == once
    assert len(paths(service)) == 1
    run(service, Document(text="Other keys open doors."))
    assert len(paths(service)) == 2


def test_markdown_has_its_headings_with_and_without_a_name(service):
    run(service, Document(text=KEYS), Document(text=KEYS, metadata={"file_name": "keys.md"}))
    for result in found(service, "revoked leaked", filters={"section": "Revoking"}):
        assert result.heading_path[-1] == "Revoking"
    assert len(paths(service, "revoked", filters={"section": "Revoking"})) == 2
    run(service, Document(text="# no heading\nkeys = 1", metadata={"file_name": "keys.py"}))
    (code,) = found(service, filters={"path": "keys.py"})
    assert code.heading_path == ()


def test_metadata_is_kept_lists_included_and_can_be_asked_for(service):
    said = {
        "file_name": "keys.md", "tags": ["ops", "security"], "authors": ["Ann", "Bo"], "level": 3,
        "nested": {"team": "red"}, "last_modified_date": "2024-05-06", "nothing": None,
    }  # fmt: skip
    run(service, Document(text=KEYS, metadata=said))
    for filters in (
        {"tags": "ops"}, {"authors": "Bo"}, {"level": {">=": 3}}, {"nested.team": "red"},
        {"modified": {">": "2024-04"}},
    ):  # fmt: skip
        assert paths(service, filters=filters) == ["keys.md"]
    (node, *_) = service.retrieve("keys", dataset="notes")
    assert list(node.metadata["tags"]) == ["ops", "security"]
    assert list(node.metadata["authors"]) == ["Ann", "Bo"]


def test_a_text_of_nothing_is_left_out_and_told(service, caplog):
    run(service, Document(text=" \n", doc_id="blank"), Document(text=KEYS, doc_id="keys.md"))
    assert paths(service) == ["keys.md"]
    assert "left out: blank: it has no text" in caplog.text


def test_a_passage_that_cannot_be_embedded_is_kept_by_its_words_and_told(service, caplog):
    run(service, Document(text="POISON keys", doc_id="bad"), Document(text=KEYS, doc_id="good"))
    assert paths(service, mode="lexical") == ["bad", "good"]
    assert "1 passages have no vector, only words" in caplog.text


def test_workers_are_refused_with_a_sentence(service):
    pipeline = IngestionPipelineBuilderV2(service).build_pipeline("notes")
    with pytest.raises(InputError, match="num_workers"):
        pipeline.run(documents=[Document(text=KEYS)], num_workers=2)
    with pytest.raises(InputError, match="num_workers"):
        asyncio.run(pipeline.arun(documents=[Document(text=KEYS)], num_workers=4))
    assert service.library.datasets() == []
    pipeline.run(documents=[Document(text=KEYS)], num_workers=1)
    asyncio.run(pipeline.arun(documents=[Document(text="Keys of pianos")]))
    assert len(paths(service)) == 2


def test_the_dataset_may_be_said_as_in_the_design(service):
    builder = IngestionPipelineBuilderV2(service)
    for arguments in (("notes",), ("notes", "notes"), (7, "notes")):
        builder.build_pipeline(*arguments).run(documents=[Document(text=KEYS)])
    builder.build_pipeline(dataset_name="notes", chunk_size=32, chunk_overlap=4)
    assert service.library.datasets() == ["notes"]
    with pytest.raises(InputError, match="they are one"):
        builder.build_pipeline("notes", "other")
    for arguments in ((), (7,)):
        with pytest.raises(InputError, match="say which dataset"):
            builder.build_pipeline(*arguments)
    with pytest.raises(InputError):
        builder.build_pipeline("../notes")


@pytest.mark.slow
def test_a_llama_index_splitter_cuts_and_offsets_stay_exact(service):
    lines = "".join(f"line {n % 3} of a log that repeats itself\n" for n in range(40))
    splitter = SentenceSplitter(chunk_size=30, chunk_overlap=6)
    nodes = run(service, Document(text=KEYS + lines, doc_id="log.md"), splitter=splitter)
    text = KEYS + lines
    assert len(nodes) > 5
    starts = [node.start_char_idx for node in nodes]
    assert starts == sorted(set(starts))
    assert all(text[node.start_char_idx : node.end_char_idx] == node.text for node in nodes)
    assert nodes[-1].end_char_idx == len(text.rstrip())
    assert {"Keys", "Revoking"} <= {
        name for node in nodes for name in node.metadata["heading_path"]
    }
    assert paths(service, "log") == ["log.md"]


class Seen(TransformComponent):
    """Remembers what an embedding model after it would see."""

    texts: list[str] = []

    def __call__(self, nodes, **_):
        self.texts.extend(node.get_content(metadata_mode=MetadataMode.EMBED) for node in nodes)
        return nodes


def test_the_prefix_step_acts_on_plain_nodes_in_anybodys_pipeline():
    seen = Seen()
    pipeline = IngestionPipeline(
        transformations=[SentenceSplitter(), EmbeddingPrefixTransform(prefix="passage: "), seen]
    )
    document = Document(
        text="Rotate them.", metadata={"file_name": "key rotation.md", "title": "Keys"}
    )
    (node,) = pipeline.run(documents=[document])
    assert seen.texts == ["passage: key rotation > Keys\nRotate them."]
    assert node.get_content() == "Rotate them."
    assert "passage" not in node.get_content(metadata_mode=MetadataMode.LLM)
    assert TextNode.from_dict(node.to_dict()).text == "Rotate them."
    assert node.ref_doc_id == document.doc_id


def test_what_a_node_says_it_was_made_of_joins_it_to_no_recording(service):
    claims = {"media": "talks/lecture", "media_file": "talks/lecture.mp4", "topic": "keys"}
    run(service, Document(text=KEYS, doc_id="keys.md", metadata=claims))
    assert {result.original for result in found(service, "keys")} == {None}
    assert found(service, "keys", filters={"topic": "keys"})
    assert len(found(service, "keys", filters={"media": "talks/lecture"})) == 0


@pytest.fixture
def pipeline(service):
    return IngestionPipelineBuilderV2(service).build_pipeline("notes")


def texts(service, query, **search):
    """What the passages that hold the word say, in alphabetical order."""
    search = {"mode": "lexical", **search}
    return sorted(one.text for one in service.search(query, dataset="notes", top_k=50, **search))


def page(number, text=None, name="/docs/zoo.pdf", **more):
    metadata = {"file_path": name, "file_name": name.rpartition("/")[2], "page_label": str(number)}
    return Document(text=text or f"Walrus of page {number}.", metadata=metadata, **more)


def row(text, **metadata):
    return Document(text=text, metadata={"file_path": "/docs/zoo.csv", **metadata})


def test_pages_of_one_file_in_batches_are_all_kept_and_cited_by_their_numbers(service, pipeline):
    pages = [page(number) for number in range(1, 7)]
    pipeline.run(documents=pages[:3])
    pipeline.run(documents=pages[3:])
    assert pipeline.report.deleted == pipeline.report.replaced == []
    found = service.search("walrus", dataset="notes", top_k=50)
    text_of = dict.fromkeys(range(1, 7), "")
    for one in found:
        for number in range(one.locator.page, one.locator.page_end + 1):
            text_of[number] += one.text
    assert all(f"page {number}." in text for number, text in text_of.items())


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_shortened_file_run_again_in_batches_loses_its_last_pages(
    service, pipeline, size, caplog
):
    for count in (5, 4):
        pages = [page(number) for number in range(1, count + 1)]
        for start in range(0, count, size):
            pipeline.run(documents=pages[start : start + size])
    stored = " ".join(texts(service, "walrus"))
    assert [f"page {number}." in stored for number in range(1, 6)] == [*[True] * 4, False]
    pipeline.run(documents=[page(1)])
    assert "/docs/zoo.pdf: the stored pages 2, 3, 4 are deleted" in caplog.text


def test_a_file_whose_middle_text_is_gone_has_the_others_alone(service, pipeline):
    rows = [row(f"Walrus number {number}.") for number in range(3)]
    pipeline.run(documents=rows)
    assert pipeline.report.added == ["/docs/zoo.csv", "/docs/zoo.csv#2", "/docs/zoo.csv#3"]
    pipeline.run(documents=[rows[0], rows[2]])
    assert texts(service, "walrus") == ["Walrus number 0.", "Walrus number 2."]
    assert pipeline.report.deleted == ["/docs/zoo.csv#3"]
    assert sorted(pipeline.report.replaced) == ["/docs/zoo.csv", "/docs/zoo.csv#2"]


def test_other_texts_of_a_source_without_pages_replace_it_and_that_is_told(
    service, pipeline, caplog
):
    for batch in ("one", "two"):
        pipeline.run(documents=[row(f"Walrus {n} of {batch}.") for n in range(3)])
        assert ("all 3 stored texts are replaced" in caplog.text) == (batch == "two")
    assert len(texts(service, "walrus")) == 3
    for batch in ("one", "two"):
        documents = [row(f"Seal {n} of {batch}.") for n in range(3)]
        for n, document in enumerate(documents):
            document.doc_id = f"{batch}/{n}"
        pipeline.run(documents=documents)
    assert len(texts(service, "seal")) == 6


def test_sources_that_a_run_does_not_bring_stay(service, pipeline):
    pipeline.run(documents=[row("Walrus of rows."), Document(text="Walrus of a.", doc_id="a")])
    pipeline.run(documents=[Document(text="Walrus of b.", doc_id="b")])
    pipeline.run(documents=[])
    assert texts(service, "walrus") == ["Walrus of a.", "Walrus of b.", "Walrus of rows."]


@pytest.mark.parametrize("empty", ["", " \n"])
def test_a_document_that_became_empty_is_not_found_any_more(service, pipeline, empty):
    pipeline.run(documents=[Document(text="Walrus.", doc_id="a")])
    pipeline.run(documents=[Document(text=empty, doc_id="a")])
    assert texts(service, "walrus") == []
    assert (pipeline.report.deleted, pipeline.report.refused) == (["a"], {})
    pipeline.run(documents=[Document(text=empty, doc_id="a")])
    assert pipeline.report.refused == {"a": "it has no text"}


def test_the_users_id_tells_files_of_one_name_apart(service, pipeline):
    name = {"file_name": "report.pdf"}
    for folder in ("a", "b"):
        pipeline.run(
            documents=[
                Document(text=f"Walrus of {folder}.", doc_id=f"{folder}/report", metadata=name)
            ]
        )
    assert texts(service, "walrus") == ["Walrus of a.", "Walrus of b."]
    both = [
        Document(
            text=f"Seal of {folder}{number}.",
            doc_id=f"{folder}/seals",
            metadata={**name, "page_label": str(number)},
        )
        for folder in ("a", "b")
        for number in (1, 2)
    ]
    pipeline.run(documents=both)
    found = service.search("seal", dataset="notes", top_k=9, mode="lexical")
    places = {(one.path, one.locator.page_end) for one in found}
    assert places == {("a/seals", 2), ("b/seals", 2)}


def test_two_files_of_one_bare_name_in_one_run_are_both_kept(service, pipeline):
    pages = [page(number, f"Walrus {n}{number}.", "zoo.pdf") for n in "ab" for number in (1, 2)]
    pipeline.run(documents=pages)
    stored = " ".join(texts(service, "walrus"))
    assert all(f"Walrus {one}." in stored for one in ("a1", "a2", "b1", "b2"))


@pytest.mark.parametrize("key", ["url", "URL", "source_url", "source"])
def test_a_page_read_again_under_its_address_replaces_the_old_one(service, pipeline, key):
    for version in ("older", "old", "new"):
        said = {key: "https://zoo.org/walrus", "fetched": version}
        drawn = {} if version == "old" else {"id_": str(uuid.uuid4())}  # which names nothing
        pipeline.run(documents=[Document(text=f"Walrus, {version}.", metadata=said, **drawn)])
    assert texts(service, "walrus") == ["Walrus, new."]
    assert pipeline.report.replaced == ["https://zoo.org/walrus"]


def test_an_id_that_llama_index_drew_names_nothing_and_one_the_user_set_does(service, pipeline):
    name = {"file_name": "a.txt"}
    for version in ("old", "new"):
        pipeline.run(documents=[Document(text=f"Walrus, {version}.", metadata=name)])
    assert texts(service, "walrus") == ["Walrus, new."]
    keys = [str(uuid.uuid4()) for _ in range(2)]
    for key in keys:
        pipeline.run(documents=[Document(text=f"Seal {key}.", doc_id=key, metadata=name)])
    assert len(texts(service, "seal")) == 2
    pipeline.run(documents=[Document(text="Walrus, now.", doc_id=keys[0], metadata=name)])
    assert texts(service, "seal") == [f"Seal {keys[1]}."]


def test_documents_that_another_process_read_are_the_same_sources(service, pipeline):
    for version in ("old", "new"):
        one = page(1, f"Walrus, {version}.")
        pipeline.run(documents=[pickle.loads(pickle.dumps(one))])
    assert texts(service, "walrus") == ["Walrus, new."]


def test_a_document_whose_level_cannot_be_read_is_stored_as_unreadable(service, pipeline):
    pipeline.run(documents=[Document(text="Walrus, old.", doc_id="a")])
    said = {"confidentiality": {"level": "secret"}}
    pipeline.run(
        documents=[
            Document(text="Walrus, new.", doc_id="a", metadata=said),
            Document(text="Walrus of b.", doc_id="b"),
        ]
    )
    assert texts(service, "walrus") == ["Walrus of b.", "Walrus, new."]
    found = service.search(
        "walrus", dataset="notes", mode="lexical", filters="confidentiality=unreadable"
    )
    assert [result.path for result in found] == ["a"]


def test_a_document_is_deleted_by_the_id_of_the_user_or_of_llama_index(service, pipeline):
    drawn = page(1)
    pipeline.run(documents=[Document(text="Walrus of a.", doc_id="a"), drawn, page(2)])
    removal = pipeline.delete(drawn.doc_id)
    assert (removal.documents, removal.chunks) == (1, 1)
    assert texts(service, "walrus") == ["Walrus of a."]
    (node,) = pipeline.run(documents=[Document(text="Walrus of a, now.", doc_id="a")])
    assert node.ref_doc_id == "a"
    again = IngestionPipelineBuilderV2(service).build_pipeline("notes")
    again.delete("a")
    for mode in ("lexical", "vector"):
        assert texts(service, "walrus", mode=mode) == []
    with pytest.raises(InputError, match="no document 'a'"):
        again.delete("a")


class Fails(TransformComponent):
    """Fails once."""

    failed: bool = False

    def __call__(self, nodes, **_):
        if not self.failed:
            self.failed = True
            raise RuntimeError("no luck")
        return nodes


@pytest.mark.parametrize("at", range(1, 6))
def test_what_failed_between_two_steps_is_not_published_by_the_next_run(service, pipeline, at):
    pipeline.run(documents=[Document(text="Walrus, old.", doc_id="a")])
    pipeline.transformations.insert(at, Fails())
    before = pipeline._arrange
    pipeline._arrange = lambda: None
    with pytest.raises(RuntimeError, match="no luck"):
        pipeline.run(documents=[Document(text="Walrus, new.", doc_id="a")])
    pipeline._arrange = before
    pipeline.run(documents=[Document(text="Walrus of b.", doc_id="b")])
    seen = texts(service, "walrus")
    assert seen == ["Walrus of b.", "Walrus, old." if at < 5 else "Walrus, new."]


def test_nodes_cut_elsewhere_replace_the_nodes_of_their_document(service, pipeline):
    def nodes(*texts):
        document = Document(text="", doc_id="zoo")
        related = {"1": document.as_related_node_info()}
        return [TextNode(text=text, relationships=related) for text in texts]

    pipeline.run(nodes=nodes("Walrus one.", "Walrus two.", "Walrus three."))
    assert len(texts(service, "walrus")) == 3
    pipeline.run(nodes=nodes("Walrus one.", "Walrus three."))
    assert texts(service, "walrus") == ["Walrus one.", "Walrus three."]


def test_blank_pages_with_new_numbers_delete_nothing(service, pipeline):
    pipeline.run(documents=[page(1), page(2)])
    pipeline.run(documents=[page(3, " "), page(4, "\n")])
    assert (pipeline.report.deleted, pipeline.report.refused) == (
        [],
        {"/docs/zoo.pdf": "it has no text"},
    )
    assert texts(service, "walrus") == ["Walrus of page 1.\n\nWalrus of page 2."]
    pipeline.run(documents=[page(1, " "), page(2, " ")])
    assert pipeline.report.deleted == ["/docs/zoo.pdf"]


def test_a_part_takes_no_other_documents_name(service, pipeline):
    one = Document(text="Walrus of the id.", doc_id="f#2")
    two = [Document(text=f"Walrus {n} of f.", doc_id="f") for n in (1, 2)]
    expected = ["Walrus 1 of f.", "Walrus 2 of f.", "Walrus of the id."]
    pipeline.run(documents=[one, *two])
    assert texts(service, "walrus") == expected
    for batches in ([[one], two], [two, [one]], [[one, *two]]):
        again = IngestionPipelineBuilderV2(service).build_pipeline("notes")
        for batch in batches:
            again.run(documents=batch)
            assert again.report.refused == {}
        assert texts(service, "walrus") == expected
    pipeline.delete("f")
    assert texts(service, "walrus") == ["Walrus of the id."]


@pytest.mark.parametrize("said", [{"file_path": "/docs/b.epub"}, {"file_name": "readme.md"}])
def test_texts_of_one_file_in_separate_runs_replace_each_other_and_that_is_told(
    service, pipeline, said
):
    for n in range(3):
        pipeline.run(documents=[Document(text=f"Walrus {n}.", metadata=said)])
        assert bool(pipeline.report.warnings) == (n > 0)
    assert "all 1 stored texts are replaced by 1 others" in pipeline.report.warnings[0]
    again = IngestionPipelineBuilderV2(service).build_pipeline("notes")
    again.run(documents=[Document(text="Walrus, now.", metadata=said)])
    assert bool(again.report.warnings) == ("file_name" in said)  # a file may have changed
    again.run(documents=[Document(text="Walrus, now.", metadata=said)])
    assert again.report.warnings == []
    related = {"1": Document(text="", doc_id="zoo").as_related_node_info()}
    for text in ("Seal one.", "Seal two."):
        again.run(nodes=[TextNode(text=text, relationships=related)])
    assert "all 1 stored texts" in again.report.warnings[0]
    for text in ("Seal three.", "Seal four."):  # its id names it: it may change
        again.run(documents=[Document(text=text, doc_id="a", metadata={"file_path": "/a"})])
    assert again.report.warnings == []


def test_what_a_pipeline_cannot_do_is_an_error(service, pipeline):
    class Marks(TransformComponent):
        def __call__(self, nodes, mark="", **_):
            for node in nodes:
                node.metadata["mark"] = mark
            return nodes

    with pytest.raises(InputError, match="no argument 'document'; did you mean documents"):
        pipeline.run(document=[page(1)])
    with pytest.raises(InputError, match="no argument 'mark'"):
        pipeline.run(documents=[page(1)], mark="red")
    pipeline.transformations.append(Marks())
    (node,) = pipeline.run(documents=[page(1)], mark="red", show_progress=False)
    assert node.metadata["mark"] == "red"
    for given in ("a text", page(1), [None], [{"text": "a"}]):
        with pytest.raises(InputError, match="give a list of Documents"):
            pipeline.run(documents=given)
    for part in (pipeline, pipeline.transformations[0]):
        with pytest.raises(InputError, match=r"call build_pipeline\(\) in the other process"):
            pickle.dumps(part)
    pipeline.transformations = [SentenceSplitter()]
    with pytest.raises(InputError, match="lost its own steps ChunkSplitter, ChunkPrefixTransform"):
        pipeline.run(documents=[page(1)])
    cached = IngestionPipelineBuilderV2(service).build_pipeline("n")
    cached.disable_cache = False
    with pytest.raises(InputError, match="does without LlamaIndex's cache"):
        cached.run(documents=[page(1)])


def stock(service, **parts):
    """A pipeline of LlamaIndex's own with our steps."""
    steps = IngestionPipelineBuilderV2(service).build_pipeline("notes").transformations
    return IngestionPipeline(transformations=steps, **parts)


@pytest.mark.parametrize("is_async", [False, True])
def test_our_steps_store_every_document_in_a_stock_pipeline_with_its_cache(service, is_async):
    own = stock(service)
    for text in ("Walrus A.", "Walrus B.", "Walrus A."):
        documents = [Document(text=text, doc_id="a"), Document(text=text, doc_id="b")]
        run = (
            asyncio.run(own.arun(documents=documents)) if is_async else own.run(documents=documents)
        )
        assert [node.text for node in run] == [text, text]
        assert texts(service, "walrus") == [text, text]


def test_a_stock_pipeline_names_what_it_leaves_out(service, caplog):
    assert stock(service).run(documents=[Document(text=" ", doc_id="blank")]) == []
    assert "left out: blank: it has no text" in caplog.text


def test_the_cache_of_a_stock_pipeline_spares_costly_steps(service):
    own, costly = stock(service), Costly()
    own.transformations.insert(1, costly)
    for _ in range(2):
        assert len(own.run(documents=[Document(text="Walrus A.", doc_id="a")])) == 1
    assert costly.seen == ["Walrus A."]
    assert texts(service, "walrus") == ["Walrus A."]


@pytest.mark.parametrize("step", [-1, -2, -3])
def test_a_step_that_gets_another_node_than_a_chunk_says_so(service, pipeline, step):
    with pytest.raises(InputError, match=r"needs chunks, and .* is a TextNode"):
        pipeline.transformations[step]([TextNode(text="Walrus.")])


class Costly(TransformComponent):
    """Counts the texts that it is given."""

    level: int = 1
    _seen: list[str] = PrivateAttr(default_factory=list)

    @property
    def seen(self):
        return self._seen

    def __call__(self, nodes, **_):
        self._seen += [node.get_content() for node in nodes]
        return nodes


@pytest.mark.parametrize("at", [0, 1, 9])
def test_unchanged_documents_skip_every_step_and_the_report_says_so(service, at):
    costly = Costly()
    for run in range(3):
        made = IngestionPipelineBuilderV2(service).build_pipeline("notes")
        made.transformations.insert(at, costly)
        documents = [page(1), page(2), Document(text=f"Seal, run {min(run, 1)}.", doc_id="b")]
        made.run(documents=[Document(text="Walrus of a.", doc_id="a"), *documents])
    assert sorted(made.report.unchanged) == ["/docs/zoo.pdf", "a", "b"]
    assert sum("Walrus of a." in text for text in costly.seen) == 1
    assert len(texts(service, "walrus")) == 2
    made.run(documents=[Document(text="Walrus of a, now.", doc_id="a")])
    assert (made.report.unchanged, made.report.replaced) == ([], ["a"])


def test_a_document_is_made_again_by_other_steps_and_after_it_was_deleted(service, pipeline):
    document = Document(text="Walrus.", doc_id="a")
    pipeline.transformations.append(costly := Costly())
    for level in (1, 2, 2):
        costly.level = level
        pipeline.run(documents=[document])
    assert len(costly.seen) == 2
    pipeline.delete("a")
    assert len(pipeline.run(documents=[document])) == 1
    assert len(pipeline.run(documents=[document, Document(text="Walrus too.", doc_id="a")])) == 2
    assert len(pipeline.run(documents=[document])) == 1
    assert pipeline.report.deleted == ["a#2"]


def test_a_passage_that_could_not_be_embedded_is_tried_again(service, pipeline, monkeypatch):
    documents = [Document(text="POISON keys", doc_id="bad"), Document(text=KEYS, doc_id="good")]
    pipeline.run(documents=documents)
    monkeypatch.setattr(service.library.model.encoder, "poison", "none")
    pipeline.run(documents=documents)
    assert pipeline.report.unchanged == ["good"]


def test_a_document_that_was_only_read_is_unchanged(service, pipeline):
    for day in ("2026-05-06", "2026-05-07"):
        pipeline.run(documents=[row("Walrus.", last_accessed_date=day)])
    assert pipeline.report.unchanged == ["/docs/zoo.csv"]


STRATEGIES = list(DocstoreStrategy)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_docstore_and_its_strategy_mean_what_llama_index_says(
    service, pipeline, strategy, is_async, tmp_path
):
    pipeline.docstore, pipeline.docstore_strategy = SimpleDocumentStore(), strategy
    pipeline.transformations.insert(0, costly := Costly())

    def run(*documents):
        if is_async:
            return asyncio.run(pipeline.arun(documents=list(documents)))
        return pipeline.run(documents=list(documents))

    a, b = (Document(text=f"Walrus of {name}.", doc_id=name) for name in "ab")
    run(a, b)
    pipeline.persist(str(tmp_path))
    pipeline = IngestionPipelineBuilderV2(service).build_pipeline("notes")
    pipeline.load(str(tmp_path))
    pipeline.docstore_strategy = strategy
    pipeline.transformations.insert(0, costly)
    run(a, b)
    assert len(costly.seen) == 2
    assert sorted(pipeline.report.unchanged) == ["a", "b"]
    copy = Document(text=b.text, doc_id="copy")
    run(Document(text="Walrus of a, now.", doc_id="a"), copy)
    stored = ["Walrus of a, now.", "Walrus of b."]
    if strategy == DocstoreStrategy.UPSERTS:
        stored.append("Walrus of b.")
    assert texts(service, "walrus") == stored
    assert pipeline.report.deleted == ["b"] * (strategy == DocstoreStrategy.UPSERTS_AND_DELETE)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_docstore_keeps_no_document_from_the_store(service, pipeline, strategy):
    pipeline.docstore, pipeline.docstore_strategy = SimpleDocumentStore(), strategy
    document = Document(text="Walrus.", doc_id="a")
    pipeline.transformations.insert(1, Fails())
    with pytest.raises(RuntimeError):
        pipeline.run(documents=[document])
    pipeline.run(documents=[document])
    assert texts(service, "walrus") == ["Walrus."]
    pipeline.delete("a")
    pipeline.run(documents=[document])
    assert texts(service, "walrus") == ["Walrus."]


@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_run_does_not_bring_is_deleted_at_its_end_unless_it_fails(
    service, pipeline, is_async
):
    """Documents of one text are two, which LlamaIndex takes for one."""
    pipeline.docstore = SimpleDocumentStore()
    pipeline.docstore_strategy = DocstoreStrategy.UPSERTS_AND_DELETE
    a, b, c = (Document(text="Walrus.", doc_id=name) for name in "abc")

    def run(*documents):
        given = {"documents": list(documents)}
        return asyncio.run(pipeline.arun(**given)) if is_async else pipeline.run(**given)

    run(a, b)
    pipeline.transformations.insert(1, Fails())
    with pytest.raises(RuntimeError):
        run(c)
    assert (paths(service), set(pipeline.docstore.docs)) == (["a", "b"], {"a", "b"})
    run(b)
    assert (paths(service), set(pipeline.docstore.docs)) == (["b"], {"b"})
    assert (pipeline.report.unchanged, pipeline.report.deleted) == (["b"], ["a"])


def test_a_copy_of_a_pipeline_has_its_own_steps_and_stores_in_the_same_dataset(service, pipeline):
    again = deepcopy(pipeline)
    again.transformations.insert(0, Fails())
    pipeline.run(documents=[Document(text="Walrus.", doc_id="a")])
    with pytest.raises(RuntimeError):
        again.run(documents=[Document(text="Seal.", doc_id="a")])
    again.run(documents=[Document(text="Walrus too.", doc_id="b")])
    assert paths(service) == ["a", "b"]


def test_an_index_over_the_store_of_a_pipeline_writes_to_its_dataset(service, pipeline):
    model = Told(embed_dim=8)
    index = VectorStoreIndex.from_vector_store(pipeline.vector_store, embed_model=model)
    index.insert(Document(text="Walrus.", doc_id="a"))
    pipeline.run(documents=[Document(text="Seal.", doc_id="b")])
    assert paths(service) == ["a", "b"]
    index.delete_ref_doc("a")
    assert paths(service) == ["b"]


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "docs", **{"keys.md": KEYS, "more/tea.txt": "Tea and keys at four."})
    return tmp_path / "docs"


def read_folder(folder, **options):
    return SimpleDirectoryReader(str(folder), recursive=True, **options).load_data()


@pytest.mark.parametrize("is_stock", [False, True])
@pytest.mark.parametrize("options", [{}, {"filename_as_id": True}])
def test_a_document_has_one_name_whichever_way_it_came_in(service, folder, options, is_stock):
    build, files = Indexer(service.library).build, ["keys.md", "more/tea.txt"]
    made = IngestionPipelineBuilderV2(service).build_pipeline("notes", root=folder)
    steps = IngestionPipeline(transformations=made.transformations)
    (steps if is_stock else made).run(documents=read_folder(folder, **options))
    assert paths(service) == files
    build(folder, "notes")
    assert paths(service) == files
    made = IngestionPipelineBuilderV2(service).build_pipeline("notes")
    made.run(documents=read_folder(folder, **options))
    assert sorted(made.report.replaced) == paths(service) == files
    made.delete(str(folder / "keys.md"))
    assert paths(service) == files[1:]


def test_a_folder_that_is_indexed_later_gives_its_files_their_name(service, folder):
    run(service, *read_folder(folder), Document(text="Keys of mine.", doc_id="mine"))
    assert paths(service) == [str(folder / "keys.md"), str(folder / "more/tea.txt"), "mine"]
    Indexer(service.library).build(folder, "notes")
    assert paths(service) == ["keys.md", "mine", "more/tea.txt"]


def test_a_file_that_is_the_whole_dataset_keeps_its_name(service, folder):
    Indexer(service.library).build(folder / "keys.md", "notes")
    run(service, *read_folder(folder)[:1])
    assert paths(service) == ["keys.md"]


def test_a_dataset_has_one_folder(service, folder):
    builder = IngestionPipelineBuilderV2(service)
    builder.build_pipeline("notes", root=folder).run(documents=read_folder(folder))
    with pytest.raises(InputError, match="leave root out"):
        builder.build_pipeline("notes", root=folder.parent)


def test_the_model_of_llama_indexs_settings_is_refused_unless_it_is_the_stores(
    service, tmp_path, monkeypatch
):
    model = Told(embed_dim=8)
    monkeypatch.setattr(LlamaSettings, "_embed_model", model)
    with pytest.raises(EmbeddingMismatchError, match=r"Settings\.embed_model is .*8 numbers"):
        IngestionPipelineBuilderV2(service).build_pipeline("notes")
    run(service, Document(text=KEYS), embed_model=service.library.model)
    with Library(Settings(home=tmp_path / "told"), model=model) as library:
        run(SearchServiceV2(library), Document(text=KEYS))
    LlamaSettings.embed_model = None  # LlamaIndex's way to have none
    run(service, Document(text=KEYS))
