"""Reading filters from what callers hold: mappings, expressions, file types, parts of names."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Set
from typing import Any

from catalog.core.documents import MetadataScalar
from catalog.core.errors import FilterError, UnknownOperatorError
from catalog.core.filters import (
    ALIASES,
    TEXT_FIELDS,
    And,
    Condition,
    Filter,
    Not,
    Op,
    Or,
    condition,
    is_list,
)

MAX_CONDITIONS = 500
MAX_DEPTH = 50
_QUOTE_OR_BAR = re.compile(r'["|]')
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_DECIMAL = re.compile(r"[+-]?([0-9]++\.?[0-9]*+|\.[0-9]++)([eE][+-]?[0-9]++)?")

_NAMES_BY_EXTENSIONS = {
    "md": "markdown mdown mkd",
    "docx doc docm dotx": "word worddocument",
    "pptx ppt pptm ppsx potx": "powerpoint presentation slide slides slideshow",
    "xlsx xls xlsm csv": "excel spreadsheet sheet",
    "ipynb": "notebook jupyter jupyternotebook",
    "html htm xhtml": "web webpage webpages website html htm xhtml",
    "txt text": "text plaintext",
    "rst": "restructuredtext",
    "epub": "ebook book",
    "py": "python",
    "srt vtt sbv": "subtitle subtitles caption captions",
    "srt": "subrip",
    "vtt": "webvtt",
    "video mp4 mkv mov avi webm m4v mpg mpeg wmv flv ogv": "video videos movie film recording",
    "audio mp3 wav m4a flac ogg opus aac wma": "audio sound podcast",
    "image png jpg jpeg gif bmp webp tif tiff svg": "image images picture photo",
    "jpg jpeg": "jpg jpeg",
    "yaml yml": "yaml yml",
    "jsonl ndjson": "jsonl ndjson",
}
_TYPES = {
    name: types.split() for types, names in _NAMES_BY_EXTENSIONS.items() for name in names.split()
}
_EXTENSIONS = frozenset(" ".join(_NAMES_BY_EXTENSIONS).split())
_SUBTITLES = frozenset(["srt", "vtt", "sbv"])
_SUBTITLED = ("video", "audio")  # the types of subtitles that could be read: what they are of
_ONE_CONDITION, _OPERATORS = ({"field", "value"}, {"key", "value"}), {"op", "operator"}
_FILES = frozenset(["file", "files", "document", "documents"])


def parse_filters(filters: object) -> Filter | None:
    """Read a filter from any form a caller may hold; ``None`` stays ``None`` (no restriction).

    Accepts a :data:`Filter`, LlamaIndex ``MetadataFilters`` or one ``MetadataFilter``, a mapping
    ``{"tag": "ops", "page": {">=": 3}, "path": ["a.md", "b.md"]}`` whose items are AND-ed (a
    list means IN), one condition as ``{"field": "tag", "op": "==", "value": "ops"}``, or an
    iterable of any of these and of ``"tag=ops"`` expressions, AND-ed. Text may also be the JSON
    of a list or an object.
    Raises :class:`FilterError` for anything else, for more than :data:`MAX_CONDITIONS`
    conditions, and for nesting deeper than :data:`MAX_DEPTH`.
    """
    if filters is None:
        return None
    try:
        tree = _read(filters)
        conditions, depth = _size(tree)
    except RecursionError:
        raise FilterError(f"the filter is nested deeper than {MAX_DEPTH}") from None
    if conditions > MAX_CONDITIONS:
        raise FilterError(f"the filter has {conditions} conditions; at most {MAX_CONDITIONS}")
    if depth > MAX_DEPTH:
        raise FilterError(f"the filter is nested deeper than {MAX_DEPTH}")
    return tree


def parse_expression(expression: str) -> Condition:
    """Read ``field OP value`` with OP one of ``= == != > >= < <= ~`` (``~``: holds the text).

    Values read as numbers or ``true``/``false`` where they look so, except on fields whose
    values are always text (:data:`TEXT_FIELDS`); ``"…"`` keeps a string; ``a|b`` after ``=``
    or ``!=`` means any of them.
    """
    start = next((i for i, char in enumerate(expression) if i > 0 and char in "=!<>~"), None)
    if start is None:
        raise FilterError(f"{expression!r} is not field=value, field!=value, field>=value or so")
    name, rest = expression[:start].strip(), expression[start:]
    symbol = next(
        (s for s in ("==", "!=", ">=", "<=", "=", ">", "<", "~") if rest.startswith(s)), ""
    )
    if symbol == "":
        raise UnknownOperatorError(f"unknown operator in {expression!r}; use = != > >= < <= ~")
    text = rest[len(symbol) :].strip()
    if symbol == "~":
        return condition(name, Op.TEXT_MATCH_INSENSITIVE, _unquote(text))
    parts = _split_alternatives(text)
    if symbol in ("=", "==", "!=") and len(parts) > 1:
        op = Op.NIN if symbol == "!=" else Op.IN
        return condition(name, op, [_parse_literal(name, part.strip()) for part in parts])
    return condition(name, Op.EQ if symbol == "=" else Op(symbol), _parse_literal(name, text))


def file_type_filter(name: str) -> Filter:
    """Return a filter on a file type: ``pdf``, ``.PDF``, ``word``, ``slides``, ``web page``.

    A kind such as ``word`` or ``video`` stands for all its extensions, in any case and with or
    without a leading dot; any other text is taken literally, in lower case, and as a plural
    (``PDFs``). Subtitles have the type of the recording they belong to, so they are matched by
    their path as well. Raises :class:`FilterError` for blank text.
    """
    text = _require_text("file type", name).casefold().removeprefix("*").removeprefix(".")
    words = text.rsplit(maxsplit=1)
    text = words[0] if len(words) > 1 and words[1] in _FILES else text.strip() or text
    joined = "".join(char for char in text if char.isalnum())
    known = _TYPES.get(joined) or _TYPES.get(joined.removesuffix("s"), [])
    types = list(dict.fromkeys((*known, text, _singular(text))))
    by_type = condition("file_type", Op.IN, types)
    endings = [extension for extension in types if extension in _SUBTITLES]
    if not endings:
        return by_type
    by_path = (condition("path", Op.TEXT_MATCH_INSENSITIVE, f".{ending}") for ending in endings)
    of_recordings = condition("file_type", Op.IN, list(_SUBTITLED))
    return Or((by_type, And((of_recordings, Or(tuple(by_path))))))


def known_file_type(name: str, extensions: Set[str] = frozenset()) -> str | None:
    """Return the type that a document called so has (``Word``: ``docx``); ``None`` for no type.

    An extension that is known, or among ``extensions``, is itself.
    """
    text = name.strip().casefold().removeprefix(".")
    if text in _EXTENSIONS or text in extensions:
        return text
    joined = "".join(char for char in text if char.isalnum())
    types = _TYPES.get(joined) or _TYPES.get(joined.removesuffix("s"))
    return types[0] if types else None


def name_filter(part: str) -> Filter:
    """Return a filter on documents whose path, title or recording holds the text, in any case.

    Raises :class:`FilterError` for blank text.
    """
    text = _require_text("name", part)
    fields = ("path", "title", "media")
    return Or(tuple(condition(field, Op.TEXT_MATCH_INSENSITIVE, text) for field in fields))


def _read(filters: object) -> Filter:
    if isinstance(filters, Condition | And | Or | Not):
        return _check(filters)
    if hasattr(filters, "filters") and hasattr(filters, "condition"):
        return _from_llama_index(filters)
    if hasattr(filters, "key") and hasattr(filters, "operator"):
        return _from_llama_index(filters)
    if isinstance(filters, Mapping):
        if "value" in filters and filters.keys() - _OPERATORS in _ONE_CONDITION:
            return _from_parts(filters)
        return _conjunction(_from_item(key, value) for key, value in filters.items())
    if isinstance(filters, str):
        from_json = _read_json(filters)
        return parse_expression(filters) if from_json is None else _read(from_json)
    if is_list(filters):
        return _conjunction(_read(part) for part in filters)
    raise FilterError(f"a filter cannot be read from {type(filters).__name__}")


def _read_json(text: str) -> Any:
    """Return the list or object that a text of JSON is, ``None`` for any other text."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, list | dict) else None


def _check(tree: Filter) -> Filter:
    match tree:
        case Condition():
            return condition(tree.field, tree.op, tree.value)
        case And():
            return And(tuple(_check(part) for part in tree.parts))
        case Or():
            return Or(tuple(_check(part) for part in tree.parts))
        case Not():
            return Not(_check(tree.part))


def _from_parts(parts: Mapping[str, Any]) -> Filter:
    """Return the condition of ``{"field": "tag", "op": "=", "value": "ops"}``, as models write."""
    value = parts["value"]
    op = parts.get("op", parts.get("operator", "in" if is_list(value) else "=="))
    return condition(parts.get("field", parts.get("key")), "==" if op == "=" else op, value)


def _from_item(field: str, value: object) -> Filter:
    if isinstance(value, Mapping):
        if len(value) == 0:
            raise FilterError(f"the filter on {field} has no operator")
        return _conjunction(condition(field, op, operand) for op, operand in value.items())
    return condition(field, Op.IN if is_list(value) else Op.EQ, value)


def _from_llama_index(node: Any) -> Filter:
    if not hasattr(node, "filters"):
        return condition(node.key, node.operator, node.value)
    parts = tuple(_from_llama_index(part) for part in node.filters)
    name = str(getattr(node.condition, "value", node.condition) or "and").lower()
    if name == "and":
        return _conjunction(parts)
    if name == "or":
        return Or(parts)
    if name == "not":
        return Not(Or(parts))
    raise UnknownOperatorError(f"unknown filter condition {name!r}; conditions: and, or, not")


def _conjunction(parts: Iterable[Filter]) -> Filter:
    listed = tuple(parts)
    return listed[0] if len(listed) == 1 else And(listed)


def _size(tree: Filter) -> tuple[int, int]:
    """Return how many conditions (each value of ALL is one) and levels the filter has."""
    if isinstance(tree, Condition):
        values = tree.value if tree.op is Op.ALL and isinstance(tree.value, tuple) else ()
        return max(1, len(values)), 1
    sizes = [_size(part) for part in ((tree.part,) if isinstance(tree, Not) else tree.parts)]
    return sum(count for count, _ in sizes), 1 + max((depth for _, depth in sizes), default=0)


def _split_alternatives(text: str) -> list[str]:
    """Split at each ``|`` that an even number of quotes follows."""
    parts, begin, quotes = [], 0, text.count('"')
    for sign in _QUOTE_OR_BAR.finditer(text):
        if sign.group() == '"':
            quotes -= 1
        elif quotes % 2 == 0:
            parts.append(text[begin : sign.start()])
            begin = sign.end()
    return [*parts, text[begin:]]


def _unquote(text: str) -> str:
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] == '"' else text


def _parse_literal(field: str, text: str) -> MetadataScalar:
    if _unquote(text) != text:
        return _unquote(text)
    if ALIASES.get(field, field) in TEXT_FIELDS:
        return text
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text


def _singular(kind: str) -> str:
    """Return a kind without its plural s; itself where that makes another word, as of ``css``."""
    bare = kind.removesuffix("s")
    is_plural = bare in _EXTENSIONS or (len(bare) > 2 and not bare.endswith("s"))
    return bare if is_plural else kind


def _require_text(what: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise FilterError(f"the {what} to narrow by must be some text, not {value!r}")
    return value.strip()
