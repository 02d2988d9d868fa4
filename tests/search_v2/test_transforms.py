"""What is embedded beside a passage's own text."""

import pytest

from catalog.core.models import ChunkSpan, Locator, ParsedDocument
from catalog.ingest.nodes import ChunkNode, Source
from catalog.search_v2.transforms import place_of


def node(path, *, title="", headings=(), text="the passage"):
    source = Source("d", path, ParsedDocument(path, text, title, "md"))
    return ChunkNode.of(source, ChunkSpan(0, len(text), tuple(headings), "text", Locator()))


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("guides/rotating-keys.md", "guides/rotating-keys\n"),
        ("https://docs.example.com/en/limits#burst", "https://docs.example.com/en/limits#burst\n"),
        ("with.rst", ""),  # one word: the title says more
        ("14643#0", ""),
        ("MED-10", ""),
        ("4983", ""),
    ],
)
def test_a_path_is_embedded_when_it_says_something(path, told):
    assert place_of(node(path)) == told


def test_the_place_names_path_title_and_headings_once_and_not_what_the_text_shows():
    one = node("a/key rotation.md", title="Keys", headings=["Keys", "Leaks"], text="Leaks are bad")
    assert place_of(one) == "a/key rotation > Keys\n"
