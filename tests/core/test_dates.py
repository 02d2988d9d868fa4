"""Dates as people and programs write them."""

from datetime import UTC, datetime

import pytest

from catalog.core.dates import (
    display_date,
    parse_date,
    read_written_date,
    to_timestamp,
)
from catalog.ingest.changes import date_in_name
from tables import table


@table("written, expected")
def test_a_date_in_any_usual_form_is_read_as_utc(written, expected):
    assert parse_date(written) == datetime.fromisoformat(expected).replace(tzinfo=UTC)


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


@table("name, expected")
def test_a_date_in_a_file_name_is_iso_and_stands_alone(name, expected):
    assert date_in_name(name) == (expected or None)


def test_an_instant_counts_seconds_and_a_whole_number_is_its_digits():
    assert to_timestamp("1970-01-02T00:00:01.5") == 86_401.5
    assert to_timestamp(1970) == to_timestamp(1970.0) == to_timestamp("1970") == 0
    assert to_timestamp(19700103.0) == 2 * 86_400
    assert to_timestamp(1970.5) is to_timestamp(float("inf")) is to_timestamp(None) is None


@table("written, shown")
def test_only_a_date_is_shown_without_its_time(written, shown):
    assert display_date(written) == shown


@table("written, iso")
def test_a_date_is_read_in_the_form_it_is_written_in(written, iso):
    assert read_written_date(written) == iso
    assert parse_date(iso) is not None


@pytest.mark.parametrize(
    "written",
    [
        "5/6/2024",  # May or June
        "31/31/2024", "31.13.2024", "Feb 30, 2024", "2024-13", "2024-02-30", "May 2024 10:00",
        "soon", "last week", "Mayor 3, 2024", "Augusta 2024", "24-05-31", "May 31, 24", "",
        " ", "10:15", True, None, 3.5, 10**400, -5, ("2024",), "2024-05-31 25:00", "1714521600",
        "2024" * 1000, "May " * 16, "(" * 64,
    ],
)  # fmt: skip
def test_a_text_with_no_date_or_two_dates_has_no_date(written):
    assert read_written_date(written) is None
