"""Where passages stand: by the lines of their documents, and of a document in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, select

from catalog.store.filter_sql import DatasetNames, among_bound, as_bound, of_datasets
from catalog.store.schema import chunks, documents

_LINES = (
    select(documents.c.path, chunks.c.line_start, chunks.c.line_end, chunks.c.seq)
    .join(documents, documents.c.id == chunks.c.document_id)
    .where(among_bound(documents.c.path, "paths"), chunks.c.line_start.is_not(None))
    .order_by(chunks.c.seq)
)


def find_by_lines(
    connection: Connection, dataset: DatasetNames, places: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """Return the row number of the first live chunk that holds a line of a document, by both."""
    wanted: dict[str, list[int]] = {}
    for path, line in places:
        wanted.setdefault(path, []).append(line)
    found: dict[tuple[str, int], int] = {}
    of_dataset = _LINES.where(of_datasets(documents.c.dataset, dataset))
    for path, first, last, seq in connection.execute(of_dataset, {"paths": as_bound(wanted)}):
        for line in wanted[path]:
            if first <= line <= last:
                found.setdefault((path, line), seq)
    return found


def read_chunk_places(connection: Connection, source_doc_id: str) -> Sequence[Row[Any]]:
    """Return where each passage of a document stands, in order: offsets, page, cues, places."""
    names = ("start_offset", "end_offset", "page", "page_breaks", "cues", "places")
    query = select(*(chunks.c[name] for name in names)).join(
        documents, documents.c.id == chunks.c.document_id
    )
    is_of = documents.c.source_doc_id == source_doc_id
    return connection.execute(query.where(is_of).order_by(chunks.c.position)).all()
