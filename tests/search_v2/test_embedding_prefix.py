"""The embedded text: the prefix reaches the model in anybody's pipeline, and nothing else."""

import pickle
from itertools import pairwise

import pytest
from llama_index.core import Document, MockEmbedding, VectorStoreIndex
from llama_index.core.extractors import BaseExtractor
from llama_index.core.ingestion import IngestionCache, IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import IndexNode, MetadataMode, TextNode

from catalog.core.documents import ChunkSpan, Cue, Locator, ParsedDocument
from catalog.embedding.model import EmbeddingModel
from catalog.ingest.pipeline import Source, format_place, split_by_time
from catalog.search_v2 import EmbeddingPrefixTransform
from catalog.search_v2.ingestion_nodes import ChunkNode
from fakes import WordEncoder
from tables import table

TEXT = "Rotate them."
SAID = {"file_path": "/docs/a.md", "team": "red"}
EMBEDDED = "passage: team: red\n\nRotate them."


class Records(MockEmbedding):
    """Returns vectors that tell which text was embedded."""

    def __init__(self, **more):
        super().__init__(**{"embed_dim": 2, **more})

    @classmethod
    def class_name(cls):
        return "Records"

    def _get_text_embedding(self, text):
        SEEN.append(text)
        return [float(len(text)), float(sum(map(ord, text)))]


SEEN: list[str] = []


class AddsTopic(BaseExtractor):
    """A step between prefix and model."""

    async def aextract(self, nodes):
        return [{"topic": "keys"} for _ in nodes]


@pytest.fixture(autouse=True)
def seen():
    SEEN.clear()
    return SEEN


def vector(text):
    return Records()._get_text_embedding(text)


def pipeline(step=None, *between, model=None, **more):
    step = step or EmbeddingPrefixTransform(prefix="passage: ")
    return IngestionPipeline(
        transformations=[SentenceSplitter(), step, *between, model or Records()], **more
    )


def documents():
    return [Document(text=TEXT, doc_id="a", metadata=SAID)]


def test_with_the_default_cache_each_run_embeds_or_has_the_prefix(seen, tmp_path):
    made = pipeline()
    first, second = (made.run(documents=documents()) for _ in range(2))
    assert seen == [EMBEDDED]
    assert [first[0].embedding, second[0].embedding] == [vector(EMBEDDED)] * 2
    made.persist(str(tmp_path))
    loaded = pipeline()
    loaded.load(str(tmp_path))
    (node,) = loaded.run(documents=documents())
    assert node.embedding == vector(EMBEDDED)
    for one in (first[0], second[0], node):
        assert one.get_content() == TEXT
        assert one.get_content(MetadataMode.LLM) == "file_path: /docs/a.md\nteam: red\n\n" + TEXT
        assert one.metadata.items() >= SAID.items()


@pytest.mark.parametrize("changed", ["prefix", "model", "form"])
def test_a_changed_prefix_or_model_changes_what_is_embedded_whatever_is_cached(seen, changed):
    cache = IngestionCache()
    pipeline(cache=cache).run(documents=documents())
    step, model, expected = None, None, EMBEDDED
    if changed == "prefix":
        step = EmbeddingPrefixTransform(prefix="text: ")
        expected = "text: team: red\n\nRotate them."
    elif changed == "form":
        step = EmbeddingPrefixTransform(prefix="passage: ", form="labels")
        expected = "passage: [doc: a.md] [type: md]\nteam: red\n\nRotate them."
    else:
        model = Records(model_name="other")
    (node,) = pipeline(step, model=model, cache=cache).run(documents=documents())
    assert node.embedding == vector(expected)
    assert node.get_content(MetadataMode.LLM).startswith("file_path: /docs/a.md\nteam: red")
    assert "passage" not in node.get_content(MetadataMode.LLM)


@pytest.mark.usefixtures("loop")
@pytest.mark.parametrize("metadata", [{}, SAID, {"file_path": "/a.md"}])
def test_a_cached_step_between_prefix_and_model_does_not_lose_the_prefix(seen, metadata):
    cache, given = IngestionCache(), [Document(text=TEXT, doc_id="a", metadata=metadata)]
    vectors = []
    for name in ("one", "one", "two"):
        made = pipeline(None, AddsTopic(show_progress=False), model=Records(model_name=name))
        made.cache = cache
        (node,) = made.run(documents=given)
        vectors.append(node.embedding)
        assert node.get_content() == TEXT
        assert "passage" not in node.get_content(MetadataMode.LLM)
    assert len(seen) == 2
    assert all("passage:" in text and TEXT in text for text in seen)
    assert vectors[0] == vectors[1] == vectors[2]


@pytest.mark.slow
def test_workers_embed_with_the_prefix():
    steps = [EmbeddingPrefixTransform(prefix="passage: "), Records()]
    many = [TextNode(text=TEXT, metadata=SAID) for _ in range(2)]
    nodes = IngestionPipeline(transformations=steps).run(nodes=many, num_workers=2)
    assert [node.embedding for node in nodes] == [vector(EMBEDDED)] * 2


@pytest.mark.parametrize(
    "copied",
    [
        lambda step: pickle.loads(pickle.dumps(step)),
        lambda step: EmbeddingPrefixTransform.from_dict(step.to_dict()),
        lambda step: EmbeddingPrefixTransform.from_json(step.to_json()),
    ],
)
def test_a_copied_step_has_the_prefix_of_its_model(copied):
    model = EmbeddingModel(WordEncoder(), document_prefix="passage: ")
    given = (EmbeddingPrefixTransform(prefix="passage: "), EmbeddingPrefixTransform("passage: "))
    for step in (EmbeddingPrefixTransform(model), *given):
        again = copied(step)
        assert again.to_dict() == step.to_dict()
        (node,) = again([TextNode(text=TEXT)])
        assert node.get_content(MetadataMode.EMBED) == "passage: Rotate them."


class Own(TextNode):
    """Somebody's class of nodes."""

    color: str = "red"


@pytest.mark.parametrize(
    "given", [TextNode(text=TEXT), IndexNode(text=TEXT, index_id="i"), Own(text=TEXT)]
)
def test_a_node_of_any_class_keeps_its_class_and_its_prefix(given):
    (node,) = EmbeddingPrefixTransform(prefix="passage: ")([given])
    stored = type(given).from_dict(node.to_dict())
    for one in (node, pickle.loads(pickle.dumps(node)), node.model_copy(deep=True), stored):
        assert type(one) is type(given)
        assert one.get_content() == TEXT
        assert one.get_content(MetadataMode.EMBED) == "passage: Rotate them."
        assert one.get_content(MetadataMode.LLM) == TEXT
    node.set_content("Revoke them.")
    assert node.get_content(MetadataMode.EMBED) == "passage: Revoke them."
    (twice,) = EmbeddingPrefixTransform(prefix="passage: ")([node])
    assert twice is node


def test_a_language_model_reads_no_prefix_from_an_index():
    step, model = EmbeddingPrefixTransform(prefix="passage: "), Records()
    given = TextNode(text=TEXT, metadata=SAID)
    index = VectorStoreIndex(
        IngestionPipeline(transformations=[step, model]).run(nodes=[given]), embed_model=model
    )
    (stored,) = index.docstore.docs.values()
    (found,) = index.as_retriever().retrieve("keys")
    for node in (stored, found.node):
        assert node.get_content(MetadataMode.LLM) == given.get_content(MetadataMode.LLM)


def node(path, *, title="", headings=(), text="the passage"):
    source = Source("d", path, ParsedDocument(path, text, title, "md"))
    return ChunkNode.of(source, ChunkSpan(0, len(text), tuple(headings), "text", Locator()))


@table("path, place")
def test_a_path_is_embedded_when_it_says_something(path, place):
    assert format_place(path, (), "the passage") == place


def test_the_place_names_path_title_and_headings_once_and_not_what_the_text_shows():
    place = format_place("a/key rotation.md", ("Keys", "Keys", "Leaks"), "Leaks are bad")
    assert place == "a/key rotation > Keys\n"


def spoken(*seconds):
    """A passage with a cue of two letters, ``a0``, ``a1`` …, between each two of the seconds."""
    text = "\n".join(f"a{n}" for n in range(len(seconds) - 1))
    cues = tuple(
        Cue(3 * n, 3 * n + 2, start, end) for n, (start, end) in enumerate(pairwise(seconds))
    )
    source = Source("d", "talk.srt", ParsedDocument("talk.srt", text, "", "video"))
    span = ChunkSpan(0, len(text), modality="video_transcript", cues=cues)
    return ChunkNode.of(source, span)


@table("seconds, parts", list)
def test_a_transcripts_parts_are_of_about_twenty_seconds_and_cut_between_cues(seconds, parts):
    one = spoken(*seconds)
    assert split_by_time(one.text, one.span.cues, 20.0) == parts
    assert split_by_time(one.text, one.span.cues, 0.0) == []


def test_a_transcript_is_embedded_whole_and_in_parts_each_with_its_place():
    one = spoken(0, 10, 20, 30, 40)
    EmbeddingPrefixTransform(EmbeddingModel(WordEncoder()))([one])
    assert one.windows == ("a0\na1\na2\na3", "a0\na1", "a2\na3")
    plain = node("a.md", title="Keys")
    EmbeddingPrefixTransform(EmbeddingModel(WordEncoder()))([plain])
    assert plain.windows == ("Keys\nthe passage",)


def test_the_labels_are_name_type_and_section_whatever_the_text_shows():
    parsed = ParsedDocument("guides/keys.md", "Key rotation\n\nDaily.", "Key\nrotation", "md")
    span = ChunkSpan(0, len(parsed.text), heading_path=("Keys", "Rotation"))
    one = ChunkNode.of(Source("d", "guides/keys.md", parsed), span)
    EmbeddingPrefixTransform(EmbeddingModel(WordEncoder()), form="labels")([one])
    labels = "[doc: Key rotation] [type: md] [section: Keys > Rotation]\n"
    assert one.windows == (f"{labels}Key rotation\n\nDaily.",)
    assert one.text == "Key rotation\n\nDaily."


@table("metadata, labels", list)
def test_a_plain_node_has_the_labels_that_its_metadata_knows(metadata, labels):
    transform = EmbeddingPrefixTransform(EmbeddingModel(WordEncoder()), form="labels")
    (made,) = transform([TextNode(text="Daily.", metadata=metadata)])
    assert made.get_content(metadata_mode=MetadataMode.EMBED) == f"{labels}Daily."
