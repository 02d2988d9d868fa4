"""Read dates as people and programs write them, for filters and sorting.

Documents may have other forms than ISO; a form with two possible readings is not read. A timestamp
is the number of seconds from the beginning of 1970 (UTC).
"""

from __future__ import annotations

import math
import re
from calendar import isleap, month_name, monthrange
from datetime import UTC, datetime, timedelta

from catalog.core.errors import InputError

_PARTIAL = re.compile(r"(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{2}))?")
_FULL = re.compile(r"[0-9]{4}-?[0-9]{2}-?[0-9]{2}(?:[Tt ].*)?")
_DATE_ONLY = re.compile(r"[0-9]{4}-?[0-9]{2}-?[0-9]{2}")
_BLANK_BEFORE_ZONE = re.compile(r"(?<!\s)\s++(?=(?:Z|[+-][0-9:]+)\Z)")
_DAY = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]")
_MAX_CHARS = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_10000 = 253_402_300_800.0  # a timestamp
_MONTHS = [name.lower() for name in month_name]
_MONTH = r"(?P<name>[a-z]{3,9})\.?"
_YEAR, _DAY_NUMBER = r"(?P<year>[0-9]{4})", r"(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?"
_KEYWORD = re.compile(r"\$(?:Date|LastChangedDate): ([^$]{1,60})\$")
_WEEKDAY = re.compile(r"\A(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6},?\s+", re.IGNORECASE)
_REMARK = re.compile(r"(?<!\s)\s*+\([^()]{1,60}\)\Z")
_BASIC = re.compile(r"\A([0-9]{4})([0-9]{2})([0-9]{2})")
_TIME = re.compile(
    r"(?<![\sT,])[\sT,]++(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.[0-9]{1,9})?)?"
    r"\s*+(?P<half>[ap]m)?\s*+(?P<zone>Z|UTC|GMT|[+-][0-9]{2}:?[0-9]{2})?\Z",
    re.IGNORECASE,
)
_FORMS = (
    rf"{_DAY_NUMBER}[\s-]+(?:of\s+)?{_MONTH}[\s,-]+{_YEAR}",  # 31 May 2024, 31-May-2024
    rf"{_MONTH}\s+{_DAY_NUMBER}[\s,]+{_YEAR}",  # May 31st, 2024
    rf"{_YEAR}[\s-]+{_MONTH}[\s-]+{_DAY_NUMBER}",  # 2024 May 31
    rf"{_MONTH}[\s,-]+{_YEAR}",  # May 2024
    rf"{_YEAR}([-/.])(?P<month>[0-9]{{1,2}})\2{_DAY_NUMBER}",  # 2024/5/31
    rf"{_YEAR}[-/.](?P<month>[0-9]{{1,2}})",  # 2024/5
    rf"{_DAY_NUMBER}\.\s?(?P<month>[0-9]{{1,2}})\.\s?{_YEAR}",  # 31.5.2024: a point is the day's
    rf"(?P<month>[0-9]{{1,2}})[/.-]{_YEAR}",  # 05/2024
)
_EITHER_WAY = re.compile(r"(?P<first>[0-9]{1,2})([/-])(?P<second>[0-9]{1,2})\2(?P<year>[0-9]{4})")


def parse_date(text: str) -> datetime | None:
    """Parse an ISO 8601 date as the moment at which it begins; without a zone it is in UTC.

    A year (``2022``) and a month (``2022-05``) are dates, too; ``None`` for anything else.
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
    """Return the moment at which a date given as ``after`` or ``before`` begins, if given.

    Raises :class:`InputError` for a value that :func:`parse_date` cannot read.
    """
    if value is None:
        return None
    moment = parse_date(value) if isinstance(value, str) else None
    if moment is None:
        shown = repr(value) if len(repr(value)) <= _MAX_CHARS else "that"
        raise InputError(f"{name} must be a date such as 2026-03-31, 2026-03 or 2026, not {shown}")
    return moment


def date_span(text: str) -> tuple[float, float] | None:
    """Return the timestamps of a date's beginning and of the next date's; ``None`` for no date.

    A day, month or year has its full length; a time is a moment.
    """
    begin, iso = parse_date(text), text.strip()
    if begin is None:
        return None
    start = seconds_since_epoch(begin)
    days = monthrange(begin.year, begin.month)[1] if len(iso) == 7 else 365 + isleap(begin.year)
    if len(iso) not in (4, 7):
        days = 1 if _DATE_ONLY.fullmatch(iso) else 0
    end = start + days * 86_400 if days else math.nextafter(start, math.inf)
    return start, end if end < _YEAR_10000 else math.inf


def to_timestamp(value: str | float | None) -> float | None:
    """Return the timestamp of a date in any form, ``None`` if it is not a date.

    A whole number is read by its digits: 2022 is a year, 20220501 a day.
    """
    if isinstance(value, float):
        value = str(int(value)) if value.is_integer() else None
    moment = parse_date(str(value)) if value is not None else None
    return seconds_since_epoch(moment) if moment else None


def seconds_since_epoch(moment: datetime) -> float:
    """Return the timestamp of a moment of a known time zone."""
    return (moment - _EPOCH).total_seconds()


def format_timestamp(timestamp: float) -> str:
    """Format a timestamp as ISO 8601 in UTC, to the second."""
    return (_EPOCH + timedelta(seconds=int(timestamp))).isoformat().replace("+00:00", "Z")


def display_date(text: str) -> str:
    """Return the day of a date with a time; return any other text unchanged."""
    match = _DAY.match(text)
    return match[1] if match and parse_date(text) else text


def read_written_date(value: object) -> str | None:
    """Return a date in ISO 8601 to its own precision (``2024``, ``2024-05``, …), else ``None``.

    Other forms have the year in four digits: :data:`_FORMS`, and ``5/31/2024`` or ``31/5/2024`` if
    only one of the two numbers can be a month; each with or without a time.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    text = str(value).strip() if isinstance(value, str) or abs(value) < 10**8 else ""
    if keyword := _KEYWORD.fullmatch(text):
        text = keyword[1].strip()
    text = _REMARK.sub("", text)
    if not text or len(text) > _MAX_CHARS:
        return None
    if parse_date(text) is not None:
        return _BASIC.sub(r"\1-\2-\3", text, count=1)
    text = _WEEKDAY.sub("", text, count=1)
    time = _TIME.search(text)
    day = _read_day(text if time is None else text[: time.start()])
    if day and time:
        hour = int(time["hour"])
        if time["half"]:
            hour = hour % 12 + (12 if time["half"].lower() == "pm" else 0)
        zone = (time["zone"] or "").upper().replace("UTC", "Z").replace("GMT", "Z")
        clock = f"T{hour:02}:{time['minute']}:{time['second'] or '00'}{zone}"
        day = f"{day}{clock}" if len(day) == len("2024-05-31") else None
    return _checked(day)


def _read_day(text: str) -> str | None:
    text = text.strip().rstrip(",")
    for form in _FORMS:
        if match := re.fullmatch(form, text, re.IGNORECASE):
            parts = match.groupdict()
            number, day, name = int(parts.get("month") or 0), parts.get("day"), parts.get("name")
            if name:
                is_it = (at for at, one in enumerate(_MONTHS) if one.startswith(name.lower()))
                number = next(is_it, 0)
            return f"{parts['year']}-{number:02}" + (f"-{int(day):02}" if day else "")
    match = _EITHER_WAY.fullmatch(text)
    if match is None:
        return None
    month, day = sorted((int(match["first"]), int(match["second"])))
    is_clear = day > 12 or month == day  # 5/6/2024 is a day in May and one in June
    return f"{match['year']}-{month:02}-{day:02}" if is_clear else None


def _checked(iso: str | None) -> str | None:
    return iso if iso is not None and parse_date(iso) is not None else None
