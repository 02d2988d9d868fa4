"""Route a search: choose documents first, and search only these."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import zip_longest

from catalog.retrieval.parts import SearchParts
from catalog.retrieval.request import SearchRequest
from catalog.retrieval.stages import StageLog
from catalog.store.cards import card_terms, search_cards
from catalog.store.document_names import DocumentNames, count_whole
from catalog.store.engine_types import Restriction
from catalog.store.listing import (
    allowed_documents,
    count_documents,
    read_documents_of_chunks,
)

PASSAGES = 100  # best passages of the lexical index whose documents are candidates


def shortlist(
    parts: SearchParts, query: str, restriction: Restriction, limit: int
) -> tuple[list[str], str]:
    """Return at most ``limit`` source document ids, best first, with all their files, and a note.

    Documents are taken in turn from two lists: those of the best passages by keywords, and those of
    the best cards by BM25 (title, name, headings, summary, metadata). The first list finds what
    only a passage mentions, the second what a document is about. An empty result means that all
    documents are to be searched; the note gives the reason: the query has no words or no match, or
    the restriction allows at most ``limit`` documents. Raises the errors of the store and the
    lexical engine.
    """
    terms = card_terms(query)
    if not terms:
        return [], "the query has no words"
    dataset, database = restriction.dataset, parts.database
    allowed = allowed_documents(restriction)
    with database.read() as connection:
        if count_documents(connection, allowed, limit + 1) <= limit:
            return [], f"at most {limit} documents may answer anyway"
        by_card = search_cards(connection, terms, allowed, limit)
    hits = parts.lexical(dataset).search(query, PASSAGES, restriction)
    with database.read() as connection:
        by_passage = read_documents_of_chunks(connection, dataset, [hit.seq for hit in hits])
        chosen = _take_in_turn(by_passage, by_card, limit)
        number = count_whole(connection, restriction.datasets, chosen)
        of_each = (DocumentNames(connection, name) for name in restriction.datasets)
        chosen = [one for documents in of_each for one in documents.whole_ids(chosen)]
    if not chosen:
        return [], "no document has a word of the query"
    return chosen, "1 document chosen" if number == 1 else f"{number} documents chosen"


def route(
    parts: SearchParts, request: SearchRequest, stages: StageLog
) -> tuple[list[str], str] | None:
    """Return the short-list of a request with its note; ``None`` if routing is off or fails.

    A skip or failure is reported in ``stages``; the caller reports a short-list.
    """
    if not parts.rag.router_enabled:
        return None
    if request.query.is_typed:
        stages.skipped("route", "the query is typed")
        return None
    within = replace(
        request.restriction,
        without=request.query.exclusions,
        containing=request.query.required,
    )
    started = time.perf_counter()
    try:
        query = request.query.about(request.mode)
        doc_ids, note = shortlist(parts, query, within, parts.rag.router_documents)
    except Exception as error:  # noqa: BLE001 - recorded as the stage's failure
        stages.failed("route", (time.perf_counter() - started) * 1000, error)
        return None
    if not doc_ids:
        stages.skipped("route", note)
        return None
    return doc_ids, note


def _take_in_turn(first: Iterable[str], second: Iterable[str], limit: int) -> list[str]:
    """Return items of the two lists in turn, without repetitions."""
    pairs = zip_longest(first, second)
    return list(dict.fromkeys(one for pair in pairs for one in pair if one is not None))[:limit]
