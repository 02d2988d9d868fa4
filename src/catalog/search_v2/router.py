"""Choosing documents before passages: those whose card, or some passage, has words of the query."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from catalog.core.errors import StoreError
from catalog.core.scope import Scope
from catalog.library.document_cards import CARDS_MADE_LATER, CARDS_PER_QUERY, make_cards
from catalog.library.library import Library
from catalog.search_v2.request import SearchRequest
from catalog.search_v2.stages import StageLog
from catalog.store.card_search import card_terms, search_cards
from catalog.store.engine_types import Restriction
from catalog.store.listing import (
    allowed_documents,
    count_documents,
    read_documents_of_chunks,
    read_source_ids,
)

PASSAGES = 100  # of the lexical index, whose documents are candidates


@dataclass(frozen=True, slots=True)
class Routed:
    """The documents to search, likeliest first; ``None``: all of them, and ``note`` says why."""

    doc_ids: tuple[str, ...] | None
    note: str


class Router:
    """Short-lists documents of one store by full text."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def shortlist(self, query_text: str, restriction: Restriction, limit: int) -> Routed:
        """At most ``limit`` source document ids, all within the restriction.

        Documents are taken in turn from those of the best passages by keywords and from those of
        the best cards by BM25 (title, name, headings, summary, metadata): the one list finds
        what only a passage says, the other what a document is about. Phrases that a passage must
        hold bind the first list alone. Not routed is a query without words or matches, and a
        restriction that leaves no more than ``limit`` documents. Raises what the store and the
        lexical engine raise.
        """
        terms = card_terms(query_text)
        if not terms:
            return Routed(None, "the query has no words")
        dataset, database = restriction.dataset, self._library.database
        notes = self._refreshed(dataset)
        allowed = allowed_documents(replace(restriction, containing=()))
        with database.read() as connection:
            count = count_documents(connection, allowed, limit + 1)
            if count <= limit:
                return Routed(None, f"no more than {limit} documents may answer")
            carded = search_cards(connection, terms, allowed, limit)
            names = read_source_ids(connection, carded)
        hits = self._library.lexical(dataset).search(query_text, PASSAGES, restriction)
        with database.read() as connection:
            holding = read_documents_of_chunks(connection, dataset, [hit.seq for hit in hits])
        chosen = _in_turn(holding, [names[one] for one in carded if one in names], limit)
        if not chosen:
            return Routed(None, "no document has a word of the query")
        told = "1 document chosen" if len(chosen) == 1 else f"{len(chosen)} documents chosen"
        return Routed(tuple(chosen), "; ".join([told, *notes]))

    def _refreshed(self, dataset: str) -> list[str]:
        why = CARDS_MADE_LATER
        try:
            made = make_cards(self._library.database, dataset, wait=False, limit=CARDS_PER_QUERY)
            if made < CARDS_PER_QUERY:
                return []
        except StoreError as error:
            why = str(error)
        return [f"documents without a card are chosen by their passages alone: {why}"]


def route(library: Library, request: SearchRequest, stages: StageLog) -> Routed | None:
    """What the router says to a request; ``None`` where it is off, skipped or fails.

    A skip or a failure is reported in ``stages``, a shortlist is the caller's to report.
    """
    rag = library.settings.rag_v2
    if not rag.router_enabled:
        return None
    if request.query.is_typed:
        stages.skipped("route", "the query is typed")
        return None
    within = replace(
        request.restriction,
        without=request.query.exclusions,
        containing=request.query.phrases,
    )
    started = time.perf_counter()
    try:
        text = request.query.about(request.mode)
        routed = Router(library).shortlist(text, within, rag.router_documents)
    except Exception as error:  # noqa: BLE001 - recorded as the stage's failure
        stages.failed("route", (time.perf_counter() - started) * 1000, error)
        return None
    if routed.doc_ids is None:
        stages.skipped("route", routed.note)
        return None
    return routed


def narrowed(restriction: Restriction, doc_ids: Sequence[str]) -> Restriction:
    """The restriction to those of its documents."""
    return replace(restriction, scope=restriction.scope & Scope.of(doc_ids))


def _in_turn(first: Iterable[str], second: Iterable[str], limit: int) -> list[str]:
    """One of the first, one of the second, and so on, each once."""
    pairs = zip_longest(first, second)
    return list(dict.fromkeys(one for pair in pairs for one in pair if one is not None))[:limit]
