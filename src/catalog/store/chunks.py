"""Read documents and chunks from the store, and look for damage.

Their rows have a CRC-32, made when they are stored and compared when they are read. A passage's
covers all that is shown of it except its document's type and date.
"""

import json
import zlib
from collections import namedtuple
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from operator import attrgetter
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Row, and_, bindparam, func, select, true
from sqlalchemy.exc import DatabaseError, NoResultFound

from catalog.core import ids
from catalog.core.documents import Chunk, Cue, Locator, MetadataValue, last_page, locate
from catalog.core.errors import DamagedDocumentError, StoreDamagedError, UnknownDatasetError
from catalog.core.places import AS_IN_FILE, Places
from catalog.store.database import is_damage
from catalog.store.filter_sql import DatasetNames, among, among_bound, as_bound, of_datasets
from catalog.store.schema import chunks, datasets, document_fields, documents, revisions
from catalog.store.sql_forms import likely

PASSAGE: tuple[Column[Any], ...] = (
    *(column for column in chunks.c if column.name != "checksum"),
    *(documents.c[name] for name in ("path", "source_doc_id", "docid", "metadata")),
)
TEXT: tuple[Column[Any], ...] = (
    *(documents.c[name] for name in ("source_doc_id", "dataset", "path", "title", "file_type")),
    *(documents.c[name] for name in ("docid", "content_hash", "revision_id", "metadata")),
    revisions.c.text,
)
_KNOWN = (  # columns of the document, not covered by its passages' checksum
    documents.c.file,
    documents.c.file_type,
    documents.c.source_type,
    documents.c.dated,
    select(func.min(document_fields.c.text_value))
    .where(
        document_fields.c.document_id == documents.c.id,
        # makes SQLite use the index by document: the one by field has all documents' values
        likely(document_fields.c.field == "modified"),
    )
    .scalar_subquery()
    .label("modified"),
)
_PASSAGES = (
    select(*PASSAGE, chunks.c.checksum.label("sealed"), *_KNOWN)
    .join(documents, documents.c.id == chunks.c.document_id)
    .where(among_bound(chunks.c.seq, "seqs"))
)
# SQLAlchemy's own rows take ten times longer to give a value by its name.
_Passage = namedtuple("_Passage", _PASSAGES.selected_columns.keys())  # type: ignore[misc]
_AS_STORED = (  # fields of a chunk that are columns
    *("seq", "chunk_id", "source_doc_id", "dataset", "path", "docid", "title", "position"),
    *("start_offset", "end_offset", "modality", "text", "file_type", "source_type"),
    *("modified", "dated", "file"),
)
_as_stored = attrgetter(*_AS_STORED)
_HAS_NAME = select(datasets.c.name).where(datasets.c.name == bindparam("name"))


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A live document without its chunks."""

    source_doc_id: str
    dataset: str
    path: str
    title: str
    file_type: str
    docid: str
    content_hash: str
    revision_id: str
    metadata: dict[str, MetadataValue]
    text: str


@dataclass(frozen=True, slots=True)
class StoredDataset:
    """A dataset: its name, folder and file patterns, and the counter of its changes."""

    name: str
    root: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    generation: int
    created_at: float
    updated_at: float


def row_checksum(values: Iterable[object]) -> int:
    """Return the CRC-32 of a row's values."""
    return zlib.crc32("\0".join(map(str, values)).encode("utf-8", "surrogatepass"))


def load_chunks(
    connection: Connection,
    dataset: DatasetNames,
    seqs: Iterable[int],
    *,
    damaged: list[DamagedDocumentError] | None = None,
) -> dict[int, Chunk]:
    """Return the live chunks of the dataset among these row numbers, by row number.

    A chunk that changed since it was stored is skipped and its error appended to ``damaged``;
    without that list, the first such error is raised.
    """
    errors = [] if damaged is None else damaged
    loaded: dict[int, Chunk] = {}
    for row in _passages(connection, dataset, list(seqs), errors):
        if row_checksum(row[: len(PASSAGE)]) == row.sealed:
            loaded[row.seq] = _chunk(row)
        else:
            errors.append(DamagedDocumentError(row.source_doc_id, "a passage"))
    if damaged is None and errors:
        raise errors[0]
    return loaded


def find_chunks(connection: Connection, dataset: str, chunk_ids: Collection[str]) -> list[Chunk]:
    """Return the live chunks of a dataset with these ids, in no order."""
    query = select(chunks.c.seq).where(among(chunks.c.chunk_id, chunk_ids))
    return list(load_chunks(connection, dataset, connection.scalars(query)).values())


def find_neighbours(
    connection: Connection, seqs: Collection[int]
) -> dict[int, tuple[str | None, str | None]]:
    """Return the ids of the chunks before and after each of these rows in its document."""
    near, at = chunks.alias(), chunks.c.position
    is_near = and_(
        near.c.document_id == chunks.c.document_id,
        near.c.position.in_([at - 1, at + 1]),  # by the index: a document may have thousands
    )
    query = select(chunks.c.seq, near.c.position - at, near.c.chunk_id).join(near, is_near)
    ids = {
        (seq, step): chunk_id
        for seq, step, chunk_id in connection.execute(query.where(among(chunks.c.seq, seqs)))
    }
    return {seq: (ids.get((seq, -1)), ids.get((seq, 1))) for seq in seqs}


def list_datasets(connection: Connection) -> list[StoredDataset]:
    """Return every dataset, by name."""
    columns = [datasets.c[name] for name in StoredDataset.__dataclass_fields__]
    rows = connection.execute(select(*columns).order_by(datasets.c.name))
    try:
        return [
            StoredDataset(name, root, tuple(json.loads(include)), tuple(json.loads(exclude)), *rest)
            for name, root, include, exclude, *rest in rows
        ]
    except (ValueError, TypeError, RecursionError) as error:
        raise StoreDamagedError(
            "the record of a dataset's folder is damaged: run 'catalog index build FOLDER "
            "--dataset NAME'"
        ) from error


def find_root(connection: Connection, dataset: str) -> str:
    """Return the folder or file from which a dataset was last built; ``""`` if unknown."""
    return connection.scalar(select(datasets.c.root).where(datasets.c.name == dataset)) or ""


def list_dataset_names(connection: Connection) -> list[str]:
    """Return the names of the datasets, in order."""
    return list(connection.scalars(select(datasets.c.name).order_by(datasets.c.name)))


def require_dataset(connection: Connection, name: str) -> None:
    """Raise :class:`UnknownDatasetError`, with the names of all datasets, unless it exists."""
    if connection.scalar(_HAS_NAME, {"name": name}) is None:
        raise unknown_dataset(name, list_dataset_names(connection))


def unknown_dataset(name: str | None, names: Sequence[str]) -> UnknownDatasetError:
    """Return the error for a name that none of these datasets has; ``None``: for no name."""
    near = get_close_matches(name, names, n=1, cutoff=0.7) if name else []
    meant = f"; did you mean {near[0]!r}?" if near else ""
    known = ", ".join(names) or "none yet; 'catalog index build FOLDER'"
    what = "name a dataset" if name is None else f"no dataset {name!r}"
    return UnknownDatasetError(f"{what}{meant}; datasets: {known}")


def list_fields(
    connection: Connection, dataset: DatasetNames, allowed: ColumnElement[bool] | None = None
) -> set[str]:
    """Return the metadata fields that at least one document of the dataset has.

    ``allowed`` is a condition on ``documents``; only documents that meet it count.
    """
    query = (
        select(document_fields.c.field)
        .join(documents, documents.c.id == document_fields.c.document_id)
        .where(of_datasets(documents.c.dataset, dataset), true() if allowed is None else allowed)
        .distinct()
    )
    return set(connection.scalars(query))


def list_paths(connection: Connection, dataset: str) -> list[str]:
    """Return the paths of the dataset's documents, in order."""
    query = select(documents.c.path).where(documents.c.dataset == dataset)
    return list(connection.scalars(query.order_by(documents.c.path)))


def read_documents(connection: Connection, dataset: str) -> Iterator[StoredDocument]:
    """Yield the dataset's live documents with their text, in path order, read one by one."""
    return _documents(connection, (documents.c.dataset == dataset,))


def find_by_path(connection: Connection, dataset: str, path: str) -> StoredDocument | None:
    """Return the document at exactly this path."""
    where = (documents.c.dataset == dataset, documents.c.path == path)
    return next(_documents(connection, where), None)


def find_by_docid(
    connection: Connection, prefix: str, dataset: DatasetNames
) -> list[StoredDocument]:
    """Return documents of the dataset whose content hash starts with these digits."""
    short = prefix[: ids.DOCID_LENGTH]
    after = short + "g"  # sorts after every hex digit that can follow
    is_short = (documents.c.docid >= short, documents.c.docid < after)
    found = _documents(connection, (*is_short, of_datasets(documents.c.dataset, dataset)))
    return [document for document in found if document.content_hash.startswith(prefix)]


def _documents(connection: Connection, where: Sequence[Any]) -> Iterator[StoredDocument]:
    query = select(*TEXT, revisions.c.checksum).join(revisions).where(*where)
    for row in connection.execute(query.order_by(documents.c.source_doc_id)):
        known = dict(row._mapping)
        sealed = known.pop("checksum")
        if row_checksum(known.values()) != sealed:
            raise DamagedDocumentError(str(row.source_doc_id), "its text or metadata")
        yield StoredDocument(**known | {"metadata": json.loads(row.metadata)})


def find_damaged_documents(connection: Connection, dataset: str) -> Iterator[tuple[int, str]]:
    """Yield row number and name of documents of which the text or a passage changed."""
    document, of_passages = documents.c, chunks.c.document_id == documents.c.id
    is_it = document.id == bindparam("id")
    text_of = select(*TEXT, revisions.c.checksum).join(revisions).where(is_it)
    passages_of = select(*PASSAGE, chunks.c.checksum).join(documents, of_passages).where(is_it)
    for number in connection.scalars(select(document.id).where(document.dataset == dataset)).all():
        name, is_whole = f"document {number} of {dataset!r}", False
        try:
            text = connection.execute(text_of, {"id": number}).one()
            name = str(text.source_doc_id)
            rows = [text, *connection.execute(passages_of, {"id": number})]
            is_whole = all(row_checksum(row[:-1]) == row[-1] for row in rows)
        except (DatabaseError, NoResultFound) as error:
            # bytes that are no text, or an index that names a row that is not there
            if isinstance(error, DatabaseError) and not is_damage(error):
                raise
        if not is_whole:
            yield number, name


def _passages(
    connection: Connection,
    dataset: DatasetNames,
    seqs: list[int],
    errors: list[DamagedDocumentError],
) -> Sequence[Any]:
    """Return the rows; if one cannot be read, read them one by one and skip it."""
    here = (dataset,) if isinstance(dataset, str) else dataset
    try:
        rows: Iterable[Any] = map(
            _Passage._make, connection.execute(_PASSAGES, {"seqs": as_bound(seqs)})
        )
        return [row for row in rows if row.dataset in here]
    except (DatabaseError, UnicodeDecodeError) as error:
        if not is_damage(error):
            raise
        if len(seqs) == 1:
            errors.append(DamagedDocumentError(_owner(connection, seqs[0]), "a passage"))
            return []
    return [row for seq in seqs for row in _passages(connection, dataset, [seq], errors)]


def _owner(connection: Connection, seq: int) -> str:
    query = select(documents.c.source_doc_id).join(chunks, chunks.c.document_id == documents.c.id)
    try:
        return str(connection.scalar(query.where(chunks.c.seq == seq)))
    except (DatabaseError, UnicodeDecodeError):
        return "a document whose name cannot be read"


def _json_list(text: str | None) -> tuple[Any, ...]:
    return tuple(json.loads(text)) if text and text != "[]" else ()


def _chunk(row: Any) -> Chunk:
    page_breaks, places = _json_list(row.page_breaks), parse_places(row.places, row.page)
    lines, seconds = (row.line_start, row.line_end), (row.time_start, row.time_end)
    if places is AS_IN_FILE:  # most passages: nothing to look up
        locator = Locator(None, None, *lines, *seconds, "line", *lines)
    else:
        known = Locator(row.page, last_page(row.page, page_breaks), *lines, *seconds)
        locator = locate(places, 0, len(row.text), known)
    heading_path, context = read_headings(row.headings)
    return Chunk(
        **dict(zip(_AS_STORED, _as_stored(row), strict=True)),
        heading_path=heading_path,
        locator=locator,
        metadata=json.loads(row.metadata) | json.loads(row.own_metadata or "{}"),
        cues=tuple(map(Cue._make, _json_list(row.cues))),
        page_breaks=page_breaks,
        sections=_json_list(row.sections),
        places=places,
        context=context,
    )


def write_headings(heading_path: Iterable[str], context: Sequence[str]) -> str:
    """Return a passage's headings and further searched lines as the store has them, in JSON.

    A line has no line break or tab: FTS5 would read its escaped form as a letter.
    """
    items: list[object] = [*heading_path, *([list(context)] if context else ())]
    return json.dumps(items, ensure_ascii=False)


def read_headings(stored: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the headings over a passage, and the further lines that are searched."""
    items = _json_list(stored)
    if items and isinstance(items[-1], list):
        return items[:-1], tuple(items[-1])
    return items, ()


def parse_places(stored: str | None, page: int | None) -> Places:
    """Return a passage's places; a passage with a page and no places counts in pages."""
    if stored is None:
        return AS_IN_FILE if page is None else Places("page")
    return Places.from_dict(json.loads(stored))


def read_chunk_places(connection: Connection, source_doc_id: str) -> Sequence[Row[Any]]:
    """Return offsets, page, page breaks, cues and places of a document's passages, in order."""
    names = ("start_offset", "end_offset", "page", "page_breaks", "cues", "places")
    query = select(*(chunks.c[name] for name in names)).join(
        documents, documents.c.id == chunks.c.document_id
    )
    is_of = documents.c.source_doc_id == source_doc_id
    return connection.execute(query.where(is_of).order_by(chunks.c.position)).all()
