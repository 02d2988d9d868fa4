"""What converters and video sites call the fields of a recording, under our names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from catalog.core.models import MetadataValue
from catalog.ingest.readers.metadata import normalise
from catalog.ingest.readers.timed.timecodes import parse_timecode, valid_seconds

_COMPACT_DATE = re.compile(r"(\d{4})-?(\d{2})-?(\d{2})", re.ASCII)
_ADDRESS = re.compile(r"https?://[^\s/]+\S*", re.IGNORECASE)
_TAKEN = frozenset(["channel", "upload_date", "duration", "source_url", "source_type"])


def recording_fields(raw: Mapping[str, Any]) -> dict[str, MetadataValue]:
    """Metadata of a recording, normalised.

    ``channel`` is the ``author``, ``upload_date`` (``YYYYMMDD`` or ``YYYY-MM-DD``) the date
    ``created``, ``duration`` a number of seconds. What has no such form is left out, and so
    are a ``source_url`` that is no web address and a ``source_type``, which is ours to set.
    """
    fields = normalise({key: value for key, value in raw.items() if key not in _TAKEN})
    channel = raw.get("channel")
    if isinstance(channel, str) and channel.strip():
        fields.setdefault("author", " ".join(channel.split()))
    date = _COMPACT_DATE.fullmatch(str(raw.get("upload_date", "")).strip())
    if date is not None:
        fields.setdefault("created", "-".join(date.groups()))
    address = raw.get("source_url")
    if isinstance(address, str) and _ADDRESS.fullmatch(address):
        fields["source_url"] = address
    length = duration(raw.get("duration"))
    if length is not None:
        fields["duration"] = length
    return normalise(fields)


def duration(value: object) -> float | None:
    """Seconds of a number or a timecode, if more than none."""
    seconds = (
        parse_timecode(value, bare_seconds=True) if isinstance(value, str) else valid_seconds(value)
    )
    return seconds or None
