"""Browse documents: list them with their topics, and find documents about a query.

A listing is read and checked before anything runs. Conditions on values that no document has, such
as a misspelt type, are refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from catalog.core import filters
from catalog.core.arguments import check_params, takes_self
from catalog.core.dates import format_timestamp, read_bound
from catalog.core.errors import InputError, UnknownValueError
from catalog.core.filters import And, Condition, Filter, Op
from catalog.core.ids import source_doc_id
from catalog.core.params import BrowseParams
from catalog.core.query import cut_position
from catalog.core.results import CatalogEntry, CatalogPage
from catalog.core.scope import ALL, Scope
from catalog.core.text import storable
from catalog.ingest.summaries import shorten
from catalog.library.get import find_alike
from catalog.library.library import Library
from catalog.library.names import keep_whole, refer_to
from catalog.store import listing
from catalog.store.cards import find_documents
from catalog.store.chunks import load_chunks
from catalog.store.document_names import Member, find_groups
from catalog.store.filter_sql import DatasetNames, among
from catalog.store.phrases import fts_words
from catalog.store.restriction import Restriction
from catalog.store.schema import documents

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection


_FIELDS = {
    "file_type": ("file type", "file types"),
    "source_type": ("source type", "source types"),
    "tags": ("tag", "tags"),
    "confidentiality": ("confidentiality", "confidentialities"),
    "agent_hint": ("agent hint", "agent hints"),
}
"""Fields of few values, each meant as one of those there are: its name for one, and for several."""
_OPS = frozenset([Op.EQ, Op.IN, Op.ANY])
_MOST, _LONGEST = 12, 200  # values that are named; characters of each
_SHOWN_CHARS = 300  # of a summary
_PLACES = 10  # of the passages that contain the words asked for, in one document


class DocumentCatalog:
    """List the documents of a store's datasets. Thread-safe."""

    def __init__(self, library: Library) -> None:
        self._library = library

    @takes_self(BrowseParams)
    def query(self, params: BrowseParams) -> CatalogPage:
        """Return the documents that every parameter lets through, from the ``offset``-th on.

        A document needs one word of ``query`` in its title, name, headings, summary or text
        metadata; stop words count only in a query of stop words, and one of more than
        ``rag.max_query_chars`` is cut. ``filters`` on passages must hold of one of the document's.
        ``after`` (inclusive) and ``before`` (exclusive) are ISO 8601 dates or times, or a year or
        month, UTC unless they say otherwise, and leave out documents without a date: their own
        ``modified``, else their own ``created``, else that of the file. Ties in ``sort`` go by path
        and dataset. Raises :class:`InputError` kinds for a bad call.
        """
        started = time.perf_counter()
        check_params(params)
        most = self._library.settings.rag_v2.max_query_chars
        text = storable(params.query or "").strip()
        query = text[: cut_position(text, most)].rstrip()
        cut = f"query cut from {len(text):,} to {len(query):,} characters"
        given: list[Filter] = [filters.condition("tags", Op.ALL, [tag]) for tag in params.tags]
        if (visible := filters.parse_filters(params.filters)) is not None:
            given.append(visible)
        every, file_type = [*given], None
        if params.file_type is not None:
            file_type = storable(params.file_type)
            every.append(filters.file_type_filter(file_type))
        if params.name is not None:
            every.append(filters.name_filter(storable(params.name)))
        containing = tuple(storable(str(phrase)) for phrase in params.containing)
        if blank := [phrase for phrase in containing if not fts_words(phrase)]:
            raise InputError(f"{blank[0]!r} has no word to search for")
        bounds = read_bound("after", params.after), read_bound("before", params.before)
        dataset, seen = self._library.seen_datasets(params.role, params.dataset)
        with self._library.database.read() as connection:
            asked = Restriction(dataset, seen, And(tuple(given)) if given else None)
            listing.check_filter_fields(connection, asked, seen)
            check_values(connection, asked, file_type, seen)
            tree = And(tuple(every)) if every else None
            wanted = keep_whole(connection, asked.datasets, tree, seen)
            within = Restriction(dataset, seen, wanted, containing=containing)
            allowed = listing.allowed_documents(within)
            if any(bounds):
                allowed = allowed & listing.dated_between(*bounds)
            if not within.is_whole_dataset:
                allowed = listing.materialize(connection, allowed)
            page, types, scores, groups = _find(connection, dataset, allowed, query, params)
            described = listing.describe_documents(connection, page, groups)
            places = _find_places(connection, within, page)
            entries = tuple(
                _entry(described[id_], scores.get(id_), places.get(id_)) for id_ in page
            )
        return CatalogPage(
            dataset=dataset if isinstance(dataset, str) else None,
            datasets=within.datasets,
            query=params.query,
            entries=entries,
            total=sum(types.values()),
            offset=params.offset,
            types=types,
            notes=(cut,) if len(query) < len(text) else (),
            elapsed_ms=round((time.perf_counter() - started) * 1000, 3),
        )


def _find(
    connection: Connection,
    dataset: DatasetNames,
    allowed: ColumnElement[bool],
    query: str,
    params: BrowseParams,
) -> tuple[list[int], dict[str, int], dict[int, float], dict[int, list[Member]]]:
    """Return the page's documents, numbers of matches by type, and scores if there is a query.

    Files of one recording count as one document; the last value has all of them.
    """
    groups = find_groups(connection, dataset, allowed)
    sort, limit, offset = params.sort, params.limit, params.offset
    if not query:
        allowed = listing.without_repeats(allowed, groups)
        ids = listing.list_document_ids(connection, allowed, sort, limit, offset, groups)
        return ids, listing.count_by_value(connection, allowed, "file_type"), {}, groups
    scores, counts = find_documents(connection, query, allowed, groups)
    if sort == "best":
        ids = list(scores)[offset : offset + limit]
    else:
        among_matches = among(documents.c.id, scores)
        ids = listing.list_document_ids(connection, among_matches, sort, limit, offset, groups)
    return ids, counts, {id_: round(scores[id_], 6) for id_ in ids}, groups


def _find_places(
    connection: Connection, within: Restriction, page: Sequence[int]
) -> dict[int, list[str]]:
    """Return references to the passages that contain the words, by document; empty without any."""
    by_document = listing.find_passages(connection, within, page) if within.containing else {}
    first = [seq for seqs in by_document.values() for seq in seqs[:_PLACES]]
    passages = load_chunks(connection, within.dataset, first, damaged=[])
    shown = {seq: refer_to(one.path, one.locator) for seq, one in passages.items()}
    return {id_: [shown.get(seq, "") for seq in seqs] for id_, seqs in by_document.items()}


def _entry(
    document: listing.ListedDocument, score: float | None, places: Sequence[str] | None
) -> CatalogEntry:
    return CatalogEntry(
        source_doc_id=source_doc_id(document.dataset, document.name),
        dataset=document.dataset,
        path=document.name,
        title=document.title,
        file_type=document.file_type,
        docid=document.docid,
        summary=shorten(document.summary, _SHOWN_CHARS),
        tags=tuple(document.tags),
        created=document.dates.get("created"),
        modified=document.dates.get("modified"),
        date=None if document.dated is None else format_timestamp(document.dated),
        characters=document.characters,
        bytes=document.size,
        chunks=document.chunks,
        score=score,
        matching=None if places is None else len(places),
        places=tuple(filter(None, places or ())),
    )


def check_values(
    connection: Connection, within: Restriction, file_type: str | None = None, seen: Scope = ALL
) -> None:
    """Raise :class:`UnknownValueError` for a condition that no document of the datasets meets.

    Only conditions of ``within`` are checked that must hold, name values, and are on a field with
    few values; ``file_type`` is checked as well. The error lists values, nearest first, of the
    ``seen`` documents that the other conditions allow; without any nothing is raised.
    """
    required = list(_required(within.filter))
    given: list[tuple[Filter, str, object]] = [
        (part, part.field, part.value)
        for part in required
        if isinstance(part, Condition)
        and part.field in _FIELDS
        and part.op in _OPS
        and part.value != ()
    ]
    if file_type is not None:
        given.insert(0, (filters.file_type_filter(file_type), "file_type", file_type))

    def is_met(part: Filter | None) -> bool:
        restriction = Restriction(within.dataset, seen, part)
        return listing.count_documents(connection, listing.allowed_documents(restriction), 1) > 0

    unknown = [one for one in given if not is_met(one[0])]
    if not unknown or not is_met(None):
        return
    unmet, field, value = [part for part, *_ in unknown], *unknown[0][1:]
    rest = tuple(one for one in required if one not in unmet)
    among = listing.allowed_documents(replace(within, filter=And(rest) if rest else None))
    among = listing.without_repeats(among, find_groups(connection, within.dataset, among))
    if counts := listing.count_by_value(connection, among, field):
        raise UnknownValueError(_describe_unknown(field, value, counts))


def _required(tree: Filter | None) -> Iterator[Filter]:
    """Yield the conditions that must all be true."""
    if isinstance(tree, And):
        yield from chain.from_iterable(map(_required, tree.parts))
    elif isinstance(tree, Condition) and tree.op is Op.ALL and isinstance(tree.value, tuple):
        yield from (Condition(tree.field, Op.EQ, value) for value in tree.value)
    elif tree is not None:
        yield tree


def _describe_unknown(field: str, value: object, counts: Mapping[str, int]) -> str:
    one, several = _FIELDS[field]
    values = value if isinstance(value, tuple) else (value,)
    texts = [str(item)[:_LONGEST] for item in values]
    alike = find_alike(texts[0], {one: [one] for one in counts})
    order = list(dict.fromkeys((*alike, *counts)))
    shown = [f"{value[:_LONGEST]} ({counts[value]})" for value in order[:_MOST]]
    shown += ["…"] if len(order) > _MOST else []
    near = filters.nearest_file_type(texts[0], counts) if field == "file_type" else None
    hint = f"did you mean {near!r}? " if near else ""
    return (
        f"no document has the {one} {' or '.join(map(repr, texts[:_MOST]))}; {hint}{several}: "
        f"{', '.join(shown)}"
    )
