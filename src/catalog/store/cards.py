"""What each document is about, for finding documents: a card a document, with full text over it.

A card is derived from the document and may be deleted at any time. One that is missing, or was
made by another version of this code, is made anew at the next refresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Connection,
    Integer,
    column,
    delete,
    func,
    insert,
    select,
    table,
    text,
)

from catalog.store.filter_sql import among
from catalog.store.fts_match import fts_words
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
    from sqlalchemy import Select

CARD_VERSION = 2
WEIGHTS = {"title": 4.0, "name": 3.0, "headings": 2.0, "summary": 1.0, "metadata": 2.0}
_MOST_CHARS = 4000  # of headings and of metadata
# Fields that say nothing of what a document is about, or stand in another column.
_NOT_ABOUT = (
    "dataset", "source_doc_id", "docid", "path", "title", "file_type", "source_type", "media",
    "created", "modified", "confidentiality", "language", "identifier", "kernel",
)  # fmt: skip
CARDS_FTS = table(
    "document_cards_fts",
    *(column(name) for name in WEIGHTS),
    column("rowid", Integer),
)


@dataclass(frozen=True, slots=True)
class CardSource:
    """A document without a current card, with all but the text that its card is made of.

    ``headings`` are those over its passages, each once and in order; ``metadata`` the text
    values of its other fields, tags first; ``media`` the name of its recording.
    """

    document_id: int
    path: str
    title: str
    headings: tuple[str, ...]
    metadata: tuple[str, ...]
    media: str


def read_card_sources(
    connection: Connection, dataset: str, limit: int
) -> Iterator[tuple[CardSource, str]]:
    """Documents of the dataset that have no current card, with their text; at most ``limit``.

    The texts are read as they are taken.
    """
    lacking = ids_without_card(dataset).order_by(documents.c.id).limit(limit)
    ids = list(connection.scalars(lacking))
    if not ids:
        return
    headings = _headings(connection, ids)
    fields = _text_fields(connection, ids)
    query = (
        select(documents.c.id, documents.c.path, documents.c.title, revisions.c.text)
        .join(revisions, revisions.c.document_id == documents.c.id)
        .where(among(documents.c.id, ids))
        .order_by(documents.c.id)
    )
    for document, path, title, content in connection.execute(query):
        told = fields.get(document, [])
        about = tuple(value for name, value in told if name not in _NOT_ABOUT)
        media = " ".join(value for name, value in told if name == "media")
        over = tuple(dict.fromkeys(headings.get(document, ())))
        yield CardSource(document, path, title, over, about, media), content


def count_without_card(connection: Connection, dataset: str) -> int:
    """How many documents of the dataset have no current card."""
    lacking = ids_without_card(dataset).subquery()
    return connection.scalar(select(func.count()).select_from(lacking)) or 0


def save_cards(connection: Connection, made: Iterable[tuple[CardSource, str]]) -> int:
    """Store cards: each document with its summary; the number stored.

    A document that has gone meanwhile is left out.
    """
    listed = list(made)
    ids = [card.document_id for card, _ in listed]
    live = set(connection.scalars(select(documents.c.id).where(among(documents.c.id, ids))))
    connection.execute(delete(document_cards).where(among(document_cards.c.document_id, ids)))
    kept = [(card, summary) for card, summary in listed if card.document_id in live]
    if not kept:
        return 0
    connection.execute(
        insert(document_cards),
        [
            {"document_id": card.document_id, "summary": summary, "version": CARD_VERSION}
            for card, summary in kept
        ],
    )
    connection.execute(insert(CARDS_FTS), [_indexed(card, summary) for card, summary in kept])
    return len(kept)


def ids_without_card(dataset: str) -> Select[Any]:
    """The ids of the dataset's documents that have no current card."""
    carded = document_cards.c
    current = (carded.document_id == documents.c.id) & (carded.version == CARD_VERSION)
    joined = documents.outerjoin(document_cards, current)
    lacking = select(documents.c.id).select_from(joined)
    return lacking.where(documents.c.dataset == dataset, carded.document_id.is_(None))


def _headings(connection: Connection, ids: Sequence[int]) -> dict[int, list[str]]:
    query = (
        select(chunks.c.document_id, chunk_sections.c.heading)
        .join(chunk_sections, chunk_sections.c.seq == chunks.c.seq)
        .where(among(chunks.c.document_id, ids))
        .order_by(chunks.c.document_id, chunks.c.position, text("chunk_sections.rowid"))
    )
    found: dict[int, list[str]] = {}
    for document, heading in connection.execute(query):
        found.setdefault(document, []).append(heading)
    return found


def _text_fields(connection: Connection, ids: Sequence[int]) -> dict[int, list[tuple[str, str]]]:
    fields = document_fields.c
    query = (
        select(fields.document_id, fields.field, fields.text_value)
        .where(among(fields.document_id, ids), fields.kind == "s")
        .order_by(fields.document_id, fields.field != "tags", text("document_fields.rowid"))
    )
    found: dict[int, list[tuple[str, str]]] = {}
    for document, field, value in connection.execute(query):
        found.setdefault(document, []).append((field, value or ""))
    return found


def _indexed(card: CardSource, summary: str) -> dict[str, object]:
    name = f"{card.path} {card.media}"
    whole = {word.casefold() for word in fts_words(name)}
    inner = (form for raw in raw_words(name) for form, is_plain in word_forms(raw) if is_plain)
    humps = " ".join(form for form in dict.fromkeys(inner) if form not in whole)
    return {
        "rowid": card.document_id,
        "title": separate_characters(card.title),
        "name": separate_characters(f"{name} {humps}"),
        "headings": separate_characters(" ".join(card.headings)[:_MOST_CHARS]),
        "summary": separate_characters(summary),
        "metadata": separate_characters(" ".join(card.metadata)[:_MOST_CHARS]),
    }


def separate_characters(text: str) -> str:
    """The text as the index has it, the signs of scripts without spaces apart from one another.

    FTS5 would take a run of them as one word.
    """
    return text if text.isascii() else UNSPACED.sub(lambda run: f" {' '.join(run[0])} ", text)
