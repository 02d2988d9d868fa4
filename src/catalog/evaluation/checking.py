"""Whether a golden set's labels and filters fit the dataset it is asked of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING

from catalog.core.errors import CatalogError
from catalog.core.filters import check_fields, parse_filters
from catalog.evaluation.golden import GoldenQuery, GoldenSet, Span
from catalog.store import Database
from catalog.store.chunks import StoredDocument, find_by_path, list_fields, list_paths
from catalog.store.engine_types import Restriction, allowed_paths

if TYPE_CHECKING:
    from sqlalchemy import Connection


def dataset_problems(golden: GoldenSet, database: Database, dataset: str) -> list[str]:
    """What does not fit: labels of absent documents, spans not in the text, filters of no field."""
    with database.read() as connection:
        paths = list_paths(connection, dataset)
        known = frozenset(paths)
        fields = list_fields(connection, dataset)
        return [
            f"{query.id}: {problem}"
            for query in golden
            for problem in _of_query(connection, dataset, query, known, fields)
        ]


def doubled_queries(golden: GoldenSet) -> list[str]:
    """Texts that more than one query asks with the same filters."""
    asked = Counter((one.query.strip().casefold(), repr(one.filters)) for one in golden)
    return [text for (text, _), times in asked.items() if times > 1]


def allowed_by_filters(
    database: Database, dataset: str, query: GoldenQuery
) -> frozenset[str] | None:
    """The documents a query's filters allow; ``None``: all."""
    tree = parse_filters(query.filters)
    if tree is None:
        return None
    with database.read() as connection:
        return allowed_paths(connection, Restriction(dataset, filter=tree))


def _of_query(
    connection: Connection,
    dataset: str,
    query: GoldenQuery,
    known: frozenset[str],
    fields: set[str],
) -> Iterator[str]:
    tree = parse_filters(query.filters)
    allowed = known
    if tree is not None:
        try:
            check_fields(tree, fields)
            allowed = allowed_paths(connection, Restriction(dataset, filter=tree))
        except CatalogError as error:
            yield f"filters: {error}"
    for one in query.expected:
        if one.path not in known:
            near = get_close_matches(one.path, known, n=1)
            yield f"no document {one.path!r}" + (f"; is it {near[0]!r}?" if near else "")
        elif one.grade > 0 and one.path not in allowed:
            yield f"{one.path!r} is expected, but the filters forbid it"
        elif one.span is not None and (document := find_by_path(connection, dataset, one.path)):
            yield from _of_span(document, one.span)


def _of_span(document: StoredDocument, span: Span) -> Iterator[str]:
    if span.text is not None and span.text not in document.text:
        yield f"{document.path!r} does not hold the span {span.text!r}"
    if span.end is not None and span.end > len(document.text):
        yield f"the span ends at {span.end}, {document.path!r} at {len(document.text)}"
    lines = document.text.removesuffix("\n").count("\n") + 1
    if span.line_end is not None and span.line_end > lines:
        yield f"the span ends in line {span.line_end}, {document.path!r} in {lines}"
