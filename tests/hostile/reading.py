"""Reads a file through the front door, and checks what no document may break."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from catalog.core.documents import ParsedDocument
from catalog.core.errors import ReadError
from catalog.core.text import storable
from catalog.ingest.readers import ReadFailure, read_file
from catalog.ingest.readers.base import DEFAULT_LIMITS

BOUNDS = replace(DEFAULT_LIMITS, seconds=60.0, memory_bytes=200_000_000)
"""Tighter than the defaults: a file may cost no more, whatever comes of it."""


def read(folder: Path, name: str, data: bytes, **limits: Any) -> list[ParsedDocument | ReadFailure]:
    """All that is read of a file of that name and content; every document is a sound one."""
    path = folder / name
    path.write_bytes(data)
    parsed = list(read_file(path, name, root=folder, limits=replace(BOUNDS, **limits)))
    for item in parsed:
        if isinstance(item, ParsedDocument):
            check_document(item)
    return parsed


def document(folder: Path, name: str, data: bytes, **limits: Any) -> ParsedDocument:
    """The one document of a file of which nothing is unreadable."""
    (parsed,) = read(folder, name, data, **limits)
    assert isinstance(parsed, ParsedDocument)
    return parsed


def refused(folder: Path, name: str, data: bytes, **limits: Any) -> str:
    """Why a file is skipped, in words: not the name of an error, nor of the file."""
    with pytest.raises(ReadError) as caught:
        read(folder, name, data, **limits)
    reason = str(caught.value)
    assert "the reader failed" not in reason
    assert name not in reason
    assert len(reason) < 100
    return reason


def check_document(parsed: ParsedDocument) -> None:
    length = len(parsed.text)
    assert parsed.text.strip()
    strings = [parsed.text, parsed.title, parsed.path, *map(str, parsed.metadata.values())]
    strings += [heading.title for heading in parsed.headings]
    strings += [segment.speaker or "" for segment in parsed.segments]
    assert all(storable(text) == text for text in strings)
    for heading in parsed.headings:
        assert 0 <= heading.start < heading.end <= length
        assert heading.level >= 1
    assert all(0 <= start < end <= length for start, end in parsed.atomic)
    assert list(parsed.pages) == sorted(parsed.pages)
    assert all(0 <= page <= length for page in parsed.pages)
    for segment in parsed.segments:
        assert 0 <= segment.start < segment.end <= length
        if segment.time_start is not None:
            assert 0 <= segment.time_start <= (segment.time_end or 0.0) < 1000 * 3600
    assert all(before.end <= after.start for before, after in pairwise(parsed.segments))
