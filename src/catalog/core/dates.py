"""Reading dates as people and programs write them, for filtering and sorting by them.

A timestamp is the number of seconds from the beginning of 1970 (UTC).
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta

from catalog.core.errors import InputError

_PARTIAL = re.compile(r"(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{2}))?")
_FULL = re.compile(r"[0-9]{4}-?[0-9]{2}-?[0-9]{2}(?:[Tt ].*)?")
_DATE_ONLY = re.compile(r"[0-9]{4}-?[0-9]{2}-?[0-9]{2}")
_BLANK_BEFORE_ZONE = re.compile(r"(?<!\s)\s++(?=(?:Z|[+-][0-9:]+)\Z)")
_DAY = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]")
_MAX_CHARS = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_date(text: str) -> datetime | None:
    """Parse an ISO 8601 date as the moment it begins, in UTC, which is also meant without a zone.

    Besides whole dates and times, in the extended and the basic form, a year (``2022``), a month
    (``2022-05``) and a blank before the zone are read. ``None`` for all else, such as a day that
    its month does not have.
    """
    if len(text) > _MAX_CHARS:
        return None
    iso = text.strip().upper()
    if match := _PARTIAL.fullmatch(iso):
        iso = f"{match['year']}-{match['month'] or '01'}-01"
    if not _FULL.fullmatch(iso):
        return None
    try:
        moment = datetime.fromisoformat(_BLANK_BEFORE_ZONE.sub("", iso))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def read_bound(name: str, value: object) -> datetime | None:
    """Return the moment at which the date given as ``after`` or ``before`` begins; of none, none.

    Raises :class:`InputError` for what :func:`parse_date` does not read.
    """
    if value is None:
        return None
    moment = parse_date(value) if isinstance(value, str) else None
    if moment is None:
        shown = repr(value) if len(repr(value)) <= _MAX_CHARS else "that"
        raise InputError(f"{name} must be a date such as 2026-03-31, 2026-03 or 2026, not {shown}")
    return moment


def date_span(text: str) -> tuple[float, float] | None:
    """Return the timestamps at which a date begins and the next one does; ``None`` for no date.

    A day, a month or a year lasts as long as that; a time is a moment.
    """
    begin = parse_date(text)
    if begin is None:
        return None
    start = seconds_since_epoch(begin)
    iso = text.strip()
    try:
        if len(iso) == 4:
            end = begin.replace(year=begin.year + 1)
        elif len(iso) == 7:
            end = begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)
        elif _DATE_ONLY.fullmatch(iso):
            end = begin + timedelta(days=1)
        else:
            return start, math.nextafter(start, math.inf)
    except (ValueError, OverflowError):  # the year 10000
        return start, math.inf
    return start, seconds_since_epoch(end)


def to_timestamp(value: str | float | None) -> float | None:
    """Return the timestamp of a date in any form, ``None`` for what is no date.

    A whole number is read as its digits are: 2022 is a year, 20220501 a day.
    """
    if isinstance(value, float):
        value = str(int(value)) if value.is_integer() else None
    moment = parse_date(str(value)) if value is not None else None
    return seconds_since_epoch(moment) if moment else None


def seconds_since_epoch(moment: datetime) -> float:
    """Return the timestamp of a moment of a known time zone."""
    return (moment - _EPOCH).total_seconds()


def timestamp_to_date(timestamp: float) -> date:
    """Return the day (UTC) of a timestamp."""
    return (_EPOCH + timedelta(seconds=timestamp)).date()


def format_timestamp(timestamp: float) -> str:
    """Format a timestamp as ISO 8601 in UTC, to the second."""
    return (_EPOCH + timedelta(seconds=int(timestamp))).isoformat().replace("+00:00", "Z")


def display_date(text: str) -> str:
    """Return the day of a date that has a time as well; any other text as it is."""
    match = _DAY.match(text)
    return match[1] if match and parse_date(text) else text
