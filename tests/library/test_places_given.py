"""`get` gives the place that a link, a citation or a reference tells, in the units it tells it."""

import json

import pytest

from catalog.interfaces.engine import LocalEngine
from catalog.library.indexing import Indexer
from fakes import open_library

ENGLISH = """1
00:00:10,000 --> 00:00:14,000
We apply batch normalisation.

2
00:00:14,000 --> 00:00:20,000
Then the walrus speaks.

3
00:00:20,000 --> 00:00:25,000
Nobody listens.
"""
GERMAN = "WEBVTT\n\n00:01.000 --> 00:05.000\nWir fangen an.\n"
PAGE = (
    "<html>\n<body>\n<p>First line.</p>\n<p>One sentence\nbroken over\nthree lines.</p>\n</body>\n"
)


@pytest.fixture(scope="module")
def get(tmp_path_factory):
    from reportlab.pdfgen.canvas import Canvas

    folder = tmp_path_factory.mktemp("documents")
    files = {
        "talk.en.srt": ENGLISH,
        "talk.de.vtt": GERMAN,
        "talk.mp4": "\0\0\0\x20ftypisom\0\0",
        "talk_frames/frame_00m15s.md": "# Visual Frame at 00:15\n\nA slide with tusks.\n",
        "page.html": PAGE,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "source": "a = 1\nb = 2\nc = 3"}
    (folder / "nb.ipynb").write_text(
        json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    paper = Canvas(str(folder / "ice.pdf"))
    for word in ("quarry", "lantern", "meadow"):
        paper.drawString(72, 700, f"The {word} stands on a page of its own.")
        paper.showPage()
    paper.save()
    with LocalEngine(open_library(tmp_path_factory.mktemp("home"))) as engine:
        assert Indexer(engine.library).build(folder, "d").failed == ()
        yield lambda reference: engine.ask("get", {"reference": reference})


@pytest.mark.parametrize("reference", ["d:ice.pdf#page=2", "[source: ice, page 2]"])
def test_a_link_and_a_citation_give_their_page(get, reference):
    given = get(reference)
    assert (given["unit"], given["start"], given["end"], given["notes"]) == ("page", 2, 2, [])
    assert given["text"].strip() == "The lantern stands on a page of its own."


def test_a_citation_over_pages_gives_all_of_them(get):
    given = get("[source: ice, page 2 (pages 2-3)]")
    assert (given["start"], given["end"]) == (2, 3)


@pytest.mark.parametrize("reference", ["ice.pdf#nowhere", "[source: ice, cell 2]"])
def test_a_place_that_cannot_be_read_is_told(get, reference):
    given = get(reference)
    assert given["end"] == 3
    assert "cannot be read" in given["notes"][0]


@pytest.mark.parametrize("reference", ["talk.mp4#t=15", "talk.mp4:0:15", "talk.mp4:15"])
def test_a_recording_at_a_second_gives_what_was_said_and_shown_then(get, reference):
    given = get(reference)
    assert given["path"] == "talk.en.srt"
    assert "Then the walrus speaks." in given["text"]
    assert "A slide with tusks." in given["text"]
    assert "Wir fangen an" not in given["text"]
    assert "talk_frames/frame_00m15s.md" in given["notes"][0]
    assert given["unit"] == "time"


def test_a_link_to_a_second_gives_the_passage_around_it(get):
    given = get("talk.mp4#t=15")
    assert (given["start"], given["end"]) == (10, 25)
    assert get("talk.mp4:0:10-0:25")["text"] == given["text"]


def test_times_come_back_as_seconds_without_the_cues_that_touch_them(get):
    given = get("talk.en.srt:0:14-0:20")
    assert (given["unit"], given["start"], given["end"]) == ("time", 14, 20)
    assert given["text"] == "Then the walrus speaks."
    assert (given["line_start"], given["line_end"], given["numbers"]) == (7, 7, [7])


def test_the_end_is_the_last_source_line_that_the_text_covers(get):
    given = get("page.html:4-6")
    assert (given["start"], given["end"], given["numbers"]) == (4, 6, [4])
    assert given["text"] == "One sentence broken over three lines."


def test_lines_of_a_cell_come_back_without_a_fence(get):
    given = get("nb.ipynb:1:1-2")
    assert (given["start"], given["line_start"], given["line_end"]) == (1, 1, 2)
    assert given["text"] == "a = 1\nb = 2"
    assert get("nb.ipynb:1:3")["text"] == "c = 3"
