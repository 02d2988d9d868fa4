"""Timecodes, and the forms in which lines of a transcript open with one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.text import format_timecode
from catalog.ingest.readers.timed.cues import parse_timecode, valid_seconds
from catalog.ingest.readers.timed.frames import time_in_name
from catalog.ingest.readers.timed.transcripts import line_time


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
        ("00:01:12:15", 72.0),
        ("00:01:12;15", 72.0),
    ],
)
def test_timecodes_are_seconds(text: str, seconds: float) -> None:
    assert parse_timecode(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "65", "00:60", "00:61:00", "00:00:60", "1:2", "-00:01", "1000:00:00", "a:10",
     "00:01:05 x", "٠٠:١٠", "1111:00", "12.5", "10s", "1h02m03s", "72500ms"],
)  # fmt: skip
def test_an_invalid_time_counts_as_no_time(text: str) -> None:
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
def test_an_invalid_number_of_seconds_is_refused(value: object) -> None:
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
        ("00:00:10:12 hi", 10, None, "hi"),
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


@pytest.mark.parametrize(
    "line", ["12 hi", "[12] hi", "1. hi", "2.1.3 hi", "12.5 hi", "[10s] hi", "[0.00 -> 5.20] hi"]
)
def test_a_number_without_a_colon_is_no_time(line: str) -> None:
    assert line_time(line) is None


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("frame_01m12s", 72.0), ("01m12s", 72.0), ("frame_1h02m03s", 3723.0),
        ("frame_72s", 72.0), ("t01m12s", 72.0), ("00-01-12", 72.0), ("frame_00_01_12", 72.0),
        ("frame-00.01.12", 72.0), ("00:01:12", 72.0), ("frame_00-01-12.345", 72.345),
        ("frame_00_01_12_345", 72.345), ("00;01;12;345", 72.345), ("frame_01-12", 72.0),
        ("frame_01_12", 72.0), ("frame_0007_00-01-12", 72.0), ("frame_00-01-12_0007", 72.0),
        ("lecture2_frame_01m12s", 72.0), ("2024-01-02_frame_01m12s", 72.0),
        ("vlcsnap-00h01m12s345", 72.345), ("lecture (00_01_12.345) 01", 72.345),
        ("lecture.mp4_snapshot_00.01.12_[2021.03.04_10.11.12]", 72.0),
    ],
)  # fmt: skip
def test_a_name_tells_a_second(name: str, seconds: float) -> None:
    assert time_in_name(name) == seconds


@pytest.mark.parametrize(
    "name",
    ["frame_0001", "frame_72", "000112", "slide", "frame-1080p", "lecture-Scene-001-01",
     "mpv-shot0001", "vlcsnap-2021-03-04-15h23m10s456", "Screenshot 2024-01-02 at 10.11.12",
     "frame_20240102_101112", "frame_99-99", "v1.2", "frame_00-75-12x", ""],
)  # fmt: skip
def test_a_counter_or_a_time_of_day_in_a_name_is_no_second(name: str) -> None:
    assert time_in_name(name) is None
