"""Timecodes such as ``01:02:03.5`` and ``62:03``: read, and told."""

from __future__ import annotations

import math
import re

MAX_SECONDS = 1000 * 3600.0
"""What claims to lie later in a recording than this is no time."""

CODE = r"(?:\d{1,3}:)?\d{1,3}:\d{2}(?:[.,]\d{1,9})?"
"""A timecode inside a larger pattern (to be compiled with ``re.ASCII``)."""

_TIMECODE = re.compile(r"(?:(\d{1,3}):)?(\d{1,3}):(\d{2})(?:[.,](\d{1,9}))?", re.ASCII)
_SECONDS = re.compile(r"(\d{1,7})(?:[.,](\d{1,9}))?", re.ASCII)


def parse_timecode(text: str, *, bare_seconds: bool = False) -> float | None:
    """Seconds of ``HH:MM:SS`` or ``MM:SS``, with ``.mmm`` or ``,mmm``; ``None`` if it is neither.

    Hours and, in ``MM:SS``, minutes have up to three digits. Minutes beside hours, and seconds,
    stay under 60. With ``bare_seconds`` a plain number of seconds is a time as well.
    """
    code = text.strip()
    found = _TIMECODE.fullmatch(code)
    if found is None:
        bare = _SECONDS.fullmatch(code) if bare_seconds else None
        return None if bare is None else valid_seconds(f"{bare.group(1)}.{bare.group(2) or 0}")
    hours, minutes, seconds, fraction = found.groups()
    if int(seconds) > 59 or (hours is not None and int(minutes) > 59):
        return None
    whole = int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds)
    return float(f"{whole}.{fraction or 0}")


def timecode(seconds: float) -> str:
    """``HH:MM:SS``, rounded down; what is negative is ``00:00:00``."""
    whole = max(0, math.floor(seconds))
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def valid_seconds(value: object) -> float | None:
    """A number (or its digits) of seconds, not negative, under 1000 hours; else ``None``."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and len(value) > 30:
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < MAX_SECONDS else None
