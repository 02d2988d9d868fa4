"""What a metadata filter means, once, for every engine.

A field of a passage has a set of values: none, one, or several (``tags``, ``page``). A condition
asks about that set:

    EQ, CONTAINS  some value equals            NE    not EQ (true when the field is missing)
    IN, ANY       some value is in the list    NIN   not IN (true when the field is missing)
    ALL           every listed value is there  IS_EMPTY  there is no value
    GT GTE LT LTE some value of the same type compares so (numbers; strings by code point;
                  ``created`` and ``modified`` as dates, if the condition names one)
    TEXT_MATCH    some string value holds the text; TEXT_MATCH_INSENSITIVE ignores case

``IN []`` is nothing, ``NIN []`` and ``ALL []`` are everything; AND of nothing is everything,
OR of nothing is nothing, NOT holds when none of its parts does. Text, numbers and truth
values are never equal to each other; numbers compare as 64-bit floats, so 3 equals 3.0.
``docs/filters.md`` has the worked table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeGuard

from catalog.core.dates import date_span, to_timestamp
from catalog.core.documents import MetadataScalar, MetadataValue
from catalog.core.errors import FilterError, UnknownFieldError, UnknownOperatorError

DOCUMENT_FIELDS = frozenset(
    {
        "dataset", "source_doc_id", "docid", "path", "title", "file_type", "source_type",
        "tags", "source_url", "confidentiality", "created", "modified", "media",
        "page_title", "agent_hint",
    }
)  # fmt: skip
CHUNK_FIELDS = frozenset({"modality", "page", "section"})
FIRST_CLASS_FIELDS = DOCUMENT_FIELDS | CHUNK_FIELDS
TEXT_FIELDS = FIRST_CLASS_FIELDS - {"page", "confidentiality"}
DATE_FIELDS = ("modified", "created")  # they tell a document's date, the first one first
ALIASES: Mapping[str, str] = {"tag": "tags", "project": "dataset", "doc": "path"}


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


def condition(field: str, op: Op | str, value: object) -> Condition:
    """Build a condition, checking that operator and value fit; aliases of fields are resolved."""
    if not isinstance(field, str) or field == "" or not _is_unicode(field):
        raise FilterError(f"a filter field must be a non-empty name, not {field!r}")
    try:
        operator = Op(getattr(op, "value", op))
    except ValueError:
        known = ", ".join(o.value for o in Op)
        raise UnknownOperatorError(f"unknown filter operator {op!r}; operators: {known}") from None
    name = ALIASES.get(field, field)
    if operator is Op.IS_EMPTY:
        return Condition(name, operator, None)
    if operator in LIST_OPS:
        if not is_list(value):
            raise FilterError(f"{name} {operator.value} needs a list, not {value!r}")
        return Condition(name, operator, tuple(_check_scalar(name, item) for item in value))
    if operator in TEXT_OPS and not isinstance(value, str):
        raise FilterError(f"{name} {operator.value} needs text, not {value!r}")
    return Condition(name, operator, _check_scalar(name, value))


def is_list(value: object) -> TypeGuard[Iterable[object]]:
    """Return whether the value is a list of values, rather than text or a mapping."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | Mapping)


def filter_fields(tree: Filter) -> frozenset[str]:
    """Return every field that the filter has a condition on."""
    match tree:
        case Condition():
            return frozenset({tree.field})
        case Not():
            return filter_fields(tree.part)
        case And() | Or():
            return frozenset().union(*(filter_fields(part) for part in tree.parts))


def check_fields(tree: Filter, known: Iterable[str]) -> None:
    """Raise :class:`UnknownFieldError` for a field that is neither first-class nor in ``known``."""
    allowed = FIRST_CLASS_FIELDS | frozenset(known)
    for name in sorted(filter_fields(tree) - allowed):
        raise UnknownFieldError(
            f"no document has the field {name!r}; fields: {', '.join(sorted(allowed))}"
        )


def matches(tree: Filter, values: Callable[[str], tuple[MetadataScalar, ...]]) -> bool:
    """Return whether a passage satisfies the filter; ``values(field)`` gives the field's values.

    This is the plain reading of the rules above: every engine must agree with it.
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


def value_kind(value: MetadataScalar) -> str:
    """Return the type that equality respects: ``b``\\ ool, ``n``\\ umber or ``s``\\ tring."""
    if isinstance(value, bool):
        return "b"
    return "s" if isinstance(value, str) else "n"


def comparable_number(value: float) -> float:
    """Return a number as every engine compares it: a 64-bit float, too large ones infinite."""
    try:
        return float(value) + 0.0  # -0.0 becomes 0.0
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def equal_values(left: MetadataScalar, right: MetadataScalar) -> bool:
    """Return whether two values are equal, never confusing text, numbers and truth values."""
    return value_kind(left) == value_kind(right) and _comparable(left) == _comparable(right)


def _holds(tree: Condition, values: tuple[MetadataScalar, ...]) -> bool:
    operands = tree.value if isinstance(tree.value, tuple) else (tree.value,)
    listed = tuple(item for item in operands if item is not None)
    present = [any(equal_values(value, item) for value in values) for item in listed]
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
        case _:
            if (dates := date_comparison(tree)) is not None:
                moments = (to_timestamp(value) for value in values if isinstance(value, str))
                return any(_compares(at, *dates) for at in moments if at is not None)
            return any(_compares(value, tree.op, listed[0]) for value in values)


def date_comparison(tree: Condition) -> tuple[Op, float] | None:
    """Return the operator and timestamp to compare dates with; ``None`` for other comparisons.

    A day, month or year counts whole: ``created <= 2024-05-31`` is before June the first, and
    ``created > 2024`` is from 2025 on. This agrees with ``after`` and ``before``.

    >>> date_comparison(condition("created", "<=", "1970-01-01"))
    (<Op.LT: '<'>, 86400.0)
    """
    if tree.field not in DATE_FIELDS or not isinstance(tree.value, str):
        return None
    span = date_span(tree.value)
    if span is None or tree.op not in (Op.GT, Op.GTE, Op.LT, Op.LTE):
        return None
    bound = span[1] if tree.op in (Op.GT, Op.LTE) else span[0]
    return (Op.GTE if tree.op in (Op.GT, Op.GTE) else Op.LT), bound


def _compares(value: MetadataScalar, op: Op, bound: MetadataScalar) -> bool:
    if value_kind(value) != value_kind(bound):
        return False
    left, right = _comparable(value), _comparable(bound)
    if op is Op.GT:
        return bool(left > right)
    if op is Op.GTE:
        return bool(left >= right)
    return bool(left < right) if op is Op.LT else bool(left <= right)


def _comparable(value: MetadataScalar) -> Any:
    return value if isinstance(value, str | bool) else comparable_number(value)


def _check_scalar(field: str, value: object) -> MetadataScalar:
    if isinstance(value, str) and not _is_unicode(value):
        raise FilterError(f"the filter on {field} holds text that is not valid Unicode: {value!r}")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and value == value and field in TEXT_FIELDS:  # NaN equals nothing
        return str(value)
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and not math.isnan(value):
        return value
    raise FilterError(f"the filter on {field} needs text, a number or true/false, not {value!r}")


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)
