"""Pipelines over LlamaIndex documents: what goes in is found, whole, under its own name."""

import asyncio
import pickle

import pytest
from llama_index.core import Document, MockEmbedding
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import MetadataMode, TextNode, TransformComponent

from catalog.core.errors import EmbeddingMismatchError, InputError
from catalog.core.settings import RAGv2Settings, Settings
from catalog.library.library import Library
from catalog.search_v2 import EmbeddingPrefixTransform, IngestionPipelineBuilderV2, SearchServiceV2
from catalog.store.embedding_cache import read_stored_model
from fakes import DIM, open_library

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
        (vector, _), (passage, _) = (
            service.parts.query_vectors.embed("keys", side) for side in ("query", "document")
        )
        assert vector.tolist() == [1.0, *[0.0] * 7]
        assert passage.tolist() == [0.0, *[1.0] * 7]
        assert len(found(service, mode="vector")) == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"metadata": {"file_name": "a.md"}}, "a.md"),
        ({"metadata": {"file_path": "guides/a.md", "file_name": "a.md"}}, "guides/a.md"),
        ({"doc_id": "guides/key-rotation"}, "guides/key-rotation"),
        ({"doc_id": "x", "metadata": {"path": "b.txt"}}, "x"),
        ({"metadata": {"url": "https://a.org/b", "file_name": "c.md"}}, "https://a.org/b"),
    ],
)
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
        "file_name": "keys.md",
        "tags": ["ops", "security"],
        "authors": ["Ann", "Bo"],
        "level": 3,
        "nested": {"team": "red"},
        "last_modified_date": "2024-05-06",
        "nothing": None,
    }
    run(service, Document(text=KEYS, metadata=said))
    for filters in (
        {"tags": "ops"},
        {"authors": "Bo"},
        {"level": {">=": 3}},
        {"nested.team": "red"},
        {"modified": {">": "2024-04"}},
    ):
        assert paths(service, filters=filters) == ["keys.md"]
    (node, *_) = service.retrieve("keys", dataset="notes")
    assert list(node.metadata["tags"]) == ["ops", "security"]
    assert list(node.metadata["authors"]) == ["Ann", "Bo"]


def test_pages_of_one_file_are_one_document_and_cited_by_page(service):
    pages = ["Walrus on this page.", "Seals on this page.", "Otters on this page."]
    run(
        service,
        *(
            Document(text=text, metadata={"file_name": "zoo.pdf", "page_label": str(number)})
            for number, text in enumerate(pages, start=1)
        ),
    )
    assert paths(service, "page") == ["zoo.pdf"]
    text = " ".join(result.text for result in found(service, "page"))
    assert all(page in text for page in pages)
    last = max(found(service, "page"), key=lambda result: result.locator.page_end)
    assert last.locator.page_end == 3


def test_other_texts_of_one_path_and_chunks_cut_elsewhere_are_all_kept(service):
    rows = [f"Walrus number {number} swims." for number in range(3)]
    run(service, *(Document(text=row, metadata={"file_name": "zoo.csv"}) for row in rows))
    assert paths(service, "walrus") == ["zoo.csv", "zoo.csv#2", "zoo.csv#3"]
    pipeline = IngestionPipelineBuilderV2(service).build_pipeline("notes")
    cut = SentenceSplitter(chunk_size=20, chunk_overlap=0)(
        [Document(text=" ".join(f"Seal {n} dives deep below." for n in range(9)), doc_id="seals")]
    )
    assert len(cut) > 1
    pipeline.run(nodes=cut)
    text = " ".join(result.text for result in found(service, "seal"))
    assert all(f"Seal {n} dives" in text for n in range(9))


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
        transformations=[
            SentenceSplitter(),
            EmbeddingPrefixTransform(prefix="passage: "),
            seen,
        ]
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


def test_without_a_place_the_prefix_stands_before_what_llama_index_embeds():
    node = TextNode(text="Rotate them.", metadata={"team": "red"})
    (made,) = EmbeddingPrefixTransform(prefix="passage: ", context=False)([node])
    assert made.get_content(MetadataMode.EMBED) == "passage: team: red\n\nRotate them."
    assert made.node_id == node.node_id
    (plain,) = EmbeddingPrefixTransform()([node])
    assert plain.get_content(MetadataMode.EMBED) == "team: red\n\nRotate them."


def test_what_a_node_says_it_was_made_of_joins_it_to_no_recording(service):
    claims = {"media": "talks/lecture", "media_file": "talks/lecture.mp4", "topic": "keys"}
    run(service, Document(text=KEYS, doc_id="keys.md", metadata=claims))
    assert {result.original for result in found(service, "keys")} == {None}
    assert found(service, "keys", filters={"topic": "keys"})
    assert len(found(service, "keys", filters={"media": "talks/lecture"})) == 0


def test_a_pipeline_that_would_be_pickled_says_what_to_do(service):
    pipeline = IngestionPipelineBuilderV2(service).build_pipeline("notes")
    with pytest.raises(InputError, match=r"call build_pipeline\(\) in the other process"):
        pickle.dumps(pipeline)
