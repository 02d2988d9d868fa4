"""Dates as people and programs write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from catalog.core.dates import (
    date_in_name,
    display_date,
    parse_date,
    to_timestamp,
)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2022", datetime(2022, 1, 1)),
        ("2022-05", datetime(2022, 5, 1)),
        ("2022-05-07", datetime(2022, 5, 7)),
        ("20220507", datetime(2022, 5, 7)),
        (" 2022-05-07\n", datetime(2022, 5, 7)),
        ("2022-05-07 10:20", datetime(2022, 5, 7, 10, 20)),
        ("2022-05-07T10:20:30Z", datetime(2022, 5, 7, 10, 20, 30)),
        ("2022-05-07t10:20:30z", datetime(2022, 5, 7, 10, 20, 30)),
        ("2022-05-07T10:00:00+0200", datetime(2022, 5, 7, 8)),
        ("2022-05-07 10:00:00 +0200", datetime(2022, 5, 7, 8)),
        ("2022-05-07 10:00:00 -02:00", datetime(2022, 5, 7, 12)),
        ("2022-05-07 10:00:00 Z", datetime(2022, 5, 7, 10)),
        ("20220507T102030Z", datetime(2022, 5, 7, 10, 20, 30)),
    ],
)
def test_a_date_in_any_usual_form_is_read_as_utc(written, expected):
    assert parse_date(written) == expected.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "written",
    [
        "", " ", "soon", "2022-02-30", "2022-13", "202205", "1650000000", "22-05-01", "0000",
        "2022-05-07T25:00", "2022-05-07 tomorrow", "2022-W05", "May 2022", "2022-05-07T",
        "0001-01-01T00:00+02:00", "\uff12\uff10\uff12\uff12", "2022-05-07" + " " * 100_000 + "x",
    ],
)  # fmt: skip
def test_all_else_is_no_date(written):
    assert parse_date(written) is None
    assert to_timestamp(written) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("2025-02-11-all-hands.md", "2025-02-11"),
        ("all hands 2025_02_11.md", "2025-02-11"),
        ("IMG_20250211_120501.txt", "2025-02-11"),
        ("call 20250211T1205.vtt", "2025-02-11"),
        ("minutes-2025-02.md", "2025-02"),
        ("a1-2024-13-01 2025-02-11.md", "2025-02-11"),
        ("会议2025-02-11.md", "2025-02-11"),
        ("2025-02-30.md", None),
        ("2025-13.md", None),
        ("2025-02-1.md", None),
        ("2024-2025 plan.md", None),
        ("scan120250211.md", None),
        ("part 202502110.md", None),
        ("v2025-02-11.md", None),
        ("2025-02_11.md", None),
        ("9001-02-11.md", None),
        ("report 2025.md", None),
        ("", None),
    ],
)
def test_a_date_in_a_file_name_is_iso_and_stands_alone(name, expected):
    assert date_in_name(name) == expected


def test_an_instant_counts_seconds_and_a_whole_number_is_its_digits():
    assert to_timestamp("1970-01-02T00:00:01.5") == 86_401.5
    assert to_timestamp(1970) == to_timestamp(1970.0) == to_timestamp("1970") == 0
    assert to_timestamp(19700103.0) == 2 * 86_400
    assert to_timestamp(1970.5) is to_timestamp(float("inf")) is to_timestamp(None) is None


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("2022-05-07T10:00:00+0200", "2022-05-07"),
        ("2022-05-07 10:00", "2022-05-07"),
        ("2022-05-07", "2022-05-07"),
        ("2022-05", "2022-05"),
        ("the seventh of May", "the seventh of May"),
        ("2022-02-30T10:00", "2022-02-30T10:00"),
    ],
)
def test_only_a_date_is_shown_without_its_time(written, shown):
    assert display_date(written) == shown
