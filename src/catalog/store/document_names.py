"""The names of documents, the files that form one document, and filterable values as rows.

A recording, a picture or a scan may have several files: transcript, frames, OCR text. All have the
same value of the field ``media`` (see ``docs/reference/recordings.md``), which counts for
recordings, and for files that name the file they were made from.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    and_,
    delete,
    insert,
    or_,
    select,
    true,
    update,
)

from catalog.core.dates import to_timestamp
from catalog.core.documents import Chunk, MetadataScalar, MetadataValue, listed
from catalog.core.filters import DATE_FIELDS, comparable_number, value_kind
from catalog.store.filter_sql import DatasetNames, among
from catalog.store.restriction import change_stamp
from catalog.store.schema import document_fields, documents

_RECORDINGS = ("video", "audio")  # file types


@dataclass(frozen=True, slots=True)
class Member:
    """A stored file of the document ``key`` of its dataset, alone or one of several.

    ``original`` is the path of the file that all of them were made from, if known. The first of
    ``names`` is the one to show.
    """

    id: int
    dataset: str
    path: str
    docid: str
    title: str
    key: str
    original: str | None
    names: tuple[str, ...] = ()

    @property
    def short_name(self) -> str:
        """Return the name of the original without folders; "" if it is not known."""
        return (self.original or "").rpartition("/")[2]

    def values(self, field: str, *, is_stored: bool = False) -> tuple[MetadataScalar, ...]:
        """Return the stored values of a field that names documents, or all its names."""
        names = (self.key,) if is_stored else self.names
        paths = (self.path,) if is_stored else (self.path, *names)
        values: dict[str, tuple[MetadataScalar, ...]] = {
            "path": paths,
            "source_doc_id": tuple(f"{self.dataset}:{path}" for path in paths),
            "media": names,
            "docid": (self.docid,),
        }
        return values.get(field, (self.title,))


class DocumentNames:
    """The documents of a dataset that may have several files, or those that ``allowed`` selects."""

    def __init__(
        self, connection: Connection, dataset: str, allowed: ColumnElement[bool] | None = None
    ) -> None:
        self._connection, self._prefix = connection, f"{dataset}:"
        self._allowed = and_(documents.c.dataset == dataset, true() if allowed is None else allowed)

    @cached_property
    def groups(self) -> dict[str, list[Member]]:
        """The files of each document by its key; the first is shown for all."""
        members = sorted(
            self._read(), key=lambda one: (one.path != one.key, len(one.path), one.path)
        )
        short = among(documents.c.path, {member.short_name for member in members})
        paths = {member.original for member in members}
        if members:
            query = select(documents.c.path).where(self._allowed, short)
            paths |= set(self._connection.scalars(query))
        groups: dict[str, list[Member]] = {}
        for member in members:
            names = dict.fromkeys([member.original or member.key, member.key])
            if member.short_name == member.original or member.short_name not in paths:
                names |= {member.short_name: None} if member.original else {}
            groups.setdefault(member.key, []).append(replace(member, names=tuple(names)))
        return groups

    @cached_property
    def _together(self) -> dict[str, list[str]]:
        groups = ([member.path for member in group] for group in self.groups.values())
        return {path: paths for paths in groups for path in paths}

    def _of_groups(self, is_meant: Callable[[Member], bool]) -> list[Member]:
        meant = (group for group in self.groups.values() if any(map(is_meant, group)))
        return list(chain.from_iterable(meant))

    def made_of(self, original: str) -> list[str]:
        """Return the paths of the files that were made from the original at this path."""
        return [member.path for member in self._of_groups(lambda one: one.original == original)]

    def named(self, name: str) -> list[Member]:
        """Return the files of all documents that have this name."""
        return self._of_groups(lambda one: name in one.names)

    def whole(self, paths: Iterable[str]) -> list[str]:
        """Return the paths, with the other files of the same documents."""
        wholes = (self._together.get(path, [path]) for path in paths)
        return list(dict.fromkeys(chain.from_iterable(wholes)))

    def whole_ids(self, source_doc_ids: Iterable[str]) -> list[str]:
        """Return the ids that belong to the dataset, with the other files of the same documents."""
        return [f"{self._prefix}{path}" for path in self.whole(self._own(source_doc_ids))]

    def count(self, source_doc_ids: Iterable[str]) -> int:
        """Count the documents of the dataset to which these stored files belong."""
        return len({self._together.get(path, [path])[0] for path in self._own(source_doc_ids)})

    def live(self, source_doc_ids: Collection[str]) -> set[str]:
        """Return the ids that exist, for these ids of documents.

        The path of an original stands for all files made from it, unless a stored file has that
        path.
        """
        live = live_documents(self._connection, source_doc_ids)
        missing = set(self._own(source_doc_ids)).difference(self._own(live))
        if not missing:
            return live
        found = self._of_groups(lambda one: not missing.isdisjoint((one.key, one.original)))
        return live | {f"{self._prefix}{member.path}" for member in found}

    def _own(self, source_doc_ids: Iterable[str]) -> list[str]:
        own = (one for one in source_doc_ids if one.startswith(self._prefix))
        return [one.removeprefix(self._prefix) for one in own]

    def _read(self) -> list[Member]:
        fields, original = document_fields, document_fields.alias()
        is_any = select(fields.c.document_id).where(fields.c.field == "media").limit(1)
        if self._connection.scalar(is_any) is None:  # most stores: nothing to join
            return []
        of = documents.c
        shown = (of.id, of.dataset, of.path, of.docid, of.title)
        made = (
            select(*shown, fields.c.text_value, original.c.text_value)
            .join(fields, _is_field(fields, "media"))
            .outerjoin(original, _is_field(original, "media_file"))
            .where(or_(of.file_type.in_(_RECORDINGS), original.c.text_value.is_not(None)))
        )
        members = [Member(*row) for row in self._connection.execute(made.where(self._allowed))]
        known = {member.id for member in members}
        originals = {member.key for member in members if member.key == member.original}
        own = select(*shown, of.path, of.path).where(
            self._allowed,
            of.file == of.path,  # not a record, which chooses its own path
            among(of.path, originals),  # not a recording, whose key is not a path
        )
        rows = self._connection.execute(own)
        return [*members, *(Member(*row) for row in rows if row.id not in known)]


def find_groups(
    connection: Connection, dataset: DatasetNames, allowed: ColumnElement[bool] | None = None
) -> dict[int, list[Member]]:
    """Return the files of each document with several files, by the row number of the first.

    ``allowed`` is a condition on ``documents``; files that do not meet it are ignored.
    """
    names = (dataset,) if isinstance(dataset, str) else dataset
    groups = (DocumentNames(connection, name, allowed).groups.values() for name in names)
    return {group[0].id: group for of_dataset in groups for group in of_dataset}


def count_whole(
    connection: Connection, datasets: Iterable[str], source_doc_ids: Collection[str]
) -> int:
    """Count the documents to which these stored files of the datasets belong."""
    return sum(DocumentNames(connection, name).count(source_doc_ids) for name in datasets)


def read_levels(connection: Connection, datasets: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the folded levels of confidentiality of every document, by source document id.

    Every file of a document gets the levels of all its files. Without a known level the set is
    empty.
    """
    fields = document_fields.c
    is_level = and_(fields.document_id == documents.c.id, fields.field == "confidentiality")
    levels: dict[str, set[str]] = {}
    for dataset in datasets:
        query = select(documents.c.source_doc_id, fields.text_value, fields.number_value)
        joined = query.select_from(documents.outerjoin(document_fields, is_level))
        for name, text, number in connection.execute(joined.where(documents.c.dataset == dataset)):
            stated = text if number is None else f"{number:.15g}"
            levels.setdefault(name, set()).update([stated.casefold()] if stated else [])
        for group in DocumentNames(connection, dataset).groups.values():
            ids = [f"{dataset}:{member.path}" for member in group]
            together = set[str]().union(*(levels.get(one, ()) for one in ids))
            levels |= {one: together for one in ids if one in levels}
    return {name: frozenset(stated) for name, stated in levels.items()}


def document_key(chunk: Chunk) -> str:
    """Return the identity of a passage's document, equal for all files of that document.

    A NUL keeps kinds of identities apart: that of a recording never equals a path, and that of a
    record never equals a file's.
    """
    key, original = chunk.metadata.get("media"), original_of(chunk)
    if isinstance(key, str) and (chunk.file_type in _RECORDINGS or original is not None):
        return f"{chunk.dataset}:{key}" + ("" if key == original else "\0")
    is_record = chunk.file not in ("", chunk.path)
    return f"{chunk.source_doc_id}\0{chunk.file}" if is_record else chunk.source_doc_id


def list_titles(connection: Connection, dataset: str) -> list[tuple[str, str]]:
    """Return title and path of the dataset's documents, by path."""
    query = select(documents.c.title, documents.c.path).where(documents.c.dataset == dataset)
    return [(row[0], row[1]) for row in connection.execute(query.order_by(documents.c.path))]


def list_addresses(connection: Connection, dataset: str) -> list[tuple[str, str]]:
    """Return ``source_url`` and path of the dataset's documents that have one, by path."""
    fields = document_fields.c
    query = (
        select(fields.text_value, documents.c.path)
        .join(documents, documents.c.id == fields.document_id)
        .where(documents.c.dataset == dataset, fields.field == "source_url", fields.kind == "s")
        .order_by(documents.c.path)
    )
    return [(row[0], row[1]) for row in connection.execute(query)]


def live_documents(connection: Connection, source_doc_ids: Iterable[str]) -> set[str]:
    """Return the ids among these that are live documents."""
    is_named = among(documents.c.source_doc_id, source_doc_ids)
    return set(connection.scalars(select(documents.c.source_doc_id).where(is_named)))


def original_of(chunk: Chunk) -> str | None:
    """Return the path of the file from which a passage's document was made, if known."""
    file = chunk.metadata.get("media_file")
    return file if isinstance(file, str) and file else None


def _is_field(rows: FromClause, name: str) -> ColumnElement[bool]:
    """Return the condition that rows of ``document_fields`` are that text field of a document."""
    fields = rows.c
    return and_(fields.document_id == documents.c.id, fields.field == name, fields.kind == "s")


def field_rows(fields: Mapping[str, MetadataValue]) -> list[dict[str, Any]]:
    """Return rows of ``document_fields`` for these values, without repetitions or a document id."""
    rows = []
    for field, values in listed(fields).items():
        items = values if isinstance(values, tuple) else (values,)
        # 1 and True are two values
        for kind, value in dict.fromkeys((value_kind(item), item) for item in items):
            row: dict[str, Any] = dict.fromkeys(("text_value", "number_value", "folded"))
            if kind == "n" and not isinstance(value, str):
                row["number_value"] = comparable_number(value)
            else:
                row["text_value"] = text = str(value).lower() if kind == "b" else str(value)
                row["folded"] = None if text.casefold() == text else text.casefold()
            if field in DATE_FIELDS and kind == "s":
                row["number_value"] = to_timestamp(value)  # dates are compared as timestamps
            rows.append(row | {"field": field, "kind": kind})
    return rows


def document_date(rows: Iterable[Mapping[str, Any]], *, has_own: bool) -> float | None:
    """Return a document's date from its rows of :data:`DATE_FIELDS`, ``None`` without one.

    The date is in seconds from 1970 (UTC); of several values of a field the latest counts. With
    ``has_own``, ``modified`` comes from the document and takes precedence over ``created``;
    without, it comes from the file and ``created`` takes precedence.
    """
    latest: dict[str, float] = {}
    for row in rows:
        if row["field"] not in DATE_FIELDS or row["kind"] not in ("s", "n"):
            continue
        value = row["number_value"] if row["text_value"] is None else row["text_value"]
        if (at := to_timestamp(value)) is not None:
            latest[row["field"]] = max(at, latest.get(row["field"], at))
    order = DATE_FIELDS if has_own else reversed(DATE_FIELDS)
    return next((latest[field] for field in order if field in latest), None)


def set_file_dates(
    connection: Connection, dataset: str, dates: Mapping[str, str | None], now: float
) -> None:
    """Set the dates of documents without a ``modified`` of their own to those of their files.

    ``dates`` is path → ISO 8601, or ``None`` for no date. Revisions, passages and vectors stay.
    """
    fields = document_fields.c
    dated = (fields.document_id == documents.c.id) & (fields.field == "modified")
    query = (
        select(documents.c.id, documents.c.path, fields.text_value)
        .outerjoin(document_fields, dated)
        .where(documents.c.dataset == dataset, among(documents.c.path, dates))
    )
    rows = connection.execute(query).all() if dates else ()
    changed = {number: dates[path] for number, path, date in rows if date != dates[path]}
    for number, date in changed.items():
        of_it = fields.document_id == number
        connection.execute(delete(document_fields).where(of_it, fields.field == "modified"))
        for row in field_rows({} if date is None else {"modified": date}):
            connection.execute(insert(document_fields).values(row | {"document_id": number}))
        stored = connection.execute(select(document_fields).where(of_it)).mappings()
        at = document_date(map(dict, stored), has_own=False)
        connection.execute(update(documents).where(documents.c.id == number).values(dated=at))
    if changed:
        change_stamp(connection, dataset, now)
