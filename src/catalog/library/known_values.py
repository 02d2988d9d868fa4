"""Refuse conditions on values that no document has, such as a misspelt type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from catalog.core.errors import UnknownValueError
from catalog.core.filters import And, Condition, Filter, Op, file_type_filter
from catalog.core.scope import ALL, Scope
from catalog.library.references import find_alike
from catalog.store.document_names import find_groups
from catalog.store.engine_types import Restriction, known_seqs
from catalog.store.listing import (
    allowed_documents,
    count_by_value,
    count_documents,
    without_repeats,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

_FIELDS = {
    "file_type": ("file type", "file types"),
    "source_type": ("source type", "source types"),
    "tags": ("tag", "tags"),
    "confidentiality": ("confidentiality", "confidentialities"),
    "agent_hint": ("agent hint", "agent hints"),
}
"""Fields of few values, each meant as one of those there are: its name for one, and for several."""
_OPS = frozenset([Op.EQ, Op.IN, Op.ANY, Op.ALL])
_MOST, _LONGEST = 12, 200  # values that are named; characters of each


def check_values(
    connection: Connection,
    within: Restriction,
    file_type: str | None = None,
    seen: Scope = ALL,
) -> None:
    """Raise :class:`UnknownValueError` for a condition that no document of the datasets fulfils.

    Those conditions of ``within`` are looked at that must hold, are on a field of few values, and
    name values; ``file_type`` is one more. The error names the values, nearest first, of those
    documents alone that the other conditions let through. Nothing is raised where there are none.
    Documents that are not ``seen`` are as though they were not there.
    """
    required = list(_required(within.filter))
    unknown: list[tuple[Filter | None, str, object]] = [
        (part, part.field, part.value)
        for part in required
        if isinstance(part, Condition)
        and _names_values(part)
        and not _exists(connection, Restriction(within.dataset, seen, part))
    ]
    if file_type is not None:
        by_type = file_type_filter(file_type)
        if not _exists(connection, Restriction(within.dataset, seen, by_type)):
            unknown.insert(0, (None, "file_type", file_type))
    if not unknown or not _exists(connection, Restriction(within.dataset, seen)):
        return
    _, name, value = unknown[0]
    unmet = [part for part, *_ in unknown]
    rest = And(tuple(one for one in required if one not in unmet))
    among = allowed_documents(replace(within, filter=rest if rest.parts else None))
    among = without_repeats(among, find_groups(connection, within.dataset, among))
    counts = count_by_value(connection, among, name)
    if counts:
        raise UnknownValueError(_message(name, value, counts))


def nearest_first(text: str, counts: Mapping[str, int]) -> list[str]:
    """Return the values, those most like the text first, whatever their case, then as they come."""
    folded: dict[str, list[str]] = {}
    for value in counts:
        folded.setdefault(value.casefold(), []).append(value)
    return list(dict.fromkeys((*find_alike(text.casefold(), folded), *counts)))


def format_values(counts: Mapping[str, int], order: list[str]) -> str:
    """Return the first values in this order, each with its count; ``none`` without any."""
    shown = [f"{value[:_LONGEST]} ({counts[value]})" for value in order[:_MOST]]
    return ", ".join([*shown, *["…"][: len(order) > _MOST]]) or "none"


def _required(tree: Filter | None) -> Iterator[Filter]:
    """Yield the conditions that must all hold."""
    if isinstance(tree, And):
        for part in tree.parts:
            yield from _required(part)
    elif tree is not None:
        yield tree


def _names_values(part: Condition) -> bool:
    return part.field in _FIELDS and part.op in _OPS and part.value != ()


def _exists(connection: Connection, restriction: Restriction) -> bool:
    known = known_seqs(connection, restriction)
    if known is not None and known.size > 0:
        return True
    return count_documents(connection, allowed_documents(restriction), 1) > 0


def _message(field: str, value: object, counts: Mapping[str, int]) -> str:
    one, several = _FIELDS[field]
    values = value if isinstance(value, tuple) else (value,)
    texts = [str(item)[:_LONGEST] for item in values]
    order = nearest_first(texts[0], counts)
    return (
        f"no document has the {one} {' or '.join(map(repr, texts[:_MOST]))}; "
        f"{several} there are: {format_values(counts, order)}"
    )
