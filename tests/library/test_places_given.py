"""`get` gives the place that a link, a citation or a reference tells, in the units it tells it."""

import json

import pytest

from catalog.core.errors import InputError
from catalog.interfaces.calls import LocalEngine
from catalog.library.indexing import Indexer
from fakes import open_library
from tables import read_cases, table
from workbooks import workbook

ENGLISH = read_cases(__file__)["english"]
GERMAN = "WEBVTT\n\n00:01.000 --> 00:05.000\nWir fangen an.\n"
PAGE = (
    "<html>\n<body>\n<p>First line.</p>\n<p>One sentence\nbroken over\nthree lines.</p>\n</body>\n"
)


RECORDS = read_cases(__file__)["records"]


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    from reportlab.pdfgen.canvas import Canvas

    folder = tmp_path_factory.mktemp("documents")
    files = {
        "talk.en.srt": ENGLISH,
        "talk.de.vtt": GERMAN,
        "speech.srt": "\n\n".join(
            f"{n}\n00:00:{n},000 --> 00:00:{n + 5},000\nWe count {n}." for n in range(10, 55, 10)
        ),
        "talk.mp4": "\0\0\0\x20ftypisom\0\0",
        "talk_frames/frame_00m15s.md": "# Visual Frame at 00:15\n\nA slide with tusks.\n",
        "page.html": PAGE,
        "Draft — notes.txt": "a draft\n",
        "notes.txt": "one\ntwo\nthree\nfour\n",
        "titled.md": "---\ntitle: notes.txt:2\n---\nNot the notes.\n",
        "records.jsonl": RECORDS,
        "twin-short.md": "# Twin\n\nShort.\n",
        "twin-long.md": "# Twin\n\n" + "Long.\n" * 9,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    sheets = {
        "Costs": [["Item", "Amount"], *([f"plank {at}", at] for at in range(1, 9))],
        "Q1 Staff": [["Name", "Hours", "Town"], ["Anna", 38, "Harwich"], ["Bo", 20, "Ely"]],
    }
    (folder / "budget.xlsx").write_bytes(workbook(sheets))
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
        yield lambda verb, **asked: engine.ask(verb, asked)


@pytest.fixture
def get(ask):
    return lambda reference: ask("get", reference=reference)


@pytest.mark.parametrize("reference", ["d:ice.pdf#page=2", "[source: ice, page 2]"])
def test_a_link_and_a_citation_give_their_page(get, reference):
    given = get(reference)
    assert (given["unit"], given["start"], given["end"], given["notes"]) == ("page", 2, 2, [])
    over = get("[source: ice, page 2 (pages 2-3)]")
    assert (over["start"], over["end"]) == (2, 3)
    assert given["text"].strip() == "The lantern stands on a page of its own."


@table("reference")
def test_the_first_line_of_a_passage_gives_its_place(ask, get, reference):
    assert get(reference)["text"] == "three"
    assert ask("multi_get", patterns=[reference])["documents"][0]["text"] == "three"


def test_a_name_with_a_dash_is_not_taken_apart(get):
    assert get("Draft — notes.txt")["text"].strip() == "a draft"
    assert get("[9] Draft — notes.txt")["text"].strip() == "a draft"


def test_several_names_given_to_get_point_at_multi_get(get):
    with pytest.raises(InputError, match="multi_get"):
        get("notes.txt, page.html")


@pytest.mark.parametrize("reference", ["ice.pdf#nowhere", "[source: ice, cell 2]"])
def test_a_place_that_cannot_be_read_is_reported(ask, get, reference):
    (document,) = ask("multi_get", patterns=[reference])["documents"]
    assert get(reference)["end"] == 3
    for given in (get(reference), document):
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


def test_a_link_to_a_second_gives_also_fifteen_seconds_before_and_after_it(get):
    given = get("talk.mp4#t=15")
    assert (given["start"], given["end"]) == (0, 30)
    text = get("speech.srt#t=23")["text"]
    assert text.splitlines() == ["We count 10.", "We count 20.", "We count 30."]


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


@table("reference, told", list)
def test_several_documents_are_given_at_the_place_that_each_name_tells(ask, reference, told):
    given = ask("multi_get", patterns=[reference])["documents"]
    assert [
        document["text"].strip()[: len(text)] for document, text in zip(given, told, strict=True)
    ] == told
    assert all(len(document["text"]) < 60 for document in given)
    alone = ask("get", reference=reference)
    assert "\n\n".join(document["text"].strip() for document in given) == alone["text"].strip()
    numbers = [number for document in given for number in (None, *document["numbers"])]
    assert alone["numbers"] == numbers[1:]


def test_a_line_of_a_document_goes_before_a_title_like_it(ask, get):
    assert get("notes.txt:2")["text"] == "two"
    found = ask("search", query="three", dataset="d", docs=["notes.txt:2"], top_k=9)
    assert [one["path"] for one in found["results"]] == ["notes.txt"]


def test_names_without_a_place_and_with_one_may_be_asked_for_together(ask):
    patterns = ["notes.txt", "notes.txt:1", "notes.txt:3", "notes.txt:3", "no*.txt"]
    given = ask("multi_get", patterns=patterns)["documents"]
    assert [document["text"] for document in given] == ["one\ntwo\nthree\nfour\n", "one", "three"]
    assert [document["line_start"] for document in given] == [1, 1, 3]


@table("reference, given")
def test_lines_that_are_given_pick_records(ask, reference, given):
    answer = ask("get", reference=reference, **given)
    assert (answer["unit"], answer["start"], answer["end"], answer["total"]) == ("record", 3, 7, 9)
    assert answer["text"] == "Moth\n\nOne moth.\n\nMoth\n\nTwo moths."
    assert answer["numbers"] == [3, None, 3, None, 7, None, 7]
    assert ask("get", reference="records.jsonl:3")["total"] == 9


def test_a_citation_names_of_several_documents_those_that_have_its_place(ask):
    assert ask("get", reference="[source: Twin, lines 9-9]")["path"] == "twin-long.md"
    assert ask("get", reference="[source: Twin, record 9 of records.jsonl]")["path"] == "twin"
    with pytest.raises(InputError, match="twin-short"):
        ask("get", reference="[source: Twin, lines 1-2]")


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["page.html", "talk.mp4:0:10-0:25", "records.jsonl:3-9"])
def test_a_part_that_is_cut_has_the_numbers_of_the_file(ask, reference):
    whole = ask("get", reference=reference)
    lines = whole["text"].split("\n")
    for size in range(1, len(whole["text"]), 3):
        cut = ask("get", reference=reference, max_bytes=size)
        count = len(cut["numbers"])
        assert cut["numbers"] == whole["numbers"][:count]
        assert "\n".join(lines[:count]).startswith(cut["text"])
        assert "cut" in cut["notes"][0] or "only the first" in cut["notes"][0]
    assert None not in whole["numbers"][-1:]


def test_a_cut_says_how_to_go_on_after_what_was_given(ask):
    cut = ask("get", reference="records.jsonl:3-9", max_bytes=35)
    assert cut["notes"][0] == "cut after record 7 of 9, at max_bytes 35; continue with line_start 8"
    rest = ask("get", reference="records.jsonl:3-9", line_start=8)
    assert rest["text"].startswith("Twin")
    within = ask("get", reference="records.jsonl:3-9", max_bytes=50)
    assert "cut within record 9 of 9" in within["notes"][0]


@table("reference, text")
def test_cells_of_a_workbook_give_their_rows(get, ask, reference, text):
    given = get(reference)
    assert (given["unit"], given["text"], given["notes"]) == ("row", text, [])
    (document,) = ask("multi_get", patterns=[reference])["documents"]
    assert document["text"] == text


def test_a_sheet_is_named_by_its_name_alone(get):
    assert get("budget.xlsx › Q1 Staff")["text"].splitlines()[:2] == [
        "Q1 Staff",
        "Name | Hours | Town",
    ]
    with pytest.raises(InputError, match="its sheets are Costs, 'Q1 Staff'"):
        get("budget.xlsx › Costs!A40:B50")


def test_a_cut_workbook_tells_the_next_row(get, ask):
    given = ask("get", reference="budget.xlsx", max_bytes=60)
    assert given["notes"] == ["cut at max_bytes 60; the next row is budget.xlsx › Costs!A3:B3"]
