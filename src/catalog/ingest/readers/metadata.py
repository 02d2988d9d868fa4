"""Read authors' metadata from front matter or fields, as values for filters."""

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

from catalog.core.dates import read_written_date
from catalog.core.documents import MetadataScalar, MetadataValue
from catalog.core.errors import ReadError
from catalog.core.text import storable

if TYPE_CHECKING:
    import yaml

_WEB_ADDRESS = re.compile(r"https?://[^\s/]+\S*", re.IGNORECASE)
_LARGEST_INTEGER = 2**63
_PRINTED_BITS = 4096
_MAX_DOTS = 8
_TAG_KEYS = ("tags", "tag", "keywords", "taxonomies.tags")  # the last one is Zola's
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
UNREADABLE = "unreadable"
"""The level of a document that states one which cannot be read. No role may list it."""
_NESTED_LEVEL = re.compile(rf'"[^"]{{0,40}}{LEVEL}[^"]{{0,40}}"\s?:')


def normalise(raw: Mapping[Any, object]) -> dict[str, MetadataValue]:
    """Return metadata as stored: flat, with scalars or tuples of scalars.

    Nested mappings get dotted keys; dates become ISO 8601 strings; ``None`` and empty lists are
    left out; numbers that no database can store become strings. ``tags``/``tag``/``keywords`` are
    joined to ``tags``. ``created`` and ``modified`` come from the first key in :data:`DATE_KEYS`
    that exists, if it is a date; ``source_url`` from ``source_url``, ``url``, ``permalink`` or
    ``source`` if that is a web address. A ``page_title`` is text. A key used for a first-class
    field is removed; all others keep their names. For first-class fields, case does not matter, and
    words may be joined by ``_``, ``-`` or a blank.

    A ``confidentiality`` is settled as :func:`settle_level` does: access is never guessed.
    """
    flat: dict[str, MetadataValue] = {}
    for name, value in _flatten(raw, "", 0):
        known = field_name(name)
        is_level_again = known == LEVEL and flat.get(LEVEL, value) != value
        flat[known] = UNREADABLE if is_level_again else value
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
    return settle_level({**flat, **fields})


def settle_level(fields: Mapping[str, MetadataValue]) -> dict[str, MetadataValue]:
    """Return metadata whose ``confidentiality`` is a plain level, ``unreadable``, or absent.

    It is ``unreadable`` if it is no text, number or list of these, or if another field has the word
    in its name (``Confidentiality Level``, ``dc.confidentiality``, ``meta.confidentiality``) or in
    the name of a field inside it.
    """
    others = [one for one in fields.items() if one[0] != LEVEL]
    is_readable = LEVEL not in fields or _is_level(fields[LEVEL])
    if is_readable and not any(LEVEL in name.casefold() or _is_nested(it) for name, it in others):
        return dict(fields)
    return {**{n: it for n, it in others if LEVEL not in n.casefold()}, LEVEL: UNREADABLE}


def _is_nested(value: object) -> bool:
    """Return whether a stored value is JSON with a field that states a confidentiality."""
    items = value if isinstance(value, tuple) else (value,)
    texts = (one for one in items if isinstance(one, str) and one[:1] in ("{", "["))
    return any(_NESTED_LEVEL.search(text.casefold()) for text in texts)


def one_level(*stated: MetadataValue | None) -> dict[str, MetadataValue]:
    """Return the level on which all statements agree (``None`` is none), as metadata.

    Return ``unreadable`` if they differ, and nothing without a statement.
    """
    levels = dict.fromkeys(one for one in stated if one is not None)
    return {LEVEL: next(iter(levels)) if len(levels) == 1 else UNREADABLE} if levels else {}


def stated_levels(fields: Mapping[Any, object]) -> dict[str, object]:
    """Return the fields that state a confidentiality, by their name or within their value.

    A reader that keeps no other fields of its format hands these on to :func:`normalise`.
    """
    return {
        str(name): value
        for name, value in fields.items()
        if LEVEL in str(name).casefold()
        or _is_nested(_json_text(value) if isinstance(value, dict | list) else value)
    }


def read_json(text: str) -> object:
    """Return the value of a JSON text, with the errors of ``json.loads``.

    Of two equal names the last one counts; a confidentiality in another is kept as ``repeated``.
    """
    return cast(object, json.loads(text, object_pairs_hook=_keep_repeated_levels))


def _keep_repeated_levels(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        lost = [{name: value} for name, value in pairs if fields[name] is not value]
        if lost := list(filter(stated_levels, lost)):
            fields["repeated"] = lost
    return fields


def _is_level(value: object) -> bool:
    """Return whether a value can be a level of confidentiality."""
    if isinstance(value, list | tuple):
        are_plain = not any(isinstance(item, list | tuple) for item in value)
        return bool(value) and are_plain and all(map(_is_level, value))
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    text = str(_printable(value)).strip() if is_plain else ""
    return text != "" and text[0] not in "{["


def field_name(name: str) -> str:
    plain = re.sub(r"[-\s]+", "_", name.casefold())
    return plain if plain in _NAMES else name


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
        name = storable(str(_printable(key))).strip()
        if not name:
            continue
        if field_name(name) == LEVEL and not prefix and not _is_level(value):
            yield LEVEL, UNREADABLE
            continue
        if isinstance(value, Mapping) and depth < _MAX_DOTS:
            yield from _flatten(value, f"{prefix}{name}.", depth + 1)
            continue
        stored = _stored_value(value)
        if stored is not None and stored != ():
            yield prefix + name, stored
        elif LEVEL in name.casefold():
            yield prefix + name, UNREADABLE


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
        return storable(_json_text(value))
    return storable(str(value)).strip() or None


def _printable(value: object) -> object:
    """Return the value; a number that Python refuses to print becomes hexadecimal digits."""
    is_huge = isinstance(value, int) and value.bit_length() > _PRINTED_BITS
    return hex(cast(int, value)) if is_huge else value


def _in_order(values: AbstractSet[object]) -> list[object]:
    return sorted(values, key=lambda value: str(_printable(value)))


def _json_text(value: object) -> str:
    return json.dumps(plain_json(value), ensure_ascii=False, default=str)


def plain_json(value: object) -> object:
    """Return a nested value in JSON's own types; YAML's keys and values may be anything."""
    if isinstance(value, Mapping):
        return {
            _printable(key) if isinstance(key, str | int | float | None) else str(key): plain_json(
                inner
            )
            for key, inner in value.items()
        }
    if isinstance(value, set | frozenset):
        value = _in_order(value)
    if isinstance(value, list | tuple):
        return [plain_json(inner) for inner in value]
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
_COMMENTS = r"(?:[ \t]*+#[^\r\n]*+(?>\r\n?|\n))*+"
_LOOKS_LIKE_FIELDS = re.compile(_COMMENTS + r"[\"']?[\w.@$-][^:=\r\n]*[:=]")
_MAY_BE_FIELDS = re.compile(_COMMENTS + r"(?:[{?!]|<<[ \t]*+:)")
"""As YAML writes fields in a flow mapping, with an explicit key, a tag or a merge; or else text."""
_PROSE = re.compile(r"(?:\A|(?<=[\r\n]))\w[^:\r\n]*+(?=[\r\n]|\Z)")
"""A line without any field: where YAML is broken it tells text between two rules."""
_LINE_BREAK = re.compile(r"\r\n?|\n")
_VALUE = re.compile(r"([ ]*(?:- )?[\w.@$-][^:\"'{}\[\]]*:[ \t]+)(?![\"'|>])(\S.*)")
_MOST_MENDED, _MAX_MENDED = 20, 200_000
"""Lines of a block whose values are quoted, and characters that are read again for them."""
_TOML_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*+"?|\'[^\'\n]*+\'?')
_MANY_DOTS = re.compile(
    r"(?<![\w\"'-])(?:[\w\"'-]++[ \t]*+\.[ \t]*+){16}"
)  # each is a level of nesting
# Explicit tags make PyYAML's constructors raise nearly anything ("!!bool x" is a KeyError).
_BROKEN_VALUES = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
_STATEMENT = re.compile(rf"{LEVEL}[\"' ]*:\s*([^\n\r,}}]*)", re.IGNORECASE)


class FrontMatter(NamedTuple):
    """The fields of front matter, the start of the body (0 without any), and its problem."""

    fields: Mapping[Any, object]
    body_start: int
    problem: str = ""


_NO_FRONT_MATTER = FrontMatter({}, 0)


def read_front_matter(text: str) -> FrontMatter:
    """Return the front matter of a text.

    Of a block with lines that are no YAML the others are read; it stays part of the text, and
    ``problem`` names the lines. A block that is deeply nested, or has YAML anchors or aliases,
    gives no fields but a ``problem``; the body still begins after it. A block that is not closed,
    is longer than 65,536 characters, is broken by prose or is no list of fields (for example a rule
    across the page) is ordinary text. So is one with nothing after it.
    """
    opening = _OPENING.match(text)
    if opening is None:
        return _NO_FRONT_MATTER
    closing = _CLOSING[opening[1]].search(text, opening.end())
    if closing is None or closing.start() - opening.end() > _MAX_CHARACTERS:
        return _NO_FRONT_MATTER
    block = text[opening.end() : closing.start()]
    problem, mended = "", ""
    try:
        fields, mended = _parse_fields(block, opening[1])
    except ReadError as error:
        if opening[1] == "---" and _PROSE.search(block) is not None:
            return _NO_FRONT_MATTER
        fields, problem = {}, f"the front matter is not read: {error}"
    if fields is None:
        return _NO_FRONT_MATTER
    if mended:  # its words are found, too
        return FrontMatter(fields, 0, f"the front matter is no YAML in {mended}: quote the value")
    line_break = _LINE_BREAK.match(text, closing.end())
    body_start = closing.end() if line_break is None else line_break.end()
    return FrontMatter(fields, body_start if text[body_start:].strip() else 0, problem)


def end_of_front_matter(text: str) -> int:
    """Return where the block at the top ends, 0 without one: a heading in it is none."""
    opening = _OPENING.match(text)
    closing = None if opening is None else _CLOSING[opening[1]].search(text, opening.end())
    return 0 if closing is None else closing.end()


def parse_yaml(text: str) -> object:
    """Return the plain values of a YAML text.

    Raises ``ReadError`` with the reason if it is broken, longer than 65,536 characters, nested
    deeper than 16, has tags that make objects, anchors or aliases, or different statements of a
    confidentiality, of which the parser would take the last.
    """
    import yaml

    if len(text) > _MAX_CHARACTERS:
        raise ReadError(f"it is longer than {_MAX_CHARACTERS:,} characters")
    if len(set(_STATEMENT.findall(text))) > 1:
        raise ReadError(f"{LEVEL} occurs more than once")
    try:
        _check_events(text)
        return cast(object, yaml.load(text, Loader=_loader()))  # noqa: S506  a safe loader's child
    except yaml.MarkedYAMLError as error:
        at = "" if error.problem_mark is None else f" in line {error.problem_mark.line + 1}"
        line = 0 if error.problem_mark is None else error.problem_mark.line
        raise _MarkedError(f"it is not valid YAML{at} ({error.problem})", line) from error
    except (yaml.YAMLError, RecursionError, *_BROKEN_VALUES) as error:
        raise ReadError(f"it is not valid YAML ({type(error).__name__})") from error


def _parse_fields(block: str, mark: str) -> tuple[Mapping[Any, object] | None, str]:
    """Return the fields, ``None`` if the block has none, and the lines that had to be mended.

    Raises ``ReadError`` if it is broken.
    """
    if not block.strip():
        return {}, ""
    if mark == "+++":
        return _parse_toml(block), ""
    is_field = _LOOKS_LIKE_FIELDS.match(block) is not None
    if not is_field and _MAY_BE_FIELDS.match(block) is None:
        return None, ""
    try:
        fields, mended = _parse_mended(block)
    except ReadError:
        if is_field:
            raise
        return None, ""
    return fields if isinstance(fields, Mapping) else None, mended


def _parse_mended(block: str) -> tuple[object, str]:
    """Return the values of a YAML text, and the lines whose values had to be quoted."""
    lines, mended = _LINE_BREAK.split(block), list[int]()
    while True:
        try:
            at = ", ".join(f"line {number + 2}" for number in sorted(mended))
            return parse_yaml("\n".join(lines) if mended else block), at
        except _MarkedError as error:
            last = min(error.line, len(lines) - 1)
            marked = (number for number in range(last, max(-1, last - 2), -1))
            number = next((one for one in marked if _VALUE.fullmatch(lines[one])), None)
            is_long = len(block) * len(mended) > _MAX_MENDED
            if number is None or number in mended or len(mended) >= _MOST_MENDED or is_long:
                raise
            name, value = cast("re.Match[str]", _VALUE.fullmatch(lines[number])).groups()
            lines[number] = f"{name}{json.dumps(value.strip(), ensure_ascii=False)}"
            mended.append(number)


class _MarkedError(ReadError):
    """Broken YAML at a line, from 0."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def _parse_toml(block: str) -> Mapping[Any, object]:
    if _MANY_DOTS.search(_TOML_STRING.sub('""', block)):
        raise ReadError(f"it is nested deeper than {_MAX_DEPTH}")
    try:
        # The TOML standard knows no lone carriage return.
        return tomllib.loads(_LINE_BREAK.sub("\n", block))
    except (ValueError, RecursionError) as error:
        raise ReadError(f"it is not valid TOML ({str(error)[:100]})") from error


def _check_events(text: str) -> None:
    """Raise ``ReadError`` if the YAML is deeply nested or refers to a part of itself.

    Only its events are read, whose number depends on the length of the text and not on its
    expansion.
    """
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise ReadError("it has anchors or aliases (& and *), which are not supported")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise ReadError(f"it is nested deeper than {_MAX_DEPTH}")


@cache
def _loader() -> type[yaml.SafeLoader]:
    """Make the safe loader, but keep an impossible date as the author's text."""
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
