"""Browsing the documents themselves: which there are, what each is about, which are about this."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from catalog.core.dates import format_timestamp
from catalog.core.errors import StoreError
from catalog.core.filters import check_fields
from catalog.core.params import DEFAULT_LIMIT
from catalog.core.results import CatalogEntry, CatalogPage
from catalog.library.browse_hints import find_hints
from catalog.library.browse_request import BrowseRequest, read_browse_request
from catalog.library.document_cards import CARDS_MADE_LATER, CARDS_PER_QUERY, make_cards
from catalog.library.library import Library
from catalog.store.card_search import find_documents, top_documents
from catalog.store.cards import count_without_card
from catalog.store.chunks import list_fields
from catalog.store.engine_types import Restriction
from catalog.store.listing import (
    ListedDocument,
    allowed_documents,
    count_by_type,
    dated_between,
    describe_documents,
    list_document_ids,
    materialize,
    with_ids,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection


class DocumentCatalog:
    """Lists the documents of a store's datasets. Thread-safe."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def query(
        self,
        *,
        dataset: str,
        query: str | None = None,
        file_type: str | None = None,
        name: str | None = None,
        tags: Iterable[str] = (),
        filters: object = None,
        after: str | None = None,
        before: str | None = None,
        sort: str = "best",
        limit: int = DEFAULT_LIMIT,
        offset: int = 0,
    ) -> CatalogPage:
        """The documents that everything given lets through, from the ``offset``-th on.

        ``query``: words, of which a document needs one in its title, name, headings, summary or
        text metadata (stop words count only if there are no others); how it is scored, see
        ``store.card_search.find_documents``. ``file_type`` and ``name``: see ``core.filter_forms``.
        ``tags``: all of them. ``filters``: see ``core.filter_forms.parse_filters``; conditions on
        passages must hold of one of the document's. ``after`` (inclusive) and ``before``
        (exclusive): ISO 8601 dates or times, or a year or month, UTC unless they say otherwise;
        on the document's own ``modified``, else its own ``created``, else when its file was
        modified; a document without a date is left out then. ``sort``: ``best`` (by name without
        a query), ``name`` (path, case ignored), ``modified`` (newest first, by the date just
        described), ``size`` (largest first: bytes, or characters where those are not known); ties
        go by path. ``limit``: 1 to 1000. A query of more than ``rag.max_query_chars`` is cut, and
        a note says so. Raises :class:`InputError` kinds for a bad call.
        """
        started = time.perf_counter()
        request = read_browse_request(
            {
                "dataset": dataset,
                "query": query,
                "file_type": file_type,
                "name": name,
                "tags": tags,
                "filters": filters,
                "after": after,
                "before": before,
                "sort": sort,
                "limit": limit,
                "offset": offset,
            },
            max_query_chars=self._library.settings.rag_v2.max_query_chars,
        )
        self._library.require_dataset(request.dataset)
        lacking = self._refreshed(request)
        notes = request.notes + lacking
        with self._library.database.read() as connection:
            if request.visible is not None:
                check_fields(request.visible, list_fields(connection, dataset))
            page, types, scores = _chosen(connection, request, carded=not lacking)
            about = describe_documents(connection, page)
            if not types:
                notes += find_hints(connection, request)
        return CatalogPage(
            dataset=dataset,
            query=query,
            entries=tuple(_entry(about[one], dataset, scores.get(one)) for one in page),
            total=sum(types.values()),
            offset=offset,
            types=types,
            notes=notes,
            elapsed_ms=round((time.perf_counter() - started) * 1000, 3),
        )

    def _refreshed(self, request: BrowseRequest) -> tuple[str, ...]:
        """Make some cards if nobody else is writing; a note of the rest if that matters here."""
        database = self._library.database
        why = CARDS_MADE_LATER
        try:
            made = make_cards(database, request.dataset, wait=False, limit=CARDS_PER_QUERY)
            if made < CARDS_PER_QUERY:
                return ()
        except StoreError as error:
            why = str(error)
        with database.read() as connection:
            count = count_without_card(connection, request.dataset)
        if count == 0 or request.query is None:
            return ()
        told = "1 document is" if count == 1 else f"{count} documents are"
        return (f"{told} found by title and path alone for now: {why}",)


def _chosen(
    connection: Connection, request: BrowseRequest, *, carded: bool
) -> tuple[list[int], dict[str, int], dict[int, float]]:
    """The documents of the page, how many match by type, and their scores, if there is a query."""
    allowed = allowed_documents(Restriction(request.dataset, filter=request.wanted))
    if request.after is not None or request.before is not None:
        allowed = allowed & dated_between(request.after, request.before)
    if request.wanted is not None:
        allowed = materialize(connection, allowed)
    limit, offset = request.limit, request.offset
    if request.query is None:
        ids = list_document_ids(connection, allowed, request.sort, limit, offset)
        return ids, count_by_type(connection, allowed), {}
    found = find_documents(connection, request.dataset, request.query, allowed, carded=carded)
    if request.sort == "best":
        ids = top_documents(connection, found.scores, limit, offset)
    else:
        ids = list_document_ids(connection, with_ids(found.scores), request.sort, limit, offset)
    return ids, found.types, {one: round(found.scores[one], 6) for one in ids}


def _entry(about: ListedDocument, dataset: str, score: float | None) -> CatalogEntry:
    return CatalogEntry(
        source_doc_id=about.source_doc_id,
        dataset=dataset,
        path=about.path,
        title=about.title,
        file_type=about.file_type,
        docid=about.docid,
        summary=about.summary,
        tags=tuple(about.tags),
        created=about.dates.get("created"),
        modified=about.dates.get("modified"),
        date=None if about.dated is None else format_timestamp(about.dated),
        characters=about.characters,
        bytes=about.size,
        chunks=about.chunks,
        score=score,
    )
