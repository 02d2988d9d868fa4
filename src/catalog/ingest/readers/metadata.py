"""Read authors' metadata from front matter or fields, as values for filters."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sized
from contextlib import suppress
from functools import cache
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, cast

from catalog.core.dates import read_written_date
from catalog.core.documents import MetadataScalar, MetadataValue
from catalog.core.errors import ReadError
from catalog.core.text import storable

if TYPE_CHECKING:
    import yaml

_WEB_ADDRESS = re.compile(r"https?://[^\s/]+\S*", re.IGNORECASE)
_MAX_DOTS = 8
_TAG_KEYS = ("tags", "tag", "keywords", "taxonomies.tags")  # the last one is Zola's
DATE_KEYS = {
    "created": "created date published date_created created_at date_published published_at "
    "publish_date publishdate pubdate",
    "modified": "modified updated lastmod last_modified date_modified modified_at updated_at "
    "last_updated date_updated",
}
_ADDRESS_KEYS = ("source_url", "url", "permalink", "source")
LEVEL = "confidentiality"
UNREADABLE = "unreadable"
"""The level of a document that states one which cannot be read. No role may list it."""
_NAMES = frozenset(
    f"{LEVEL} source_type file_type agent_hint page_title {' '.join(DATE_KEYS.values())}".split()
)
_NESTED_LEVEL = re.compile(rf'"[^"]{{0,40}}{LEVEL}[^"]{{0,40}}"\s?:')


def normalise(raw: Mapping[Any, object]) -> dict[str, MetadataValue]:
    """Return metadata as stored: flat, with scalars or tuples of scalars.

    Nested mappings get dotted keys, and dates become ISO 8601 strings. ``None`` and empty lists are
    left out. ``tags``/``tag``/``keywords`` are joined to ``tags``. ``created`` and ``modified``
    come from the first key in :data:`DATE_KEYS` that exists, if it is a date. ``source_url`` is the
    first web address. Names of fields that filters know may be in any case, with blanks or hyphens.
    """
    flat: dict[str, MetadataValue] = {}
    for name, value in _flatten(raw, "", 0):
        plain = re.sub(r"[-\s]+", "_", name.casefold())
        known = plain if plain in _NAMES else name
        is_level_again = known == LEVEL and flat.get(LEVEL, value) != value
        flat[known] = UNREADABLE if is_level_again else value
    keys = {key.casefold(): key for key in reversed(flat)}
    fields: dict[str, MetadataValue] = {}
    found = [flat.pop(keys[key]) for key in _TAG_KEYS if key in keys]
    parts = [it if isinstance(it, tuple) else str(it).split(",") for it in found]
    tags = [str(tag).strip().removeprefix("#").strip() for tag in chain.from_iterable(parts)]
    if any(tags):
        fields["tags"] = tuple(dict.fromkeys(filter(None, tags)))
    for name, candidates in DATE_KEYS.items():
        first = next((key for key in candidates.split() if key in flat), "")
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
    return settle_level({**flat, **fields})


def settle_level(fields: Mapping[str, MetadataValue]) -> dict[str, MetadataValue]:
    """Return metadata whose ``confidentiality`` is a plain level, ``unreadable``, or absent."""
    if not (stated := stated_levels(fields)):
        return dict(fields)
    is_readable = stated.keys() == {LEVEL} and _is_level(fields[LEVEL])
    others = {name: it for name, it in fields.items() if LEVEL not in name.casefold()}
    return {**others, LEVEL: fields[LEVEL] if is_readable else UNREADABLE}


def one_level(*stated: MetadataValue | None) -> dict[str, MetadataValue]:
    """Return the level on which all statements agree, ``unreadable`` if they differ, or none."""
    levels = dict.fromkeys(one for one in stated if one is not None)
    return {LEVEL: next(iter(levels)) if len(levels) == 1 else UNREADABLE} if levels else {}


def stated_levels(fields: Mapping[Any, object]) -> dict[str, object]:
    """Return the fields that state a confidentiality, by their name or a name in their value.

    A reader that keeps no other fields of its format hands these on to :func:`normalise`.
    """
    stated: dict[str, object] = {}
    for name, value in fields.items():
        nested = _json_text(value) if isinstance(value, dict | list | tuple) else value
        text = nested.casefold() if isinstance(nested, str) and nested[:1] in ("{", "[") else ""
        if LEVEL in str(name).casefold() or _NESTED_LEVEL.search(text):
            stated[str(name)] = value
    return stated


def read_json(text: str) -> object:
    """Return the value of a JSON text; a confidentiality that is repeated is kept as such."""
    return cast(object, json.loads(text, object_pairs_hook=_keep_repeated_levels))


def _keep_repeated_levels(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        lost = [{name: value} for name, value in pairs if fields[name] is not value]
        if lost := list(filter(stated_levels, lost)):
            fields["repeated"] = lost
    return fields


def _is_level(stored: MetadataValue) -> bool:
    items = stored if isinstance(stored, list | tuple) else (stored,)
    texts = ["" if isinstance(one, bool) or one is None else str(one).strip() for one in items]
    return bool(texts) and all(text[:1] not in ("", "{", "[") for text in texts)


def take_title(metadata: dict[str, MetadataValue]) -> str | None:
    """Remove and return the author's title, ``None`` without one."""
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
        name = storable(str(key)).strip()
        if not name:
            continue
        is_level = LEVEL in name.casefold()
        if isinstance(value, Mapping) and depth < _MAX_DOTS and not is_level:
            yield from _flatten(value, f"{prefix}{name}.", depth + 1)
            continue
        stored = _stored_value(value)
        if is_level and isinstance(stored, tuple) and len(stored) < len(cast(Sized, value)):
            stored = UNREADABLE  # one of several cannot be read
        if stored is not None and stored != ():
            yield prefix + name, stored
        elif is_level:
            yield prefix + name, UNREADABLE


def _stored_value(value: object) -> MetadataValue | None:
    if isinstance(value, set | frozenset):
        value = sorted(value, key=str)
    if isinstance(value, list | tuple):
        return tuple(item for item in map(_stored_scalar, value) if item is not None)
    return _stored_scalar(value)


def _stored_scalar(value: object) -> MetadataScalar | None:
    if value is None or isinstance(value, bytes):  # such as !!binary of YAML, which is no text
        return None
    if isinstance(value, bool):
        return value
    if isinstance(value, int):  # no database stores a larger one
        return value if -(2**63) <= value < 2**63 else hex(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Mapping | list | tuple):
        return storable(_json_text(value))
    return storable(str(value)).strip() or None


def _json_text(value: object) -> str:
    return json.dumps(plain_json(value), ensure_ascii=False, default=str)


def plain_json(value: object) -> object:
    """Return a nested value in JSON's own types; YAML's keys and values may be anything."""
    if isinstance(value, Mapping):
        return {
            key if isinstance(key, str | int | float | None) else str(key): plain_json(inner)
            for key, inner in value.items()
        }
    if isinstance(value, set | frozenset):
        value = sorted(value, key=str)
    return [plain_json(inner) for inner in value] if isinstance(value, list | tuple) else value


_MAX_CHARACTERS = 64 * 1024
_MAX_DEPTH = 16
_BLOCK = re.compile(
    r"(?:---|(\+\+\+))[ \t]*(?>\r\n?|\n)(.{0,65536}?)(?<=[\r\n])"
    r"(?(1)\+\+\+|(?:---|\.\.\.))[ \t]*(?>\r\n?|\n|\Z)",
    re.DOTALL,
)
_LOOKS_LIKE_FIELDS = re.compile(r"(?:[ \t]*+#[^\r\n]*+[\r\n]++)*+[\"']?[\w.@$-][^:=\r\n]*[:=]")
_PROSE = re.compile(r"(?:\A|(?<=[\r\n]))\w[^:\r\n]*+(?=[\r\n]|\Z)")
"""A line without any field: where YAML is broken it tells text between two rules."""
_UNQUOTED = re.compile(  # a value with a colon, or that only begins as a list or a sign of YAML
    r"^( *(?:- )?[\w.@$-][^:\"'{}\[\]\r\n]*:[ \t]+)"
    r"((?:[@`%]|\[(?!.*\]|\[)|\[.*\][ \t]*[^\s#]|[^\"'|>\[{&*!\s].*:[ \t])[^\r\n]*)",
    re.MULTILINE,
)
_MANY_DOTS = re.compile(r"(?<![\w\"'-])(?:[\w\"'-]++[ \t]*+\.[ \t]*+){16}")  # levels of nesting
_STATEMENT = re.compile(rf"{LEVEL}[\"' ]*:\s*([^\n\r,}}]*)", re.IGNORECASE)


def read_front_matter(text: str) -> tuple[Mapping[Any, object], int, int, str]:
    """Return fields, where the body starts, where the block ends (0 without one), and a problem.

    A block that is YAML only with some values quoted stays part of the text: the body starts at 0.
    A block that cannot be read gives no fields. A block that is not closed, is longer than 65,536
    characters, is broken by prose or has no fields (a rule across the page) is ordinary text.
    """
    if (found := _BLOCK.match(text)) is None:
        return {}, 0, 0, ""
    block, end = found[2], found.end()
    body_start = end if text[end:].strip() else 0
    try:
        fields, mended = (_parse_toml(block), "") if found[1] else _parse_mended(block)
    except ReadError as error:
        if not found[1] and (_PROSE.search(block) or not _LOOKS_LIKE_FIELDS.match(block)):
            return {}, 0, 0, ""
        return {}, body_start, end, f"the front matter is not read: {error}"
    if not isinstance(fields, Mapping):
        return ({}, 0, 0, "") if block.strip() else ({}, body_start, end, "")
    if mended:  # its words are found, too
        return fields, 0, end, f"the front matter is no YAML in {mended}: quote the value"
    return fields, body_start, end, ""


def parse_yaml(text: str) -> object:
    """Return the plain values of a YAML text.

    Raises ``ReadError`` if it is broken, longer than 65,536 characters, nested deeper than 16, has
    anchors, or different statements of a confidentiality: the parser would take the last.
    """
    import yaml

    if len(text) > _MAX_CHARACTERS:
        raise ReadError(f"it is longer than {_MAX_CHARACTERS:,} characters")
    if len(set(_STATEMENT.findall(text))) > 1:
        raise ReadError(f"{LEVEL} occurs more than once")
    try:
        events = list(yaml.parse(text, Loader=_loader()))  # as many as the text is long, unexpanded
        has_anchors = any(getattr(event, "anchor", None) for event in events)
        starts, ends = yaml.CollectionStartEvent, yaml.CollectionEndEvent
        depths = accumulate(isinstance(one, starts) - isinstance(one, ends) for one in events)
        is_deep = max(depths, default=0) > _MAX_DEPTH
        value = None if has_anchors or is_deep else yaml.load(text, Loader=_loader())  # noqa: S506
        str(value)  # raises if it has a number that nothing prints
    except Exception as error:  # explicit tags make PyYAML raise nearly anything
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        at = "" if mark is None else f" in line {mark.line + 1}"
        raise ReadError(f"it is not valid YAML{at} ({problem or type(error).__name__})") from error
    if has_anchors:
        raise ReadError("it has anchors or aliases (& and *), which are not supported")
    if is_deep:
        raise ReadError(f"it is nested deeper than {_MAX_DEPTH}")
    return value


def _parse_mended(block: str) -> tuple[object, str]:
    """Return the values of a YAML text, and the lines whose values had to be quoted."""
    try:
        return parse_yaml(block), ""
    except ReadError:
        mended = _UNQUOTED.sub(lambda it: it[1] + json.dumps(it[2], ensure_ascii=False), block)
        if mended == block:
            raise
    pairs = enumerate(zip(block.split("\n"), mended.split("\n"), strict=True), start=2)
    return parse_yaml(mended), ", ".join(f"line {at}" for at, (old, new) in pairs if old != new)


def _parse_toml(block: str) -> Mapping[Any, object]:
    if _MANY_DOTS.search(block):
        raise ReadError(f"it is nested deeper than {_MAX_DEPTH}")
    try:  # the TOML standard knows no lone carriage return
        fields = tomllib.loads(re.sub(r"\r\n?", "\n", block))
        str(fields)  # raises if it has a number that nothing prints
    except (ValueError, RecursionError) as error:
        raise ReadError(f"it is not valid TOML ({str(error)[:100]})") from error
    return fields


@cache
def _loader() -> type[yaml.SafeLoader]:
    """Make the safe loader, but keep an impossible date as the author's text."""
    import yaml

    def timestamp(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> object:
        with suppress(ValueError, AttributeError):
            return loader.construct_yaml_timestamp(node)
        return node.value

    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    made = cast("type[yaml.SafeLoader]", type("FrontMatterLoader", (base,), {}))
    made.add_constructor("tag:yaml.org,2002:timestamp", timestamp)
    return made
