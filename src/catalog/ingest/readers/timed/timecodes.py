"""The forms in which texts and names of files tell a second of a recording.

A clock is ``00:01:12`` or ``01:12``, also with ``.500`` or ``,500``; ``00:01:12:15`` counts
pictures in its last field, which is dropped. Units are ``1h02m03s``, ``1 min 12 sec``, ``72.5s``,
``72500ms``. A number of seconds, ``12.5``, is a time only where the place says so.
"""

from __future__ import annotations

import re

MAX_SECONDS = 1000 * 3600.0
"""What claims to lie later in a recording than this is no time."""
CODE = r"(?:\d{2}:\d{2}:\d{2}[:;]\d{2,3}|(?:\d{1,3}:)?\d{1,3}:\d{2}(?:[.,]\d{1,9})?)"
"""A clock inside a larger pattern (to be compiled with ``re.ASCII``)."""
NUMBER = r"\d{1,7}(?:[.,]\d{1,9})?"
"""A number of seconds inside a larger pattern."""
_UNITS = (
    r"(?=\d{1,10}(?:[.,]\d{1,9})? ?[hms])(?:(?P<all_ms>\d{1,10}) ?m(?:illi)?s(?:ec(?:ond)?s?)?"
    r"|(?:(?P<h>\d{1,3}) ?h(?:(?:ou)?rs?)?SEP)?(?:(?P<m>\d{1,4}) ?m(?:in(?:ute)?s?)?SEP)?"
    rf"(?:(?P<s>{NUMBER}) ?s(?:ec(?:ond)?s?)?(?:(?P<ms>\d{{3}})(?:ms)?)?)?)(?![A-Za-z0-9])"
)


def _units(separator: str) -> str:
    return _UNITS.replace("SEP", separator)


UNITS = re.sub(r"\?P<\w+>", "?:", _units("[ ]?"))
"""Hours, minutes and seconds with their units, inside a larger pattern."""
_CLOCK = re.compile(
    r"(?:(\d{1,3}):)?(\d{1,3}):(\d{2})(?:[.,](\d{1,9})|:(\d{3})|[:;]\d{2})?", re.ASCII
)
_SECONDS = re.compile(r"(\d{1,7})(?:[.,](\d{1,9}))?", re.ASCII)
_WITH_UNITS = re.compile(_units("[ ]?"), re.ASCII | re.IGNORECASE)


def parse_timecode(text: str, *, bare_seconds: bool = False) -> float | None:
    """Return the seconds of a clock (``HH:MM:SS``, ``MM:SS``) or a time with units, or ``None``.

    Hours and, in ``MM:SS``, minutes have up to three digits. Minutes beside hours, and seconds,
    stay under 60. With ``bare_seconds`` a plain number of seconds is a time as well.
    """
    code = text.strip()
    match = _CLOCK.fullmatch(code)
    if match is not None:
        hours, minutes, seconds, fraction, thousandths = match.groups()
        return _sum(hours, minutes, seconds, fraction or thousandths)
    units = _WITH_UNITS.fullmatch(code)
    if units is not None:
        return _parse_units(units)
    bare = _SECONDS.fullmatch(code) if bare_seconds else None
    return None if bare is None else valid_seconds(f"{bare[1]}.{bare[2] or 0}")


def valid_seconds(value: object) -> float | None:
    """Return a number (or its digits) of seconds, at least 0, under 1000 hours; else ``None``."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and len(value) > 30:
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < MAX_SECONDS else None


def _sum(hours: str | None, minutes: str, seconds: str, fraction: str | None) -> float | None:
    if int(seconds) > 59 or (hours is not None and int(minutes) > 59):
        return None
    whole = int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds)
    return float(f"{whole}.{fraction or 0}")


def _parse_units(match: re.Match[str]) -> float | None:
    """Return the seconds of a match of the units; beside a larger unit each stays under 60."""
    if match["all_ms"] is not None:
        return valid_seconds(int(match["all_ms"]) / 1000)
    hours, minutes = int(match["h"] or 0), int(match["m"] or 0)
    seconds = float((match["s"] or "0").replace(",", ".")) + int(match["ms"] or 0) / 1000
    if (match["h"] and minutes > 59) or ((match["h"] or match["m"]) and seconds >= 60):
        return None
    return valid_seconds(hours * 3600 + minutes * 60 + seconds)


_DATED = re.compile(
    r"(?<!\d)(?:19|20)\d{2}[-_.]?[01]\d[-_.]?[0-3]\d(?!\d)"
    r"(?:[-_ .T]{0,3}(?:at[-_ ])?\d{1,2}[-_.:h]?\d{2}(?:[-_.:m]?\d{2}(?:[s.]\d{0,6}s?)?)?(?!\d))?",
    re.ASCII | re.IGNORECASE,
)
_BEFORE = r"(?<![A-Za-z0-9.])(?:(?:at|ts|t)[-_= ]?)?"
_NAME_UNITS = re.compile(_BEFORE + _units("[-_ ]?"), re.ASCII | re.IGNORECASE)
_NAME_CLOCK = re.compile(
    rf"{_BEFORE}(\d{{1,3}})([-_.:;])(\d{{2}})[-_.:;](\d{{2}})(?:[.,](\d{{1,6}})|[-_:;](\d{{3}}))?"
    r"(?!\d)",
    re.ASCII | re.IGNORECASE,
)
_NAME_MINUTES = re.compile(rf"{_BEFORE}(\d{{2}})[-_:](\d{{2}})(?![A-Za-z0-9])", re.ASCII | re.I)
_NAME_NUMBER = re.compile(
    r"(?<![A-Za-z0-9.])(?:"
    rf"(?:at|ts|t|time|timestamp|sec|secs|seconds?)[-_= ]?({NUMBER})|(\d{{1,7}}[.,]\d{{1,9}}))"
    r"(?![A-Za-z0-9.])",
    re.ASCII | re.IGNORECASE,
)


def time_in_name(stem: str, *, is_certain: bool = False) -> float | None:
    """Return the seconds that the name of a file (without its extension) tells, or ``None``.

    Forms as in texts, with ``-``, ``_`` or ``.`` for colons: ``01m12s``, ``00-01-12.500``,
    ``01_12``, ``12.5``, ``t72``. A whole number alone counts pictures, and a time after
    a date is one of day. ``is_certain``: only units and clocks of three fields.
    """
    name = _DATED.sub(" ", stem[:200])
    for match in _NAME_UNITS.finditer(name):
        if (seconds := _parse_units(match)) is not None:
            return seconds
    for match in _NAME_CLOCK.finditer(name):
        hours, _, minutes, second, fraction, thousandths = match.groups()
        if (seconds := _sum(hours, minutes, second, fraction or thousandths)) is not None:
            return seconds
    if is_certain:
        return None
    for match in _NAME_NUMBER.finditer(name):
        return valid_seconds((match[1] or match[2]).replace(",", "."))
    minutes_only = _NAME_MINUTES.search(name)
    return None if minutes_only is None else _sum(None, minutes_only[1], minutes_only[2], None)
