"""What each document is about, for finding documents: a card per document, with full text over it.

A card is derived from the document and may be deleted at any time. One that is missing, or was
made by another version of this code, is made anew at the next refresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, delete, func, insert, select, text

from catalog.store.checksums import row_checksum
from catalog.store.filter_sql import DatasetNames, among, of_datasets
from catalog.store.fts_match import fts_words
from catalog.store.full_text import CARD_WEIGHTS, CARDS, index_cards
from catalog.store.lexical.analysis import UNSPACED, raw_words, word_forms
from catalog.store.schema import (
    chunk_sections,
    chunks,
    document_cards,
    document_fields,
    documents,
    revisions,
)

if TYPE_CHECKING:
    from sqlalchemy import Row, Select

CARD_VERSION = 3
_MAX_CHARS = 4000  # of headings and of metadata
# Fields that say nothing of what a document is about, or stand in another column.
_NOT_ABOUT = (
    "dataset", "source_doc_id", "docid", "path", "title", "page_title", "file_type",
    "source_type", "agent_hint", "media",
    "created", "modified", "confidentiality", "language", "identifier", "kernel",
)  # fmt: skip


def read_uncarded_documents(
    connection: Connection, dataset: DatasetNames, limit: int, *, after: int = 0
) -> Iterator[tuple[int, list[str], str]]:
    """Yield id, title with headings, and text of documents that have no current card.

    The headings are those over the passages, in order and each once. There are ``limit`` documents
    at most, those of the first ids ``after`` that one, and the texts are read as they are taken.
    """
    query = ids_without_card(dataset, after=after).order_by(documents.c.id).limit(limit)
    ids = list(connection.scalars(query))
    if not ids:
        return
    headings = _headings(connection, ids)
    query = (
        select(documents.c.id, documents.c.title, revisions.c.text)
        .join(revisions)
        .where(among(documents.c.id, ids))
        .order_by(documents.c.id)
    )
    for row in connection.execute(query):
        yield row.id, [row.title, *headings.get(row.id, ())], row.text


def count_without_card(connection: Connection, dataset: DatasetNames) -> int:
    """Count the documents of the dataset that have no current card."""
    lacking = ids_without_card(dataset).subquery()
    return connection.scalar(select(func.count()).select_from(lacking)) or 0


def save_cards(connection: Connection, summaries: Mapping[int, str]) -> int:
    """Store the cards of documents with these summaries, by id; return the number stored.

    A document that has gone meanwhile is left out.
    """
    connection.execute(delete(document_cards).where(among(document_cards.c.document_id, summaries)))
    columns = select(documents.c.id, documents.c.path, documents.c.title)
    is_wanted = among(documents.c.id, summaries)
    live = connection.execute(columns.where(is_wanted).order_by(documents.c.id)).all()
    if not live:
        return 0
    ids = [document.id for document in live]
    headings, fields = _headings(connection, ids), _text_fields(connection, ids)
    rows = [
        _fts_row(row, headings.get(row.id, ()), summaries[row.id], fields.get(row.id, ()))
        for row in live
    ]
    cards = [
        {
            "document_id": row["rowid"],
            "summary": (summary := summaries[row["rowid"]]),
            "version": CARD_VERSION,
            "checksum": row_checksum((summary, *row.values())),
        }
        for row in rows
    ]
    connection.execute(insert(document_cards), cards)
    index_cards(connection, rows)
    return len(live)


def count_damaged_cards(connection: Connection, dataset: str) -> int:
    """Count the dataset's current cards that are not, with their full text, what was stored."""
    card = document_cards.c
    columns = (card.checksum, card.summary, card.document_id, *(CARDS.c[w] for w in CARD_WEIGHTS))
    joined = document_cards.join(documents).outerjoin(CARDS, CARDS.c.rowid == card.document_id)
    query = select(*columns).select_from(joined)
    rows = connection.execute(
        query.where(documents.c.dataset == dataset, card.version == CARD_VERSION)
    )
    return sum(row_checksum(row[1:]) != row.checksum for row in rows)


def ids_without_card(dataset: DatasetNames, *, after: int = 0) -> Select[Any]:
    """Select the ids ``after`` that one of the dataset's documents that have no current card."""
    card = document_cards.c
    current = (card.document_id == documents.c.id) & (card.version == CARD_VERSION)
    joined = documents.outerjoin(document_cards, current)
    without_card = select(documents.c.id).select_from(joined)
    is_here = of_datasets(documents.c.dataset, dataset)
    return without_card.where(is_here, card.document_id.is_(None), documents.c.id > after)


def _headings(connection: Connection, ids: Sequence[int]) -> dict[int, dict[str, None]]:
    """Return the headings over each document's passages, in order and each once."""
    query = (
        select(chunks.c.document_id, chunk_sections.c.heading)
        .join(chunk_sections)
        .where(among(chunks.c.document_id, ids))
        .order_by(chunks.c.document_id, chunks.c.position, text("chunk_sections.rowid"))
    )
    headings: dict[int, dict[str, None]] = {}
    for document, heading in connection.execute(query):
        headings.setdefault(document, {})[heading] = None
    return headings


def _text_fields(connection: Connection, ids: Sequence[int]) -> dict[int, list[tuple[str, str]]]:
    fields = document_fields.c
    query = (
        select(fields.document_id, fields.field, fields.text_value)
        .where(among(fields.document_id, ids), fields.kind == "s")
        .order_by(fields.document_id, fields.field != "tags", text("document_fields.rowid"))
    )
    values: dict[int, list[tuple[str, str]]] = {}
    for document, field, value in connection.execute(query).all():
        values.setdefault(document, []).append((field, value or ""))
    return values


def _fts_row(
    document: Row[int, str, str],
    headings: Iterable[str],
    summary: str,
    fields: Iterable[tuple[str, str]],
) -> dict[str, Any]:
    media = " ".join(value for field, value in fields if field == "media")
    metadata = " ".join(value for field, value in fields if field not in _NOT_ABOUT)
    name = f"{document.path} {media}"
    name_words = {word.casefold() for word in fts_words(name)}
    forms = (form for raw in raw_words(name) for form, is_plain in word_forms(raw) if is_plain)
    humps = " ".join(form for form in dict.fromkeys(forms) if form not in name_words)
    return {
        "rowid": document.id,
        "title": separate_characters(document.title),
        "name": separate_characters(f"{name} {humps}"),
        "headings": separate_characters(" ".join(headings)[:_MAX_CHARS]),
        "summary": separate_characters(summary),
        "metadata": separate_characters(metadata[:_MAX_CHARS]),
    }


def separate_characters(text: str) -> str:
    """Return the text as the index has it: the characters of unspaced scripts apart.

    FTS5 would take a run of them as one word.
    """
    return text if text.isascii() else UNSPACED.sub(lambda run: f" {' '.join(run[0])} ", text)
