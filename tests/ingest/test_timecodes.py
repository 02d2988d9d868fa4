"""Timecodes, and the forms in which lines of a transcript open with one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.ingest.readers.timed.cues import parse_timecode, valid_seconds
from catalog.ingest.readers.timed.transcript_lines import line_time
from catalog.search_v2.evidence import format_timecode


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:01:05", 65.0),
        ("1:02:03", 3723.0),
        ("00:00:01,500", 1.5),
        ("00:00:01.25", 1.25),
        ("01:05", 65.0),
        ("1:05.5", 65.5),
        ("90:00", 5400.0),
        ("125:59", 7559.0),
        (" 00:10 ", 10.0),
        ("999:59:59", 3599999.0),
    ],
)
def test_timecodes_are_seconds(text: str, seconds: float) -> None:
    assert parse_timecode(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "65", "00:60", "00:61:00", "00:00:60", "1:2", "-00:01", "1000:00:00", "a:10", "1:2:3:04",
     "00:01:05 x", "٠٠:١٠", "1111:00"],
)  # fmt: skip
def test_what_is_no_time_is_none(text: str) -> None:
    assert parse_timecode(text) is None


def test_bare_seconds_are_a_time_only_where_the_caller_says_so() -> None:
    assert parse_timecode("65.5") is None
    assert parse_timecode("65.5", bare_seconds=True) == 65.5
    assert parse_timecode("3600000", bare_seconds=True) is None


def test_a_timecode_is_rounded_down_and_has_hours() -> None:
    assert [format_timecode(seconds) for seconds in (0, 65.99, 3723, 360000, -1)] == [
        "00:00:00", "00:01:05", "01:02:03", "100:00:00", "00:00:00",
    ]  # fmt: skip


@given(st.integers(0, 3_599_999))
def test_every_whole_second_is_read_back(seconds: int) -> None:
    assert parse_timecode(format_timecode(seconds)) == seconds


@pytest.mark.parametrize(
    "value", [True, None, -1, "nan", float("inf"), 10**400, 3_600_000, "x", []]
)
def test_what_is_no_number_of_seconds_is_refused(value: object) -> None:
    assert valid_seconds(value) is None


@pytest.mark.parametrize(
    ("line", "start", "end", "left"),
    [
        ("[00:10 - 00:15] hi", 10, 15, "hi"),
        ("[00:00:10-00:00:15] hi", 10, 15, "hi"),
        ("[00:10 --> 00:15] hi", 10, 15, "hi"),
        ("[00:10 → 00:15] hi", 10, 15, "hi"),
        ("[00:10 – 00:15]: hi", 10, 15, "hi"),
        ("[00:10] hi", 10, None, "hi"),
        ("[01:02:03] hi", 3723, None, "hi"),
        ("[01:02:03.5]hi", 3723.5, None, "hi"),
        ("(10:20) hi", 620, None, "hi"),
        ("10:20 hi", 620, None, "hi"),
        ("01:02:03 hi", 3723, None, "hi"),
        ("0:05", 5, None, ""),
        ("0:05 - Intro", 5, None, "Intro"),
        ("**[00:10 → 00:15]** hi", 10, 15, "hi"),
        ("**00:10** hi", 10, None, "hi"),
        ("  - [00:10] hi", 10, None, "  - hi"),
        ("00:00:10,000 --> 00:00:15,000", 10, 15, ""),
        ("**[00:10] Anna:** hi", 10, None, "**Anna:** hi"),
    ],
)
def test_a_line_opens_with_a_time(line: str, start: float, end: float | None, left: str) -> None:
    time = line_time(line)
    assert time is not None
    assert (time.start, time.end) == (start, end)
    assert line[: time.cut_start] + line[time.cut_end :] == left


@pytest.mark.parametrize(
    ("line", "name", "left"),
    [
        ("**Anna** (00:01:05): hi", "Anna", "**Anna**: hi"),
        ("**Anna:** [00:01:05] hi", "Anna", "**Anna:** hi"),
        ("**Anna [00:01:05]:** hi", "Anna", "**Anna:** hi"),
        ("Anna Meier (00:01:05): hi", "Anna Meier", "Anna Meier: hi"),
        ("Speaker 1 [01:05 - 01:10]: hi", "Speaker 1", "Speaker 1: hi"),
        ("Anna  1:05", "Anna", "Anna"),
    ],
)
def test_a_time_may_stand_after_the_speaker(line: str, name: str, left: str) -> None:
    time = line_time(line)
    assert time is not None
    assert (time.start, time.name) == (65.0, name)
    assert line[: time.cut_start] + line[time.cut_end :] == left


@pytest.mark.parametrize(
    "line",
    ["", "hi 00:10", "10:30am", "10:30 pm", "10:30 Uhr", "10:30:99 x", "[99:99] x", "[00:10 x",
     "The meeting (10:30) was long", "we met (10:30): fine", "a:10 x", "10:30x", "00:10) x", "3:1"],
)  # fmt: skip
def test_other_lines_open_with_none(line: str) -> None:
    assert line_time(line) is None
