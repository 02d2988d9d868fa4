"""The manifest: files read for a dataset, the outcome of each, and the dataset's settings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlalchemy import Connection, delete, func, insert, select, true, update

from catalog.store.checksums import row_checksum, seal_rows
from catalog.store.filter_sql import among
from catalog.store.recordings import read_originals
from catalog.store.schema import chunks, dataset_settings, documents, manifest
from catalog.store.sql_forms import first_number

State = Literal["done", "kept", "partial", "failed"]
"""``kept``: the file cannot be read as it is, and its documents are of an earlier content."""


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One listed file: its size and times when read, and the outcome.

    ``documents`` counts those that the store had of the file then. ``mount`` is the folder at which
    the drive was mounted that it lay on, where that is the dataset's own folder (``.``) or one in
    it. ``digest`` is a hash of its bytes, ``None`` if it was not read.
    """

    file: str
    size: int
    mtime_ns: int
    pipeline: str
    state: State
    reason: str | None
    seen_at: float
    mount: str | None = None
    documents: int = 0
    ctime_ns: int | None = None
    inode: int | None = None
    digest: str | None = None


def entries(connection: Connection, dataset: str) -> dict[str, ManifestEntry]:
    """Return every file of the dataset that was ever read and is still listed, by name."""
    columns = [manifest.c[name] for name in ManifestEntry.__dataclass_fields__]
    query = select(*columns).where(manifest.c.dataset == dataset)
    found = (ManifestEntry(*row) for row in connection.execute(query))
    return {entry.file: entry for entry in found}


def record(connection: Connection, dataset: str, *noted: ManifestEntry) -> None:
    """Note the outcome of reading files, each once, replacing earlier notes."""
    if not noted:
        return
    files = [entry.file for entry in noted]
    forget(connection, dataset, files)
    names = ManifestEntry.__dataclass_fields__
    rows = [{name: getattr(entry, name) for name in names} for entry in noted]
    connection.execute(insert(manifest), [row | {"dataset": dataset} for row in rows])
    of_these = (manifest.c.dataset == dataset) & among(manifest.c.file, files)
    seal_rows(connection, manifest, of_these)


def note_unread(connection: Connection, dataset: str, files: AbstractSet[str]) -> set[str]:
    """Have the next update read these files; return the files without an entry until now."""
    if not files:
        return set()
    of_these = (manifest.c.dataset == dataset) & among(manifest.c.file, files)
    new = set(files) - set(connection.scalars(select(manifest.c.file).where(of_these)))
    connection.execute(update(manifest).where(of_these).values(state="partial"))
    seal_rows(connection, manifest, of_these)
    entries = (ManifestEntry(file, 0, 0, "", "partial", None, 0.0) for file in sorted(new))
    record(connection, dataset, *entries)
    return new


def excuse(connection: Connection, dataset: str, pipeline: str) -> set[str]:
    """Note that nothing is missing of files which have no document, but of which some were made.

    Return these files; ``pipeline`` is the fingerprint to note of them.
    """
    files = read_originals(connection, dataset, unread=True)
    for entry in entries(connection, dataset).values() if files else ():
        if entry.file in files and entry.reason is not None:
            excused = replace(entry, state="done", reason=None, pipeline=pipeline)
            record(connection, dataset, excused)
    return files


def forget(connection: Connection, dataset: str, files: Iterable[str]) -> None:
    """Drop the notes on files that are no longer there."""
    where = (manifest.c.dataset == dataset) & among(manifest.c.file, files)
    connection.execute(delete(manifest).where(where))


def known_documents(connection: Connection, dataset: str) -> dict[str, Mapping[str, str]]:
    """Return ``content_hash``, ``pipeline`` and ``file`` of the live revisions, by path."""
    query = select(
        documents.c.path, documents.c.content_hash, documents.c.pipeline, documents.c.file
    ).where(documents.c.dataset == dataset)
    return {
        row.path: {"content_hash": row.content_hash, "pipeline": row.pipeline, "file": row.file}
        for row in connection.execute(query)
    }


def count_documents(connection: Connection, dataset: str, files: Iterable[str]) -> Counter[str]:
    """Count the live documents of each of these files."""
    of_files = (documents.c.dataset == dataset) & among(documents.c.file, files)
    query = select(documents.c.file, func.count()).where(of_files).group_by(documents.c.file)
    return Counter({row.file: row[1] for row in connection.execute(query)})


def find_incomplete(connection: Connection, dataset: str) -> list[tuple[str, int, int]]:
    """Return the files that do not have the documents that were noted of them, sorted by name.

    Each with the number it has and the number noted. A file that the next update reads anyway is
    left out.
    """
    of_it = (documents.c.dataset == dataset) & (documents.c.file == manifest.c.file)
    count = select(func.count()).where(of_it).scalar_subquery()
    is_read = (manifest.c.dataset == dataset) & manifest.c.state.in_(("done", "kept"))
    query = select(manifest.c.file, count, manifest.c.documents)
    rows = connection.execute(query.where(is_read, manifest.c.documents != count))
    return sorted((file, has, noted) for file, has, noted in rows)


def paths_of_files(connection: Connection, dataset: str, files: Iterable[str]) -> list[str]:
    """Return the paths of the live documents of these files, sorted."""
    of_files = (documents.c.dataset == dataset) & among(documents.c.file, files)
    return sorted(connection.scalars(select(documents.c.path).where(of_files)))


def list_record_files(connection: Connection, dataset: str) -> list[str]:
    """Return the files of the dataset that may hold many documents, one in each line, sorted."""
    file = manifest.c.file
    has_records = file.ilike("%.jsonl") | file.ilike("%.ndjson")
    of_dataset = manifest.c.dataset == dataset
    return sorted(connection.scalars(select(file).where(of_dataset, has_records)))


def paths_of_records(
    connection: Connection, dataset: str, file: str, first: int, last: int | None
) -> list[tuple[str, int]]:
    """Return path and line of the documents that are records in these lines of a file, in order."""
    line = first_number(chunks.c.places)
    query = select(documents.c.path, func.min(line).label("line")).join(
        chunks, chunks.c.document_id == documents.c.id
    )
    of_file = (documents.c.dataset == dataset) & (documents.c.file == file)
    is_there = (line >= first) & (true() if last is None else line <= last)
    records = query.where(of_file & (documents.c.path != file), is_there)
    rows = connection.execute(records.group_by(documents.c.path).order_by("line"))
    return [(row.path, row.line) for row in rows]


@dataclass(frozen=True, slots=True)
class FileCounts:
    """``listed`` files in the folder; ``indexed`` ones have passages, of their own or of
    what was made of them; ``reasons`` for the others.

    ``partly`` are reasons of files that have passages all the same: of what could be read, or of
    a content from before they became unreadable. ``coverage`` is the share of the files that
    could be read and have passages, 0 to 1; ``None`` if none could be read.
    """

    listed: int
    indexed: int
    coverage: float | None
    reasons: dict[str, int]
    partly: dict[str, int]


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
    indexed |= read_originals(connection, dataset) & reasons_by_file.keys()
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


@dataclass(frozen=True, slots=True)
class DatasetSettings:
    """The settings that shape a dataset's passages, by name, and the preset they came from."""

    preset: str | None
    values: Mapping[str, Any]


def read_dataset_settings(connection: Connection, dataset: str) -> DatasetSettings | None:
    """Return the settings of the dataset; ``None`` if they are not noted, or damaged."""
    table = dataset_settings.c
    query = select(table.dataset, table.preset, table.settings, table.checksum)
    row = connection.execute(query.where(table.dataset == dataset)).one_or_none()
    if row is None or row_checksum(row[:-1]) != row.checksum:
        return None
    return DatasetSettings(row.preset, json.loads(row.settings))


def note_dataset_settings(connection: Connection, dataset: str, settings: DatasetSettings) -> None:
    """Note the settings of the dataset from now on."""
    is_it = dataset_settings.c.dataset == dataset
    connection.execute(delete(dataset_settings).where(is_it))
    text = json.dumps(dict(settings.values), sort_keys=True)
    row = {"dataset": dataset, "preset": settings.preset, "settings": text}
    connection.execute(insert(dataset_settings).values(row))
    seal_rows(connection, dataset_settings, is_it)


def count_pipelines(connection: Connection, dataset: str) -> Counter[str]:
    """Count the dataset's documents by the fingerprint of how they were cut and embedded."""
    query = select(documents.c.pipeline, func.count()).where(documents.c.dataset == dataset)
    rows = connection.execute(query.group_by(documents.c.pipeline))
    return Counter({row[0]: row[1] for row in rows})
