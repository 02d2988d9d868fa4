"""Dates as people write them in front matter, made ISO 8601; where two readings fit, none is taken.

Queries take ISO dates alone: see :mod:`catalog.core.dates`.
"""

from __future__ import annotations

import re

from catalog.core.dates import parse_date

_MAX_CHARS = 64
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_MONTH = r"(?P<name>[a-z]{3,9})\.?"
_YEAR, _DAY = r"(?P<year>[0-9]{4})", r"(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?"
_KEYWORD = re.compile(r"\$(?:Date|LastChangedDate): ([^$]{1,60})\$")
_WEEKDAY = re.compile(r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6},?\s+", re.IGNORECASE)
_REMARK = re.compile(r"(?<!\s)\s*+\([^()]{1,60}\)\Z")
_BASIC = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})")
_TIME = re.compile(
    r"(?<![\sT,])[\sT,]++(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.[0-9]{1,9})?)?"
    r"\s*+(?P<half>[ap]m)?\s*+(?P<zone>Z|UTC|GMT|[+-][0-9]{2}:?[0-9]{2})?\Z",
    re.IGNORECASE,
)
_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"{_DAY}[\s-]+(?:of\s+)?{_MONTH}[\s,-]+{_YEAR}",  # 31 May 2024, 31-May-2024
        rf"{_MONTH}\s+{_DAY}[\s,]+{_YEAR}",  # May 31st, 2024
        rf"{_YEAR}[\s-]+{_MONTH}[\s-]+{_DAY}",  # 2024 May 31
        rf"{_MONTH}[\s,-]+{_YEAR}",  # May 2024
        rf"{_YEAR}([-/.])(?P<month>[0-9]{{1,2}})\2{_DAY}",  # 2024/5/31
        rf"{_YEAR}[-/.](?P<month>[0-9]{{1,2}})",  # 2024/5
        rf"{_DAY}\.\s?(?P<month>[0-9]{{1,2}})\.\s?{_YEAR}",  # 31.5.2024: a point is the day's
        rf"(?P<month>[0-9]{{1,2}})[/.-]{_YEAR}",  # 05/2024
    )
)
_EITHER_WAY = re.compile(r"(?P<first>[0-9]{1,2})([/-])(?P<second>[0-9]{1,2})\2(?P<year>[0-9]{4})")


def read_written_date(value: object) -> str | None:
    """Return a date in ISO 8601 as far as it goes (``2024``, ``2024-05``, …), ``None`` for no date.

    ISO dates stay as they are written. Other forms are those with the year in four digits: with
    the month's English name, with the year first, ``31.5.2024``, and ``5/31/2024`` or
    ``31/5/2024`` where only one of the two numbers can be a month; each with a time or without.
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
        basic = _BASIC.match(text)
        return text if basic is None else "-".join(basic.groups()) + text[basic.end() :]
    text = _WEEKDAY.sub("", text, count=1) if _WEEKDAY.match(text) else text
    time = _TIME.search(text)
    day = _read_day(text if time is None else text[: time.start()])
    if day is None or time is None:
        return _checked(day)
    return _checked(f"{day}{_iso_time(time)}") if len(day) == len("2024-05-31") else None


def _read_day(text: str) -> str | None:
    text = text.strip().rstrip(",")
    for form in _FORMS:
        if match := form.fullmatch(text):
            return _iso_day(match.groupdict())
    match = _EITHER_WAY.fullmatch(text)
    if match is None:
        return None
    first, second = int(match["first"]), int(match["second"])
    if first <= 12 and second <= 12 and first != second:
        return None  # 5/6/2024 is a day in May and one in June
    month, day = (first, second) if first <= 12 else (second, first)
    return f"{match['year']}-{month:02}-{day:02}"


def _iso_day(parts: dict[str, str | None]) -> str | None:
    name, month = parts.get("name"), parts.get("month")
    if name is None:
        number = int(month or 0)
    else:
        beginnings = (full.startswith(name.lower()) for full in _MONTHS)
        number = next((at for at, fits in enumerate(beginnings, start=1) if fits), 0)
    day = parts.get("day")
    return f"{parts['year']}-{number:02}" + (f"-{int(day):02}" if day else "")


def _iso_time(time: re.Match[str]) -> str:
    hour = int(time["hour"])
    if time["half"]:
        hour = hour % 12 + (12 if time["half"].lower() == "pm" else 0)
    zone = (time["zone"] or "").upper().replace("UTC", "Z").replace("GMT", "Z")
    return f"T{hour:02}:{time['minute']}:{time['second'] or '00'}{zone}"


def _checked(iso: str | None) -> str | None:
    return iso if iso is not None and parse_date(iso) is not None else None
