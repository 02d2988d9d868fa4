"""Browse documents: list them with their topics, and find documents about a query.

A listing is read and checked before anything runs. Conditions on values that no document has, such
as a misspelt type, are refused. If nothing is listed, the conditions that match nothing by
themselves are named.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from catalog.core import filters
from catalog.core.arguments import check_params, takes_self
from catalog.core.dates import format_timestamp, read_bound
from catalog.core.errors import InputError, UnknownValueError
from catalog.core.filters import And, Condition, Filter, Op
from catalog.core.ids import source_doc_id
from catalog.core.params import BrowseParams
from catalog.core.results import CatalogEntry, CatalogPage
from catalog.core.scope import ALL, Scope
from catalog.core.text import storable
from catalog.ingest.summaries import shorten
from catalog.library.get import find_alike
from catalog.library.library import Library
from catalog.library.names import keep_whole, refer_to
from catalog.store import listing
from catalog.store.cards import find_documents, top_documents
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
_MOST_NAMES = 5000


@dataclass(frozen=True, slots=True)
class BrowseRequest:
    """A checked listing.

    ``visible`` is the filter on documents that the caller may see; ``conditions`` are the further
    ones of the call, by the name to show. A blank query counts as no query. ``notes`` name the
    parameters that were cut. ``seen`` are the documents of the caller's role.
    """

    params: BrowseParams
    query: str | None
    visible: Filter | None
    conditions: dict[str, Filter]
    dated: ColumnElement[bool] | None
    notes: tuple[str, ...]
    containing: tuple[str, ...]
    seen: Scope = ALL

    def within(self, dataset: DatasetNames) -> Restriction:
        """Return all conditions but the query and the dates."""
        parts = (self.visible, *self.conditions.values())
        given = tuple(part for part in parts if part is not None)
        wanted = And(given) if given else None
        return Restriction(dataset, self.seen, wanted, containing=self.containing)


def read_browse_request(params: BrowseParams, *, max_query_chars: int) -> BrowseRequest:
    """Return the request for the parameters; raise :class:`InputError` kinds for invalid ones."""
    check_params(params)
    text = storable(params.query or "").strip()
    query = _cut(text, max_query_chars)
    cut = f"query cut from {len(text):,} to {len(query):,} characters"
    conditions: dict[str, Filter] = {}
    if params.file_type is not None:
        conditions["file type"] = filters.file_type_filter(storable(params.file_type))
    if params.name is not None:
        conditions["name"] = filters.name_filter(storable(params.name))
    for tag in params.tags:
        conditions[f"tag {str(tag)[:_LONGEST]!r}"] = filters.condition("tags", Op.ALL, [tag])
    containing = tuple(storable(str(phrase)) for phrase in params.containing)
    if blank := [phrase for phrase in containing if not fts_words(phrase)]:
        raise InputError(f"{blank[0]!r} has no word to search for")
    after, before = read_bound("after", params.after), read_bound("before", params.before)
    return BrowseRequest(
        params=params,
        query=query or None,
        visible=filters.parse_filters(params.filters),
        conditions=conditions,
        dated=listing.dated_between(after, before) if after or before else None,
        notes=(cut,) if len(query) < len(text) else (),
        containing=containing,
    )


def _cut(text: str, most: int) -> str:
    """Return the beginning of a text, cut between words if its last half has white space."""
    start = text[:most]
    if len(text) <= most or text[most].isspace():
        return start.rstrip()
    words = start[most // 2 :].rsplit(maxsplit=1)
    return start[: -len(words[-1])].rstrip() if len(words) > 1 else start


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
        most = self._library.settings.rag_v2.max_query_chars
        request = read_browse_request(params, max_query_chars=most)
        dataset, seen = self._library.seen_datasets(params.role, params.dataset)
        request = replace(request, seen=seen)
        notes = request.notes
        with self._library.database.read() as connection:
            within = Restriction(dataset, seen, request.visible)
            listing.check_filter_fields(connection, within, seen)
            tags = {name: one for name, one in request.conditions.items() if name[:4] == "tag "}
            file_type = None if params.file_type is None else storable(params.file_type)
            to_check = replace(request, conditions=tags, containing=()).within(dataset)
            check_values(connection, to_check, file_type, seen)
            whole = partial(keep_whole, connection, within.datasets, seen=seen)
            conditions = {name: whole(one) or one for name, one in request.conditions.items()}
            request = replace(request, visible=whole(request.visible), conditions=conditions)
            page, types, scores, groups = _find(connection, dataset, request)
            described = listing.describe_documents(connection, page, groups)
            places = _find_places(connection, request.within(dataset), page)
            entries = tuple(
                _entry(described[id_], scores.get(id_), places.get(id_)) for id_ in page
            )
            if not types:
                notes += _find_hints(connection, dataset, request)
        return CatalogPage(
            dataset=dataset if isinstance(dataset, str) else None,
            datasets=within.datasets,
            query=params.query,
            entries=entries,
            total=sum(types.values()),
            offset=params.offset,
            types=types,
            notes=notes,
            elapsed_ms=round((time.perf_counter() - started) * 1000, 3),
        )


def _find(
    connection: Connection, dataset: DatasetNames, request: BrowseRequest
) -> tuple[list[int], dict[str, int], dict[int, float], dict[int, list[Member]]]:
    """Return the page's documents, numbers of matches by type, and scores if there is a query.

    Files of one recording count as one document; the last value has all of them.
    """
    allowed = listing.allowed_documents(request.within(dataset))
    if request.dated is not None:
        allowed = allowed & request.dated
    if not request.within(dataset).is_whole_dataset:
        allowed = listing.materialize(connection, allowed)
    groups = find_groups(connection, dataset, allowed)
    sort, limit, offset = request.params.sort, request.params.limit, request.params.offset
    if request.query is None:
        allowed = listing.without_repeats(allowed, groups)
        ids = listing.list_document_ids(connection, allowed, sort, limit, offset, groups)
        return ids, listing.count_by_type(connection, allowed), {}, groups
    matches = find_documents(connection, request.query, allowed, groups)
    if sort == "best":
        ids = top_documents(connection, matches.scores, limit, offset)
    else:
        among_matches = among(documents.c.id, matches.scores)
        ids = listing.list_document_ids(connection, among_matches, sort, limit, offset, groups)
    return ids, matches.counts, {id_: round(matches.scores[id_], 6) for id_ in ids}, groups


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


def _find_hints(
    connection: Connection, dataset: DatasetNames, request: BrowseRequest
) -> tuple[str, ...]:
    """Return notes on an empty listing; they name only documents the caller may see."""
    visible = listing.allowed_documents(Restriction(dataset, request.seen, request.visible))
    if not listing.count_documents(connection, visible, 1):
        several = not isinstance(dataset, str)
        nothing = f"the {'datasets have' if several else 'dataset has'} no documents"
        return (nothing if request.visible is None else "no document matches the filters",)
    parts = {name: Restriction(dataset, filter=one) for name, one in request.conditions.items()}
    for phrase in request.containing:
        parts[f"contains {phrase[:_LONGEST]!r}"] = Restriction(dataset, containing=(phrase,))
    allowed = {name: listing.allowed_documents(one) for name, one in parts.items()}
    if request.dated is not None:
        allowed["date"] = request.dated
    is_met = {
        name: listing.count_documents(connection, visible & one, 1) for name, one in allowed.items()
    }
    if request.query is not None:
        is_met["query"] = len(find_documents(connection, request.query, visible).scores)
    if all(is_met.values()):
        return (f"{', '.join(is_met)}: each matches a document, but none matches all",)
    notes: dict[str, None] = {}
    for name in [name for name, met in is_met.items() if not met]:
        hint = f"nothing matches the {name} alone" if len(is_met) > 1 else ""
        if name.startswith("contains "):
            hint = f"no passage {name}"
        elif name == "date":
            days = listing.date_range(connection, visible)
            hint = f"dates are from {days[0]} to {days[1]}" if days else "no document has a date"
        elif name in ("name", "query"):
            text = request.params.name if name == "name" else request.query
            named: dict[str, list[str]] = {}
            for path in listing.list_document_paths(connection, visible)[:_MOST_NAMES]:
                file = path.rpartition("/")[2]
                for form in (path, file, file.rpartition(".")[0] or file):
                    named.setdefault(form, []).append(path)
            near = find_alike(text or "", named)
            hint = f"similar names: {', '.join(near)}" if near else hint
        notes |= {hint: None} if hint else {}
    return tuple(notes)


def check_values(
    connection: Connection,
    within: Restriction,
    file_type: str | None = None,
    seen: Scope = ALL,
) -> None:
    """Raise :class:`UnknownValueError` for a condition that no document of the datasets meets.

    Only conditions of ``within`` are checked that must hold, name values, and are on a field with
    few values; ``file_type`` is checked as well. The error lists values, nearest first, from the
    documents that the other conditions allow; without such documents nothing is raised. Documents
    that are not ``seen`` are ignored.
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
