"""What is embedded beside a passage's own text."""

from itertools import pairwise

import pytest
from llama_index.core.schema import MetadataMode, TextNode

from catalog.core.documents import ChunkSpan, Cue, Locator, ParsedDocument
from catalog.embedding.model import EmbeddingModel
from catalog.ingest.pipeline import Source, format_place, split_by_time
from catalog.search_v2 import EmbeddingPrefixTransform
from catalog.search_v2.ingestion_nodes import ChunkNode
from fakes import WordEncoder


def node(path, *, title="", headings=(), text="the passage"):
    source = Source("d", path, ParsedDocument(path, text, title, "md"))
    return ChunkNode.of(source, ChunkSpan(0, len(text), tuple(headings), "text", Locator()))


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("guides/rotating-keys.md", "guides/rotating-keys\n"),
        ("https://docs.example.com/en/limits#burst", "https://docs.example.com/en/limits#burst\n"),
        ("with.rst", ""),  # one word: the title says more
        ("14643#0", ""),
        ("MED-10", ""),
        ("4983", ""),
    ],
)
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


@pytest.mark.parametrize(
    ("seconds", "parts"),
    [
        ((0, 10, 20, 30, 40, 50, 60), ["a0\na1", "a2\na3", "a4\na5"]),
        ((100, 119, 121, 160), ["a0", "a1", "a2"]),
        ((0, 50, 60), ["a0", "a1"]),
        ((0, 5, 6, 7, 60), ["a0\na1\na2", "a3"]),  # nothing is in the second third alone
        ((0, 10, 20), []),  # a single part is the whole
        ((0, 60), []),
        ((0, 0, 0), []),
    ],
)
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


@pytest.mark.parametrize(
    ("metadata", "labels"),
    [
        ({"file_path": "a/keys.pdf", "header_path": "/Keys/Rotation/"},
         "[doc: keys.pdf] [type: pdf] [section: Keys > Rotation]\n"),
        ({"title": "Keys", "file_type": "html"}, "[doc: Keys] [type: html]\n"),
        ({}, ""),
    ],
)  # fmt: skip
def test_a_plain_node_has_the_labels_that_its_metadata_knows(metadata, labels):
    transform = EmbeddingPrefixTransform(EmbeddingModel(WordEncoder()), form="labels")
    (made,) = transform([TextNode(text="Daily.", metadata=metadata)])
    assert made.get_content(metadata_mode=MetadataMode.EMBED) == f"{labels}Daily."
