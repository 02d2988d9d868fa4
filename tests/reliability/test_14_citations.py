"""What is quoted stands where the citation says, whatever the format and the text."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.interfaces.calls import LocalEngine
from catalog.library.get import find_document
from catalog.library.indexing import Indexer
from fakes import open_library
from reliability.chaos import check

WORDS = ("quarry", "lantern", "meadow", "orchard", "pebble")
ODD = "cafe\u0301 na\u0308ive \U0001f469\u200d\U0001f52c ﬁre"


def lines(end):
    """Forty lines, a marked word in every eighth."""
    texts = [f"Line {n} says {ODD}." for n in range(1, 41)]
    for number, word in enumerate(WORDS):
        texts[8 * number + 3] += f" The {word} stands here."
    return end.join(texts) + end


def write_pdf(path):
    from reportlab.pdfgen.canvas import Canvas

    paper = Canvas(str(path))
    for word in WORDS:
        paper.drawString(72, 700, f"The {word} stands on a page of its own.")
        for n in range(20):
            paper.drawString(72, 680 - 15 * n, f"Line {n} fills the page with many more words.")
        paper.showPage()
    paper.save()


def write_docx(path):
    from docx import Document

    paper = Document()
    for word in WORDS:
        paper.add_heading(word.title())
        paper.add_paragraph(f"The {word} stands here, {ODD}.")
    paper.save(str(path))


def subtitles(end):
    cues = [
        f"{n + 1}{end}00:0{n}:05,000 --> 00:0{n}:18,000{end}The {word} stands here.{end}"
        for n, word in enumerate(WORDS)
    ]
    return end.join(cues)


def notebook():
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Part\n", f"The {word} stands."]}
        for word in WORDS
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder: Path = tmp_path_factory.mktemp("formats")
    for end, name in (("\n", "lf"), ("\r\n", "crlf"), ("\r", "cr")):
        (folder / f"{name}.txt").write_bytes(lines(end).encode())
        (folder / f"{name}.md").write_bytes(f"# Head{end}{end}{lines(end)}".encode())
    (folder / "bom.txt").write_bytes(b"\xef\xbb\xbf" + lines("\r\n").encode())
    (folder / "wide.txt").write_bytes(lines("\n").encode("utf-16"))
    (folder / "lone.txt").write_bytes(b"\xed\xa0\x80 " + lines("\n").encode())
    (folder / "page.html").write_text(
        "<h1>Head</h1>" + "".join(f"<p>The {word} stands, {ODD}.</p>" for word in WORDS)
    )
    (folder / "talk.srt").write_bytes(b"\xef\xbb\xbf" + subtitles("\r\n").encode())
    (folder / "cells.ipynb").write_text(notebook())
    write_pdf(folder / "paper.pdf")
    write_docx(folder / "paper.docx")
    return folder


@pytest.fixture(scope="module")
def engine(folder, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    with LocalEngine(open_library(home)) as engine:
        assert Indexer(engine.library).build(folder, "notes").failed == ()
        yield engine


def hits(engine, query, **more):
    answer = engine.ask("search", {"query": query, "dataset": "notes", "top_k": 50, **more})
    assert answer["results"], query
    return answer["results"]


@pytest.mark.slow
def test_every_passage_and_snippet_is_the_text_that_its_offsets_name(engine, folder):
    @given(st.lists(st.sampled_from((*WORDS, "line", "stands")), min_size=1, max_size=3))
    def holds(words):
        for hit in hits(engine, " ".join(words)):
            document = find_document(engine.library.database, hit["source_doc_id"]).document
            assert document.text[hit["start_offset"] : hit["end_offset"]] == hit["text"], hit
            assert hit["snippet"].strip("… ") in document.text, hit

    check(holds, examples=10)
    found = {hit["path"] for hit in hits(engine, "quarry lantern meadow orchard pebble")}
    assert found == {file.name for file in folder.iterdir()}


@pytest.mark.parametrize("word", WORDS)
def test_the_cited_lines_hold_the_words_in_the_document_and_in_the_file(engine, folder, word):
    cited = 0
    for hit in hits(engine, f'"{word}"', mode="lexical"):
        first, last = hit["locator"].get("line_start"), hit["locator"].get("line_end")
        if first is None or word not in hit["text"].casefold():  # in a title, or without lines
            continue
        given_back = engine.ask("get", {"reference": f"{hit['path']}:{first}-{last}"})
        assert word in given_back["text"].casefold(), hit["path"]
        file = folder / hit["path"]
        if file.suffix in (".txt", ".md"):
            encoding = "utf-16" if file.name == "wide.txt" else "utf-8-sig"
            text = file.read_bytes().decode(encoding, "replace")
            shown = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[first - 1 : last]
            assert any(word in line for line in shown), (hit["path"], first, last)
            cited += 1
    assert cited >= 7


@pytest.mark.parametrize("number", range(len(WORDS)))
def test_the_cited_page_or_second_is_where_it_was_put(engine, number):
    by_path = {hit["path"]: hit for hit in hits(engine, f'"{WORDS[number]}"', mode="lexical")}
    page = by_path["paper.pdf"]["locator"]
    assert page["page"] <= number + 1 <= page["page_end"]
    assert f" {page['page']}" in by_path["paper.pdf"]["citation"]
    assert page["page_end"] - page["page"] <= 1
    times = by_path["talk.srt"]["locator"]
    assert times["time_start"] <= 60 * number + 5
    assert 60 * number + 18 <= times["time_end"]
