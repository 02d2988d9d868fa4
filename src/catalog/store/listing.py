"""List the documents that a restriction allows, each with title, size, date and summary."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Connection,
    FromClause,
    Text,
    and_,
    case,
    cast,
    func,
    literal,
    not_,
    nulls_last,
    select,
    text,
)
from sqlalchemy.sql.visitors import replacement_traverse

from catalog.core.dates import seconds_since_epoch, timestamp_to_date
from catalog.core.filters import (
    CHUNK_FIELDS,
    DATE_FIELDS,
    FIRST_CLASS_FIELDS,
    And,
    Filter,
    check_fields,
    filter_fields,
)
from catalog.core.params import Sort
from catalog.core.scope import ALL, Scope
from catalog.store.cards import CARD_VERSION
from catalog.store.chunks import has_field, list_fields
from catalog.store.document_names import Member
from catalog.store.engine_types import Restriction
from catalog.store.filter_sql import DatasetNames, among, compile_filter, of_datasets
from catalog.store.schema import chunks, document_cards, document_fields, documents, manifest
from catalog.store.sql_forms import ignoring_case, json_pairs, number_text

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

# Holds only for a file that is a single document: it has the document's path.
_IS_ITS_FILE = (manifest.c.dataset == documents.c.dataset) & (manifest.c.file == documents.c.path)
_MOST_MATERIALIZED = 20_000  # documents


@dataclass(slots=True)
class ListedDocument:
    """A document as a listing shows it; ``summary`` is ``""`` if it has no card yet.

    Characters and passages are counted over all its files. ``name`` is the path to show: that of
    the original if known (then ``size`` is unknown), else the document's own.
    """

    dataset: str
    name: str
    title: str
    file_type: str
    docid: str
    characters: int
    summary: str
    size: int | None
    dated: float | None
    chunks: int = 0
    tags: list[str] = field(default_factory=list)
    dates: dict[str, str] = field(default_factory=dict)


def allowed_documents(restriction: Restriction) -> ColumnElement[bool]:
    """Return the condition on ``documents`` that at least one passage may answer.

    Every value is bound. Without a condition on passages, a document without passages is allowed,
    too.
    """
    parts: list[ColumnElement[bool]] = [of_datasets(documents.c.dataset, restriction.dataset)]
    tree = restriction.filter
    of_chunks = tree is not None and not CHUNK_FIELDS.isdisjoint(filter_fields(tree))
    if of_chunks or restriction.containing or restriction.without:
        allowed = select(chunks.c.document_id).where(restriction.clause())
        return and_(*parts, documents.c.id.in_(allowed))
    if restriction.scope.ids is not None:
        parts.append(among(documents.c.source_doc_id, sorted(restriction.scope.ids)))
    if tree is not None:
        parts.append(_on_documents(compile_filter(tree)))
    return and_(*parts)


def find_passages(
    connection: Connection, restriction: Restriction, document_ids: Sequence[int]
) -> dict[int, list[int]]:
    """Return the row numbers of the passages that may answer, in order, by document."""
    columns = select(chunks.c.document_id, chunks.c.seq).order_by(chunks.c.seq)
    of_these = among(chunks.c.document_id, document_ids)
    by_document: dict[int, list[int]] = {}
    for document, seq in connection.execute(columns.where(restriction.clause(), of_these)):
        by_document.setdefault(document, []).append(seq)
    return by_document


def check_filter_fields(
    connection: Connection, restriction: Restriction, seen: Scope = ALL
) -> None:
    """Raise :class:`UnknownFieldError` if the filter has a field that no document has.

    The error names the fields of documents that the rest of the restriction allows. Documents that
    are not ``seen`` are treated as missing.
    """
    dataset, tree = restriction.dataset, restriction.filter
    if tree is None:
        return
    unknown = {
        name
        for name in filter_fields(tree) - FIRST_CLASS_FIELDS
        if not has_field(connection, dataset, name)
    }
    if not seen.is_all:
        of_seen = list_fields(connection, dataset, allowed_documents(Restriction(dataset, seen)))
        unknown |= filter_fields(tree) - FIRST_CLASS_FIELDS - set(of_seen)
    if unknown:
        rest = replace(restriction, filter=_without_fields(tree, unknown))
        check_fields(tree, list_fields(connection, dataset, allowed_documents(rest)))


def _without_fields(tree: Filter, fields: Set[str]) -> Filter | None:
    """Drop the conditions with any of these fields from an ``And``; ``None`` if all are dropped."""
    if isinstance(tree, And):
        parts = [_without_fields(part, fields) for part in tree.parts]
        return And(tuple(part for part in parts if part is not None))
    return tree if filter_fields(tree).isdisjoint(fields) else None


def list_source_ids(connection: Connection, allowed: ColumnElement[bool]) -> frozenset[str]:
    """Return the source document ids of the allowed documents."""
    return frozenset(connection.scalars(select(documents.c.source_doc_id).where(allowed)))


def materialize(connection: Connection, allowed: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return the same condition as a list of ids, unless it is very long, for repeated use."""
    query = select(documents.c.id).where(allowed).limit(_MOST_MATERIALIZED + 1)
    ids = connection.scalars(query).all()
    return among(documents.c.id, ids) if len(ids) <= _MOST_MATERIALIZED else allowed


def count_documents(connection: Connection, allowed: ColumnElement[bool], most: int) -> int:
    """Count the allowed documents, up to ``most``."""
    query = select(documents.c.id).where(allowed).limit(most)
    return connection.scalar(select(func.count()).select_from(query.subquery())) or 0


def list_document_paths(connection: Connection, allowed: ColumnElement[bool]) -> list[str]:
    """Return the sorted paths of the allowed documents."""
    query = select(documents.c.path).where(allowed).order_by(documents.c.path)
    return list(connection.scalars(query))


def list_document_ids(
    connection: Connection,
    allowed: ColumnElement[bool],
    sort: Sort,
    limit: int,
    offset: int,
    groups: Mapping[int, Sequence[Member]] | None = None,
) -> list[int]:
    """Return the ids of allowed documents from ``offset`` on, sorted.

    ``size`` sorts by the file's bytes (or characters if unknown), largest first. ``modified`` sorts
    by the date of :func:`dated_between`, newest first, documents without a date last. Any other
    value, and every tie, sorts by path without regard to the case of ASCII letters, then by
    dataset. Documents in ``groups`` have the path under which they are shown.
    """
    query = select(documents.c.id).where(allowed)
    source: FromClause = documents
    path: ColumnElement[str] = documents.c.path
    shown = {id_: _original(group) for id_, group in (groups or {}).items() if _original(group)}
    if shown:
        names = json_pairs(literal(json.dumps(shown)))
        source = source.outerjoin(names, names.c.key == cast(documents.c.id, Text))
        path = func.coalesce(names.c.value, path)
    if sort == "size":
        size: ColumnElement[int] = func.coalesce(manifest.c.size, documents.c.characters)
        if shown:
            size = case((names.c.value.is_not(None), documents.c.characters), else_=size)
        source = source.outerjoin(manifest, _IS_ITS_FILE)
        query = query.order_by(size.desc())
    elif sort == "modified":
        query = query.order_by(nulls_last(documents.c.dated.desc()))
    query = query.order_by(ignoring_case(path), path, documents.c.dataset)
    query = query.limit(limit).offset(offset)
    return list(connection.scalars(query.select_from(source)))


def _original(group: Sequence[Member]) -> str | None:
    """Return the path of the file from which a group was made, if one of its files names it."""
    return next((member.original for member in group if member.original), None)


def dated_between(after: datetime | None, before: datetime | None) -> ColumnElement[bool]:
    """Return the condition on ``documents`` that their date is between the two.

    A document's date is the first that is known of: the author's ``modified``, the author's
    ``created``, a program's ``modified``, a program's ``created``, the date in the file's name, the
    file's time of modification.
    ``after`` is included, ``before`` is not; both have a time zone. A document without a date does
    not meet the condition.
    """
    dated = documents.c.dated
    parts: list[ColumnElement[bool]] = [dated.is_not(None)]
    if after is not None:
        parts.append(dated >= seconds_since_epoch(after))
    if before is not None:
        parts.append(dated < seconds_since_epoch(before))
    return and_(*parts)


def read_source_ids(connection: Connection, ids: Sequence[int]) -> dict[int, str]:
    """Return the source document ids of these documents, by row number."""
    query = select(documents.c.id, documents.c.source_doc_id).where(among(documents.c.id, ids))
    return {row[0]: row[1] for row in connection.execute(query)}


def read_documents_of_chunks(
    connection: Connection, dataset: DatasetNames, seqs: Sequence[int]
) -> list[str]:
    """Return the source document ids of these chunks, without repetitions, in the order given."""
    query = (
        select(chunks.c.seq, documents.c.source_doc_id)
        .join(documents, documents.c.id == chunks.c.document_id)
        .where(among(chunks.c.seq, seqs), of_datasets(chunks.c.dataset, dataset))
    )
    by_seq = {row[0]: row[1] for row in connection.execute(query)}
    return list(dict.fromkeys(by_seq[seq] for seq in seqs if seq in by_seq))


def count_by_type(connection: Connection, allowed: ColumnElement[bool]) -> dict[str, int]:
    """Count documents by file type, most first, then by name."""
    count = func.count().label("count")
    query = select(documents.c.file_type, count).where(allowed).group_by(documents.c.file_type)
    query = query.order_by(count.desc(), documents.c.file_type)
    return {row[0]: row[1] for row in connection.execute(query)}


def count_by_value(
    connection: Connection, allowed: ColumnElement[bool], field: str
) -> dict[str, int]:
    """Count documents by the values of a field as text, most first, then by value."""
    fields, column = document_fields.c, documents.c.get(field)
    value: ColumnElement[Any]
    if column is not None:
        value, count = column, func.count().label("count")
        query = select(value, count).where(allowed, value != "")
    else:
        value = func.coalesce(fields.text_value, number_text(fields.number_value))
        count = func.count(fields.document_id.distinct()).label("count")
        query = select(value, count).where(
            fields.field == field, fields.document_id.in_(select(documents.c.id).where(allowed))
        )
    rows = connection.execute(query.group_by(value).order_by(count.desc(), value))
    return {row[0]: row[1] for row in rows if row[0] is not None}


def without_repeats(
    allowed: ColumnElement[bool], groups: Mapping[int, Sequence[Member]]
) -> ColumnElement[bool]:
    """Return the condition, restricted to the first file of each group."""
    others = [member.id for _, *others in groups.values() for member in others]
    return and_(allowed, not_(among(documents.c.id, others))) if others else allowed


def describe_documents(
    connection: Connection, ids: Sequence[int], groups: Mapping[int, Sequence[Member]]
) -> dict[int, ListedDocument]:
    """Return the entries of these documents by id; documents that are gone are left out.

    Each of ``groups`` (see ``find_groups``) has one entry, under its first file.
    """
    firsts = {member.id: id_ for id_ in ids for member in groups.get(id_, ())}
    firsts |= {id_: id_ for id_ in ids}
    is_wanted = among(documents.c.id, ids)
    is_current = document_cards.c.version == CARD_VERSION
    with_card = documents.outerjoin(
        document_cards, (document_cards.c.document_id == documents.c.id) & is_current
    ).outerjoin(manifest, _IS_ITS_FILE)
    columns = (
        documents.c.id,
        documents.c.dataset,
        documents.c.path,
        documents.c.title,
        documents.c.file_type,
        documents.c.docid,
        documents.c.characters,
        func.coalesce(document_cards.c.summary, literal("", Text)),
        manifest.c.size,
        documents.c.dated,
    )
    query = select(*columns).select_from(with_card).where(is_wanted)
    listed = {row[0]: ListedDocument(*row[1:]) for row in connection.execute(query)}
    counts = (
        select(chunks.c.document_id, func.count())
        .where(among(chunks.c.document_id, firsts))
        .group_by(chunks.c.document_id)
    )
    for document, count in connection.execute(counts):
        listed[firsts[document]].chunks += count
    others = firsts.keys() - set(ids)
    sizes = select(documents.c.id, documents.c.characters).where(among(documents.c.id, others))
    for document, characters in connection.execute(sizes) if others else ():
        listed[firsts[document]].characters += characters
    for id_ in listed.keys() & groups.keys():
        if (original := _original(groups[id_])) is not None:
            listed[id_].name, listed[id_].size = original, None
    for document, name, value, number in connection.execute(_select_fields(ids)):
        if name != "tags":
            listed[document].dates.setdefault(name, f"{number:.15g}" if value is None else value)
        elif value is not None:
            listed[document].tags.append(value)
    return listed


def date_range(connection: Connection, allowed: ColumnElement[bool]) -> tuple[date, date] | None:
    """Return the first and the last day (UTC) of allowed documents, ``None`` without any date."""
    query = select(func.min(documents.c.dated), func.max(documents.c.dated)).where(allowed)
    first, last = connection.execute(query).one()
    return None if first is None else (timestamp_to_date(first), timestamp_to_date(last))


def _select_fields(ids: Sequence[int]) -> Any:
    fields = document_fields.c
    return (
        select(fields.document_id, fields.field, fields.text_value, fields.number_value)
        .where(
            among(fields.document_id, ids),
            fields.field.in_((*DATE_FIELDS, "tags")),
            fields.kind.in_(("s", "n")),
        )
        .order_by(fields.document_id, text("document_fields.rowid"))
    )


def _on_documents(clause: ColumnElement[bool]) -> ColumnElement[bool]:
    """Turn a condition on passages that concerns only their documents into one on documents."""

    def to_documents(element: Any, **_: Any) -> Any:
        return documents.c.id if element is chunks.c.document_id else None

    replaced: ColumnElement[bool] = replacement_traverse(clause, {}, to_documents)
    return replaced
