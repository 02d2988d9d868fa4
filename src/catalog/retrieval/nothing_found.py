"""Explain a search that found nothing: the reason, the conditions, and near documents."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from catalog.core.errors import CatalogError
from catalog.core.params import SearchParams
from catalog.core.text import counted
from catalog.library.library import Library
from catalog.retrieval.legs import UNSEARCHABLE, UNWRITTEN
from catalog.retrieval.passages import Passage
from catalog.retrieval.request import SearchRequest
from catalog.retrieval.stages import StageLog
from catalog.store.listing import allowed_documents, count_documents

_WAYS = {"lexical": "by words", "vector": "by meaning", "hybrid": "by words and meaning"}
_NARROWING = (
    *("file_type", "name", "after", "before"),
    *("docs", "doc_ids", "filters", "similarity_threshold"),
)
_NEAREST = 3  # documents to name if nothing was found


def explain_nothing(
    params: SearchParams, request: SearchRequest, stages: StageLog
) -> Iterator[str]:
    """Explain why there is no result."""
    if any(UNSEARCHABLE in report.note for report in stages.reports):
        yield f"{UNSEARCHABLE}: put words in quotes to find exactly these, or use other words"
    if any(UNWRITTEN in report.note for report in stages.reports):
        yield UNWRITTEN
    if required := request.query.required:
        quoted = " and ".join(f'"{phrase}"' for phrase in required)
        yield f"a passage must contain {quoted} exactly: without the quotes its words may be apart"
    if params.agent is not None and not request.restriction.is_whole_dataset:
        yield f"agent {params.agent} restricts the search: see 'catalog agents'"


def tell_searched(library: Library, params: SearchParams, request: SearchRequest) -> str:
    """Describe how, where and under which conditions the search ran."""
    with library.database.read() as connection:
        count = count_documents(connection, allowed_documents(request.restriction), sys.maxsize)
    given = {name: getattr(params, name) for name in _NARROWING}
    conditions = [
        f"{name}={it}" if isinstance(it, str | float) else name
        for name, it in given.items()
        if it is not None
    ]
    conditions += ["quotes"] if request.query.required else []
    where = " and ".join(map(repr, request.restriction.datasets))
    within = f" with {', '.join(conditions)}" if conditions else ""
    told = f"Searched {_WAYS[request.mode]} in {counted(count, 'document')} of {where}{within}."
    if request.mode == "lexical" and not conditions:
        told += " Mode hybrid also searches by meaning."
    return told


def find_nearest(
    request: SearchRequest, find: Callable[[SearchRequest], Iterable[Passage]]
) -> list[str]:
    """Return the best documents, ignoring threshold, phrases, dates, file type and name."""
    query, visible = request.query, request.visible
    if request.threshold == 0 and request.restriction == visible and not query.required:
        return []
    unquoted = query.without_phrases(query.required, "")
    all_off: dict[str, Any] = {"threshold": 0.0, "rerank": False, "expand": False}
    loose = replace(request, query=unquoted, restriction=visible, top_k=_NEAREST, **all_off)
    try:
        chunks = [passage.chunk for passage in find(loose)]
    except CatalogError:  # the search has answered; this only adds to it
        return []
    name = "path" if len(visible.datasets) == 1 else "source_doc_id"
    names = [getattr(chunk, name) for chunk in chunks]
    return list(dict.fromkeys(names))[:_NEAREST]
