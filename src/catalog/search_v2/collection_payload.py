"""What the payload of somebody else's points says, read as far as it can be."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from catalog.core.results import CollectionResult
from catalog.core.settings import CollectionSettings
from catalog.core.text import storable
from catalog.store.vectors.foreign_collection import ForeignPoint

_MISSING = object()


class PayloadReader:
    """Read points as results by the names in the settings, and count what is not as it should be.

    A field that is missing or no text costs only itself: the point is a result all the same.
    """

    def __init__(self, settings: CollectionSettings) -> None:
        self._settings = settings
        self._problems: Counter[str] = Counter()

    def read(self, points: Iterable[ForeignPoint]) -> list[CollectionResult]:
        """Return a result for each point, in order."""
        return [self._read(rank, point) for rank, point in enumerate(points, start=1)]

    def warnings(self) -> list[str]:
        """Say how many passages lacked what; nothing if all was there."""
        return [
            f"{count} passage{'' if count == 1 else 's'} {problem}"
            for problem, count in self._problems.items()
        ]

    def _read(self, rank: int, point: ForeignPoint) -> CollectionResult:
        source = self._text(point, self._settings.source_url)
        title = self._text(point, self._settings.page_title)
        section = self._text(point, self._settings.section)
        return CollectionResult(
            rank=rank,
            score=point.score,
            path=source or point.id,
            source_doc_id=source or point.id,
            chunk_id=point.id,
            title=title,
            text=self._text(point, self._settings.text),
            source_url=source or None,
            section=section,
            chunk_index=self._number(point, self._settings.chunk_index),
            citation=cite(title, section, source or f"point {point.id}"),
            is_low=point.score < self._settings.low_score_below,
        )

    def _text(self, point: ForeignPoint, name: str) -> str:
        """Return a field's text; headings in a list are joined, a number is its digits."""
        value = self._value(point, name)
        if isinstance(value, list) and all(isinstance(part, str) for part in value):
            value = " > ".join(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if isinstance(value, str):
            return storable(value)
        if value is not _MISSING:
            self._problems[f"with a {name} that is no text"] += 1
        return ""

    def _number(self, point: ForeignPoint, name: str) -> int | None:
        value = self._value(point, name)
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if value is not _MISSING:
            self._problems[f"with a {name} that is no number"] += 1
        return None

    def _value(self, point: ForeignPoint, name: str) -> object:
        value = find_field(point.payload, name)
        if value is None or value is _MISSING or value in ("", []):
            self._problems[f"without {name}"] += 1
            return _MISSING
        return value


def find_field(payload: dict[str, Any], name: str) -> Any:
    """Return what a dotted name stands for; ``None`` where there is nothing.

    Some software keeps JSON in a text (LlamaIndex: ``_node_content.text``): it is looked into.
    """
    if name in payload:
        return payload[name]
    value: Any = payload
    for part in name.split("."):
        if isinstance(value, str):
            with suppress(ValueError):
                value = json.loads(value)
        value = value.get(part) if isinstance(value, dict) else None
    return value


def cite(title: str, section: str, source: str) -> str:
    """Return one line that says where a passage is from."""
    named = ", ".join(dict.fromkeys(filter(None, (title, section))))
    return f"{named} ({source})" if named else source
