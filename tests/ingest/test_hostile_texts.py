"""Notebooks, pages, transcripts and Markdown made to harm: skipped with a reason or read well."""

from __future__ import annotations

import json

import pytest

from catalog.core.documents import ParsedDocument
from catalog.ingest.readers import ReadFailure
from hostile import archives, texts
from hostile.reading import document, read, refused

ONE, TWO = ("00:00:01,000", "00:00:02,000"), ("00:00:02,000", "00:00:03,000")
SURROGATE, NUL = "\\ud800", "\\u0000"


def times(parsed: ParsedDocument) -> list[tuple[float | None, float | None]]:
    return [(segment.time_start, segment.time_end) for segment in parsed.segments]


def test_a_huge_output_of_a_notebook_is_cut(tmp_path):
    for piece in ("x", "x\n"):
        data = texts.notebook([texts.prose("# Walrus"), texts.printing(piece * 5_000_000)])
        parsed, remark = read(tmp_path, "a.ipynb", data)
        assert isinstance(parsed, ParsedDocument)
        assert isinstance(remark, ReadFailure)
        assert parsed.text.startswith("# Walrus\n\n```\nprint(it)\n```\n\n```\nx")
        assert len(parsed.text) < 3000


@pytest.mark.parametrize("version", [-1, 0, 1, 2, 3, 5, 99, 1e308, "four", None, [], {}])
def test_a_notebook_of_a_wrong_version_is_read_by_its_shape(tmp_path, version):
    data = texts.notebook([texts.prose("# Walrus")], nbformat=version)
    assert document(tmp_path, "a.ipynb", data).text == "# Walrus"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"no JSON at all", "not valid JSON"),
        (b"[1, 2, 3]", "not a notebook"),
        (b'{"nbformat": 4}', "not a notebook"),
        (b'{"nbformat": 4, "cells": ' + b"[" * 500_000, "nested too deeply"),
        (b'{"nbformat": 4, "cells": [], "x": ' + b"9" * 100_000 + b"}", "not valid JSON"),
    ],
    ids=["words", "list", "no cells", "deep", "long number"],
)
def test_what_is_no_notebook_is_refused(tmp_path, data, reason):
    assert refused(tmp_path, "a.ipynb", data) == reason


def test_text_that_no_store_holds_is_replaced_wherever_it_stands(tmp_path):
    odd = "a\ud800\0b"
    cells = [texts.prose(f"# {odd}"), texts.printing(odd)]
    book = texts.notebook(cells, metadata={"title": odd, "authors": [{"name": odd}], "tags": [odd]})
    document(tmp_path, "a.ipynb", book)
    cue = {"text": odd, "start": 1, "end": 2, "speaker": odd}
    fields = {"title": odd, "channel": odd, "file": f"{odd}.mp4", "language": odd}
    document(tmp_path, "a.json", json.dumps({"segments": [cue], **fields}).encode())
    record = {"_id": odd, "title": odd, "text": odd, "metadata": {odd: [odd, {odd: odd}]}}
    document(tmp_path, "a.jsonl", json.dumps(record).encode())
    document(tmp_path, "a.html", b"<title>&#xd800;&#0;</title><h1>&#55296;x</h1><p>&#0;y</p>")


def test_signs_that_the_reader_uses_itself_are_harmless(tmp_path):
    parsed = document(tmp_path, "a.md", "# \ue0005\ue001 `code` walrus\n\ntext\n".encode())
    assert parsed.headings[0].title == "5 code walrus"


def test_a_page_nested_deeply_is_read(tmp_path):
    page = texts.nested("<div>", "</div>", 200_000, "deep").encode()
    assert document(tmp_path, "a.html", page).text == "deep"


def test_a_page_that_closes_nothing_is_read(tmp_path):
    page = b"<div><b><i><p><table><tr><td>word " * 5000
    assert document(tmp_path, "a.html", page).text.split() == ["word"] * 5000


@pytest.mark.parametrize("name", ["title", "style", "class", "onclick"])
def test_a_huge_attribute_is_no_text(tmp_path, name):
    page = f'<p {name}="{"a " * 5_000_000}">word</p>'.encode()
    assert document(tmp_path, "a.html", page).text == "word"


@pytest.mark.parametrize(
    ("head", "use"),
    [
        (archives.billion_laughs("html"), "&l9;"),
        (archives.external("html", "file:///etc/passwd"), "&x;"),
    ],
)
def test_entities_of_a_page_are_neither_expanded_nor_fetched(tmp_path, head, use):
    page = f'<?xml version="1.0"?>{head}<html><body><p>{use}</p>word</body></html>'.encode()
    assert document(tmp_path, "a.xhtml", page).text == f"{use}\n\nword"


@pytest.mark.slow
@pytest.mark.parametrize("piece", [b"<", b"<!--", b"&#0", b"<a ", b"&", b"]]>", b"<table>"])
def test_half_a_tag_a_million_times_costs_little(tmp_path, piece):
    data = b"<p>word</p>" + piece * (1_000_000 // len(piece))
    assert document(tmp_path, "a.html", data, seconds=30.0).text.startswith("word")


@pytest.mark.parametrize("time", ["1e400", "-1e400", "NaN", "Infinity", "-5", '"one"', "[]", "{}"])
def test_an_invalid_time_is_placed_between_its_neighbours(tmp_path, time):
    cues = '{"text":"a a","start":2,"end":4},{"text":"b b","start":%s,"end":%s}'
    cues += ',{"text":"c c","start":8}'
    data = ('{"segments":[' + cues % (time, time) + "]}").encode()
    parsed = document(tmp_path, "a.json", data)
    assert parsed.text == "a a\nb b\nc c"
    (_, (placed, _), _) = times(parsed)
    assert placed is not None
    assert 2 <= placed <= 8


def test_json_too_deep_for_a_transcript_is_read_as_it_stands(tmp_path):
    data = b'{"segments": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert document(tmp_path, "a.json", data).text == data.decode()


def test_a_record_nested_too_deeply_is_named_and_the_other_records_stay(tmp_path):
    deep = '{"_id": "a", "text": "b", "metadata": ' + texts.nested('{"a":', "}", 50_000, "1") + "}"
    failure, parsed = read(tmp_path, "a.jsonl", f'{deep}\n{{"_id": "b", "text": "c"}}'.encode())
    assert isinstance(failure, ReadFailure)
    assert failure.path == "a.jsonl:1"
    assert failure.reason.startswith("not valid JSON")
    assert isinstance(parsed, ParsedDocument)
    assert parsed.text == "c"


def test_overlapping_cues_keep_their_times(tmp_path):
    long = ("00:00:01,000", "00:00:09,000", "one")
    parsed = document(tmp_path, "a.srt", texts.srt([long, (*TWO, "two")]))
    assert (parsed.text, times(parsed)) == ("one\ntwo", [(1.0, 9.0), (2.0, 3.0)])


def test_a_cue_that_ends_before_it_starts_ends_where_the_next_one_starts(tmp_path):
    back = ("00:00:05,000", "00:00:01,000", "one")
    parsed = document(tmp_path, "a.srt", texts.srt([back, ("00:00:08,000", "00:00:09,000", "two")]))
    assert times(parsed) == [(5.0, 8.0), (8.0, 9.0)]


@pytest.mark.parametrize("bad", ["99:99:99,999", "-00:00:05,000", "aa:bb:cc", "", "1e400"])
def test_a_cue_without_a_readable_time_is_kept(tmp_path, bad):
    cues = [(*ONE, "one"), (bad, bad, "two"), ("00:00:05,000", "00:00:06,000", "three")]
    parsed = document(tmp_path, "a.srt", texts.srt(cues))
    assert parsed.text == "one\ntwo\nthree"
    assert [start for start, _ in times(parsed)] == [1.0, 2.0, 5.0]


def test_very_many_cues_are_read(tmp_path):
    parsed = document(tmp_path, "a.srt", texts.many_cues(20_000))
    assert len(parsed.segments) == 20_000
    assert times(parsed)[-1] == (39_998.0, 40_000.0)


def test_a_cue_of_a_million_characters_is_read(tmp_path):
    for words in ("word " * 200_000, "word\n" * 200_000):
        parsed = document(tmp_path, "a.srt", texts.srt([(*ONE, words), (*TWO, "two")]))
        assert parsed.text.split() == ["word"] * 200_000 + ["two"]


@pytest.mark.parametrize(("end", "gap"), [("\n", ""), ("\r", "\r"), ("\r\n", "\r\n"), ("\r", "")])
def test_odd_line_ends_and_missing_blank_lines_part_cues_all_the_same(tmp_path, end, gap):
    data = texts.srt([(*ONE, "one"), (*TWO, "two")], end=end, gap=gap)
    parsed = document(tmp_path, "a.srt", data)
    assert (parsed.text, times(parsed)) == ("one\ntwo", [(1.0, 2.0), (2.0, 3.0)])


def test_times_without_words_are_skipped(tmp_path):
    data = texts.srt([(*ONE, ""), (*TWO, "")])
    assert refused(tmp_path, "a.srt", data) == "no text in its cues"


@pytest.mark.parametrize(
    "piece", ["<v ", "<v A>x", "<b ", "{\\", "-->", "A: ", "<", "&#", " ", "a:"]
)
def test_half_a_mark_very_often_costs_little(tmp_path, piece):
    cue = "WEBVTT\n\n00:01.000 --> 00:02.000\n<v " + piece * 100_000
    parsed = document(tmp_path, "a.vtt", f"{cue}\n\n00:03.000 --> 00:04.000\nend\n".encode())
    assert parsed.text.endswith("end")


def test_very_many_frames_are_read(tmp_path):
    frames = "".join(f"## Frame at {texts.clock(at)[:8]}\n\nslide {at}\n\n" for at in range(20_000))
    parsed = document(tmp_path, "a.md", f"# Talk\n\n{frames}".encode())
    assert len(parsed.segments) == 20_000
    assert parsed.segments[-1].time_start == 19_999.0


def test_frames_out_of_order_keep_their_own_times(tmp_path):
    frames = "".join(f"## Frame at 00:00:{at:02d}\n\nslide {at}\n\n" for at in (9, 3, 3, 7))
    parsed = document(tmp_path, "a.md", f"# Talk\n\n{frames}".encode())
    assert [segment.time_start for segment in parsed.segments] == [9.0, 3.0, 3.0, 7.0]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 300_000,
        "`" * 300_000,
        "` " * 150_000,
        ">" * 300_000 + " a",
        "# " * 150_000,
        "# " + "*a " * 400,
        "```\n" * 50_001,
        "".join(" " * (number % 300) + "- x\n" for number in range(5_000)),
        "---\na: " + "[" * 5_000 + "\n---\ntext",
        "---\na: &a [x]\n" + "b: &b [*a, *a]\nc: [*b, *b]\n" * 2 + "---\ntext",
    ],
)
def test_marks_without_end_are_text(tmp_path, text):
    assert document(tmp_path, "a.md", text.encode()).text == text
