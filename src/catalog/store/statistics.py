"""Counting what a dataset holds, and looking for damage in the SQL truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Table, func, select, text

from catalog.store.schema import (
    chunk_sections,
    chunk_windows,
    chunks,
    document_fields,
    documents,
    manifest,
    revisions,
)


def find_damage(connection: Connection) -> str | None:
    """Return what the database's own check finds wrong, or ``None``."""
    lines = connection.execute(text("PRAGMA integrity_check(3)")).scalars().all()
    if lines != ["ok"]:
        return "; ".join(str(line) for line in lines)
    indexed = connection.scalar(text("SELECT count(*) FROM chunks_fts_docsize"))
    stored = connection.scalar(select(func.count()).select_from(chunks))
    if indexed != stored:
        return f"the full-text index holds {indexed} of {stored} chunks"
    return None


def count_orphans(connection: Connection) -> dict[str, int]:
    """Count rows whose owner is gone, by table; all zero in a sound store."""
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


_PROSE = ("text", "ocr", "image_caption")
_STEPS = (50, 100, 200, 300, 400, 500, 600, 700, 800, 1000, 1500, 2000)


@dataclass(frozen=True, slots=True)
class SizeBin:
    """``chunks`` passages of ``low`` to ``high`` tokens, both included; ``None`` is no limit."""

    low: int
    high: int | None
    chunks: int


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """Sizes of the passages of text (no transcripts, no frames), in the model's tokens.

    ``in_band`` is the share of them with ``low`` to ``high`` tokens, ``None`` if there are none.
    Those of documents that are shorter than ``low`` altogether are in no share: ``short``
    counts them. ``uncounted`` passages were cut by a release that did not note their size.
    """

    low: int
    high: int
    in_band: float | None
    short: int
    uncounted: int
    histogram: tuple[SizeBin, ...]


@dataclass(frozen=True, slots=True)
class FileCounts:
    """``listed`` files in the folder; ``indexed`` ones have passages; ``reasons`` for the others.

    ``partly`` are reasons of files that have passages all the same: of what could be read, or of
    a content from before they became unreadable. ``coverage`` is the share of the files that
    could be read and have passages, 0 to 1; ``None`` if none could be read.
    """

    listed: int
    indexed: int
    coverage: float | None
    reasons: dict[str, int]
    partly: dict[str, int]


def count_modalities(connection: Connection, dataset: str) -> dict[str, int]:
    """Count passages by modality."""
    query = (
        select(chunks.c.modality, func.count())
        .where(chunks.c.dataset == dataset)
        .group_by(chunks.c.modality)
        .order_by(chunks.c.modality)
    )
    return {row[0]: row[1] for row in connection.execute(query)}


def measure_chunk_sizes(connection: Connection, dataset: str, low: int, high: int) -> ChunkSizes:
    """Hold the sizes of the dataset's passages of text against the band."""
    prose = (chunks.c.dataset == dataset) & chunks.c.modality.in_(_PROSE)
    by_size = select(chunks.c.tokens, func.count()).where(prose).group_by(chunks.c.tokens)
    by_tokens: dict[int | None, int] = {row[0]: row[1] for row in connection.execute(by_size)}
    counts = {tokens: count for tokens, count in by_tokens.items() if tokens is not None}
    per_document = (
        select(func.count().label("chunks"), func.sum(chunks.c.tokens).label("tokens"))
        .where(prose)
        .group_by(chunks.c.document_id)
        .subquery()
    )
    short_count = connection.scalar(
        select(func.coalesce(func.sum(per_document.c.chunks), 0)).where(per_document.c.tokens < low)
    )
    inside = sum(count for tokens, count in counts.items() if low <= tokens <= high)
    others = sum(counts.values()) - (short_count or 0)
    return ChunkSizes(
        low=low,
        high=high,
        in_band=inside / others if others > 0 else None,
        short=short_count or 0,
        uncounted=by_tokens.get(None, 0),
        histogram=tuple(_bins(counts, _STEPS)),
    )


def count_files(connection: Connection, dataset: str) -> FileCounts:
    """Count the dataset's files, as the last run listed them."""
    with_passages = (
        select(documents.c.file)
        .join(chunks, chunks.c.document_id == documents.c.id)
        .where(documents.c.dataset == dataset)
        .distinct()
    )
    indexed = set(connection.scalars(with_passages))
    reasons_query = select(manifest.c.file, manifest.c.reason).where(manifest.c.dataset == dataset)
    reasons_by_file: dict[str, str | None] = {
        row[0]: row[1] for row in connection.execute(reasons_query)
    }
    without = [reason for file, reason in reasons_by_file.items() if file not in indexed]
    readable = len(indexed) + without.count(None)
    return FileCounts(
        listed=len(indexed) + len(without),
        indexed=len(indexed),
        coverage=len(indexed) / readable if readable else None,
        reasons=_count_reasons(reason or "no reason told" for reason in without),
        partly=_count_reasons(
            reason for file in indexed if (reason := reasons_by_file.get(file)) is not None
        ),
    )


def _count_reasons(reasons: Iterable[str]) -> dict[str, int]:
    """Count how often each is there, the commonest first."""
    counts = Counter(reasons)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def database_bytes(connection: Connection) -> int:
    """Return the size of the store's file, in bytes, the write-ahead log left out."""
    pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    return int(pages * connection.exec_driver_sql("PRAGMA page_size").scalar_one())


def _bins(counts: dict[int, int], steps: Sequence[int]) -> list[SizeBin]:
    bounds = [1, *steps]
    bins = []
    for low, after in zip(bounds, [*bounds[1:], None], strict=True):
        total = sum(
            count
            for tokens, count in counts.items()
            if tokens >= low and (after is None or tokens < after)
        )
        bins.append(SizeBin(low, None if after is None else after - 1, total))
    while bins and bins[-1].chunks == 0:
        bins.pop()
    return bins
