"""What authors write about their documents, as values that can be filtered on."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, cast

from catalog.core.dates import read_written_date
from catalog.core.documents import MetadataScalar, MetadataValue
from catalog.core.errors import ReadError
from catalog.core.text import storable

_WEB_ADDRESS = re.compile(r"https?://[^\s/]+\S*", re.IGNORECASE)
_LARGEST_INTEGER = 2**63
_PRINTED_BITS = 4096
_MAX_DOTS = 8
_TAG_KEYS = ("tags", "tag", "keywords")
DATE_KEYS = {
    "created": (
        "created", "date", "published", "date_created", "created_at", "date_published",
        "published_at", "publish_date", "publishdate", "pubdate",
    ),
    "modified": (
        "modified", "updated", "lastmod", "last_modified", "date_modified", "modified_at",
        "updated_at", "last_updated", "date_updated",
    ),
}  # fmt: skip
_NAMES = frozenset(
    ["source_type", "file_type", "confidentiality", "agent_hint", "page_title", "created"]
).union(*DATE_KEYS.values())
_ADDRESS_KEYS = ("source_url", "url", "permalink", "source")
LEVEL = "confidentiality"
_LOOK_ALIKES = str.maketrans(  # Cyrillic, Greek and Armenian letters that look like Latin ones
    "\u0430\u03b1\u0441\u03f2\u0501\u0435\u03b5\u0456\u03b9\u0131\u04cf\u03bd\u0578\u043e\u03bf\u0442\u03c4\u0443\u03c5\u03b3",
    "aaccdeeiiilnnoottyyy",
)


def normalise(raw: Mapping[Any, object]) -> dict[str, MetadataValue]:
    """Return metadata as stored: flat, scalars or tuples of scalars, first-class fields named so.

    Nested mappings get dotted keys; dates become ISO 8601 strings; ``None`` and empty lists are
    left out; numbers that no database holds become strings. ``tags``/``tag``/``keywords`` are
    joined in ``tags``; ``created`` and ``modified`` are taken from the first of
    :data:`DATE_KEYS` that is there, if it is a date; ``source_url`` from ``source_url``, ``url``,
    ``permalink`` or ``source`` if that is a web address. A ``page_title`` is text. A key that was
    taken is gone, every other stays under its own name; the case of a first-class field does not
    matter, nor whether its words are joined by ``_``, ``-`` or a blank.

    Raises ``ReadError`` for a ``confidentiality`` that is neither text nor a number nor a list of
    those, that is nested, stated twice or spelled with look-alike letters: who may see the document
    is not guessed at.
    """
    check_levels(raw)
    flat = {field_name(name): value for name, value in _flatten(raw, "", 0)}
    keys = {key.casefold(): key for key in reversed(flat)}
    fields: dict[str, MetadataValue] = {}
    tags = _split_tags(flat.pop(keys[key]) for key in _TAG_KEYS if key in keys)
    if tags:
        fields["tags"] = tags
    for name, candidates in DATE_KEYS.items():
        first = next((key for key in candidates if key in flat), "")
        date = read_written_date(flat.get(first))
        if date is not None:
            del flat[first]
            fields[name] = date
    for key in _ADDRESS_KEYS:
        if is_web_address(flat.get(keys.get(key, ""))):
            fields["source_url"] = str(flat.pop(keys[key]))
            break
    if (titles := flat.get("page_title")) is not None:  # 1984 may be one, and is asked for as text
        flat["page_title"] = tuple(map(str, titles)) if isinstance(titles, tuple) else str(titles)
    return {**flat, **fields}


def check_levels(raw: Mapping[Any, object]) -> None:
    """Raise ``ReadError`` for a confidentiality that is not one plain field at the top."""
    levels = {str(name): value for name, value in raw.items() if is_level_name(name)}
    if len(levels) > 1:
        raise ReadError(f"it names {LEVEL} more than once")
    for name, value in levels.items():
        if field_name(name.strip()) != LEVEL:
            raise ReadError(f"its field {name!r} must be spelled {LEVEL}")
        if not _is_level(value):
            raise ReadError(f"its {LEVEL} must be a text or a number, or a list of them")
    check_no_level(list(raw.values()))


def check_no_level(value: object) -> None:
    """Raise ``ReadError`` for a confidentiality anywhere in a value that is no place for it."""
    if holds_level(value):
        raise ReadError(f"its {LEVEL} stands inside another field: write it at the top")


def holds_level(value: object) -> bool:
    """Return whether a field in a value, at any depth, is named as a confidentiality."""
    inner = [value]
    while inner:
        one = inner.pop()
        if isinstance(one, Mapping):
            if any(map(is_level_name, one)):
                return True
            inner += one.values()
        elif isinstance(one, list | tuple | set | frozenset):
            inner += [item for item in one if not isinstance(item, str | int | float)]
    return False


def is_level_name(name: object) -> bool:
    """Return whether a person may read a field's name as ``confidentiality``.

    So one may ``Confidentiality Level`` and ``dc.confidentiality``.
    """
    text = name.decode("latin-1") if isinstance(name, bytes) else str(_printable(name))
    if len(text) < len(LEVEL) and text.isascii():  # some letters are two, as in a ligature
        return False
    folded = fold(text)
    names = (folded, *re.split(r"[.:]", folded))
    return any("".join(filter(str.isalnum, one)).startswith(LEVEL) for one in names)


def load_json(text: str) -> object:
    """Return what a JSON text holds, as ``json.loads`` does, also the errors.

    Raises ``ReadError`` where of two equal names in one object one would lose a confidentiality.
    """
    return cast(object, json.loads(text, object_pairs_hook=_without_loss))


def _without_loss(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = [pair for pair in pairs if names.count(pair[0]) > 1]
        if holds_level([dict([pair]) for pair in twice]) or LEVEL in fold(
            " ".join(value for _, value in twice if isinstance(value, str))
        ):
            raise ReadError(f"it names {LEVEL} more than once, or in one of two equal fields")
    return fields


def fold(text: str) -> str:
    """Return the text in small letters, look-alike letters as Latin ones, no invisible ones."""
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKD", text).casefold().translate(_LOOK_ALIKES)
    return "".join(one for one in folded if unicodedata.category(one) not in ("Cf", "Mn"))


def _is_level(value: object) -> bool:
    """Return whether a value can say who may see a document."""
    if isinstance(value, list | tuple):
        return (
            bool(value)
            and not any(isinstance(item, list | tuple) for item in value)
            and all(map(_is_level, value))
        )
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return is_plain and bool(str(_printable(value)).strip())


def field_name(name: str) -> str:
    plain = re.sub(r"[-\s]+", "_", name.casefold())
    return plain if plain in _NAMES else name


def take_title(metadata: dict[str, MetadataValue]) -> str | None:
    """Remove and return the author's title, if there is one."""
    for key, value in metadata.items():
        if key.casefold() == "title" and isinstance(value, str | int | float):
            del metadata[key]
            return str(value)
    return None


def is_web_address(value: object) -> bool:
    """Return whether the value is an HTTP address and nothing else."""
    return isinstance(value, str) and _WEB_ADDRESS.fullmatch(value) is not None


def _flatten(
    raw: Mapping[Any, object], prefix: str, depth: int
) -> Iterator[tuple[str, MetadataValue]]:
    for key, value in raw.items():
        name = storable(str(_printable(key))).strip()
        if not name:
            continue
        if isinstance(value, Mapping) and depth < _MAX_DOTS:
            yield from _flatten(value, f"{prefix}{name}.", depth + 1)
            continue
        stored = _stored_value(value)
        if stored is not None and stored != ():
            yield prefix + name, stored


def _stored_value(value: object) -> MetadataValue | None:
    if isinstance(value, list | tuple | set | frozenset):
        items = _in_order(value) if isinstance(value, set | frozenset) else value
        return tuple(item for item in map(_stored_scalar, items) if item is not None)
    return _stored_scalar(value)


def _stored_scalar(value: object) -> MetadataScalar | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -_LARGEST_INTEGER <= value < _LARGEST_INTEGER else hex(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Mapping | list | tuple):
        return storable(json.dumps(_plain_json(value), ensure_ascii=False, default=str))
    return storable(str(value)).strip() or None


def _printable(value: object) -> object:
    """Return the value, or as hexadecimal digits a number that Python refuses to print."""
    is_huge = isinstance(value, int) and value.bit_length() > _PRINTED_BITS
    return hex(cast(int, value)) if is_huge else value


def _in_order(values: AbstractSet[object]) -> list[object]:
    return sorted(values, key=lambda value: str(_printable(value)))


def _plain_json(value: object) -> object:
    """Return a nested value in JSON's own types; YAML's keys and members may be anything."""
    if isinstance(value, Mapping):
        return {
            str(_printable(key))
            if isinstance(key, dt.date | bytes)
            else _printable(key): _plain_json(inner)
            for key, inner in value.items()
        }
    if isinstance(value, set | frozenset):
        value = _in_order(value)
    if isinstance(value, list | tuple):
        return [_plain_json(inner) for inner in value]
    return _printable(value)


def _split_tags(values: Iterator[MetadataValue]) -> tuple[str, ...]:
    parts = [
        str(part).strip().removeprefix("#").strip()
        for value in values
        for part in (value if isinstance(value, tuple) else str(value).split(","))
    ]
    return tuple(dict.fromkeys(filter(None, parts)))
