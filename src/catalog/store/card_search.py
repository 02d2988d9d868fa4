"""Finding documents by what their cards hold: BM25 over weighted columns, and by their names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select

from catalog.store.cards import ids_without_card, separate_characters
from catalog.store.document_names import Member
from catalog.store.filter_sql import DatasetNames, among
from catalog.store.fts_match import MAX_TERMS, fts_words, match_any, quote
from catalog.store.full_text import match_cards
from catalog.store.lexical.analysis import UNSPACED, fold, raw_words
from catalog.store.lexical.languages import stop_words
from catalog.store.schema import documents

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Select

MOST_NAME_WORDS = 12  # a longer query is no name
_MOST_NAME_CHARS = 300
_MOST_PARTS = 12  # of a compound
_EXTENSION = re.compile(r"[A-Za-z0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class DocumentMatches:
    """The documents a query finds: scores by document, as ``find_documents`` gives them.

    ``types`` are their file types.
    """

    scores: dict[int, float]
    types: dict[int, str]

    @property
    def counts(self) -> dict[str, int]:
        """The number of documents of each file type, most first, then by name."""
        counts = Counter(self.types[id_] for id_ in self.scores)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def joined(self, groups: Mapping[int, Sequence[Member]]) -> DocumentMatches:
        """Return them with the best score of those that are one document, under the first's id.

        ``groups`` are as ``find_groups`` gives them.
        """
        firsts = {member.id: first for first, group in groups.items() for member in group}
        scores, types = dict[int, float](), dict(self.types)
        for id_, score in self.scores.items():
            first = firsts.get(id_, id_)
            scores[first] = max(score, scores.get(first, score))
            types.setdefault(first, self.types[id_])
        return DocumentMatches(scores, types)


def card_terms(query: str) -> list[str]:
    """Return the words of a text to look for in cards; stop words only if there are no others.

    A compound such as ``foo.bar`` is looked for as a phrase as well, a long one by its first
    parts; of scripts without spaces every two signs that follow one another. At most
    :data:`~catalog.store.fts_match.MAX_TERMS`, the first.
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
    """Return the ``limit`` documents whose cards hold any of the terms best, ties by path.

    By BM25 over the weighted columns; ``allowed`` is a condition on ``documents``.
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
    """Find documents as a person's query asks, those of that name with the highest scores.

    The score is BM25 over the weighted columns of the card as a share of the best one, 1 more
    where title or name holds the query's words one after another, and 2 more where they are all
    of the title, or of the path or the file's name with or without its extension. In a query
    that ends as a file here does the extension is no word of its own. A document without a card
    is found by title and path alone, with no share; ``carded`` says that there is none.
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
    """Return the documents of the highest scores, from the ``offset``-th on; ties go by path."""
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
    if sum(map(len, query_words)) > _MOST_NAME_CHARS:  # a phrase of many signs takes long
        return
    phrase = "{title name} : " + quote(separate_characters(" ".join(query_words)).strip())
    columns = (documents.c.file_type, documents.c.title, documents.c.path)
    _, matching = _matching(connection, phrase)
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


def _matching(connection: Connection, match: str) -> tuple[ColumnElement[float], Select[Any]]:
    """Return the score, and the ids of documents that match."""
    matched = match_cards(connection, match)
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
