"""Front matter at the top of a text, in YAML or TOML: its fields, and refusals where in doubt."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from catalog.core.documents import MetadataValue
from catalog.core.errors import ReadError
from catalog.ingest.readers.metadata import (
    LEVEL,
    field_name,
    fold,
    holds_level,
    is_level_name,
    normalise,
)

if TYPE_CHECKING:
    import yaml

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
        _check_unguarded(block, "it is no list of fields")
        return _NO_FRONT_MATTER
    line_break = _LINE_BREAK.match(text, closing.end())
    body_start = closing.end() if line_break is None else line_break.end()
    return FrontMatter(fields, body_start if text[body_start:].strip() else 0, problem)


def check_head(text: str, *, in_paragraph: bool = True) -> None:
    """Raise ``ReadError`` if the top of a body states a confidentiality, which is not read there.

    That is in front matter, also below something else, or in the first paragraph, as in JSON
    between braces or ``#+confidentiality: secret``.
    """
    text = below = text[: 2 * _MAX_CHARACTERS]
    while True:
        below = below[cast("re.Match[str]", _ABOVE.match(below)).end() :]
        front = read_front_matter(below)
        if holds_level(front.fields):
            raise ReadError(
                f"its front matter names a {LEVEL} and is not read: it is not at the top"
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
        raise ReadError(f"its first lines name a {LEVEL} and are not read: write it between ---")


def read_level(text: str, *, in_paragraph: bool = True) -> dict[str, MetadataValue]:
    """Return only the confidentiality of front matter, for text whose other fields are not read.

    Raises ``ReadError`` where one is stated and cannot be read, in the first paragraph too unless
    that is code or markup.
    """
    front = read_front_matter(text)
    level = {name: value for name, value in normalise(front.fields).items() if name == LEVEL}
    if front.body_start or not front.fields:
        check_head(text[front.body_start :], in_paragraph=in_paragraph and not level)
    return level


def parse_yaml(text: str) -> object:
    """Return what a YAML text holds, in plain values.

    Raises ``ReadError`` with the reason where it is broken, longer than 65,536 characters, nested
    deeper than 16, has tags that make objects, anchors or aliases, or more than one line that
    names a confidentiality.
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
    """Return what a JSON text holds; ``ReadError`` if it is broken or says a field twice."""
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
        raise ReadError(f"it names {twice} more than once")
    return dict(pairs)


def check_unread(value: object, name: str) -> None:
    """Raise ``ReadError`` if a field that has no names itself holds the word confidentiality."""
    text = value if isinstance(value, str) else json.dumps(value)
    if LEVEL in _unescaped(text):
        raise ReadError(f"its {name} names a {LEVEL} and is not read: it must be an object")


def _check_unguarded(block: str, problem: str, *, is_prose: bool = True) -> None:
    """Raise ``ReadError`` if fields that are not read may have told who may see the document.

    Prose may use the word; broken fields may not.
    """
    if _names_level(block) if is_prose else LEVEL in _unescaped(block):
        raise ReadError(f"its front matter names a {LEVEL} and is not read: {problem}")


def _names_level(text: str) -> bool:
    return _GUARDED.search(_unescaped(text)) is not None


def _unescaped(text: str) -> str:
    def unescape(match: re.Match[str]) -> str:
        digits = match[1] or match[2] or match[3]
        code = int(digits, 16) if digits else -1
        return chr(code) if 0 <= code <= 0x10FFFF else ""

    return fold(_ESCAPE.sub(unescape, text) if "\\" in text else text)


def _parse_fields(block: str, mark: str) -> Mapping[Any, object] | None:
    """Return the fields, ``None`` if the block is no list of fields; ``ReadError`` if broken."""
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
        return tomllib.loads(_LINE_BREAK.sub("\n", block))
    except (ValueError, RecursionError) as error:
        raise ReadError(f"it is not valid TOML ({str(error)[:100]})") from error


def _check_events(text: str) -> None:
    """Raise ``ReadError`` if the YAML is nested deeply, refers to a part of itself, or is unclear.

    It is unclear when two keys name a confidentiality: the parser would take the last one.
    Only its events are looked at, which cost the length of the text whatever it expands to.
    """
    import yaml

    levels = 0
    next_is_key: list[bool | None] = []  # of each open collection; None for a list
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise ReadError("it has anchors or aliases (& and *), which are not followed")
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
            raise ReadError(f"it names {LEVEL} more than once")
        if len(next_is_key) > _MAX_DEPTH:
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
