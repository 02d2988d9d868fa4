"""List the documents that a restriction allows, each with title, size, date and summary."""

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
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
    true,
)
from sqlalchemy.sql.visitors import replacement_traverse

from catalog.core.dates import seconds_since_epoch
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
from catalog.store.chunks import list_fields
from catalog.store.document_names import Member
from catalog.store.filter_sql import DatasetNames, among, compile_filter, of_datasets
from catalog.store.restriction import Restriction
from catalog.store.schema import chunks, document_cards, document_fields, documents, manifest
from catalog.store.sql_forms import ignoring_case, json_pairs, number_text

# Holds only for a file that is a single document: it has the document's path.
_IS_ITS_FILE = (manifest.c.dataset == documents.c.dataset) & (manifest.c.file == documents.c.path)
_MOST_MATERIALIZED = 20_000  # documents


@dataclass(slots=True)
class ListedDocument:
    """A document as a listing shows it; ``summary`` is of its card.

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

    Without a condition on passages, a document without passages is allowed, too.
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
        parts.append(replacement_traverse(compile_filter(tree), {}, _of_document))
    return and_(*parts)


def _of_document(element: Any, **_: Any) -> Any:
    """Turn the document of a passage into a document, for conditions that concern only those."""
    return documents.c.id if element is chunks.c.document_id else None


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
    """Raise :class:`UnknownFieldError` if the filter has a field that no ``seen`` document has.

    The error names the fields of documents that the rest of the restriction allows.
    """
    if (tree := restriction.filter) is None:
        return
    field, of_document = document_fields.c.field, documents.c.id == document_fields.c.document_id
    allowed = allowed_documents(Restriction(restriction.dataset, seen))
    query = select(field).join(documents, of_document).where(allowed).limit(1)
    unknown = {
        name
        for name in filter_fields(tree) - FIRST_CLASS_FIELDS
        if connection.scalar(query.where(field == name)) is None
    }
    if unknown:
        rest = allowed_documents(replace(restriction, filter=_without_fields(tree, unknown)))
        check_fields(tree, list_fields(connection, restriction.dataset, rest))


def _without_fields(tree: Filter, fields: Set[str]) -> Filter | None:
    """Drop the conditions with any of these fields from an ``And``; ``None`` if all are dropped."""
    if isinstance(tree, And):
        parts = (_without_fields(part, fields) for part in tree.parts)
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
    size: ColumnElement[int] = func.coalesce(manifest.c.size, documents.c.characters)
    if shown := {id_: name for id_, group in (groups or {}).items() if (name := _original(group))}:
        names = json_pairs(literal(json.dumps(shown)))
        source = source.outerjoin(names, names.c.key == cast(documents.c.id, Text))
        path = func.coalesce(names.c.value, path)
        size = case((names.c.value.is_not(None), documents.c.characters), else_=size)
    if sort == "size":
        source = source.outerjoin(manifest, _IS_ITS_FILE)
        query = query.order_by(size.desc())
    elif sort == "modified":
        query = query.order_by(nulls_last(documents.c.dated.desc()))
    query = query.order_by(ignoring_case(path), path, documents.c.dataset)
    return list(connection.scalars(query.select_from(source).limit(limit).offset(offset)))


def _original(group: Sequence[Member]) -> str | None:
    """Return the path of the file from which a group was made, if one of its files names it."""
    return next((member.original for member in group if member.original), None)


def dated_between(after: datetime | None, before: datetime | None) -> ColumnElement[bool]:
    """Return the condition on ``documents`` that their date is between the two.

    A document's date is the first that is known of: the author's ``modified``, the author's
    ``created``, a program's ``modified``, a program's ``created``, the date in the file's name, the
    file's time of modification. ``after`` is included, ``before`` is not; both have a time zone. A
    document without a date does not meet the condition.
    """
    dated = documents.c.dated
    since = true() if after is None else dated >= seconds_since_epoch(after)
    until = true() if before is None else dated < seconds_since_epoch(before)
    return and_(dated.is_not(None), since, until)


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


def count_by_value(
    connection: Connection, allowed: ColumnElement[bool], field: str
) -> dict[str, int]:
    """Count documents by the values of a field as text, most first, then by value."""
    fields = document_fields.c
    count: ColumnElement[int] = func.count()
    value: Any = documents.c.get(field)
    if value is None:
        value = func.coalesce(fields.text_value, number_text(fields.number_value))
        count = func.count(fields.document_id.distinct())
        of_allowed = fields.document_id.in_(select(documents.c.id).where(allowed))
        allowed = (fields.field == field) & of_allowed & value.is_not(None)
    query = select(value, count).where(allowed).group_by(value)
    return {row[0]: row[1] for row in connection.execute(query.order_by(count.desc(), value))}


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
    of, fields = documents.c, document_fields.c
    firsts = {member.id: id_ for id_ in ids for member in groups.get(id_, ())}
    firsts |= {id_: id_ for id_ in ids}
    shown = (of.dataset, of.path, of.title, of.file_type, of.docid, of.characters)
    summary = func.coalesce(document_cards.c.summary, literal("", Text))
    query = (
        select(of.id, *shown, summary, manifest.c.size, of.dated)
        .outerjoin(document_cards, document_cards.c.document_id == of.id)
        .outerjoin(manifest, _IS_ITS_FILE)
        .where(among(of.id, ids))
    )
    listed = {row[0]: ListedDocument(*row[1:]) for row in connection.execute(query)}
    passages = select(func.count()).where(chunks.c.document_id == of.id).scalar_subquery()
    counts = select(of.id, of.characters, passages).where(among(of.id, firsts))
    for id_, characters, count in connection.execute(counts):
        entry = listed[firsts[id_]]
        entry.chunks += count
        entry.characters += characters if id_ != firsts[id_] else 0
    for id_ in listed.keys() & groups.keys():
        if (original := _original(groups[id_])) is not None:
            listed[id_].name, listed[id_].size = original, None
    values = (
        select(fields.document_id, fields.field, fields.text_value, fields.number_value)
        .where(among(fields.document_id, ids), fields.field.in_((*DATE_FIELDS, "tags")))
        .where(fields.kind.in_(("s", "n")))
        .order_by(fields.document_id, text("document_fields.rowid"))
    )
    for id_, name, value, number in connection.execute(values):
        if name != "tags":
            listed[id_].dates.setdefault(name, f"{number:.15g}" if value is None else value)
        elif value is not None:
            listed[id_].tags.append(value)
    return listed
