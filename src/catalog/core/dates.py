"""Reading dates as people and programs write them, for filtering and sorting by them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

_PARTIAL = re.compile(r"(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{2}))?")
_FULL = re.compile(r"[0-9]{4}-?[0-9]{2}-?[0-9]{2}(?:[Tt ].*)?")
_BLANK_BEFORE_ZONE = re.compile(r"\s+(?=(?:Z|[+-][0-9:]+)\Z)")
_DAY = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]")
_LONGEST = 64  # characters
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_date(text: str) -> datetime | None:
    """The beginning of what an ISO 8601 text names, in UTC, which is also meant without a zone.

    Besides whole dates and times, in the extended and the basic form, a year (``2022``), a month
    (``2022-05``) and a blank before the zone are read. ``None`` for all else, such as a day that
    its month does not have.
    """
    if len(text) > _LONGEST:
        return None
    told = text.strip().upper()
    if found := _PARTIAL.fullmatch(told):
        told = f"{found['year']}-{found['month'] or '01'}-01"
    if not _FULL.fullmatch(told):
        return None
    try:
        read = datetime.fromisoformat(_BLANK_BEFORE_ZONE.sub("", told))
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def to_timestamp(value: str | float | None) -> float | None:
    """The seconds from the beginning of 1970 (UTC) to a date; ``None`` for what is none.

    A whole number is read as its digits are: 2022 is a year, 20220501 a day.
    """
    if isinstance(value, float):
        value = str(int(value)) if value.is_integer() else None
    read = parse_date(str(value)) if value is not None else None
    return seconds_since_epoch(read) if read else None


def seconds_since_epoch(when: datetime) -> float:
    """The seconds from the beginning of 1970 (UTC) to a moment of a known time zone."""
    return (when - _EPOCH).total_seconds()


def timestamp_to_date(timestamp: float) -> date:
    """The day (UTC) of a number of seconds from the beginning of 1970."""
    return (_EPOCH + timedelta(seconds=timestamp)).date()


def format_timestamp(timestamp: float) -> str:
    """A number of seconds from the beginning of 1970 as ISO 8601 in UTC, to the second."""
    return (_EPOCH + timedelta(seconds=int(timestamp))).isoformat().replace("+00:00", "Z")


def display_date(text: str) -> str:
    """The day of a date that has a time as well; any other text as it is."""
    found = _DAY.match(text)
    return found[1] if found and parse_date(text) else text
