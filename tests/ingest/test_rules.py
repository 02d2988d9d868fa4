"""The small rules of readers: what goes in and what comes out, row by row in ``rules.toml``."""

import tomllib
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lxml import etree

from catalog.core.errors import ReadError
from catalog.core.text import format_timecode
from catalog.ingest.chunking.boundaries import sentence_spans
from catalog.ingest.readers.archive import inside
from catalog.ingest.readers.decoding import decode
from catalog.ingest.readers.formulas import CLOSED, LOWERED, RAISED, formula_text, write_scripts
from catalog.ingest.readers.mail.quotes import tell_kinds
from catalog.ingest.readers.pdf.reader import iso_date
from catalog.ingest.readers.registry import sniff
from catalog.ingest.readers.tables import names_columns
from catalog.ingest.readers.timed.cues import parse_timecode, valid_seconds
from catalog.ingest.readers.timed.frames import media_file_name, time_in_name
from catalog.ingest.readers.timed.subtitles import looks_like_subtitles
from catalog.ingest.readers.timed.transcripts import line_time
from catalog.ingest.readers.workbook import show
from catalog.ingest.summaries import summarise
from growth import assert_linear

RULES = tomllib.loads(Path(__file__).with_name("rules.toml").read_text(encoding="utf-8"))
SENTENCES = tomllib.loads(Path(__file__).with_name("sentences.toml").read_text(encoding="utf-8"))
MARKS = str.maketrans({"<": RAISED, "_": LOWERED, ">": CLOSED})
OMML = "http://schemas.openxmlformats.org/officeDocument/2006/math"
HUGE = etree.XMLParser(huge_tree=True)


def time_of_line(line: str) -> list[Any]:
    """Return the times that a line opens with, and the line without them."""
    if (time := line_time(line)) is None:
        return [[], line]
    times = [at for at in (time.start, time.end) if at is not None]
    return [times, line[: time.cut_start] + line[time.cut_end :]]


def speaker_of_line(line: str) -> list[Any]:
    time = line_time(line)
    assert time is not None
    return [time.name, line[: time.cut_start] + line[time.cut_end :]]


def format_of(path: str, top: str) -> str:
    name, corrected = sniff(path, top.encode("latin-1"), top.encode("latin-1"))
    return f"{name} called {corrected}" if corrected else name


def refused(path: str, top: str) -> str:
    with pytest.raises(ReadError) as error:
        format_of(path, top)
    return str(error.value)


def office(source: str) -> str:
    """Write a formula of Office; ``.`` stands before the names of its elements."""
    named = source.replace("</.", "</m:").replace("<.", "<m:").replace("@", "m:val")
    return formula_text(etree.fromstring(f'<m:oMath xmlns:m="{OMML}">{named}</m:oMath>'))


def web(source: str) -> str:
    spaced = f'<math xmlns="http://www.w3.org/1998/Math/MathML">{source}</math>'
    written = formula_text(etree.fromstring(f"<math>{source}</math>"))
    assert formula_text(etree.fromstring(spaced)) == written
    return written


OF = {
    "seconds": parse_timecode,
    "seconds or bare seconds": lambda text: parse_timecode(text, bare_seconds=True),
    "valid seconds": valid_seconds,
    "clock": format_timecode,
    "time of a line": time_of_line,
    "speaker of a line": speaker_of_line,
    "time in a name": time_in_name,
    "recording": media_file_name,
    "subtitles": looks_like_subtitles,
    "raised and lowered": lambda text: write_scripts(text.translate(MARKS)),
    "Office formula": office,
    "web formula": web,
    "format": format_of,
    "refused format": refused,
    "kinds of lines of a mail": lambda it: "".join(kind[0] for kind in tell_kinds(it.split("\n"))),
    "place in an archive": inside,
    "date of a PDF": iso_date,
    "sentences": lambda text: [text[start:end] for start, end in sentence_spans(text)],
    "summary": summarise,
    "has column names": lambda rows: names_columns([row.split("|") for row in rows.split("/")]),
    "value of a cell": show,
    "seconds in a cell": lambda seconds: show(timedelta(seconds=seconds)),
}
GIVES = {"time of a line": 2, "speaker of a line": 2}


@pytest.mark.parametrize("sentence", RULES)
def test_a_rule_gives_what_its_rows_say(sentence: str) -> None:
    name, rows = RULES[sentence]["of"], RULES[sentence]["rows"]
    count = GIVES.get(name, 1)
    for *given_, last in ([*row[:-count], row[-count:]] for row in rows):
        got = OF.get(name, str)(*given_) if name != "guessed encoding" else None
        if name == "guessed encoding":
            assert decode(given_[0].encode(last[0])) == given_[0], last
        elif name == "refused format":
            assert last[0] in got, given_
        else:
            assert (got if count > 1 else [got if got is not None else ""]) == last, given_


@given(st.integers(0, 3_599_999))
def test_every_whole_second_is_read_back(seconds: int) -> None:
    assert parse_timecode(format_timecode(seconds)) == seconds


@pytest.mark.parametrize("language", SENTENCES["right"])
def test_a_hard_place_ends_a_sentence_or_not(language: str) -> None:
    for sentences in SENTENCES["right"][language]:
        text = ("" if language in ("ja", "zh") else " ").join(sentences)
        assert [text[start:end] for start, end in sentence_spans(text)] == sentences


@pytest.mark.parametrize("word", ["слово ", "字", "e.g. x ", "Dr. Ä "])
def test_a_sentence_that_is_longer_than_the_library_sees_is_one(word: str) -> None:
    text = word * 2_001 + "."
    assert list(sentence_spans(text)) == [(0, len(text))]


@given(st.lists(st.sampled_from(SENTENCES["pieces"])).map("".join))
@example("A\ud800. \ud800. B \x00. C")
def test_sentences_stand_where_they_are_said_to_and_leave_out_white_space_alone(text: str) -> None:
    spans = list(sentence_spans(text))
    edges = [0, *chain.from_iterable(spans), len(text)]
    assert edges == sorted(edges)
    assert all(text[start:end].strip() == text[start:end] != "" for start, end in spans)
    assert not any(text[edges[at] : edges[at + 1]].strip() for at in range(0, len(edges), 2))


@pytest.mark.slow
@pytest.mark.parametrize("piece", SENTENCES["repeated"])
def test_finding_the_sentences_of_a_long_text_takes_linear_time(piece: str) -> None:
    assert_linear(lambda text: list(sentence_spans(text)), 400_000 // len(piece), piece.__mul__)


@pytest.mark.parametrize("tag", ["msup", "mfenced", "mtable"])
def test_deep_and_long_formulas_are_bounded(tag: str) -> None:
    deep = etree.fromstring(f"<{tag}>" * 1_000 + "x" + f"</{tag}>" * 1_000, HUGE)
    assert len(formula_text(deep)) < 500
    pieces = f"<{tag}><mi>x</mi><mi>y</mi></{tag}>" * 10_000
    assert formula_text(etree.fromstring(f"<math>{pieces}</math>")).endswith("…")
