"""Reading a search's arguments: what is asked for, checked before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Required, TypedDict, Unpack

from catalog.core.errors import InputError, UnknownModeError
from catalog.core.filter_forms import parse_filters
from catalog.core.filters import check_fields, filter_fields
from catalog.core.params import MODES, Mode
from catalog.core.query import ParsedQuery, parse_query
from catalog.core.scope import Scope
from catalog.core.text import storable
from catalog.library.library import Library
from catalog.search_v2.stages import StageLog
from catalog.store.chunks import has_field, list_fields, live_documents
from catalog.store.engine_types import Restriction

MAX_TOP_K = 1000
DEFAULT_TOP_K = 10


class SearchArguments(TypedDict, total=False):
    """What narrows a search; ``SearchServiceV2.search`` says what each means."""

    dataset: Required[str]
    top_k: int
    mode: str
    doc_ids: Iterable[str] | None
    filters: object
    rerank: bool | None
    expand: bool | None


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search, checked: what to look for, where, how many, and with which stages."""

    query: ParsedQuery
    restriction: Restriction
    top_k: int
    mode: Mode
    rerank: bool
    expand: bool


def read_request(
    library: Library, query: str, stages: StageLog, **asked: Unpack[SearchArguments]
) -> SearchRequest:
    """The request these arguments make; raises :class:`InputError` kinds for those that do not."""
    top_k, doc_ids = asked.get("top_k", DEFAULT_TOP_K), asked.get("doc_ids")
    rerank, expand = asked.get("rerank"), asked.get("expand")
    mode = read_mode(asked.get("mode", "hybrid"))
    top_k = possible_top_k(top_k)
    if isinstance(doc_ids, str):
        raise InputError("doc_ids must be a list of ids or paths, not one string")
    library.require_dataset(storable(asked["dataset"]))
    rag = library.settings.rag_v2
    with stages.run("normalise") as notes:
        parsed = parse_query(query, max_chars=rag.max_query_chars)
        notes.extend(parsed.notes)
    with stages.run("scope") as notes:
        restriction = _restriction(library, asked["dataset"], doc_ids, asked.get("filters"), notes)
    return SearchRequest(
        parsed,
        restriction,
        top_k,
        mode,
        rerank=rag.rerank_enabled if rerank is None else rerank,
        expand=rag.expansion_enabled if expand is None else expand,
    )


def possible_top_k(top_k: object) -> int:
    """The number, if an answer can have so many passages; raises :class:`InputError`."""
    if isinstance(top_k, bool) or not isinstance(top_k, int) or not 1 <= top_k <= MAX_TOP_K:
        raise InputError(f"top_k must be a whole number from 1 to {MAX_TOP_K}, not {top_k!r}")
    return top_k


def read_mode(name: str) -> Mode:
    """The mode of that name; raises :class:`UnknownModeError`."""
    if name not in MODES:
        raise UnknownModeError(f"no mode {name!r}; modes: {', '.join(MODES)}")
    return name


def _restriction(
    library: Library,
    dataset: str,
    doc_ids: Iterable[str] | None,
    filters: object,
    notes: list[str],
) -> Restriction:
    scope = Scope.from_doc_ids(_named(dataset, doc_ids))
    tree = parse_filters(filters)
    if not scope.is_all or tree is not None:
        with library.database.read() as connection:
            if scope.ids is not None:
                scope = Scope.of(live_documents(connection, scope.ids))
                notes.append(f"{len(scope.ids or ())} documents in scope")
            if tree is not None:
                unknown = [f for f in filter_fields(tree) if not has_field(connection, dataset, f)]
                if unknown:
                    check_fields(tree, list_fields(connection, dataset))
                notes.append("filtered")
    return Restriction(dataset, scope, tree)


def _named(dataset: str, doc_ids: Iterable[str] | None) -> list[str] | None:
    """Ids as they are, and paths as ids of this dataset; ``None`` stays ``None``."""
    if doc_ids is None:
        return None
    names = [storable(given) for given in doc_ids]
    return [name for given in names for name in (given, f"{dataset}:{given}")]
