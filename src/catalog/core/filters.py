"""What a metadata filter means, once, for every engine.

A field of a passage has a set of values: none, one, or several (``tags``, ``page``). A condition
asks about that set:

    EQ, CONTAINS  some value equals            NE    not EQ (true when the field is missing)
    IN, ANY       some value is in the list    NIN   not IN (true when the field is missing)
    ALL           every listed value is there  IS_EMPTY  there is no value
    GT GTE LT LTE some value of the same type compares so (numbers; strings by code point)
    TEXT_MATCH    some string value holds the text; TEXT_MATCH_INSENSITIVE ignores case

``IN []`` is nothing, ``NIN []`` and ``ALL []`` are everything; AND of nothing is everything,
OR of nothing is nothing, NOT holds when none of its parts does. Text, numbers and truth
values are never equal to each other; numbers compare as 64-bit floats, so 3 equals 3.0.
``docs/filters.md`` has the worked table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from catalog.core.documents import MetadataScalar, MetadataValue
from catalog.core.errors import FilterError, UnknownFieldError, UnknownOperatorError

DOCUMENT_FIELDS = frozenset(
    {
        "dataset", "source_doc_id", "docid", "path", "title", "file_type", "source_type",
        "tags", "source_url", "confidentiality", "created", "modified", "media",
    }
)  # fmt: skip
CHUNK_FIELDS = frozenset({"modality", "page", "section"})
FIRST_CLASS_FIELDS = DOCUMENT_FIELDS | CHUNK_FIELDS
TEXT_FIELDS = FIRST_CLASS_FIELDS - {"page", "confidentiality"}
ALIASES: Mapping[str, str] = {"tag": "tags", "project": "dataset", "doc": "path"}

MAX_CONDITIONS = 500
MAX_DEPTH = 50


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


LIST_OPS = frozenset({Op.IN, Op.NIN, Op.ANY, Op.ALL})
TEXT_OPS = frozenset({Op.TEXT_MATCH, Op.TEXT_MATCH_INSENSITIVE})


@dataclass(frozen=True, slots=True)
class Condition:
    """One field, one operator, one value (a tuple for the list operators, None for IS_EMPTY)."""

    field: str
    op: Op
    value: MetadataValue | None


@dataclass(frozen=True, slots=True)
class And:
    """Every part holds; of no part: true."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Some part holds; of no part: false."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold."""

    part: Filter


Filter = Condition | And | Or | Not


def fields_of(tree: Filter) -> frozenset[str]:
    """Every field the filter asks about."""
    match tree:
        case Condition():
            return frozenset({tree.field})
        case Not():
            return fields_of(tree.part)
        case And() | Or():
            return frozenset().union(*(fields_of(part) for part in tree.parts))


def check_fields(tree: Filter, known: Iterable[str]) -> None:
    """Raise :class:`UnknownFieldError` for a field that is neither first-class nor in ``known``."""
    allowed = FIRST_CLASS_FIELDS | frozenset(known)
    for name in sorted(fields_of(tree) - allowed):
        raise UnknownFieldError(
            f"no document has the field {name!r}; fields: {', '.join(sorted(allowed))}"
        )


def parse_filters(filters: object) -> Filter | None:
    """Read a filter from any form a caller may hold; ``None`` stays ``None`` (no restriction).

    Accepts a :data:`Filter`, LlamaIndex ``MetadataFilters`` or one ``MetadataFilter``, a mapping
    ``{"tag": "ops", "page": {">=": 3}, "path": ["a.md", "b.md"]}`` whose items are AND-ed (a
    list means IN), or an iterable of any of these and of ``"tag=ops"`` expressions, AND-ed.
    Raises :class:`FilterError` for anything else, for more than :data:`MAX_CONDITIONS`
    conditions, and for nesting deeper than :data:`MAX_DEPTH`.
    """
    if filters is None:
        return None
    try:
        tree = _read(filters)
        _check_size(tree)
    except RecursionError:
        raise FilterError(f"the filter is nested deeper than {MAX_DEPTH}") from None
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
        return condition(name, Op.TEXT_MATCH_INSENSITIVE, _unquoted(text))
    parts = _ALTERNATIVES.split(text)
    if symbol in ("=", "==", "!=") and len(parts) > 1:
        op = Op.NIN if symbol == "!=" else Op.IN
        return condition(name, op, [_literal(name, part.strip()) for part in parts])
    return condition(name, Op.EQ if symbol == "=" else Op(symbol), _literal(name, text))


def condition(field: str, op: Op | str, value: object) -> Condition:
    """Build a condition, checking that operator and value fit; aliases of fields are resolved."""
    if not isinstance(field, str) or field == "" or not _is_unicode(field):
        raise FilterError(f"a filter field must be a non-empty name, not {field!r}")
    operator = _operator(op)
    name = ALIASES.get(field, field)
    if operator is Op.IS_EMPTY:
        return Condition(name, operator, None)
    if operator in LIST_OPS:
        if not _is_list(value):
            raise FilterError(f"{name} {operator.value} needs a list, not {value!r}")
        return Condition(name, operator, tuple(_scalar(name, item) for item in _items(value)))
    if operator in TEXT_OPS and not isinstance(value, str):
        raise FilterError(f"{name} {operator.value} needs text, not {value!r}")
    return Condition(name, operator, _scalar(name, value))


def matches(tree: Filter, values: Callable[[str], tuple[MetadataScalar, ...]]) -> bool:
    """Whether a passage satisfies the filter; ``values(field)`` gives the field's values.

    The plain reading of the rules above: every engine must agree with it.
    """
    match tree:
        case And():
            return all(matches(part, values) for part in tree.parts)
        case Or():
            return any(matches(part, values) for part in tree.parts)
        case Not():
            return not matches(tree.part, values)
        case Condition():
            return _holds(tree, values(tree.field))


def kind_of(value: MetadataScalar) -> str:
    """The type that equality respects: ``b``\\ ool, ``n``\\ umber or ``s``\\ tring."""
    if isinstance(value, bool):
        return "b"
    return "s" if isinstance(value, str) else "n"


def number(value: float) -> float:
    """A number as every engine compares it: a 64-bit float, too large ones infinite."""
    try:
        return float(value) + 0.0  # -0.0 becomes 0.0
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def same(left: MetadataScalar, right: MetadataScalar) -> bool:
    """Equality that never confuses text, numbers and truth values."""
    kind = kind_of(left)
    return kind == kind_of(right) and _comparable(left, kind) == _comparable(right, kind)


def _holds(asked: Condition, values: tuple[MetadataScalar, ...]) -> bool:
    wanted = asked.value if isinstance(asked.value, tuple) else (asked.value,)
    listed = tuple(item for item in wanted if item is not None)
    present = [any(same(value, item) for value in values) for item in listed]
    match asked.op:
        case Op.EQ | Op.CONTAINS | Op.IN | Op.ANY:
            return any(present)
        case Op.NE | Op.NIN:
            return not any(present)
        case Op.ALL:
            return all(present)
        case Op.IS_EMPTY:
            return len(values) == 0
        case Op.TEXT_MATCH:
            return any(isinstance(v, str) and str(asked.value) in v for v in values)
        case Op.TEXT_MATCH_INSENSITIVE:
            needle = str(asked.value).casefold()
            return any(isinstance(v, str) and needle in v.casefold() for v in values)
        case _:
            return any(_compares(value, asked.op, listed[0]) for value in values)


def _compares(value: MetadataScalar, op: Op, bound: MetadataScalar) -> bool:
    kind = kind_of(value)
    if kind != kind_of(bound):
        return False
    left, right = _comparable(value, kind), _comparable(bound, kind)
    if op is Op.GT:
        return bool(left > right)
    if op is Op.GTE:
        return bool(left >= right)
    return bool(left < right) if op is Op.LT else bool(left <= right)


def _comparable(value: MetadataScalar, kind: str) -> Any:
    return number(value) if kind == "n" and not isinstance(value, str) else value


def _operator(op: Op | str) -> Op:
    try:
        return Op(getattr(op, "value", op))
    except ValueError:
        known = ", ".join(o.value for o in Op)
        raise UnknownOperatorError(f"unknown filter operator {op!r}; operators: {known}") from None


def _scalar(field: str, value: object) -> MetadataScalar:
    if isinstance(value, str) and not _is_unicode(value):
        raise FilterError(f"the filter on {field} holds text that is not valid Unicode: {value!r}")
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and not math.isnan(value):
        return value
    raise FilterError(f"the filter on {field} needs text, a number or true/false, not {value!r}")


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | Mapping)


def _items(value: object) -> Iterable[object]:
    return value if isinstance(value, Iterable) else ()


_ALTERNATIVES = re.compile(r'\|(?=(?:[^"]*"[^"]*")*[^"]*$)')  # a | outside quotes
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] == '"' else text


def _literal(field: str, text: str) -> MetadataScalar:
    if _unquoted(text) != text:
        return _unquoted(text)
    if ALIASES.get(field, field) in TEXT_FIELDS:
        return text
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text


def _read(filters: object) -> Filter:
    if isinstance(filters, Condition | And | Or | Not):
        return _checked(filters)
    if hasattr(filters, "filters") and hasattr(filters, "condition"):
        return _from_llama_index(filters)
    if hasattr(filters, "key") and hasattr(filters, "operator"):
        return _from_llama_index(filters)
    if isinstance(filters, Mapping):
        return _conjunction(_from_item(key, value) for key, value in filters.items())
    if isinstance(filters, str):
        return parse_expression(filters)
    if _is_list(filters):
        return _conjunction(_read(part) for part in _items(filters))
    raise FilterError(f"a filter cannot be read from {type(filters).__name__}")


def _checked(tree: Filter) -> Filter:
    match tree:
        case Condition():
            return condition(tree.field, tree.op, tree.value)
        case And():
            return And(tuple(_checked(part) for part in tree.parts))
        case Or():
            return Or(tuple(_checked(part) for part in tree.parts))
        case Not():
            return Not(_checked(tree.part))


def _from_item(field: str, value: object) -> Filter:
    if isinstance(value, Mapping):
        if len(value) == 0:
            raise FilterError(f"the filter on {field} has no operator")
        return _conjunction(condition(field, op, operand) for op, operand in value.items())
    return condition(field, Op.IN if _is_list(value) else Op.EQ, value)


def _from_llama_index(node: Any) -> Filter:
    if not hasattr(node, "filters"):
        return condition(node.key, node.operator, node.value)
    parts = tuple(_from_llama_index(part) for part in node.filters)
    name = str(getattr(node.condition, "value", node.condition) or "and").lower()
    if name == "and":
        return parts[0] if len(parts) == 1 else And(parts)
    if name == "or":
        return Or(parts)
    if name == "not":
        return Not(Or(parts))
    raise UnknownOperatorError(f"unknown filter condition {name!r}; conditions: and, or, not")


def _conjunction(parts: Iterable[Filter]) -> Filter:
    listed = tuple(parts)
    return listed[0] if len(listed) == 1 else And(listed)


def _check_size(tree: Filter) -> None:
    conditions, depth = _size(tree)
    if conditions > MAX_CONDITIONS:
        raise FilterError(f"the filter has {conditions} conditions; at most {MAX_CONDITIONS}")
    if depth > MAX_DEPTH:
        raise FilterError(f"the filter is nested deeper than {MAX_DEPTH}")


def _size(tree: Filter) -> tuple[int, int]:
    """How many conditions (each value of ALL is one) and how many levels the filter has."""
    if isinstance(tree, Condition):
        every = tree.value if tree.op is Op.ALL and isinstance(tree.value, tuple) else ()
        return max(1, len(every)), 1
    sizes = [_size(part) for part in ((tree.part,) if isinstance(tree, Not) else tree.parts)]
    return sum(count for count, _ in sizes), 1 + max((depth for _, depth in sizes), default=0)
