"""The manifest: the files of a dataset with the result of reading each, and dataset settings."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

from sqlalchemy import (
    Connection,
    bindparam,
    delete,
    exists,
    func,
    literal,
    null,
    select,
    true,
    update,
)

from catalog.core.documents import part_label
from catalog.store.filter_sql import among
from catalog.store.recordings import read_originals
from catalog.store.schema import chunks, dataset_settings, documents, manifest
from catalog.store.sql_forms import first_number, put_rows

State = Literal["done", "kept", "partial", "failed"]
"""``kept``: the file can no longer be read, and its documents are from an earlier content."""


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A listed file: its size and times when it was read, and the result.

    ``documents`` is the number of documents the file then had in the store. ``mount`` is the folder
    where its drive was mounted: the dataset's own folder (``.``) or one in it. ``digest`` is a hash
    of its bytes, ``None`` if it was not read.
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


def entries(connection: Connection, dataset: str, *files: str) -> dict[str, ManifestEntry]:
    """Return the listed files of the dataset that were ever read, all or these, by name."""
    columns = [manifest.c[name] for name in ManifestEntry.__dataclass_fields__]
    query = select(*columns).where(manifest.c.dataset == dataset)
    if files:
        query = query.where(among(manifest.c.file, files))
    return {row.file: ManifestEntry(*row) for row in connection.execute(query)}


def record(connection: Connection, dataset: str, *noted: ManifestEntry) -> None:
    """Record the results of reading these files, and the number of documents that each has now."""
    of = documents.c
    is_of = (of.dataset == bindparam("of_dataset")) & (of.file == bindparam("of_file"))
    count = select(func.count()).where(is_of).scalar_subquery()
    rows = [
        asdict(entry) | {"dataset": dataset, "of_dataset": dataset, "of_file": entry.file}
        for entry in noted
    ]
    put_rows(connection, manifest, rows, documents=count)


def note_unread(connection: Connection, dataset: str, files: AbstractSet[str]) -> set[str]:
    """Have the next update read these files; return those that had no entry."""
    if not files:
        return set()
    of_these = (manifest.c.dataset == dataset) & among(manifest.c.file, files)
    new = set(files) - set(connection.scalars(select(manifest.c.file).where(of_these)))
    connection.execute(update(manifest).where(of_these).values(state="partial"))
    entries = (ManifestEntry(file, 0, 0, "", "partial", None, 0.0) for file in sorted(new))
    record(connection, dataset, *entries)
    return new


def excuse(connection: Connection, dataset: str, pipeline: str) -> set[str]:
    """Mark files as done that have no document themselves, but other files made from them.

    Return these files. ``pipeline`` is the fingerprint to record for them.
    """
    files = read_originals(connection, dataset, unread=True)
    known = entries(connection, dataset, *files).values() if files else ()
    told = (
        replace(entry, state="done", reason=None, pipeline=pipeline)
        for entry in known
        if entry.reason
    )
    record(connection, dataset, *told)
    return files


def forget(connection: Connection, dataset: str, files: Iterable[str]) -> None:
    """Drop the entries of files that are gone."""
    where = (manifest.c.dataset == dataset) & among(manifest.c.file, files)
    connection.execute(delete(manifest).where(where))


def known_documents(
    connection: Connection, dataset: str, folder: str = "", files: Iterable[str] | None = None
) -> dict[str, Mapping[str, str]]:
    """Return ``content_hash``, ``pipeline`` and ``file`` (from ``folder`` on) of each path."""
    above = f"{folder}/" if folder else ""
    of = documents.c
    query = select(of.path, of.content_hash, of.pipeline, of.file).where(of.dataset == dataset)
    if files is not None:
        query = query.where(among(of.file, files))
    return {
        path: {"content_hash": content_hash, "pipeline": pipeline, "file": file.removeprefix(above)}
        for path, content_hash, pipeline, file in connection.execute(query)
    }


def find_incomplete(connection: Connection, dataset: str) -> list[str]:
    """Return ``FILE has 1 of 2`` for files with another number of documents than recorded, sorted.

    Files that the next update reads anyway are left out.
    """
    of_it = (documents.c.dataset == dataset) & (documents.c.file == manifest.c.file)
    count = select(func.count()).where(of_it).scalar_subquery()
    is_read = (manifest.c.dataset == dataset) & manifest.c.state.in_(("done", "kept"))
    query = select(manifest.c.file, count, manifest.c.documents)
    rows = connection.execute(query.where(is_read, manifest.c.documents != count))
    return sorted(f"{file} has {has} of {noted}" for file, has, noted in rows)


def paths_of_files(connection: Connection, dataset: str, files: Iterable[str]) -> list[str]:
    """Return the paths of the live documents of these files, sorted."""
    of_files = (documents.c.dataset == dataset) & among(documents.c.file, files)
    return sorted(connection.scalars(select(documents.c.path).where(of_files)))


def files_of_paths(connection: Connection, dataset: str, paths: Iterable[str]) -> list[str]:
    """Return the files of the live documents at these paths, sorted."""
    of_paths = (documents.c.dataset == dataset) & among(documents.c.path, paths)
    return sorted(set(connection.scalars(select(documents.c.file).where(of_paths))))


def texts_of_file(connection: Connection, dataset: str, file: str) -> Sequence[str]:
    """Return the texts of the passages of a file's live documents."""
    of_file = (documents.c.dataset == dataset) & (documents.c.file == file)
    return connection.scalars(
        select(chunks.c.text).join(documents, documents.c.id == chunks.c.document_id).where(of_file)
    ).all()


class StoredPart(NamedTuple):
    """A live document of a file: its content, and its pages if it has any.

    Pages are those of its passages, or the one that its metadata name as ``page_label``,
    ``page_number`` or ``page``.
    """

    content_hash: str
    pages: frozenset[str]


def parts_of_files(
    connection: Connection, dataset: str, files: Iterable[str]
) -> dict[str, dict[str, StoredPart]]:
    """Return the live documents of these files, by file and path."""
    names = ("file", "path", "content_hash", "metadata")
    columns = [*(documents.c[name] for name in names), chunks.c.page, chunks.c.page_breaks]
    query = (
        select(*columns)
        .outerjoin(chunks, chunks.c.document_id == documents.c.id)
        .where((documents.c.dataset == dataset) & among(documents.c.file, files))
    )
    found: dict[str, dict[str, StoredPart]] = {}
    for file, path, digest, metadata, page, breaks in connection.execute(query):
        label = part_label(json.loads(metadata))
        pages = {label} if label else set()
        if page is not None and not label:
            pages = {str(page + more) for more in range(1 + len(json.loads(breaks or "[]")))}
        before = found.setdefault(file, {}).get(path, StoredPart(digest, frozenset()))
        found[file][path] = StoredPart(digest, before.pages | pages)
    return found


def list_record_files(connection: Connection, dataset: str) -> list[str]:
    """Return the sorted files of the dataset that may hold several documents."""
    file = manifest.c.file
    has_records = file.ilike("%.jsonl") | file.ilike("%.ndjson") | file.ilike("%.mbox")
    has_records |= manifest.c.documents > 1
    of_dataset = manifest.c.dataset == dataset
    return sorted(connection.scalars(select(file).where(of_dataset, has_records)))


def paths_of_records(
    connection: Connection, dataset: str, file: str, first: int, last: int | None
) -> list[tuple[str, int]]:
    """Return path and line of documents that are records in these lines of a file, in order."""
    line = first_number(chunks.c.places)
    query = select(documents.c.path, func.min(line).label("line")).join(
        chunks, chunks.c.document_id == documents.c.id
    )
    of_file = (documents.c.dataset == dataset) & (documents.c.file == file)
    of_file &= chunks.c.places.contains('"record"')  # mails count lines of their own
    is_there = (line >= first) & (true() if last is None else line <= last)
    records = query.where(of_file & (documents.c.path != file), is_there)
    rows = connection.execute(records.group_by(documents.c.path).order_by("line"))
    return [(row.path, row.line) for row in rows]


@dataclass(frozen=True, slots=True)
class FileCounts:
    """The numbers of files of a dataset.

    ``listed`` files are in the folder. ``indexed`` files have passages, their own or those of files
    made from them; ``reasons`` says why the rest have none. ``partly`` are reasons of files that
    have passages all the same: they could be read in part, or their passages are from a time before
    they became unreadable. ``coverage`` is the share of readable files that have passages, 0 to 1,
    ``None`` if no file could be read.
    """

    listed: int
    indexed: int
    coverage: float | None
    reasons: dict[str, int]
    partly: dict[str, int]


def count_files(connection: Connection, dataset: str) -> FileCounts:
    """Count the dataset's files as of the last run."""
    of, has_passages = documents.c, literal(1).label("has_passages")
    query = select(manifest.c.file, manifest.c.reason, literal(0).label("has_passages"))
    joined = select(of.file, null(), has_passages).join(chunks, chunks.c.document_id == of.id)
    found = joined.where(of.dataset == dataset).distinct()
    rows = connection.execute(query.where(manifest.c.dataset == dataset).union_all(found)).all()
    reasons: dict[str, str | None] = {row[0]: row[1] for row in rows if not row[2]}
    indexed = {row[0] for row in rows if row[2]}
    if reasons.keys() - indexed:
        indexed |= read_originals(connection, dataset) & reasons.keys()
    without = [reason for file, reason in reasons.items() if file not in indexed]
    partly = filter(None, map(reasons.get, indexed))
    readable = len(indexed) + without.count(None)
    return FileCounts(
        listed=len(indexed) + len(without),
        indexed=len(indexed),
        coverage=len(indexed) / readable if readable else None,
        reasons=_most_first(Counter(reason or "no reason told" for reason in without)),
        partly=_most_first(Counter(partly)),
    )


def _most_first(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


@dataclass(frozen=True, slots=True)
class DatasetSettings:
    """The settings that shape a dataset's passages, by name, and the preset they came from."""

    preset: str | None
    values: Mapping[str, Any]


def read_dataset_settings(
    connection: Connection, dataset: str, *, in_use: bool = False
) -> DatasetSettings | None:
    """Return the settings of the dataset, ``None`` if they are missing or damaged.

    With ``in_use`` also if no document was made with them.
    """
    query = select(dataset_settings).where(dataset_settings.c.dataset == dataset)
    if in_use:
        query = query.where(exists().where(documents.c.dataset == dataset))
    row = connection.execute(query).one_or_none()
    try:
        return None if row is None else DatasetSettings(row.preset, json.loads(row.settings))
    except ValueError:
        return None


def note_dataset_settings(connection: Connection, dataset: str, settings: DatasetSettings) -> None:
    """Store the settings of the dataset."""
    text = json.dumps(dict(settings.values), sort_keys=True)
    row = {"dataset": dataset, "preset": settings.preset, "settings": text}
    put_rows(connection, dataset_settings, [row])
