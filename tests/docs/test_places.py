"""The table of places in docs/reference/formats.md, each example followed to the letter."""

import json
import re
from pathlib import Path

import pytest
from docx import Document
from pptx import Presentation
from reportlab.pdfgen.canvas import Canvas

from catalog.interfaces.calls import LocalEngine
from catalog.library.indexing import Indexer
from fakes import open_library
from workbooks import workbook

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
PLACES = PAGE.partition("## Places")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| (reference|citation|link|header) \| (.*) \|$", PLACES, re.MULTILINE)
EXAMPLES = [example for _, row in ROWS for example in re.findall(r"`([^`]+)`", row)]
WORDS = ("Nobody", "The walrus")
SAID = (
    "1\n00:00:14,000 --> 00:00:20,000\nThe walrus.\n\n2\n00:04:01,000 --> 00:04:04,000\nNobody.\n"
)
RECORDS = "".join(
    json.dumps({"_id": f"r{n}", "title": "Fact", "text": text}) + "\n"
    for n, text in enumerate(("Nobody.", "The walrus.", "A walrus."))
)


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vault")
    cell = {"cell_type": "code", "metadata": {}, "outputs": []}
    cells = [{**cell, "source": "the = 1\nwalrus = 2\n"}, {**cell, "source": "nobody = 0\n"}]
    texts = {
        "notes.md": "Nobody.\n\nThe walrus.\nIts tusks.\n\nNobody.\n",
        "work.ipynb": json.dumps(
            {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        ),
        "corpus.jsonl": RECORDS,
        "talk.srt": SAID,
        "talk.mp4": "\0\0\0\x20ftypisom\0\0",
        "web.md": "---\nvideo: https://youtu.be/abc\nsource_url: https://youtu.be/abc\n---\n"
        "# Web\n\n## Transcript\n\n[00:00:14] The walrus.\n\n[00:04:00] Nobody.\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    paper = Canvas(str(folder / "paper.pdf"))
    deck, thesis = Presentation(), Document()
    for word in WORDS:
        paper.drawString(72, 700, f"{word} stands on a page of its own.")
        paper.showPage()
        deck.slides.add_slide(deck.slide_layouts[5]).shapes.title.text = word
    for word in (*reversed(WORDS), "Nobody again", "Nobody at all"):
        thesis.add_paragraph(f"{word} has a paragraph.")
    paper.save()
    deck.core_properties.title = "deck"
    deck.save(str(folder / "deck.pptx"))
    thesis.save(str(folder / "thesis.docx"))
    rows = [["Animal", "Teeth"], ["Walrus", 2], ["Walrus calf", 0], ["Nobody", 1]]
    (folder / "budget.xlsx").write_bytes(workbook({"Costs": rows}))
    with LocalEngine(open_library(tmp_path_factory.mktemp("home"))) as engine:
        assert Indexer(engine.library).build(folder, "vault").failed == ()
        yield lambda verb, **asked: engine.ask(verb, asked)


def test_the_table_has_every_form_and_every_unit():
    assert [name for name, _ in ROWS] == ["reference", "citation", "link", "header"]
    assert len(EXAMPLES) > 20
    for unit in ("lines", "cell", "page", "slide", "paragraphs", "record", " › ", "t="):
        assert any(unit in example for example in EXAMPLES if "[source: " in example), unit


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_gives_the_part_it_names(ask, example):
    given = ask("get", reference=example)
    assert "walrus" in given["text"].casefold()
    assert not re.search("cannot be read|whole document", " ".join(given["notes"]))
    whole = ask("get", reference=given["path"])["text"]
    assert "nobody" not in given["text"].casefold() or "thesis" in example
    assert len(given["text"]) < len(whole) or "corpus" in example
    parts = ask("multi_get", patterns=[example])["documents"]
    assert "\n\n".join(part["text"].strip() for part in parts) == given["text"].strip()
