"""What steps add to nodes, or rewrite in them, is stored, searched and shown."""

import asyncio

import pytest
from llama_index.core import Document, MockEmbedding
from llama_index.core.extractors import KeywordExtractor, SummaryExtractor
from llama_index.core.node_parser import (
    MarkdownNodeParser,
    SentenceSplitter,
    SentenceWindowNodeParser,
)
from llama_index.core.schema import TextNode, TransformComponent

from catalog.core.errors import EmbeddingMismatchError, InputError
from catalog.ingest.pipeline import Pipeline
from catalog.library.importing import import_chunks
from catalog.library.indexing import rebuild_indexes
from catalog.search_v2 import CatalogRetriever, IngestionPipelineBuilderV2, SearchServiceV2
from catalog.store.chunks import find_by_path, find_chunks
from catalog.store.portable import export_chunks
from fakes import open_library
from llama_parts import Scripted, Tell, embedded_texts

KEYS = (
    "# Keys\n\n## Rotating\n\nRotate the API keys every ninety days.\n\n"
    "## Revoking\n\nA leaked key is revoked at once.\n"
)
ENGINES = ("bm25", "fts")

pytestmark = pytest.mark.usefixtures("loop")


SIZES = {"chunk_min_size": 4, "chunk_size": 20, "chunk_overlap": 0}


@pytest.fixture
def service(request, tmp_path):
    engine = getattr(request, "param", "bm25")
    made = SearchServiceV2(open_library(tmp_path / "home", lexical_engine=engine, **SIZES))
    yield made
    made.close()


@pytest.fixture
def pipeline(service):
    return IngestionPipelineBuilderV2(service).build_pipeline("notes")


class Shout(TransformComponent):
    """Rewrites every text in capitals."""

    def __call__(self, nodes, **_):
        for node in nodes:
            node.set_content(node.get_content().upper())
        return nodes


class Seen(TransformComponent):
    """Keeps what it is given."""

    nodes: list = []

    def __call__(self, nodes, **_):
        self.nodes += nodes
        return nodes


def search(service, query, mode):
    return list(service.search(query, dataset="notes", top_k=50, mode=mode))


def nearest(service, query):
    """The document whose passage is nearest by meaning."""
    return search(service, query, "vector")[0].path


@pytest.mark.parametrize("service", ENGINES, indirect=True)
def test_both_legs_search_metadata_of_the_document(service, pipeline):
    pipeline.run(
        documents=[
            Document(text="On sorting.", doc_id="a", metadata={"author": "Donald Knuth"}),
            Document(text="On parsing.", doc_id="b", metadata={"author": "Grace Hopper"}),
        ]
    )
    assert [one.path for one in search(service, "knuth", "lexical")] == ["a"]
    assert nearest(service, "author: Donald Knuth") == "a"
    (one,) = search(service, "knuth", "lexical")
    assert one.text == "On sorting."
    assert "Knuth" not in one.snippet


@pytest.mark.parametrize("service", ENGINES, indirect=True)
def test_templates_and_excluded_keys_hold_for_both_legs(service, pipeline):
    said = {"author": "Knuth", "shelf": "basement"}
    pipeline.run(
        documents=[
            Document(
                text="On sorting.",
                doc_id="a",
                metadata=said,
                excluded_embed_metadata_keys=["shelf"],
                metadata_template="{key} is called {value}",
            )
        ]
    )
    assert search(service, "basement", "lexical") == []
    assert len(search(service, "called", "lexical")) == 1
    one = Document(text="x", doc_id="x", metadata=said, excluded_embed_metadata_keys=["shelf"])
    assert embedded_texts(pipeline, one) == ["author: Knuth\n\nx"]
    assert service.search("sorting", dataset="notes", filters={"shelf": "basement"})


@pytest.mark.parametrize("place", ["insert", "append"])
def test_keywords_and_summaries_of_extractors_are_stored_and_searched(service, pipeline, place):
    extractors = [
        KeywordExtractor(llm=Scripted(reply="credentials, expiry")),
        SummaryExtractor(llm=Scripted(reply="How secrets age.")),
    ]
    for step in extractors:
        if place == "insert":
            pipeline.transformations.insert(1, step)
        else:
            pipeline.transformations.append(step)
    pipeline.run(documents=[Document(text=KEYS, doc_id="keys.md")])
    assert len(search(service, "credentials", "lexical")) == 2
    assert len(search(service, "secrets", "lexical")) == 2
    found = CatalogRetriever("notes", service=service).retrieve("credentials expiry")
    assert found[0].metadata["excerpt_keywords"] == "credentials, expiry"
    assert found[0].metadata["section_summary"] == "How secrets age."
    assert found[0].get_content() in KEYS


def test_an_extractor_reads_no_field_that_the_pipeline_added(service, pipeline):
    pipeline.transformations.append(seen := Seen())
    pipeline.run(documents=[Document(text=KEYS, doc_id="keys.md", metadata={"author": "Ann"})])
    assert all(list(node.metadata) == ["author"] for node in seen.nodes)
    assert all("API" in node.text or "leaked" in node.text for node in seen.nodes)


def test_extractors_run_in_parallel_runs_without_mixing_them(service, pipeline):
    pipeline.transformations.append(KeywordExtractor(llm=Scripted(reply="credentials")))

    async def run_all():
        return await asyncio.gather(
            *(
                pipeline.arun(documents=[Document(text=f"Walrus {n}.", doc_id=f"w{n}")])
                for n in range(4)
            )
        )

    runs = asyncio.run(run_all())
    assert [[node.ref_doc_id for node in nodes] for nodes in runs] == [[f"w{n}"] for n in range(4)]
    assert len(search(service, "credentials", "lexical")) == 4


@pytest.mark.parametrize("as_splitter", [False, True])
def test_a_rewritten_text_is_stored_and_cited_as_rewritten(service, as_splitter):
    class Shouting(SentenceSplitter):
        def _parse_nodes(self, nodes, *arguments, **more):
            return Shout()(super()._parse_nodes(nodes, *arguments, **more))

    builder = IngestionPipelineBuilderV2(service)
    if as_splitter:
        pipeline = builder.build_pipeline(
            "notes", splitter=Shouting(chunk_size=30, chunk_overlap=0)
        )
    else:
        pipeline = builder.build_pipeline("notes")
        pipeline.transformations.insert(1, Shout())
    nodes = pipeline.run(documents=[Document(text=KEYS, doc_id="keys.md")])
    (one, *_) = search(service, "leaked", "lexical")
    assert "A LEAKED KEY IS REVOKED AT ONCE." in one.text
    with service.library.database.read() as connection:
        stored = find_by_path(connection, "notes", "keys.md")
    assert all(
        stored.text[node.start_char_idx : node.end_char_idx] == node.text == node.text.upper()
        for node in nodes
    )
    lines = stored.text.split("\n")[one.locator.line_start - 1 : one.locator.line_end]
    assert "\n".join(lines) == one.text
    if not as_splitter:
        assert one.heading_path == ("Keys", "Revoking")


def test_a_rewritten_page_keeps_its_number(service, pipeline):
    pipeline.transformations.insert(1, Shout())
    pages = ["Walrus on this page, with many more words than fit.", "Seals on this page."]
    pipeline.run(
        documents=[
            Document(text=text, metadata={"file_path": "/zoo.pdf", "page_label": str(number)})
            for number, text in enumerate(pages, start=3)
        ]
    )
    (one,) = search(service, "seals", "lexical")
    assert (one.locator.page_end, "SEALS" in one.text) == (4, True)


def pages_of(*texts, **more):
    return [
        Document(text=text, metadata={"file_name": "a.pdf", "page_label": str(number), **more})
        for number, text in enumerate(texts, start=1)
    ]


@pytest.mark.parametrize("is_mixed", [False, True])
def test_pages_of_two_files_of_one_name_never_become_one_document(service, pipeline, is_mixed):
    one, other = pages_of("Walrus one.", "Walrus two."), pages_of("Seal one.", "Seal two.")
    mixed = [page for pair in zip(one, other, strict=True) for page in pair]
    pipeline.run(documents=mixed if is_mixed else one + other)
    with service.library.database.read() as connection:
        names = ("a.pdf", "a.pdf#2", "a.pdf#3", "a.pdf#4")
        stored = [find_by_path(connection, "notes", name) for name in names]
    texts = [one.text for one in stored if one is not None]
    assert len(texts) == (4 if is_mixed else 2)
    assert not any("Walrus" in text and "Seal" in text for text in texts)


def test_another_file_of_a_bare_name_stays_another_document_and_an_edit_replaces(service):
    def run(*texts):
        (pipeline := IngestionPipelineBuilderV2(service).build_pipeline("notes")).run(
            documents=pages_of(*texts)
        )
        with service.library.database.read() as connection:
            named = {one: find_by_path(connection, "notes", one) for one in ("a.pdf", "a (2).pdf")}
        return pipeline.report, [one and one.text.replace("\n", " ") for one in named.values()]

    walrus = [
        " ".join(f"Ice {n} bears {n * 2} walruses." for n in range(p, p + 9)) for p in (1, 30)
    ]
    seal = [" ".join(f"A seal ate {n} fish." for n in range(p, p + 9)) for p in (1, 30)]
    run(*walrus)
    report, stored = run(*seal)
    assert (report.added, report.replaced, report.deleted) == (["a (2).pdf"], [], [])
    assert stored == ["  ".join(file) for file in (walrus, seal)]
    assert {"a.pdf:", "(2).pdf."} <= {*report.warnings[0].split()}
    for same, file in (("a.pdf", walrus), ("a (2).pdf", seal)):
        assert run(*file)[0].unchanged == [same]
        report, stored = run(file[0], "This page is new.")
        assert (report.added, report.replaced) == ([], [same])
        assert "This page is new." in stored[same != "a.pdf"]
    more = pages_of(*walrus, *seal)[2:]
    IngestionPipelineBuilderV2(service).build_pipeline("batches").run(documents=pages_of(*walrus))
    IngestionPipelineBuilderV2(service).build_pipeline("batches").run(documents=more)
    with service.library.database.read() as connection:
        assert find_by_path(connection, "batches", "a (2).pdf") is None


def test_what_the_warning_about_a_bare_name_advises_keeps_both(service):
    build = IngestionPipelineBuilderV2(service).build_pipeline
    build("notes").run(documents=pages_of("Walrus one.", "Walrus two."))
    (again := build("notes")).run(documents=pages_of("Seal one.", "Seal two."))
    assert "its path (file_path)" in again.report.warnings[0]
    build("advised").run(documents=pages_of("Walrus one.", file_path="/x/a.pdf"))
    build("advised").run(documents=pages_of("Seal one.", file_path="/y/a.pdf"))
    with service.library.database.read() as connection:
        kept = [find_by_path(connection, "advised", name) for name in ("/x/a.pdf", "/y/a.pdf")]
    assert None not in kept


WINDOWS = {"window_size": 1, "window_metadata_key": "window"}


@pytest.mark.parametrize("how", ["step", "splitter", "nodes"])
def test_the_window_of_a_sentence_is_kept_and_not_searched(service, how):
    text = "Walrus one. Walrus two. Walrus three. Seal four."
    parser = SentenceWindowNodeParser.from_defaults(**WINDOWS)
    builder, document = IngestionPipelineBuilderV2(service), Document(text=text, doc_id="zoo")
    if how == "splitter":
        builder.build_pipeline("notes", splitter=parser).run(documents=[document])
    elif how == "step":
        pipeline = builder.build_pipeline("notes", chunk_size=100)
        pipeline.transformations.insert(1, parser)
        pipeline.run(documents=[document])
    else:
        builder.build_pipeline("notes").run(nodes=parser([document]))
    (node,) = CatalogRetriever("notes", service=service, mode="lexical").retrieve("seal")
    assert node.get_content().strip() == "Seal four."
    assert "Walrus three." in node.metadata["window"]
    assert "Walrus two." not in node.metadata["window"]
    assert node.metadata["original_text"].strip() == "Seal four."


def test_a_second_splitter_counts_and_its_passages_keep_their_place(service):
    pipeline = IngestionPipelineBuilderV2(service).build_pipeline(
        "notes", splitter=MarkdownNodeParser()
    )
    pipeline.transformations.append(SentenceSplitter(chunk_size=12, chunk_overlap=0))
    long = " ".join(f"Seal {n} dives deep below." for n in range(9))
    nodes = pipeline.run(documents=[Document(text=KEYS + long, doc_id="keys.md")])
    text = KEYS + long
    assert len(nodes) > 4
    assert all(text[node.start_char_idx : node.end_char_idx] == node.text for node in nodes)
    assert all(f"Seal {n}" in " ".join(node.text for node in nodes) for n in range(9))
    (one, *_) = search(service, "leaked", "lexical")
    assert one.heading_path == ("Keys", "Revoking")


def test_a_step_that_drops_nodes_drops_passages_and_one_that_drops_all_the_document(service):
    class Only(TransformComponent):
        word: str

        def __call__(self, nodes, **_):
            return [node for node in nodes if self.word in node.get_content()]

    for word, count in (("API", 1), ("walrus", 0)):
        pipeline = IngestionPipelineBuilderV2(service).build_pipeline("notes")
        pipeline.transformations.insert(1, Only(word=word))
        pipeline.run(documents=[Document(text=KEYS, doc_id="keys.md")])
        assert len(search(service, "keys", "lexical")) == count
    assert pipeline.report.deleted == ["keys.md"]


def test_what_cannot_count_is_refused_with_an_error_and_nothing_is_written(service):
    class Foreign(TransformComponent):
        def __call__(self, nodes, **_):
            return [TextNode(text="out of nowhere")]

    for step, said in (
        (Foreign(), "of no document of this run"),
        (MockEmbedding(embed_dim=8), "this store is searched by"),
        (Tell(told={"confidentiality": "secret"}), "confidentiality"),
    ):
        pipeline = IngestionPipelineBuilderV2(service).build_pipeline("notes")
        pipeline.transformations.insert(1, step)
        with pytest.raises((InputError, EmbeddingMismatchError), match=said):
            pipeline.run(documents=[Document(text=KEYS, doc_id="keys.md")])
    assert service.library.datasets() == []


@pytest.mark.parametrize("service", ENGINES, indirect=True)
def test_added_metadata_survive_export_and_import_and_a_new_index(service, pipeline, tmp_path):
    pipeline.transformations.append(Tell(told={"topic": "credentials\tand\nnewlines \\now"}))
    document = Document(text=KEYS, doc_id="keys.md", metadata={"author": "Knuth"})
    nodes = pipeline.run(documents=[document])
    library = service.library
    export_chunks(library.database, tmp_path / "chunks.jsonl")
    with open_library(tmp_path / "other", **SIZES) as other:
        import_chunks(other, tmp_path / "chunks.jsonl")
        for one in (service, SearchServiceV2(other)):
            rebuild_indexes(one.library)
            for word in ("knuth", "credentials", "newlines", "now"):
                assert len(search(one, word, "lexical")) == 2, word
            (result, *_) = one.retrieve("leaked", dataset="notes", mode="lexical")
            assert result.metadata["topic"] == "credentials\tand\nnewlines \\now"
    made = Pipeline.of(library.settings.rag_v2, library.model)
    with library.database.read() as connection:
        chunks = find_chunks(connection, "notes", [node.node_id for node in nodes])
    assert set(made.stored_texts(chunks).values()) == {*embedded_texts(pipeline, document)}
