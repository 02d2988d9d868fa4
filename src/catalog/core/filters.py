"""The meaning of a metadata filter, defined once for every engine.

A field of a passage has a set of values: none, one, or several (``tags``, ``page``). A condition
asks about that set:

    EQ, CONTAINS  some value equals            NE    not EQ (true when the field is missing)
                  (a date: lies in the day, month or year)
    IN, ANY       some value is in the list    NIN   not IN (true when the field is missing)
    ALL           every listed value is there  IS_EMPTY  there is no value
    GT GTE LT LTE some value of the same type compares so (numbers; strings by code point;
                  ``created`` and ``modified`` as dates, if the condition names one)
    TEXT_MATCH    some string value holds the text; TEXT_MATCH_INSENSITIVE ignores case

``IN []`` is nothing, ``NIN []`` and ``ALL []`` are everything; AND of nothing is everything,
OR of nothing is nothing, NOT holds when none of its parts does. Text, numbers and truth
values are never equal to each other; numbers compare as 64-bit floats, so 3 equals 3.0.
``docs/reference/filters.md`` has the worked table.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, TypeGuard

from catalog.core.dates import date_span, to_timestamp
from catalog.core.documents import MetadataScalar, MetadataValue
from catalog.core.errors import FilterError, UnknownFieldError

CHUNK_FIELDS = frozenset({"modality", "page", "section"})
FIRST_CLASS_FIELDS = CHUNK_FIELDS | {
    "dataset", "source_doc_id", "docid", "path", "title", "file_type", "source_type", "tags",
    "source_url", "confidentiality", "created", "modified", "media", "page_title", "agent_hint"
}  # fmt: skip
TEXT_FIELDS = FIRST_CLASS_FIELDS - {"page", "confidentiality"}
WORD_FIELDS = frozenset({"page_title", "section"})  # a search compares them by their words
DATE_FIELDS = ("modified", "created")  # a document's date, the first one preferred
ALIASES = {"tag": "tags", "project": "dataset", "doc": "path", "page_label": "page"}
MAX_CONDITIONS = 500
MAX_DEPTH = 50
_EXPRESSION = re.compile(r"(.[^=!<>~]*)(==|!=|>=|<=|[=><~]|!)(.*)", re.DOTALL)
_ALTERNATIVE = re.compile(r'(?:^|\|)((?:"[^"]*+"|[^|])*+)')  # between bars outside of quotes
_QUOTED = re.compile(r'\A"(.*)"\Z', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_DECIMAL = re.compile(r"[+-]?([0-9]++\.?[0-9]*+|\.[0-9]++)([eE][+-]?[0-9]++)?")
_NAMES_BY_EXTENSIONS = {
    "md qmd rmd": "markdown mdown mkd",
    "docx doc docm dotx odt ott": "word worddocument",
    "pptx ppt pptm ppsx potx odp otp": "powerpoint presentation slide slides slideshow",
    "xlsx xls xlsm xlsb xltx xltm xlt ods ots csv tsv": "excel spreadsheet sheet workbook",
    "odt ott odp otp ods ots": "opendocument",
    "rtf": "richtext",
    "tex ltx": "latex",
    "ipynb": "notebook jupyter jupyternotebook",
    "html htm xhtml": "web webpage webpages website html htm xhtml",
    "txt text": "text plaintext",
    "rst": "restructuredtext",
    "epub": "ebook book",
    "py": "python",
    "srt vtt": "subtitle subtitles caption captions",
    "srt": "subrip",
    "vtt": "webvtt",
    "video mp4 mkv mov avi webm m4v mpg mpeg wmv flv ogv": "video videos movie film recording",
    "audio mp3 wav m4a flac ogg opus aac wma": "audio sound podcast",
    "image png jpg jpeg gif bmp webp tif tiff svg": "image images picture photo",
    "jpg jpeg": "jpg jpeg",
    "yaml yml": "yaml yml",
    "jsonl ndjson": "jsonl ndjson",
    "eml mbox msg": "mail mails email emails message messages",
}
_TYPES = {
    name: types.split() for types, names in _NAMES_BY_EXTENSIONS.items() for name in names.split()
}
_EXTENSIONS = frozenset(" ".join(_NAMES_BY_EXTENSIONS).split())
_FILES = frozenset(["file", "files", "document", "documents"])


class Op(StrEnum):
    """Filter operators; the values are LlamaIndex's own."""

    EQ = "=="
    NE = "!="
    GT = ">"
    GTE = ">="
    LT = "<"
    LTE = "<="
    IN = "in"
    NIN = "nin"
    ANY = "any"
    ALL = "all"
    CONTAINS = "contains"
    TEXT_MATCH = "text_match"
    TEXT_MATCH_INSENSITIVE = "text_match_insensitive"
    IS_EMPTY = "is_empty"


_LIST_OPS = frozenset({Op.IN, Op.NIN, Op.ANY, Op.ALL})
_ORDER = {Op.GT: operator.gt, Op.GTE: operator.ge, Op.LT: operator.lt, Op.LTE: operator.le}
TEXT_OPS = frozenset({Op.TEXT_MATCH, Op.TEXT_MATCH_INSENSITIVE})


@dataclass(frozen=True, slots=True)
class Condition:
    """One field, one operator, one value (a tuple for the list operators, None for IS_EMPTY)."""

    field: str
    op: Op
    value: MetadataValue | None


@dataclass(frozen=True, slots=True)
class And:
    """True if all parts are."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True if any part is."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """True if the part is false."""

    part: Filter


Filter = Condition | And | Or | Not


def condition(field: str, op: Op | str, value: object) -> Condition:
    """Build a condition, checking that operator and value fit; aliases of fields are resolved."""
    if not isinstance(field, str) or field == "" or _SURROGATE.search(field):
        raise FilterError(f"a filter field must be a non-empty name, not {field!r}")
    op = getattr(op, "value", op)
    if op not in tuple(Op):
        raise FilterError(f"unknown filter operator {op!r}; operators: {', '.join(Op)}")
    name, known = ALIASES.get(field, field), Op(op)
    if known is Op.IS_EMPTY:
        return Condition(name, known, None)
    if known in _LIST_OPS:
        if not _is_list(value):
            raise FilterError(f"{name} {known} needs a list, not {value!r}")
        return Condition(name, known, tuple(_check_scalar(name, item) for item in value))
    if known in TEXT_OPS and not isinstance(value, str):
        raise FilterError(f"{name} {known} needs text, not {value!r}")
    made = Condition(name, known, _check_scalar(name, value))
    if name in DATE_FIELDS and known in _ORDER and date_comparison(made) is None:
        raise FilterError(f"{name} {known} needs a date such as 2024-05-31, not {value!r}")
    return made


def _check_scalar(field: str, value: object) -> MetadataScalar:
    """Return a checked value; LlamaIndex's ``page_label`` has page numbers as texts."""
    if isinstance(value, str):
        if _SURROGATE.search(value):
            raise FilterError(f"the filter on {field} has text that is not valid Unicode")
        return int(value) if field == "page" and _INTEGER.fullmatch(value) else value
    if isinstance(value, bool | int | float) and value == value:  # NaN equals nothing
        return str(value) if field in TEXT_FIELDS and not isinstance(value, bool) else value
    raise FilterError(f"the filter on {field} needs text, a number or true/false, not {value!r}")


def _is_list(value: object) -> TypeGuard[Iterable[object]]:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | Mapping)


def filter_fields(tree: Filter) -> frozenset[str]:
    """Return every field that the filter has a condition on."""
    if isinstance(tree, Condition):
        return frozenset({tree.field})
    return frozenset().union(*map(filter_fields, _parts(tree)))


def _parts(tree: And | Or | Not) -> tuple[Filter, ...]:
    return (tree.part,) if isinstance(tree, Not) else tree.parts


def check_fields(tree: Filter, known: Iterable[str]) -> None:
    """Raise :class:`UnknownFieldError` unless every field is first-class or in ``known``."""
    allowed = FIRST_CLASS_FIELDS | frozenset(known)
    if unknown := sorted(filter_fields(tree) - allowed):
        known = ", ".join(sorted(allowed))
        raise UnknownFieldError(f"no document has the field {unknown[0]!r}; fields: {known}")


def matches(tree: Filter, values: Callable[[str], tuple[MetadataScalar, ...]]) -> bool:
    """Return whether a passage with these ``values(field)`` satisfies the filter; engines agree."""
    match tree:
        case And():
            return all(matches(part, values) for part in tree.parts)
        case Or():
            return any(matches(part, values) for part in tree.parts)
        case Not():
            return not matches(tree.part, values)
        case Condition():
            return _holds(tree, values(tree.field))


def value_kind(value: MetadataScalar) -> str:
    """Return the type that equality respects: ``b``\\ ool, ``n``\\ umber or ``s``\\ tring."""
    return "b" if isinstance(value, bool) else "s" if isinstance(value, str) else "n"


def comparable_number(value: float) -> float:
    """Return a number as every engine compares it: a 64-bit float, infinite if too large."""
    try:
        return float(value) + 0.0  # -0.0 becomes 0.0
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _comparable(value: MetadataScalar) -> tuple[str, Any]:
    """Return what equality and order compare, never confusing text, numbers and truth values."""
    kind = value_kind(value)
    return kind, comparable_number(value) if kind == "n" else value  # type: ignore[arg-type]


def _holds(tree: Condition, values: tuple[MetadataScalar, ...]) -> bool:
    operands = tree.value if isinstance(tree.value, tuple) else (tree.value,)
    asked = [_comparable(item) for item in operands if item is not None]
    own = [_comparable(value) for value in values]
    spans = [whole_date(tree.field, item[1]) for item in asked]
    dates = (one for one in values if tree.field in DATE_FIELDS and isinstance(one, str))
    moments = [at for at in map(to_timestamp, dates) if at is not None]
    present = [
        item in own or (span is not None and any(span[0] <= at < span[1] for at in moments))
        for item, span in zip(asked, spans, strict=True)
    ]
    match tree.op:
        case Op.EQ | Op.CONTAINS | Op.IN | Op.ANY:
            return any(present)
        case Op.NE | Op.NIN:
            return not any(present)
        case Op.ALL:
            return all(present)
        case Op.IS_EMPTY:
            return len(values) == 0
        case Op.TEXT_MATCH:
            return any(isinstance(v, str) and str(tree.value) in v for v in values)
        case Op.TEXT_MATCH_INSENSITIVE:
            needle = str(tree.value).casefold()
            return any(isinstance(v, str) and needle in v.casefold() for v in values)
    if (compared := date_comparison(tree)) is not None:
        return any(_ORDER[compared[0]](at, compared[1]) for at in moments)
    ((kind, bound),) = asked
    return any(_ORDER[tree.op](value, bound) for its, value in own if its == kind)


def whole_date(field: str, value: object) -> tuple[float, float] | None:
    """Return the timestamps from and before which a date equals the ``value``, if it is a date."""
    return date_span(value) if field in DATE_FIELDS and isinstance(value, str) else None


def date_comparison(tree: Condition) -> tuple[Op, float] | None:
    """Return the operator and timestamp for a comparison of dates; ``None`` for other conditions.

    A day, month or year counts as a whole: ``created > 2024`` is from 2025 on.

    >>> date_comparison(condition("created", "<=", "1970-01-01"))
    (<Op.LT: '<'>, 86400.0)
    """
    if (span := whole_date(tree.field, tree.value)) is None or tree.op not in _ORDER:
        return None
    bound = span[tree.op in (Op.GT, Op.LTE)]
    return (Op.GTE if tree.op in (Op.GT, Op.GTE) else Op.LT), bound


def parse_filters(filters: object) -> Filter | None:
    """Read a filter from any form that a caller may have; ``None`` stays ``None`` (no restriction).

    Accepts a :data:`Filter`, LlamaIndex ``MetadataFilters`` or one ``MetadataFilter``, a mapping
    ``{"tag": "ops", "page": {">=": 3}, "path": ["a.md", "b.md"]}`` whose items are AND-ed (a list
    means IN), one condition as ``{"field": "tag", "op": "==", "value": "ops"}``, an iterable of any
    of these and of ``"tag=ops"`` expressions, AND-ed, or the JSON of these.
    """
    if filters is None:
        return None
    try:
        tree = _read(filters)
        conditions, depth = _size(tree)
    except RecursionError:
        tree, conditions, depth = And(()), 0, MAX_DEPTH + 1
    if conditions > MAX_CONDITIONS:
        raise FilterError(f"the filter has {conditions} conditions; at most {MAX_CONDITIONS}")
    if depth > MAX_DEPTH:
        raise FilterError(f"the filter is nested deeper than {MAX_DEPTH}")
    return tree


def is_of_llama_index(filters: object) -> bool:
    """Return whether this is a ``MetadataFilters`` or a ``MetadataFilter``."""
    pairs = (("filters", "condition"), ("key", "operator"))
    return any(hasattr(filters, first) and hasattr(filters, other) for first, other in pairs)


def parse_expression(expression: str) -> Condition:
    """Read ``field OP value`` with OP one of ``= == != > >= < <= ~`` (``~``: contains the text).

    Values that look like numbers or ``true``/``false`` are read as such, except for fields whose
    values are always text (:data:`TEXT_FIELDS`); ``"…"`` keeps a string; ``a|b`` after ``=`` or
    ``!=`` means any of them.
    """
    match = _EXPRESSION.fullmatch(expression)
    if match is None:
        raise FilterError(f"{expression!r} is not a condition such as field=value or field>=value")
    name, symbol, text = match[1].strip(), match[2], match[3].strip()
    if symbol == "!":
        raise FilterError(f"unknown operator in {expression!r}; use = != > >= < <= ~")
    if symbol == "~":
        return condition(name, Op.TEXT_MATCH_INSENSITIVE, _QUOTED.sub(r"\1", text))
    values = [_parse_literal(name, part.strip()) for part in _ALTERNATIVE.findall(text)]
    if symbol in ("=", "==", "!=") and len(values) > 1:
        return condition(name, Op.NIN if symbol == "!=" else Op.IN, values)
    return condition(name, Op.EQ if symbol == "=" else symbol, _parse_literal(name, text))


def file_type_filter(name: str) -> Filter:
    """Return a filter on a file type: ``pdf``, ``.PDF``, ``word``, ``slides``, ``web page``.

    A kind such as ``word`` or ``video`` covers all its extensions. Any other text is taken
    literally, in lower case, and as a plural (``PDFs``). Subtitles have the type of their
    recording, so they are matched by their path as well. Raises :class:`FilterError` for a blank.
    """
    text = _require_text("file type", name).casefold().removeprefix("*").removeprefix(".")
    words = text.rsplit(maxsplit=1)
    text = words[0] if len(words) > 1 and words[1] in _FILES else text.strip() or text
    bare = text.removesuffix("s")  # of a plural, unless that gives another word, as for css
    is_plural = bare in _EXTENSIONS or (len(bare) > 2 and not bare.endswith("s"))
    types = list(dict.fromkeys((*_types_of(text), text, bare if is_plural else text)))
    by_type = condition("file_type", Op.IN, types)
    endings = [f".{extension}" for extension in types if extension in ("srt", "vtt")]
    if not endings:
        return by_type
    by_path = tuple(condition("path", Op.TEXT_MATCH_INSENSITIVE, one) for one in endings)
    of_recordings = condition("file_type", Op.IN, ["video", "audio"])
    return Or((by_type, And((of_recordings, Or(by_path)))))


def known_file_type(name: str, extensions: Set[str] = frozenset()) -> str | None:
    """Return the file type for a usual name (``Word``: ``docx``), or the extension itself."""
    text = name.strip().casefold().removeprefix(".")
    if text in _EXTENSIONS or text in extensions:
        return text
    return next(iter(_types_of(text)), None)


def _types_of(name: str) -> list[str]:
    joined = "".join(char for char in name if char.isalnum())
    return _TYPES.get(joined) or _TYPES.get(joined.removesuffix("s"), [])


def nearest_file_type(name: str, types: Iterable[str]) -> str | None:
    """Return the usual name that may be meant, of a kind that has one of the types."""
    having = set(types)
    names = [one for one, extensions in _TYPES.items() if having.intersection(extensions)]
    return next(iter(get_close_matches(name.strip().casefold(), names, 1)), None)


def name_filter(part: str) -> Filter:
    """Return a filter on documents with this text in path, title or recording, in any case."""
    text = _require_text("name", part)
    fields = ("path", "title", "media")
    return Or(tuple(condition(field, Op.TEXT_MATCH_INSENSITIVE, text) for field in fields))


def _read(filters: Any) -> Filter:
    match filters:
        case Condition():
            return condition(filters.field, filters.op, filters.value)
        case And() | Or():
            return type(filters)(tuple(map(_read, filters.parts)))
        case Not():
            return Not(_read(filters.part))
        case str():
            if filters.lstrip().startswith(("{", "[")):
                with suppress(json.JSONDecodeError):
                    return _read(json.loads(filters))
            return parse_expression(filters)
        case {"field": field, "value": value, **rest} | {"key": field, "value": value, **rest} if (
            rest.keys() <= {"op", "operator"}
        ):
            op: Any = rest.get("op", rest.get("operator", "in" if _is_list(value) else "=="))
            return condition(field, "==" if op == "=" else op, value)
        case Mapping():
            return _conjunction(_from_item(key, value) for key, value in filters.items())
    if is_of_llama_index(filters) and hasattr(filters, "key"):
        return condition(filters.key, filters.operator, filters.value)
    if is_of_llama_index(filters):
        parts = tuple(map(_read, filters.filters))
        name = str(getattr(filters.condition, "value", filters.condition) or "and").lower()
        trees = {"and": _conjunction(parts), "or": Or(parts), "not": Not(Or(parts))}
        if name not in trees:
            raise FilterError(f"unknown filter condition {name!r}; use and, or, not")
        return trees[name]
    if _is_list(filters):
        return _conjunction(map(_read, filters))
    kind = type(filters).__name__
    raise FilterError(f'filters must be a mapping, or conditions such as "tag=ops", not {kind}')


def _from_item(field: str, value: object) -> Filter:
    if value == {}:
        raise FilterError(f"the filter on {field} has no operator")
    if isinstance(value, Mapping):
        return _conjunction(condition(field, op, operand) for op, operand in value.items())
    return condition(field, Op.IN if _is_list(value) else Op.EQ, value)


def _conjunction(parts: Iterable[Filter]) -> Filter:
    listed = tuple(parts)
    return listed[0] if len(listed) == 1 else And(listed)


def _size(tree: Filter) -> tuple[int, int]:
    if isinstance(tree, Condition):
        values = tree.value if tree.op is Op.ALL and isinstance(tree.value, tuple) else ()
        return max(1, len(values)), 1
    sizes = list(map(_size, _parts(tree)))
    return sum(count for count, _ in sizes), 1 + max((depth for _, depth in sizes), default=0)


def _parse_literal(field: str, text: str) -> MetadataScalar:
    if quoted := _QUOTED.fullmatch(text):
        return quoted[1]
    if ALIASES.get(field, field) in TEXT_FIELDS:
        return text
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text


def _require_text(what: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise FilterError(f"{what} must be non-empty text, not {value!r}")
    return value.strip()
