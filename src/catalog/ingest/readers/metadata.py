"""What authors write about their documents: front matter, and values that can be filtered on."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from catalog.core.documents import MetadataScalar, MetadataValue
from catalog.core.text import storable

if TYPE_CHECKING:
    import yaml


_WEB_ADDRESS = re.compile(r"https?://[^\s/]+\S*", re.IGNORECASE)
_LARGEST_INTEGER = 2**63
_PRINTED_BITS = 4096
_MAX_DOTS = 8
_TAG_KEYS = ("tags", "tag", "keywords")
_DATE_KEYS = {"created": ("created", "date"), "modified": ("modified", "updated", "lastmod")}
_ADDRESS_KEYS = ("source_url", "url", "permalink", "source")


def normalise(raw: Mapping[Any, object]) -> dict[str, MetadataValue]:
    """Return metadata as stored: flat, scalars or tuples of scalars, first-class fields named so.

    Nested mappings get dotted keys; dates become ISO 8601 strings; ``None`` and empty lists are
    left out; numbers that no database holds become strings. ``tags``/``tag``/``keywords`` are
    joined in ``tags``; ``created`` is taken from ``created``, else ``date``; ``modified`` from
    ``modified``, ``updated`` or ``lastmod``; ``source_url`` from ``source_url``, ``url``,
    ``permalink`` or ``source`` if that is a web address. A key that was taken is gone, every
    other stays under its own name.
    """
    flat = dict(_flatten(raw, "", 0))
    keys = {key.casefold(): key for key in reversed(flat)}
    fields: dict[str, MetadataValue] = {}
    tags = _split_tags(flat.pop(keys[key]) for key in _TAG_KEYS if key in keys)
    if tags:
        fields["tags"] = tags
    for name, candidates in _DATE_KEYS.items():
        for key in candidates:
            if _is_date_like(flat.get(keys.get(key, ""))):
                fields[name] = str(flat.pop(keys[key]))
                break
    for key in _ADDRESS_KEYS:
        if is_web_address(flat.get(keys.get(key, ""))):
            fields["source_url"] = str(flat.pop(keys[key]))
            break
    return {**flat, **fields}


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


def _is_date_like(value: MetadataValue | None) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


_MAX_CHARACTERS = 64 * 1024
_MAX_DEPTH = 16
_OPENING = re.compile(r"(---|\+\+\+)[ \t]*(?>\r\n?|\n)")
_CLOSING = {
    "---": re.compile(r"(?<=[\r\n])(?:---|\.\.\.)[ \t]*(?=[\r\n]|\Z)"),
    "+++": re.compile(r"(?<=[\r\n])\+\+\+[ \t]*(?=[\r\n]|\Z)"),
}
_LOOKS_LIKE_FIELDS = re.compile(r"(?:[ \t]*#[^\r\n]*(?>\r\n?|\n))*[\"']?[\w.@$-][^:=\r\n]*[:=]")
_PROSE = re.compile(r"(?:\A|(?<=[\r\n]))\w[^:\r\n]*+(?=[\r\n]|\Z)")
"""A line without any field: where YAML is broken it tells text between two rules."""
_LINE_BREAK = re.compile(r"\r\n?|\n")
# Explicit tags make PyYAML's constructors raise nearly anything ("!!bool x" is a KeyError).
_BROKEN_VALUES = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)


def read_front_matter(text: str) -> tuple[Mapping[Any, object], int]:
    """Return the fields of the front matter, and where the body begins (0 if there is none).

    A block that is broken, deeply nested, or uses YAML anchors or aliases has no fields, but
    the body still begins after it. What is not closed, longer than 65,536 characters or not a
    list of fields (a rule across the page, say) is text like any other. So is a block that is
    broken by prose, and one with nothing after it: else the document would have no text at all.
    """
    opening = _OPENING.match(text)
    if opening is None:
        return {}, 0
    closing = _CLOSING[opening[1]].search(text, opening.end())
    if closing is None or closing.start() - opening.end() > _MAX_CHARACTERS:
        return {}, 0
    block = text[opening.end() : closing.start()]
    fields = _parse_fields(block, opening[1])
    if fields is None:
        return {}, 0
    line_break = _LINE_BREAK.match(text, closing.end())
    body_start = closing.end() if line_break is None else line_break.end()
    return fields, body_start if text[body_start:].strip() else 0


def _parse_fields(block: str, mark: str) -> Mapping[Any, object] | None:
    """Return the fields, none if they are broken, ``None`` if the block is no list of fields."""
    if not block.strip():
        return {}
    if mark == "+++":
        return _parse_toml(block)
    if _LOOKS_LIKE_FIELDS.match(block) is None:
        return None
    fields = _parse_yaml(block)
    return fields if isinstance(fields, Mapping) else None


def _parse_toml(block: str) -> Mapping[Any, object]:
    try:
        # The TOML standard knows no lone carriage return.
        return tomllib.loads(_LINE_BREAK.sub("\n", block))
    except (ValueError, RecursionError):
        return {}


def _parse_yaml(block: str) -> object:
    import yaml

    try:
        if not _is_bounded(block):
            return {}
        return yaml.load(block, Loader=_loader())  # noqa: S506  a subclass of the safe loader
    except (yaml.YAMLError, RecursionError, *_BROKEN_VALUES):
        return None if _PROSE.search(block) else {}


def _is_bounded(block: str) -> bool:
    """Return whether the YAML is not nested deeply and refers to no part of itself.

    Only its events are looked at, which cost the length of the block whatever it expands to.
    """
    import yaml

    depth = 0
    for event in yaml.parse(block, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            return False
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            return False
    return True


@cache
def _loader() -> type[yaml.SafeLoader]:
    """Make the safe loader, in which an impossible date is the string that the author wrote."""
    import yaml

    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader = cast("type[yaml.SafeLoader]", type("FrontMatterLoader", (base,), {}))

    def timestamp(constructor: yaml.SafeLoader, node: yaml.ScalarNode) -> object:
        try:
            return constructor.construct_yaml_timestamp(node)
        except (ValueError, AttributeError):
            return node.value

    loader.add_constructor("tag:yaml.org,2002:timestamp", timestamp)
    return loader
