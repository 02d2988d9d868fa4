"""Read authors' metadata from front matter or fields, as values for filters."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import tomllib
import unicodedata
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
    """Return metadata as stored: flat, with scalars or tuples of scalars.

    Nested mappings get dotted keys; dates become ISO 8601 strings; ``None`` and empty lists are
    left out; numbers that no database can store become strings. ``tags``/``tag``/``keywords`` are
    joined to ``tags``. ``created`` and ``modified`` come from the first key in :data:`DATE_KEYS`
    that exists, if it is a date; ``source_url`` from ``source_url``, ``url``, ``permalink`` or
    ``source`` if that is a web address. A ``page_title`` is text. A key used for a first-class
    field is removed; all others keep their names. For first-class fields, case does not matter, and
    words may be joined by ``_``, ``-`` or a blank.

    Raises ``ReadError`` for a ``confidentiality`` that is not a text, a number or a list of these,
    that is nested, stated twice or spelled with look-alike letters: access to a document is never
    guessed.
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
        raise ReadError(f"{LEVEL} occurs more than once")
    for name, value in levels.items():
        if field_name(name.strip()) != LEVEL:
            raise ReadError(f"its field {name!r} must be spelled {LEVEL}")
        if not _is_level(value):
            raise ReadError(f"{LEVEL} must be text or a number, or a list of them")
    check_no_level(list(raw.values()))


def check_no_level(value: object) -> None:
    """Raise ``ReadError`` for a confidentiality anywhere in a value that may not have one."""
    if holds_level(value):
        raise ReadError(f"{LEVEL} is inside another field: write it at the top")


def holds_level(value: object) -> bool:
    """Return whether a field in a value, at any depth, has the name of a confidentiality."""
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

    This includes ``Confidentiality Level`` and ``dc.confidentiality``.
    """
    text = name.decode("latin-1") if isinstance(name, bytes) else str(_printable(name))
    if len(text) < len(LEVEL) and text.isascii():  # some letters are two, as in a ligature
        return False
    folded = fold(text)
    names = (folded, *re.split(r"[.:]", folded))
    return any("".join(filter(str.isalnum, one)).startswith(LEVEL) for one in names)


def load_json(text: str) -> object:
    """Return the value of a JSON text, with the errors of ``json.loads``.

    Raises ``ReadError`` if an object has a name twice and a confidentiality would be lost.
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
            raise ReadError(f"{LEVEL} occurs more than once, or in one of two equal fields")
    return fields


def fold(text: str) -> str:
    """Return lower-case text with look-alike letters as Latin and without invisible ones."""
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKD", text).casefold().translate(_LOOK_ALIKES)
    return "".join(one for one in folded if unicodedata.category(one) not in ("Cf", "Mn"))


def _is_level(value: object) -> bool:
    """Return whether a value can be a level of confidentiality."""
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
        return storable(json.dumps(plain_json(value), ensure_ascii=False, default=str))
    return storable(str(value)).strip() or None


def _printable(value: object) -> object:
    """Return the value; a number that Python refuses to print becomes hexadecimal digits."""
    is_huge = isinstance(value, int) and value.bit_length() > _PRINTED_BITS
    return hex(cast(int, value)) if is_huge else value


def _in_order(values: AbstractSet[object]) -> list[object]:
    return sorted(values, key=lambda value: str(_printable(value)))


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
# Explicit tags make PyYAML's constructors raise nearly anything ("!!bool x" is a KeyError).
_BROKEN_VALUES = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
_GUARDED = re.compile(  # as a field's name, of folded text; no heading
    r"(?:(?:^|(?<=[\r\n]))(?!\#+[ \t])[^\w\r\n]*+|\{\s*+[\"']?|,\s*+[\"'])"
    r"confidentiality(?:[ \t_-]*level|[\w.-]*+)[\"'*_\])]*+\s*+[:=]"
)
_ESCAPE = re.compile(  # also of a line break
    r"\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|(?>\r\n?|\n)[ \t]*+)", re.ASCII
)
_BLANK_LINE = re.compile(r"(?>\r\n?|\n)[ \t]*(?=[\r\n])")
_ABOVE = re.compile(  # blank lines, comments, headings, directives and the mark of WebVTT
    r"(?:[ \t\ufeff]*+(?:(?:[#%]|WEBVTT\b)[^\r\n]*+|<!--(?:(?!-->).)*+-->[ \t]*+)?(?>\r\n?|\n))*+"
    r"[ \t\ufeff]*+",
    re.DOTALL,
)


class FrontMatter(NamedTuple):
    """The fields of front matter, the start of the body (0 without any), and its problem."""

    fields: Mapping[Any, object]
    body_start: int
    problem: str = ""


_NO_FRONT_MATTER = FrontMatter({}, 0)


def read_front_matter(text: str) -> FrontMatter:
    """Return the front matter of a text.

    A block that is broken, deeply nested, or has YAML anchors or aliases gives no fields but a
    ``problem``; the body still begins after it. A block that is not closed, is longer than 65,536
    characters or is not a list of fields (for example a rule across the page) is ordinary text. So
    is a block that is broken by prose, and one with nothing after it, because otherwise the
    document would have no text. Raises ``ReadError`` if unreadable fields name a confidentiality.
    """
    opening = _OPENING.match(text)
    if opening is None:
        return _NO_FRONT_MATTER
    closing = _CLOSING[opening[1]].search(text, opening.end())
    if closing is None or closing.start() - opening.end() > _MAX_CHARACTERS:
        prose = _PROSE.search(text, opening.end()) if closing is None else closing
        end = len(text) if prose is None else prose.start()
        _check_unguarded(text[opening.end() : end], "it does not end, or is too long")
        return _NO_FRONT_MATTER
    block = text[opening.end() : closing.start()]
    is_prose = opening[1] == "---" and _PROSE.search(block) is not None
    try:
        fields, problem = _parse_fields(block, opening[1]), ""
    except ReadError as error:
        _check_unguarded(block, str(error), is_prose=is_prose)
        fields, problem = {}, f"the front matter is not read: {error}"
        if is_prose:
            return _NO_FRONT_MATTER
    if fields is None:
        _check_unguarded(block, "it is not a list of fields")
        return _NO_FRONT_MATTER
    line_break = _LINE_BREAK.match(text, closing.end())
    body_start = closing.end() if line_break is None else line_break.end()
    return FrontMatter(fields, body_start if text[body_start:].strip() else 0, problem)


def check_head(text: str, *, in_paragraph: bool = True) -> None:
    """Raise ``ReadError`` if the top of a body states a confidentiality, which is not read there.

    The top is front matter, also below something else, or the first paragraph, as JSON in braces or
    as ``#+confidentiality: secret``.
    """
    text = below = text[: 2 * _MAX_CHARACTERS]
    while True:
        below = below[cast("re.Match[str]", _ABOVE.match(below)).end() :]
        front = read_front_matter(below)
        if holds_level(front.fields):
            raise ReadError(
                f"{LEVEL} in the front matter is not read: the front matter is not at the top"
            )
        rule = _OPENING.match(below)
        if front.body_start:
            text = below = below[front.body_start :]
        elif rule is not None:  # of a block without fields, such as comments and directives
            below = below[rule.end() :]
        else:
            break
    if not in_paragraph:
        return
    text = text[:_MAX_CHARACTERS].lstrip("\ufeff \t\r\n")
    blank = _BLANK_LINE.search(text)
    if _names_level(text if blank is None else text[: blank.start()]):
        raise ReadError(f"{LEVEL} in the first lines is not read: write it between ---")


def read_level(text: str, *, in_paragraph: bool = True) -> dict[str, MetadataValue]:
    """Return the confidentiality in front matter, for text whose other fields are ignored.

    Raises ``ReadError`` if one is stated and cannot be read, also in the first paragraph unless
    that is code or markup.
    """
    front = read_front_matter(text)
    level = {name: value for name, value in normalise(front.fields).items() if name == LEVEL}
    if front.body_start or not front.fields:
        check_head(text[front.body_start :], in_paragraph=in_paragraph and not level)
    return level


def parse_yaml(text: str) -> object:
    """Return the plain values of a YAML text.

    Raises ``ReadError`` with the reason if it is broken, longer than 65,536 characters, nested
    deeper than 16, has tags that make objects, anchors or aliases, or more than one line that names
    a confidentiality.
    """
    import yaml

    if len(text) > _MAX_CHARACTERS:
        raise ReadError(f"it is longer than {_MAX_CHARACTERS:,} characters")
    try:
        _check_events(text)
        return cast(object, yaml.load(text, Loader=_loader()))  # noqa: S506  a safe loader's child
    except yaml.MarkedYAMLError as error:
        at = "" if error.problem_mark is None else f" in line {error.problem_mark.line + 1}"
        raise ReadError(f"it is not valid YAML{at} ({error.problem})") from error
    except (yaml.YAMLError, RecursionError, *_BROKEN_VALUES) as error:
        raise ReadError(f"it is not valid YAML ({type(error).__name__})") from error


def parse_json(text: str) -> object:
    """Return the value of a JSON text; raise ``ReadError`` for broken JSON or a repeated field."""
    try:
        return cast(object, json.loads(text, object_pairs_hook=_fields_once))
    except json.JSONDecodeError as error:
        raise ReadError(f"it is not valid JSON in line {error.lineno} ({error.msg})") from error
    except (ValueError, RecursionError) as error:
        raise ReadError(f"it is not valid JSON ({type(error).__name__})") from error


def _fields_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    names = [field_name(name.strip()) for name, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ReadError(f"{twice} occurs more than once")
    return dict(pairs)


def check_unread(value: object, name: str) -> None:
    """Raise ``ReadError`` if a field that is not read contains the word confidentiality."""
    text = value if isinstance(value, str) else json.dumps(value)
    if LEVEL in _unescaped(text):
        raise ReadError(f"{LEVEL} in {name} is not read: {name} must be an object")


def _check_unguarded(block: str, problem: str, *, is_prose: bool = True) -> None:
    """Raise ``ReadError`` if unread fields may contain a confidentiality.

    Prose may use the word; broken fields may not.
    """
    if _names_level(block) if is_prose else LEVEL in _unescaped(block):
        raise ReadError(f"{LEVEL} in the front matter is not read: {problem}")


def _names_level(text: str) -> bool:
    return _GUARDED.search(_unescaped(text)) is not None


def _unescaped(text: str) -> str:
    def unescape(match: re.Match[str]) -> str:
        digits = match[1] or match[2] or match[3]
        code = int(digits, 16) if digits else -1
        return chr(code) if 0 <= code <= 0x10FFFF else ""

    return fold(_ESCAPE.sub(unescape, text) if "\\" in text else text)


def _parse_fields(block: str, mark: str) -> Mapping[Any, object] | None:
    """Return the fields, ``None`` if the block has none; raise ``ReadError`` if it is broken."""
    if not block.strip():
        return {}
    if mark == "+++":
        return _parse_toml(block)
    is_field = _LOOKS_LIKE_FIELDS.match(block) is not None
    if not is_field and _MAY_BE_FIELDS.match(block) is None:
        return None
    try:
        fields = parse_yaml(block)
    except ReadError as error:
        if is_field:
            raise
        _check_unguarded(block, str(error), is_prose=_PROSE.search(block) is not None)
        return None
    return fields if isinstance(fields, Mapping) else None


def _parse_toml(block: str) -> Mapping[Any, object]:
    try:
        # The TOML standard knows no lone carriage return.
        fields = tomllib.loads(_LINE_BREAK.sub("\n", block))
        json.dumps(fields, default=str)  # a long dotted key nests as deeply as it is long
    except (ValueError, RecursionError) as error:
        raise ReadError(f"it is not valid TOML ({str(error)[:100]})") from error
    return fields


def _check_events(text: str) -> None:
    """Raise ``ReadError`` if the YAML is deeply nested, refers to a part of itself, or is unclear.

    It is unclear if two keys name a confidentiality, because the parser would take the last one.
    Only its events are read, whose number depends on the length of the text and not on its
    expansion.
    """
    import yaml

    levels = 0
    next_is_key: list[bool | None] = []  # of each open collection; None for a list
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise ReadError("it has anchors or aliases (& and *), which are not supported")
        if isinstance(event, yaml.CollectionEndEvent):
            next_is_key.pop()
        elif isinstance(event, yaml.NodeEvent):
            is_key = next_is_key[-1] if next_is_key else None
            if is_key is not None:
                next_is_key[-1] = not is_key
            if is_key and isinstance(event, yaml.ScalarEvent):
                levels += is_level_name(event.value)
            if isinstance(event, yaml.CollectionStartEvent):
                next_is_key.append(True if isinstance(event, yaml.MappingStartEvent) else None)
        if levels > 1:
            raise ReadError(f"{LEVEL} occurs more than once")
        if len(next_is_key) > _MAX_DEPTH:
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
