"""Looking for damage in the SQL truth."""

from __future__ import annotations

from sqlalchemy import Connection, Table, func, select, text

from catalog.store.schema import (
    chunk_sections,
    chunk_windows,
    chunks,
    document_fields,
    documents,
    revisions,
)


def integrity_problem(connection: Connection) -> str | None:
    """What the database's own check finds wrong, or ``None``."""
    found = connection.execute(text("PRAGMA integrity_check(3)")).scalars().all()
    if found != ["ok"]:
        return "; ".join(str(line) for line in found)
    indexed = connection.scalar(text("SELECT count(*) FROM chunks_fts_docsize"))
    stored = connection.scalar(select(func.count()).select_from(chunks))
    if indexed != stored:
        return f"the full-text index holds {indexed} of {stored} chunks"
    return None


def orphan_counts(connection: Connection) -> dict[str, int]:
    """Rows whose owner is gone, by table; all zero in a sound store."""
    owned: tuple[tuple[Table, str, Table, str], ...] = (
        (revisions, "document_id", documents, "id"),
        (document_fields, "document_id", documents, "id"),
        (chunks, "document_id", documents, "id"),
        (chunk_sections, "seq", chunks, "seq"),
        (chunk_windows, "seq", chunks, "seq"),
    )
    counts: dict[str, int] = {}
    for table, column, owner, key in owned:
        query = (
            select(func.count())
            .select_from(table.outerjoin(owner, table.c[column] == owner.c[key]))
            .where(owner.c[key].is_(None))
        )
        counts[table.name] = connection.scalar(query) or 0
    return counts
