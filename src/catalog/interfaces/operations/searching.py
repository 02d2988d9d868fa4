"""Searching for passages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from catalog.core.filters import And, Filter, Op, condition, parse_filters
from catalog.core.narrowing import file_type_filter, name_filter
from catalog.core.results import SearchResults
from catalog.interfaces.operations.calls import SearchCall
from catalog.search_v2.legs import UNSEARCHABLE
from catalog.search_v2.references import resolve_documents

if TYPE_CHECKING:
    from catalog.interfaces.operations.engine import LocalEngine


@dataclass(frozen=True, slots=True)
class Searched:
    """The results, and what else there is to say of them."""

    results: SearchResults
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return self.results.to_dict() | {"notes": list(self.notes)}


def run_search(engine: LocalEngine, call: SearchCall) -> Searched:
    """The passages; when no document fits the type or name asked for, a note says which do."""
    dataset, database = engine.dataset(call.dataset), engine.workspace.database
    ids = None if call.docs is None else resolve_documents(database, dataset, call.docs)
    given = parse_filters(call.filters)
    parts = [part for part in (given, *_narrowing(call)) if part is not None]
    results = engine.service.search(
        call.query,
        dataset=dataset,
        top_k=call.top_k,
        mode=call.mode,
        doc_ids=ids,
        filters=And(tuple(parts)) if parts else None,
        rerank=call.rerank,
        expand=call.expand,
        explain=call.explain,
        strict=call.strict,
    )
    notes = tuple(_unsearchable(results))
    if len(results) == 0 and (call.file_type is not None or call.name is not None):
        seen = [] if given is None else [given]  # what these hide no note may tell
        if ids is not None:
            seen.append(condition("source_doc_id", Op.IN, ids))
        notes += engine.catalog.query(
            dataset=dataset,
            file_type=call.file_type,
            name=call.name,
            filters=And(tuple(seen)) if seen else None,
            limit=1,
        ).notes
    return Searched(results, notes)


def _unsearchable(results: SearchResults) -> Iterator[str]:
    if len(results) == 0 and any(UNSEARCHABLE in stage.note for stage in results.stages):
        yield f"{UNSEARCHABLE}: put words in quotes to find just these, or say it in others"


def _narrowing(call: SearchCall) -> Iterator[Filter]:
    if call.file_type is not None:
        yield file_type_filter(call.file_type)
    if call.name is not None:
        yield name_filter(call.name)
