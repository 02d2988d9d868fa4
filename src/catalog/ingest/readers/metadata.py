"""What authors write about their documents, in the few value types that can be filtered on."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from catalog.core.models import MetadataScalar, MetadataValue
from catalog.core.text import storable

_WEB_ADDRESS = re.compile(r"https?://[^\s/]+\S*", re.IGNORECASE)
_LARGEST_INTEGER = 2**63
_DEEPEST = 8

_TAG_KEYS = ("tags", "tag", "keywords")
_DATE_KEYS = {"created": ("created", "date"), "modified": ("modified", "updated", "lastmod")}
_ADDRESS_KEYS = ("source_url", "url", "permalink", "source")


def normalise(raw: Mapping[Any, object]) -> dict[str, MetadataValue]:
    """Metadata as stored: flat, scalars or tuples of scalars, first-class fields by their names.

    Nested mappings get dotted keys; dates become ISO 8601 strings; ``None`` and empty lists are
    left out; numbers that no database holds become strings. ``tags``/``tag``/``keywords`` are
    joined in ``tags``; ``created`` is taken from ``created``, else ``date``; ``modified`` from
    ``modified``, ``updated`` or ``lastmod``; ``source_url`` from ``source_url``, ``url``,
    ``permalink`` or ``source`` if that is a web address. A key that was taken is gone, every
    other stays under its own name.
    """
    flat = dict(_flatten(raw, "", 0))
    names = {key.casefold(): key for key in reversed(flat)}
    fields: dict[str, MetadataValue] = {}
    tags = _take_tags(flat, names)
    if tags:
        fields["tags"] = tags
    for field, keys in _DATE_KEYS.items():
        dates = [key for key in keys if _is_date_like(flat.get(names.get(key, "")))]
        _take_first(flat, names, fields, field, dates)
    addresses = [key for key in _ADDRESS_KEYS if _is_web_address(flat.get(names.get(key, "")))]
    _take_first(flat, names, fields, "source_url", addresses)
    return {**flat, **fields}


def take_title(metadata: dict[str, MetadataValue]) -> str | None:
    """Removes and answers the author's title, if there is one."""
    for key, value in metadata.items():
        if key.casefold() == "title" and isinstance(value, str | int | float):
            del metadata[key]
            return str(value)
    return None


def _flatten(
    raw: Mapping[Any, object], prefix: str, depth: int
) -> Iterator[tuple[str, MetadataValue]]:
    for key, value in raw.items():
        name = storable(str(key)).strip()
        if not name:
            continue
        if isinstance(value, Mapping) and depth < _DEEPEST:
            yield from _flatten(value, f"{prefix}{name}.", depth + 1)
            continue
        stored = _value(value)
        if stored is not None and stored != ():
            yield prefix + name, stored


def _value(value: object) -> MetadataValue | None:
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return tuple(item for item in map(_scalar, items) if item is not None)
    return _scalar(value)


def _scalar(value: object) -> MetadataScalar | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -_LARGEST_INTEGER <= value < _LARGEST_INTEGER else hex(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Mapping | list | tuple):
        return storable(json.dumps(value, ensure_ascii=False, default=str))
    return storable(str(value)).strip() or None


def _take_tags(flat: dict[str, MetadataValue], names: Mapping[str, str]) -> tuple[str, ...]:
    tags: dict[str, None] = {}
    for key in _TAG_KEYS:
        if key in names:
            tags.update(dict.fromkeys(_split_tags(flat.pop(names[key]))))
    return tuple(tags)


def _split_tags(value: MetadataValue) -> Iterator[str]:
    parts = value if isinstance(value, tuple) else str(value).split(",")
    for part in parts:
        tag = str(part).strip().removeprefix("#").strip()
        if tag:
            yield tag


def _take_first(
    flat: dict[str, MetadataValue],
    names: Mapping[str, str],
    fields: dict[str, MetadataValue],
    field: str,
    keys: Sequence[str],
) -> None:
    if keys:
        fields[field] = str(flat.pop(names[keys[0]]))


def _is_date_like(value: MetadataValue | None) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _is_web_address(value: MetadataValue | None) -> bool:
    return isinstance(value, str) and _WEB_ADDRESS.fullmatch(value) is not None
