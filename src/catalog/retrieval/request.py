"""Read a search: check its params against the store before anything runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from catalog.core.arguments import check_names, check_params, parameter_names
from catalog.core.dates import read_bound
from catalog.core.errors import InputError
from catalog.core.filters import (
    And,
    Filter,
    Not,
    condition,
    file_type_filter,
    is_of_llama_index,
    name_filter,
    parse_filters,
)
from catalog.core.params import AskParams, Mode, Order, SearchParams
from catalog.core.query import MOST_TYPED, ParsedQuery, parse_query
from catalog.core.scope import Scope
from catalog.core.text import storable
from catalog.library.library import Library
from catalog.library.names import keep_whole, roles_in_force
from catalog.retrieval.parts import SearchParts, StageLog
from catalog.retrieval.select import ASKS_FOR_NEWEST
from catalog.store.document_names import DocumentNames, count_whole
from catalog.store.listing import (
    allowed_documents,
    check_filter_fields,
    count_documents,
    dated_between,
    list_source_ids,
)
from catalog.store.restriction import Restriction, allowed_seqs, is_written_as_flag

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from catalog.core.settings import RAGv2Settings, Settings

_NARROWING = ("filters", "doc_ids", "docs", "file_type", "name", "after", "before")
_LOOSE = "searched for the words without the quotes"
_CONDITION = re.compile(  # what is quoted is a phrase
    r'(?i)"[^"]*"|(?<!\S)(-?)(file|path|tag|type):("[^"]+"|[^\s"/][^\s"]*)'
)


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A checked search: the query, where to search, how many results, and which stages.

    ``visible`` is the restriction by the caller's own scope and filters; ``restriction`` adds file
    type, name and dates. ``distinct`` merges passages that say the same. ``fades``: archived ones
    count as older. ``is_one_document``: a single document is selected. ``is_filled``: documents
    give more than their share if there are too few passages. ``notes`` are for the results.
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
    fades: bool = False
    is_one_document: bool = False
    is_filled: bool = False
    notes: tuple[str, ...] = ()


def read_request(params: SearchParams, parts: SearchParts, stages: StageLog) -> SearchRequest:
    """Return the request for these params; raise :class:`InputError` kinds for invalid ones."""
    check_params(params)
    library, rag, half_life = parts.library, parts.rag, params.recency_half_life_days
    params, told = _obey_conditions(library, params)
    is_open = all(getattr(params, name) is None for name in _NARROWING)
    is_open &= isinstance(params.dataset, str) and not roles_in_force(parts.settings, params.role)
    with stages.run("scope") as notes:
        # the search itself notices an unknown name
        visible = restriction = Restriction(storable(str(params.dataset)))
        is_one_document = False
        if not is_open:
            restriction, visible, is_one_document = _read_scope(library, params, notes)
    with stages.run("normalise") as notes:
        query = parse_query(params.query, max_chars=rag.max_query_chars)
        if query.exclusions or any(part.phrases for part in query.parts):
            with library.database.read() as connection:
                query = _read_by_documents(connection, query, restriction, params, rag)
        notes += [*query.notes, *([f"filtered by {', '.join(told)}"] if told else [])]
        newest = ASKS_FOR_NEWEST.search(query.text) if half_life is None else None
        notes += [f"{newest[0]!r} favours newer documents"] if newest else []
    if half_life is None:
        half_life = rag.recency_half_life_days or (3_650.0 if newest else 0.0)  # ten years
    return SearchRequest(
        query,
        restriction,
        visible,
        params.top_k or rag.top_k,
        params.mode or "hybrid",
        rerank=rag.rerank_enabled if params.rerank is None else params.rerank,
        expand=rag.expansion_enabled if params.expand is None else params.expand,
        threshold=rag.similarity_threshold if (it := params.similarity_threshold) is None else it,
        distinct=rag.distinct_text and not params.all_copies,
        sort=params.sort or "best",
        recency_half_life_days=half_life,
        fades=newest is not None,
        is_one_document=is_one_document,
    )


def _obey_conditions(library: Library, params: SearchParams) -> tuple[SearchParams, list[str]]:
    """Turn ``file:``, ``path:``, ``tag:`` and ``type:`` of a query into filters; return these, too.

    Each stays text if no document fits, if nothing else is asked, and in a pasted text.
    """
    told, is_typed = list[str](), len(params.query.split()) <= MOST_TYPED
    for found in filter(itemgetter(2), _CONDITION.finditer(params.query)) if is_typed else ():
        value, rest = found[3].strip('"'), params.query.replace(found[0], "", 1)
        with suppress(InputError):
            tree: Filter = condition("tag", "==", value)
            if found[2].lower() == "type":
                tree = file_type_filter(value)
            elif found[2].lower() != "tag":
                from catalog.library.get import resolve_documents

                dataset, seen = library.seen_datasets(params.role, params.dataset)
                ids = resolve_documents(library.database, dataset, [value], seen=seen)
                tree = condition("source_doc_id", *(("in", ids) if ids[1:] else ("==", ids[0])))
            own = () if params.filters is None else params.filters
            both = [own, Not(tree) if found[1] else tree]
            narrowed = replace(params, query=rest, filters=both)
            allowed = allowed_documents(_read_scope(library, narrowed, [])[0])
            with library.database.read() as connection:
                if re.search(r"\w", rest) and count_documents(connection, allowed, 1):
                    params, told = narrowed, [*told, found[0]]
    return params, told


def _read_scope(
    library: Library, params: SearchParams, notes: list[str]
) -> tuple[Restriction, Restriction, bool]:
    """Return the restriction, that of the caller's own conditions, and whether it is one document.

    Documents are named with all of their files.
    """
    dataset, seen = library.seen_datasets(params.role, params.dataset)
    filters, names = parse_filters(params.filters), Restriction(dataset).datasets
    bounds = read_bound("after", params.after), read_bound("before", params.before)
    conditions = [] if filters is None else [filters]
    conditions += [] if params.file_type is None else [file_type_filter(params.file_type)]
    conditions += [] if params.name is None else [name_filter(params.name)]
    tree = conditions[0] if len(conditions) == 1 else And(tuple(conditions)) if conditions else None
    with library.database.snapshot(), library.database.read() as connection:
        scope = seen
        if params.doc_ids is not None:
            ids = [storable(one) for one in params.doc_ids]
            ids += [f"{name}:{one}" for name in names for one in ids]
            live = (DocumentNames(connection, one).live(ids) for one in names)
            scope &= Scope.of(chain.from_iterable(live))
        if params.docs is not None:
            near = Restriction(dataset, scope, filters)
            from catalog.library.get import resolve_documents

            named = resolve_documents(library.database, dataset, params.docs, seen=seen, near=near)
            scope &= Scope.of(named)
        restriction = Restriction(dataset, scope, tree)
        is_one_document, visible = restriction.is_one_document, replace(restriction, filter=filters)
        if not restriction.is_whole_dataset:
            check_filter_fields(connection, restriction, seen)
            # programs write LlamaIndex's filters: a value may be unknown on purpose
            written = None if is_of_llama_index(params.filters) else filters
            from catalog.library.browse import check_values

            check_values(connection, replace(restriction, filter=written), params.file_type, seen)
            restriction, visible = (
                replace(restriction, filter=keep_whole(connection, names, one, seen))
                for one in (tree, filters)
            )
            if is_one_document and len(names) > 1:  # several documents may have the same path
                allowed = (allowed_documents(restriction.of(name)) for name in names)
                is_one_document = sum(count_documents(connection, one, 1) for one in allowed) < 2
            if scope.ids is not None:
                count = count_whole(connection, names, scope.ids)
                notes.append(f"{count} documents in scope")
                is_one_document |= count == 1
            notes += [] if tree is None else ["filtered"]
        if bounds != (None, None):
            of_scope = allowed_documents(Restriction(dataset, scope))
            dated = list_source_ids(connection, of_scope & dated_between(*bounds))
            notes.append(f"{len(dated)} documents of these dates")
            restriction = replace(restriction, scope=Scope.of(dated))
    return restriction, visible, is_one_document


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

    def is_held(*phrases: str) -> bool:
        within = replace(restriction, without=query.exclusions, containing=phrases)
        found = (allowed_seqs(connection, within.of(name)) for name in within.datasets)
        return any(seqs is None or len(seqs) > 0 for seqs in found)

    for phrases in () if params.strict else dict.fromkeys(part.phrases for part in query.parts):
        loose = [one for one in phrases if not is_held(one)]
        if loose:
            missing = " or ".join(f'"{one}"' for one in loose)
            query = query.without_phrases(loose, f"no passage has {missing}: {_LOOSE}")
        kept = [one for one in phrases if one not in loose]
        if kept and not is_held(*kept):
            apart = " and ".join(f'"{one}"' for one in kept)
            query = query.without_phrases(kept, f"no passage has {apart} together: {_LOOSE}")
    return query


def for_agent(params: SearchParams, settings: Settings) -> SearchParams:
    """Return the params with those of the agent that they name, if any.

    Raises :class:`InputError` kinds for an unknown agent or one whose filters exclude the call's,
    and :class:`ConfigError` for an invalid agent.
    """
    if params.agent is None:
        return params
    check_params(params)
    from catalog.core.agents import read_agent, with_agent

    return with_agent(params, read_agent(settings, params.agent))


def search_arguments(
    given: Mapping[str, Any], *own: str, kind: type[SearchParams | AskParams] = SearchParams
) -> dict[str, Any]:
    """Return the search parameters, or other ``kind``, that a LlamaIndex part was given.

    LlamaIndex's ``similarity_top_k`` is ``top_k``, and ``dataset_name`` is ``dataset``. ``own`` are
    the part's own names. Raises :class:`InputError` for any other name and suggests the nearest.
    """
    arguments = dict(given)
    for name, other in (("top_k", "similarity_top_k"), ("dataset", "dataset_name")):
        if other in arguments:
            both = {name: arguments.get(name), other: arguments.pop(other)}
            arguments[name] = one_of(**both)
    names = dict.fromkeys(own, ()) | dict(parameter_names(kind))
    for query in ("query", "question"):
        names.pop(query, None)
        if query in arguments:
            later = "give it later, to retrieve(…) or query(…)"
            raise InputError(f"there is no argument {query!r}: {later}")
    check_names(arguments, names)
    return arguments


def one_of(**given: Any) -> Any:
    """Return an argument of two names; :class:`InputError` if they have two values."""
    (name, value), (other, same) = given.items()
    if None not in (value, same) and value != same:
        raise InputError(f"{other} and {name} are the same argument: give one of them")
    return same if value is None else value
