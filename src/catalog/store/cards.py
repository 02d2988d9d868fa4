"""Document cards: short descriptions that a search for documents reads.

A card holds a document's title, names, headings, summary and metadata, with full text over them. It
is derived from the document and may be deleted at any time. The next refresh makes the cards that
are missing or that another version of this code made. Cards are searched by BM25 over weighted
columns, documents also by their names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, delete, func, insert, select, text

from catalog.store.document_names import Member
from catalog.store.filter_sql import DatasetNames, among, of_datasets
from catalog.store.lexical.analysis import UNSPACED, fold, raw_words, without_accents, word_forms
from catalog.store.lexical.languages import stop_words
from catalog.store.phrases import (
    CARDS,
    MAX_TERMS,
    fts_words,
    match_any,
    match_cards,
    quote,
)
from catalog.store.schema import (
    chunk_sections,
    chunks,
    document_cards,
    document_fields,
    documents,
    revisions,
)

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Row, Select


CARD_VERSION = 4
_MAX_CHARS = 4000  # of headings and of metadata
# Fields that do not describe a document's content, or that have a column of their own.
_NOT_ABOUT = (
    "dataset", "source_doc_id", "docid", "path", "title", "page_title", "file_type",
    "source_type", "agent_hint", "media",
    "created", "modified", "confidentiality", "language", "identifier", "kernel",
)  # fmt: skip
MOST_NAME_WORDS = 12  # a longer query is not a name
_MOST_NAME_CHARS = 300
_MOST_PARTS = 12  # of a compound
_EXTENSION = re.compile(r"[A-Za-z0-9]{1,10}")


def read_uncarded_documents(
    connection: Connection, dataset: DatasetNames, limit: int, *, after: int = 0
) -> Iterator[tuple[int, str]]:
    """Yield id and text of documents that have no current card.

    Yields at most ``limit`` documents with ids above ``after``, in order of their ids; each text is
    read when it is yielded.
    """
    query = ids_without_card(dataset, after=after).order_by(documents.c.id).limit(limit)
    ids = list(connection.scalars(query))
    if not ids:
        return
    query = (
        select(documents.c.id, revisions.c.text)
        .join(revisions)
        .where(among(documents.c.id, ids))
        .order_by(documents.c.id)
    )
    for row in connection.execute(query):
        yield row.id, row.text


def count_without_card(connection: Connection, dataset: DatasetNames) -> int:
    """Count the documents of the dataset that have no current card."""
    lacking = ids_without_card(dataset).subquery()
    return connection.scalar(select(func.count()).select_from(lacking)) or 0


def save_cards(connection: Connection, summaries: Mapping[int, str]) -> int:
    """Store the cards of documents with these summaries, by id; return the number stored.

    Documents that were removed meanwhile are skipped.
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
            "summary": summaries[row["rowid"]],
            "version": CARD_VERSION,
        }
        for row in rows
    ]
    connection.execute(insert(document_cards), cards)
    connection.execute(insert(CARDS), rows)
    return len(live)


def ids_without_card(dataset: DatasetNames, *, after: int = 0) -> Select[Any]:
    """Select the ids above ``after`` of the dataset's documents that have no current card."""
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
    raws = raw_words(without_accents(name))
    forms = (form for raw in raws for form, is_plain in word_forms(raw) if is_plain)
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
    """Put spaces between the characters of scripts that write without spaces, such as Chinese.

    FTS5 would index a run of them as one word.
    """
    return text if text.isascii() else UNSPACED.sub(lambda run: f" {' '.join(run[0])} ", text)


@dataclass(frozen=True, slots=True)
class DocumentMatches:
    """The documents that a query finds: their scores and file types, by row number.

    ``scores`` are those that ``find_documents`` computes.
    """

    scores: dict[int, float]
    types: dict[int, str]

    @property
    def counts(self) -> dict[str, int]:
        """The number of documents of each file type, most first, then by name."""
        counts = Counter(self.types[id_] for id_ in self.scores)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def joined(self, groups: Mapping[int, Sequence[Member]]) -> DocumentMatches:
        """Merge the files of each document: the first file's id gets the best score of all.

        ``groups`` are those that ``find_groups`` returns.
        """
        firsts = {member.id: first for first, group in groups.items() for member in group}
        scores, types = dict[int, float](), dict(self.types)
        for id_, score in self.scores.items():
            first = firsts.get(id_, id_)
            scores[first] = max(score, scores.get(first, score))
            types.setdefault(first, self.types[id_])
        return DocumentMatches(scores, types)


def card_terms(query: str) -> list[str]:
    """Return the terms to look for in cards; stop words only if the text has no other words.

    A compound such as ``foo.bar`` adds its parts and their phrase; a very long one is cut to its
    first parts. In scripts without spaces, every pair of neighbouring characters is a term. Returns
    the first :data:`~catalog.store.phrases.MAX_TERMS` terms.
    """
    terms: dict[str, None] = {}
    for raw in raw_words(query):
        words = fts_words(raw)[:_MOST_PARTS]
        terms |= dict.fromkeys([" ".join(words), *words] if len(words) > 1 else words)
    common = stop_words("english")
    meaningful = [term for term in terms if fold(term) not in common] or terms
    forms = dict.fromkeys(form for term in meaningful for form in _forms(term))
    return list(islice(forms, MAX_TERMS))


def search_cards(
    connection: Connection, terms: Collection[str], allowed: ColumnElement[bool], limit: int
) -> list[int]:
    """Return the ``limit`` documents whose cards match the terms best, ties in order of path.

    The score is BM25 over the weighted columns. ``allowed`` is a condition on ``documents``.
    """
    if len(terms) == 0:
        return []
    score, query = _matching(connection, match_any(terms))
    query = query.where(allowed).order_by(score.desc(), documents.c.path, documents.c.dataset)
    query = query.limit(limit)
    return list(connection.scalars(query))


def find_documents(
    connection: Connection,
    dataset: DatasetNames,
    query: str,
    allowed: ColumnElement[bool],
    *,
    carded: bool = False,
) -> DocumentMatches:
    """Find documents by their cards and names; a query that is a document's name ranks it first.

    A score is the BM25 score of the card divided by the best card's, so 0 to 1. A document whose
    title or name contains the query's words as a phrase gets 1 more; if the query is the whole
    title, path or file name, with or without the extension, it gets 2 more. For ``plan.md`` the
    word ``md`` is not searched if a document here ends in ``.md``. A document without a card is
    found by title and path only and gets 0 for the card. ``carded`` promises that every document
    has one.
    """
    terms = _terms(connection, query, allowed)
    types: dict[int, str] = {}
    scores: dict[int, float] = {}
    if terms:
        score, matching = _matching(connection, match_any(terms))
        rows = connection.execute(matching.add_columns(documents.c.file_type, score).where(allowed))
        for id_, file_type, relevance in rows.all():
            types[id_], scores[id_] = file_type, relevance
    best = max(scores.values(), default=1.0)
    scores = {id_: relevance / best for id_, relevance in scores.items()}
    if not carded:
        for id_, file_type in _cardless(connection, dataset, terms, allowed):
            types[id_] = file_type
            scores.setdefault(id_, 0.0)
    for id_, file_type, more in _named_by(connection, query, allowed):
        types[id_] = file_type
        scores[id_] = scores.get(id_, 0.0) + more
    return DocumentMatches(scores, types)


def top_documents(
    connection: Connection, scores: Mapping[int, float], limit: int, offset: int
) -> list[int]:
    """Return the documents with the highest scores, from ``offset`` on; ties in order of path."""
    highest = nlargest(offset + limit, scores.values())
    if len(highest) <= offset:
        return []
    candidates = [id_ for id_, score in scores.items() if score >= highest[-1]]
    columns = (documents.c.id, documents.c.path, documents.c.dataset)
    query = select(*columns).where(among(documents.c.id, candidates))
    paths: dict[int, Sequence[str]] = {row[0]: row[1:] for row in connection.execute(query)}
    ranked = sorted(paths, key=lambda id_: (-scores[id_], paths[id_]))
    return ranked[offset : offset + limit]


def _terms(connection: Connection, query: str, allowed: ColumnElement[bool]) -> list[str]:
    terms = card_terms(query)
    bare, dot, extension = query.strip().rpartition(".")
    if not (dot and card_terms(bare) and _EXTENSION.fullmatch(extension)):
        return terms
    is_such = documents.c.path.ilike(f"%.{extension}")
    if connection.scalar(select(documents.c.id).where(is_such, allowed).limit(1)) is None:
        return terms
    return [term for term in terms if term.casefold() != extension.casefold()] or terms


def _named_by(
    connection: Connection, query: str, allowed: ColumnElement[bool]
) -> Iterator[tuple[int, str, float]]:
    query_words = [word.casefold() for word in fts_words(query)[: MOST_NAME_WORDS + 1]]
    if not 0 < len(query_words) <= MOST_NAME_WORDS:
        return
    if sum(map(len, query_words)) > _MOST_NAME_CHARS:  # FTS5 takes long for long phrases
        return
    phrase = quote(separate_characters(" ".join(query_words)).strip())
    columns = (documents.c.file_type, documents.c.title, documents.c.path)
    _, matching = _matching(connection, phrase, is_name=True)
    for id_, file_type, title, path in connection.execute(
        matching.add_columns(*columns).where(allowed)
    ):
        yield id_, file_type, 2.0 if _is_called(query_words, title, path) else 1.0


def _cardless(
    connection: Connection,
    dataset: DatasetNames,
    terms: Sequence[str],
    allowed: ColumnElement[bool],
) -> Iterator[tuple[int, str]]:
    has_no_card = documents.c.id.in_(ids_without_card(dataset))
    folded = [term.casefold() for term in terms]
    columns = (documents.c.id, documents.c.file_type, documents.c.title, documents.c.path)
    for id_, file_type, title, path in connection.execute(
        select(*columns).where(has_no_card, allowed)
    ):
        searchable = separate_characters(f"{title} {path}").casefold()
        if any(term in searchable for term in folded):
            yield id_, file_type


def _matching(
    connection: Connection, match: str, *, is_name: bool = False
) -> tuple[ColumnElement[float], Select[Any]]:
    """Return the score as an expression, and a query for the ids of documents that match."""
    matched = match_cards(connection, match, is_name=is_name)
    joined = matched.join(documents, documents.c.id == matched.c.id)
    return matched.c.score, select(documents.c.id).select_from(joined)


def _forms(term: str) -> Iterable[str]:
    run = None if term.isascii() else UNSPACED.search(term)
    if run is None or len(run[0]) < 2:
        return (separate_characters(term).strip(),)
    characters = "".join(UNSPACED.findall(term))
    return (f"{first} {second}" for first, second in pairwise(characters))


def _is_called(query_words: Sequence[str], title: str, path: str) -> bool:
    name = path.rpartition("/")[2]
    stem = name.rpartition(".")[0]
    whole = path.removesuffix(name) + stem
    longest_name = sum(map(len, query_words)) + 2 * len(query_words) + 4
    names = (text for text in (title, path, whole, name, stem) if len(text) <= longest_name)
    return any([word.casefold() for word in fts_words(text)] == list(query_words) for text in names)
