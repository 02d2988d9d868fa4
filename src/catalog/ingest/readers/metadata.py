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
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from catalog.core.documents import MetadataScalar, MetadataValue
from catalog.core.errors import ReadError
from catalog.core.text import storable
from catalog.core.written_dates import read_written_date

if TYPE_CHECKING:
    import yaml

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
    those: who may see the document is not guessed at.
    """
    for name, value in raw.items():
        if _field_name(str(_printable(name)).strip()) == "confidentiality" and not _is_level(value):
            raise ReadError("its confidentiality must be a text or a number, or a list of them")
    flat = {_field_name(name): value for name, value in _flatten(raw, "", 0)}
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


def _field_name(name: str) -> str:
    plain = re.sub(r"[-\s]+", "_", name.casefold())
    head, dot, rest = plain.partition(".")
    return plain if plain in _NAMES or (dot and rest and head == "confidentiality") else name


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
_GUARDED = re.compile(
    r"^[ \t]*+(?:[\"'][ \t]*+)?confidentiality[\w. \t-]*+(?:[\"'][ \t]*+)?[:=]", re.I | re.M
)
_BLANK_LINE = re.compile(r"(?:\r\n?|\n)[ \t]*(?=[\r\n])")


class FrontMatter(NamedTuple):
    """The fields of front matter, where the body begins (0 without any), what is wrong with it."""

    fields: Mapping[Any, object]
    body_start: int
    problem: str = ""


_NO_FRONT_MATTER = FrontMatter({}, 0)


def read_front_matter(text: str) -> FrontMatter:
    """Return the front matter of a text.

    A block that is broken, deeply nested, or uses YAML anchors or aliases has no fields but a
    ``problem``, and the body still begins after it. What is not closed, longer than 65,536
    characters or not a list of fields (a rule across the page, say) is text like any other. So is
    a block that is broken by prose, and one with nothing after it: else the document would have
    no text at all. Raises ``ReadError`` where fields that cannot be read speak of confidentiality.
    """
    opening = _OPENING.match(text)
    if opening is None:
        if text[:1].isspace():  # below blank lines it is text
            names = read_front_matter(text.lstrip()).fields
            _check_unguarded("".join(f"{it}:\n" for it in names), "a blank line stands before it")
        return _NO_FRONT_MATTER
    closing = _CLOSING[opening[1]].search(text, opening.end())
    if closing is None or closing.start() - opening.end() > _MAX_CHARACTERS:
        blank = _BLANK_LINE.search(text, opening.end(), opening.end() + _MAX_CHARACTERS)
        end = opening.end() + _MAX_CHARACTERS if blank is None else blank.start()
        _check_unguarded(text[opening.end() : end], "it does not end, or is too long")
        return _NO_FRONT_MATTER
    block = text[opening.end() : closing.start()]
    try:
        fields, problem = _parse_fields(block, opening[1]), ""
    except ReadError as error:
        _check_unguarded(block, str(error))
        fields, problem = {}, f"the front matter is not read: {error}"
        if opening[1] == "---" and _PROSE.search(block):
            return _NO_FRONT_MATTER
    if fields is None:
        _check_unguarded(block, "it is no list of fields")
        return _NO_FRONT_MATTER
    line_break = _LINE_BREAK.match(text, closing.end())
    body_start = closing.end() if line_break is None else line_break.end()
    return FrontMatter(fields, body_start if text[body_start:].strip() else 0, problem)


def parse_yaml(text: str) -> object:
    """Return what a YAML text holds, in plain values.

    Raises ``ReadError`` with the reason where it is broken, longer than 65,536 characters, nested
    deeper than 16, has tags that make objects, anchors or aliases, or more than one line that
    names a confidentiality.
    """
    import yaml

    if len(text) > _MAX_CHARACTERS:
        raise ReadError(f"it is longer than {_MAX_CHARACTERS:,} characters")
    if len(_GUARDED.findall(text)) > 1:
        raise ReadError("it names confidentiality more than once")
    try:
        _check_bounds(text)
        return cast(object, yaml.load(text, Loader=_loader()))  # noqa: S506  a safe loader's child
    except yaml.MarkedYAMLError as error:
        at = "" if error.problem_mark is None else f" in line {error.problem_mark.line + 1}"
        raise ReadError(f"it is not valid YAML{at} ({error.problem})") from error
    except (yaml.YAMLError, RecursionError, *_BROKEN_VALUES) as error:
        raise ReadError(f"it is not valid YAML ({type(error).__name__})") from error


def parse_json(text: str) -> object:
    """Return what a JSON text holds; ``ReadError`` if it is broken or says a field twice."""
    try:
        return cast(object, json.loads(text, object_pairs_hook=_fields_once))
    except json.JSONDecodeError as error:
        raise ReadError(f"it is not valid JSON in line {error.lineno} ({error.msg})") from error
    except (ValueError, RecursionError) as error:
        raise ReadError(f"it is not valid JSON ({type(error).__name__})") from error


def _fields_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    names = [_field_name(name.strip()) for name, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ReadError(f"it names {twice} more than once")
    return dict(pairs)


def _check_unguarded(block: str, problem: str) -> None:
    """Raise ``ReadError`` if fields that are not read would have told who may see the document."""
    if _GUARDED.search(block):
        raise ReadError(f"its front matter names a confidentiality and is not read: {problem}")


def _parse_fields(block: str, mark: str) -> Mapping[Any, object] | None:
    """Return the fields, ``None`` if the block is no list of fields; ``ReadError`` if broken."""
    if not block.strip():
        return {}
    if mark == "+++":
        return _parse_toml(block)
    if _LOOKS_LIKE_FIELDS.match(block) is None:
        return None
    fields = parse_yaml(block)
    return fields if isinstance(fields, Mapping) else None


def _parse_toml(block: str) -> Mapping[Any, object]:
    try:
        # The TOML standard knows no lone carriage return.
        return tomllib.loads(_LINE_BREAK.sub("\n", block))
    except (ValueError, RecursionError) as error:
        raise ReadError(f"it is not valid TOML ({str(error)[:100]})") from error


def _check_bounds(text: str) -> None:
    """Raise ``ReadError`` if the YAML is nested deeply or refers to a part of itself.

    Only its events are looked at, which cost the length of the text whatever it expands to.
    """
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise ReadError("it has anchors or aliases (& and *), which are not followed")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise ReadError(f"it is nested deeper than {_MAX_DEPTH}")


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
