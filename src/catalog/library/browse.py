"""Browsing the documents themselves: which there are, what each is about, which are about this."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from catalog.core.dates import format_timestamp
from catalog.core.errors import StoreError
from catalog.core.ids import source_doc_id
from catalog.core.param_fields import takes_self
from catalog.core.params import BrowseParams
from catalog.core.results import CatalogEntry, CatalogPage
from catalog.library.browse_hints import find_hints
from catalog.library.browse_request import BrowseRequest, read_browse_request
from catalog.library.document_cards import CARDS_MADE_LATER, CARDS_PER_QUERY, make_cards
from catalog.library.known_values import check_values
from catalog.library.library import Library
from catalog.store.card_search import find_documents, top_documents
from catalog.store.cards import count_without_card
from catalog.store.document_names import Member, find_groups
from catalog.store.engine_types import Restriction
from catalog.store.filter_sql import DatasetNames, among
from catalog.store.listing import (
    ListedDocument,
    allowed_documents,
    check_filter_fields,
    count_by_type,
    dated_between,
    describe_documents,
    list_document_ids,
    materialize,
    without_repeats,
)
from catalog.store.schema import documents

if TYPE_CHECKING:
    from sqlalchemy import Connection


class DocumentCatalog:
    """List the documents of a store's datasets. Thread-safe."""

    def __init__(self, library: Library) -> None:
        self._library = library

    @takes_self(BrowseParams)
    def query(self, params: BrowseParams) -> CatalogPage:
        """Return the documents that every parameter lets through, from the ``offset``-th on.

        ``query``: words, of which a document needs one in its title, name, headings, summary or
        text metadata (stop words count only if there are no others); how it is scored, see
        ``store.card_search.find_documents``. ``file_type`` and ``name``: see ``core.filters``.
        ``tags``: all of them. ``filters``: see ``core.filters.parse_filters``; conditions on
        passages must hold of one of the document's. ``after`` (inclusive) and ``before``
        (exclusive): ISO 8601 dates or times, or a year or month, UTC unless they say otherwise;
        on the document's own ``modified``, else its own ``created``, else when its file was
        modified; a document without a date is left out then. ``sort``: ``best`` (by name without
        a query), ``name`` (path, case ignored), ``modified`` (newest first, by the date just
        described), ``size`` (largest first: bytes, or characters where those are not known); ties
        go by path and dataset. A query of more than ``rag.max_query_chars`` is cut, and a note says
        so. Raises :class:`InputError` kinds for a bad call.
        """
        started = time.perf_counter()
        most = self._library.settings.rag_v2.max_query_chars
        request = read_browse_request(params, max_query_chars=most)
        dataset = self._library.chosen_datasets(params.dataset)
        lacking = self._make_some_cards(dataset, request.query)
        notes = request.notes + lacking
        with self._library.database.read() as connection:
            within = Restriction(dataset, filter=request.visible)
            check_filter_fields(connection, within)
            within_tags = replace(within, filter=request.visible_and_tags)
            check_values(connection, within_tags, request.file_type)
            request = request.with_names(connection, within.datasets)
            page, types, scores, groups = _find(connection, dataset, request, carded=not lacking)
            described = describe_documents(connection, page, groups)
            if not types:
                notes += find_hints(connection, dataset, request)
        return CatalogPage(
            dataset=dataset if isinstance(dataset, str) else None,
            datasets=within.datasets,
            query=params.query,
            entries=tuple(_entry(described[id_], scores.get(id_)) for id_ in page),
            total=sum(types.values()),
            offset=params.offset,
            types=types,
            notes=notes,
            elapsed_ms=round((time.perf_counter() - started) * 1000, 3),
        )

    def _make_some_cards(self, dataset: DatasetNames, query: str | None) -> tuple[str, ...]:
        """Make some cards if nobody else is writing; return a note on the rest if it matters."""
        database = self._library.database
        why = CARDS_MADE_LATER
        try:
            count = make_cards(database, dataset, wait=False, limit=CARDS_PER_QUERY)
            if count < CARDS_PER_QUERY:
                return ()
        except StoreError as error:
            why = str(error)
        with database.read() as connection:
            uncarded = count_without_card(connection, dataset)
        if uncarded == 0 or query is None:
            return ()
        subject = "1 document is" if uncarded == 1 else f"{uncarded} documents are"
        return (f"{subject} found by title and path alone for now: {why}",)


def _find(
    connection: Connection, dataset: DatasetNames, request: BrowseRequest, *, carded: bool
) -> tuple[list[int], dict[str, int], dict[int, float], dict[int, list[Member]]]:
    """Return the documents of the page, how many match by type, scores if there is a query.

    One stands for all files of a recording: the last are these, by it.
    """
    allowed = allowed_documents(Restriction(dataset, filter=request.wanted))
    if request.after is not None or request.before is not None:
        allowed = allowed & dated_between(request.after, request.before)
    if request.wanted is not None:
        allowed = materialize(connection, allowed)
    groups = find_groups(connection, dataset, allowed)
    sort, limit, offset = request.params.sort, request.params.limit, request.params.offset
    if request.query is None:
        allowed = without_repeats(allowed, groups)
        ids = list_document_ids(connection, allowed, sort, limit, offset, groups)
        return ids, count_by_type(connection, allowed), {}, groups
    matches = find_documents(connection, dataset, request.query, allowed, carded=carded)
    matches = matches.joined(groups)
    if sort == "best":
        ids = top_documents(connection, matches.scores, limit, offset)
    else:
        among_matches = among(documents.c.id, matches.scores)
        ids = list_document_ids(connection, among_matches, sort, limit, offset, groups)
    return ids, matches.counts, {id_: round(matches.scores[id_], 6) for id_ in ids}, groups


def _entry(document: ListedDocument, score: float | None) -> CatalogEntry:
    return CatalogEntry(
        source_doc_id=source_doc_id(document.dataset, document.name),
        dataset=document.dataset,
        path=document.name,
        title=document.title,
        file_type=document.file_type,
        docid=document.docid,
        summary=document.summary,
        tags=tuple(document.tags),
        created=document.dates.get("created"),
        modified=document.dates.get("modified"),
        date=None if document.dated is None else format_timestamp(document.dated),
        characters=document.characters,
        bytes=document.size,
        chunks=document.chunks,
        score=score,
    )
