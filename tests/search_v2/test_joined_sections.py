"""A passage that was joined of several sections keeps every heading it holds."""

import pytest

from catalog.embedding.model import EmbeddingModel
from catalog.ingest.chunking import DocumentChunker
from catalog.ingest.pipeline import EmbeddedText
from catalog.ingest.readers.markdown import MarkdownReader
from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.terminal import Form, render
from catalog.interfaces.tools import call_tool
from catalog.library.indexing import Indexer
from counters import WordCounter
from fakes import WordEncoder, open_library, write

PAPER = """# Paper

## Setup

The kettle is filled.

## Method *of tea*

Leaves rest in the kettle.

### Steps

Wait four minutes.

## Results

The tea is good.
"""
HEADINGS = ("Paper", "Setup", "Method of tea", "Steps", "Results")


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """One passage, as the vault preset makes of small sections."""
    folder = tmp_path_factory.mktemp("papers")
    write(folder, paper_dot_md=PAPER, other_dot_md="# Other\n\nThe kettle is elsewhere.\n")
    sizes = {"chunk_size": 800, "chunk_min_size": 300, "chunk_overlap": 60}
    with LocalEngine(open_library(tmp_path_factory.mktemp("home"), **sizes)) as engine:
        Indexer(engine.library).build(folder, "notes")
        yield engine


def search(engine, **more):
    asked = {"query": "kettle", "dataset": "notes", **more}
    return engine.ask("search", asked)["results"]


def test_a_result_names_them_all_in_order(engine):
    (hit,) = search(engine, docs=["paper.md"])
    assert hit["text"].strip() == PAPER.strip()
    assert tuple(hit["sections"]) == HEADINGS
    assert hit["sections"][: len(hit["heading_path"])] == hit["heading_path"]


@pytest.mark.parametrize("mode", ["lexical", "vector", "hybrid"])
@pytest.mark.parametrize("heading", HEADINGS)
def test_each_finds_it_as_a_section(engine, heading, mode):
    hits = search(engine, filters=[f'section="{heading}"'], mode=mode)
    assert [hit["path"] for hit in hits] == ["paper.md"]


def test_people_and_agents_see_all_headings(engine):
    asked = {"query": "kettle", "dataset": "notes"}
    printed = render("search", engine.answer("search", asked), Form()).out
    assert "] Paper; Setup; Method of tea; Steps; Results — paper.md:" in printed
    told = call_tool(engine, "search", {"query": "kettle", "docs": ["paper.md"]})
    assert "paper.md — Paper; Setup; Method of tea; Steps; Results (lines 1–17)" in told.text


def test_the_embedded_text_names_headings_that_the_passage_does_not_contain():
    parsed = MarkdownReader().parse(PAPER, "paper.md")
    chunker = DocumentChunker(WordCounter(), chunk_size=800, min_size=300)
    (span,) = chunker.cut(parsed).spans
    embedded = EmbeddedText(EmbeddingModel(WordEncoder()))
    assert embedded.windows(parsed, span) == (
        f"Method of tea\n{parsed.text[span.start : span.end]}",
    )
