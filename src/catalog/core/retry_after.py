"""``Retry-After``: how long a server asks to be left alone (RFC 9110, section 10.2.3)."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def read_retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Return the seconds that the header's value names, as a number or a date; at least 0.

    ``None`` for no value, and for one that is neither. A date is counted from ``now``.
    """
    text = (value or "").strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return None
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        seconds = (zoned - (now or datetime.now(UTC))).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None
