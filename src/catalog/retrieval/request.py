"""Read a search: check its params against the store before anything runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from catalog.core.agents import read_agent, with_agent
from catalog.core.arguments import check_names, check_params, parameter_names
from catalog.core.dates import read_bound
from catalog.core.errors import CatalogError, InputError
from catalog.core.filters import (
    And,
    Filter,
    file_type_filter,
    is_of_llama_index,
    name_filter,
    parse_filters,
)
from catalog.core.params import MODES, ORDERS, AskParams, Mode, Order, SearchParams
from catalog.core.query import ParsedQuery, SubQuery, parse_query
from catalog.core.scope import ALL, Scope
from catalog.core.text import storable
from catalog.library.browse import check_values
from catalog.library.get import resolve_documents
from catalog.library.library import Library
from catalog.library.names import keep_whole, roles_in_force
from catalog.retrieval.parts import SearchParts
from catalog.retrieval.stages import StageLog
from catalog.store.document_names import DocumentNames, count_whole
from catalog.store.engine_types import Restriction, allowed_seqs, is_written_as_flag
from catalog.store.lexical.analysis import WORD
from catalog.store.listing import (
    allowed_documents,
    check_filter_fields,
    count_documents,
    dated_between,
    list_source_ids,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from catalog.core.settings import RAGv2Settings, Settings
    from catalog.store.filter_sql import DatasetNames

_LOOSE = "searched for the words without the quotes"


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A checked search: the query, where to search, how many results, and which stages.

    ``visible`` is the restriction by the caller's own scope and filters; ``restriction`` adds file
    type, name and dates. ``distinct`` merges passages that say the same. ``is_one_document``: scope
    or filter select a single document. ``is_filled``: documents give more than their share if there
    are too few passages. ``notes`` are for the results.
    """

    query: ParsedQuery
    restriction: Restriction
    visible: Restriction
    top_k: int
    mode: Mode
    rerank: bool
    expand: bool
    threshold: float
    distinct: bool
    sort: Order = "best"
    recency_half_life_days: float = 0.0
    is_one_document: bool = False
    is_filled: bool = False
    notes: tuple[str, ...] = ()


def read_request(params: SearchParams, parts: SearchParts, stages: StageLog) -> SearchRequest:
    """Return the request for these params; raise :class:`InputError` kinds for invalid ones."""
    check_search(params)
    library, rag = parts.library, parts.rag
    dataset: DatasetNames
    if isinstance(params.dataset, str) and _is_everywhere(params, parts):
        dataset, seen = storable(params.dataset), ALL  # the search itself notices an unknown name
    else:
        dataset, seen = library.seen_datasets(params.role, params.dataset)
    with stages.run("scope") as notes:
        filters = parse_filters(params.filters)
        scope = _read_scope(library, Restriction(dataset, seen, filters), params)
        conditions = [one for one in (filters, *_narrow(params)) if one is not None]
        tree = conditions[0] if len(conditions) == 1 else And(tuple(conditions))
        restriction = Restriction(dataset, scope, tree if conditions else None)
        is_one_document = restriction.is_one_document
        if not restriction.is_whole_dataset:
            with library.database.read() as connection:
                check_filter_fields(connection, restriction, seen)
                # programs write LlamaIndex's filters: a value may be unknown on purpose
                written = None if is_of_llama_index(params.filters) else filters
                own = replace(restriction, filter=written)
                check_values(connection, own, params.file_type, seen)
                restriction, count = _name_whole(connection, restriction, notes, seen)
                is_one_document &= _is_of_one_dataset(connection, restriction)
                if tree is filters:
                    filters = restriction.filter
                else:
                    filters = keep_whole(connection, restriction.datasets, filters, seen)
                is_one_document |= count == 1
        visible = replace(restriction, filter=filters)
        restriction = _within_dates(library, restriction, params, notes)
    with stages.run("normalise") as notes:
        query = parse_query(params.query, max_chars=rag.max_query_chars)
        if query.exclusions or any(part.phrases for part in query.parts):
            with library.database.read() as connection:
                query = _read_by_documents(connection, query, restriction, params, rag)
        notes.extend(query.notes)
    request = make_request(params, rag, query, restriction, visible)
    return replace(request, is_one_document=is_one_document)


def _is_everywhere(params: SearchParams, parts: SearchParts) -> bool:
    """Return whether neither a role nor a condition narrows the search."""
    given = (params.filters, params.doc_ids, params.docs, params.file_type, params.name)
    is_open = all(one is None for one in (*given, params.after, params.before))
    return is_open and not roles_in_force(parts.settings, params.role)


def make_request(
    params: SearchParams,
    rag: RAGv2Settings,
    query: ParsedQuery,
    restriction: Restriction,
    visible: Restriction,
) -> SearchRequest:
    """Return the request for checked params; what they leave open is as the settings say."""
    return SearchRequest(
        query,
        restriction,
        visible,
        params.top_k or rag.top_k,
        params.mode or "hybrid",
        rerank=rag.rerank_enabled if params.rerank is None else params.rerank,
        expand=rag.expansion_enabled if params.expand is None else params.expand,
        threshold=chosen_threshold(params, rag),
        distinct=rag.distinct_text and not params.all_copies,
        sort=params.sort or "best",
        recency_half_life_days=(
            rag.recency_half_life_days
            if params.recency_half_life_days is None
            else params.recency_half_life_days
        ),
    )


def _read_by_documents(
    connection: Connection,
    query: ParsedQuery,
    restriction: Restriction,
    params: SearchParams,
    rag: RAGv2Settings,
) -> ParsedQuery:
    """Adapt the query to how the documents that may answer write it.

    A word after a minus is searched instead of excluded if the documents write it as a flag. A
    quoted phrase that no passage has does not restrict, unless the search is ``strict``; the same
    holds for phrases that no passage has together.
    """
    flags = [word for word in query.exclusions if is_written_as_flag(connection, restriction, word)]
    if flags:
        query = parse_query(params.query, max_chars=rag.max_query_chars, flags=flags)
    if params.strict:
        return query
    within = replace(restriction, without=query.exclusions)
    for phrases in dict.fromkeys(part.phrases for part in query.parts):
        loose = [one for one in phrases if not _is_held(connection, within, (one,))]
        kept = tuple(one for one in phrases if one not in loose)
        if loose:
            missing = " or ".join(map(_quote, loose))
            query = query.without_phrases(loose, f"no passage has {missing}: {_LOOSE}")
        if kept and not _is_held(connection, within, kept):
            apart = " and ".join(map(_quote, kept))
            reading = f"no passage has {apart} together: {_LOOSE}"
            query = query.without_phrases(kept, reading)
    return query


def _is_held(connection: Connection, within: Restriction, phrases: tuple[str, ...]) -> bool:
    """Return whether some passage that may answer contains all the phrases."""
    needed = replace(within, containing=phrases)
    found = (allowed_seqs(connection, needed.of(name)) for name in within.datasets)
    return any(seqs is None or len(seqs) > 0 for seqs in found)


def _quote(phrase: str) -> str:
    return f'"{phrase}"'


def correct_spelling(request: SearchRequest, parts: SearchParts) -> SearchRequest:
    """Return the request with misspelt words corrected for the lexical leg, with notes.

    The vector leg uses the words as typed. Quoted words stay. If the engine fails, nothing is
    corrected, and its leg will report the failure.
    """
    corrected_parts, notes = list[SubQuery](), list[str]()
    for part in request.query.parts:
        if part.kind == "lex" and part.is_for(request.mode):
            try:
                engine = parts.lexical(request.restriction.dataset)
                corrected = engine.correct(part.text, request.restriction)
            except CatalogError:
                corrected = {}
            quoted = set(WORD.findall(" ".join(part.phrases)))
            for typed, meant in corrected.items():
                if typed not in quoted:
                    # in lower case, so that GitHub for githubb does not count as a name
                    text = re.sub(rf"\b{typed}\b", meant.lower(), part.text)
                    part = replace(part, text=text)
                    notes.append(
                        f"did you mean {meant!r}? {typed!r} is in no passage searched, so "
                        f"{meant!r} was searched as well"
                    )
        corrected_parts.append(part)
    if not notes:
        return request
    query = replace(request.query, parts=tuple(corrected_parts))
    return replace(request, query=query, notes=(*request.notes, *notes))


def chosen_threshold(params: SearchParams, rag: RAGv2Settings) -> float:
    """Return the least relevance to show: the call's, else the settings'."""
    own = params.similarity_threshold
    return rag.similarity_threshold if own is None else own


def for_agent(params: SearchParams, settings: Settings) -> SearchParams:
    """Return the params with those of the agent that they name, if any.

    Raises :class:`InputError` kinds for an unknown agent or one whose filters exclude the call's,
    and :class:`ConfigError` for an invalid agent.
    """
    if params.agent is None:
        return params
    check_search(params)
    return with_agent(params, read_agent(settings, params.agent))


def search_arguments(
    given: Mapping[str, Any], *own: str, kind: type[SearchParams | AskParams] = SearchParams
) -> dict[str, Any]:
    """Return the search parameters, or other ``kind``, that a LlamaIndex part was given.

    LlamaIndex's ``similarity_top_k`` becomes ``top_k``. ``own`` are the part's own names. Raises
    :class:`InputError` for any other name and suggests the nearest.
    """
    arguments = take_similarity_top_k(given, "top_k")
    names = dict.fromkeys(own, ()) | dict(parameter_names(kind))
    for query in ("query", "question"):
        names.pop(query, None)
    check_names(arguments, names)
    return arguments


def take_similarity_top_k(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the arguments with LlamaIndex's ``similarity_top_k`` under our name."""
    arguments = dict(given)
    if "similarity_top_k" in arguments:
        top_k = arguments.pop("similarity_top_k")
        if arguments.get(name) not in (None, top_k):
            raise InputError(f"similarity_top_k and {name} are the same argument: give one of them")
        arguments[name] = top_k
    return arguments


def check_search(params: SearchParams) -> None:
    """Raise :class:`InputError` for an unknown mode or order, a wrong type or number."""
    if params.mode not in (None, *MODES):
        raise InputError(f"no mode {params.mode!r}; modes: {', '.join(MODES)}")
    if params.sort not in (None, *ORDERS):
        raise InputError(f"no sort order {params.sort!r}; orders: {', '.join(ORDERS)}")
    check_params(params)


def _read_scope(library: Library, within: Restriction, params: SearchParams) -> Scope:
    """Return the documents that the params name, within datasets, scope and filter."""
    scope = Scope.of(_qualify(within.datasets, params.doc_ids))
    if scope.ids is not None:
        with library.database.read() as connection:
            live = (DocumentNames(connection, one).live(scope.ids) for one in within.datasets)
            scope = Scope.of(chain.from_iterable(live))
    scope &= within.scope
    if params.docs is None:
        return scope
    visible = replace(within, scope=scope)
    named = resolve_documents(
        library.database,
        within.dataset,
        params.docs,
        seen=within.scope,
        near=visible,
    )
    return scope & Scope.of(named)


def _qualify(datasets: Iterable[str], doc_ids: Iterable[str] | None) -> list[str] | None:
    """Return ids unchanged, and paths as ids in each dataset; ``None`` stays ``None``."""
    if doc_ids is None:
        return None
    names = [storable(name) for name in doc_ids]
    return [*names, *(f"{dataset}:{name}" for dataset in datasets for name in names)]


def _narrow(params: SearchParams) -> Iterator[Filter]:
    if params.file_type is not None:
        yield file_type_filter(params.file_type)
    if params.name is not None:
        yield name_filter(params.name)


def _within_dates(
    library: Library, restriction: Restriction, params: SearchParams, notes: list[str]
) -> Restriction:
    """Restrict to documents whose date is within the params' bounds, if there are any."""
    after, before = read_bound("after", params.after), read_bound("before", params.before)
    if after is None and before is None:
        return restriction
    of_scope = allowed_documents(Restriction(restriction.dataset, restriction.scope))
    with library.database.read() as connection:
        ids = list_source_ids(connection, of_scope & dated_between(after, before))
    notes.append(f"{len(ids)} documents of these dates")
    return replace(restriction, scope=Scope.of(ids))


def _is_of_one_dataset(connection: Connection, restriction: Restriction) -> bool:
    """Return whether all documents that may answer are in one dataset.

    Otherwise several documents may have the same path.
    """
    if isinstance(restriction.dataset, str):
        return True
    allowed = (allowed_documents(restriction.of(name)) for name in restriction.datasets)
    return sum(count_documents(connection, one, 1) for one in allowed) < 2


def _name_whole(
    connection: Connection, restriction: Restriction, notes: list[str], seen: Scope
) -> tuple[Restriction, int]:
    """Extend the restriction to all files of each document; also count its documents."""
    scope, tree, count = restriction.scope, restriction.filter, 0
    if scope.ids is not None:
        count = count_whole(connection, restriction.datasets, scope.ids)
        notes.append(f"{count} documents in scope")
    if tree is not None:
        tree = keep_whole(connection, restriction.datasets, tree, seen)
        notes.append("filtered")
    return replace(restriction, filter=tree), count
