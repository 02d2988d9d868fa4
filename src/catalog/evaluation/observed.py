"""Explain why another search lost a document, from its lists and from LlamaIndex's spans.

The search is asked once, and once deeper. LlamaIndex's own instrumentation reports the nodes of its
retrievers and postprocessors, so that the pipeline is not changed. A list from any other search
shows only that the document comes later, or not at all. In that case the search is asked for the
document's first words: if these find it, the search has the document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from catalog.core.errors import BackendError, DocumentNotFoundError
from catalog.core.user_search import Ranking, UserSearch, to_ranking
from catalog.evaluation.losses import Change, Loss, StepRank
from catalog.library.get import find_named
from catalog.library.names import Names, forms_of
from catalog.store.chunks import find_by_path

if TYPE_CHECKING:
    from catalog.store import Database

_DEEP = 100  # documents, as metrics look
_PROBE = 30  # words of the document, to ask for it
_METHOD = re.compile(r"\.(?:(a?retrieve)|_?postprocess_nodes)-")  # in the id of a span


class _Call(NamedTuple):
    """A call of a LlamaIndex part: its class, the nodes it returned, and whether it got nodes.

    Postprocessors get nodes, and so do retrievers that call other retrievers.
    """

    name: str
    nodes: Sequence[Any]
    was_given: bool


def explain_pipeline(
    database: Database, dataset: str, spec: Any, query: str, document: str, top_k: int = 10
) -> Loss:
    """Return at which place a search shows a document, or which of its parts lost it.

    ``spec`` is as for ``compare``: ``package.module:object`` or the object. ``document`` is a name
    that the dataset knows, or else the search's own. Raises :class:`BackendError` if the search
    cannot be loaded or fails.

    >>> loss = explain_pipeline(database, "notes", engine, "rotate keys", "keys.md")
    >>> loss.step  # doctest: +SKIP
    'LongContextReorder'
    """
    search = UserSearch(spec)
    with database.read() as connection:
        folders, unknown = Names(connection, dataset).folders, ""
        try:
            paths = find_named(connection, dataset, document)
        except DocumentNotFoundError as error:
            paths, unknown = [document], f" In {dataset!r}: {error}"
        found = find_by_path(connection, dataset, paths[0])
    wanted = frozenset(paths)

    def place(ranking: Ranking) -> int | None:
        for at, hit in enumerate(ranking.hits, 1):
            names = (name for one in (hit, *hit.also_in) for name in forms_of(one.path, folders))
            if not wanted.isdisjoint(names):
                return at
        return None

    def ask(text: str, depth: int) -> Ranking:
        try:
            return search.search(text, dataset=dataset, top_k=depth)
        except Exception as error:
            raise BackendError(f"{spec} failed: {type(error).__name__}: {error}") from error

    with watching() as calls:
        shown = ask(query, top_k)
    ranks = [
        StepRank(
            call.name, place(to_ranking(call.nodes, dataset, len(call.nodes) or 1)), len(call.nodes)
        )
        for call in calls
    ]
    rank = place(shown)
    ranks.append(StepRank("result", rank, len(shown.hits)))
    say = (query, document)
    if rank is not None:
        return Loss(*say, None, rank, tuple(ranks), "")
    step = _crossing(calls, ranks)
    deep = place(ask(query, max(_DEEP, top_k)))
    if deep is not None and step is None:
        return Loss(*say, "top_k", None, tuple(ranks), "", Change(f"top_k={deep}", rank=deep))
    if step is not None:
        change = None if deep is None else Change(f"top_k={deep}", rank=deep)
        return Loss(*say, step, None, tuple(ranks), "It had the document, and left it out.", change)
    words = [] if found is None else re.findall(r"\w+", found.text)[:_PROBE]
    if words and place(ask(" ".join(words), _DEEP)) is None:
        reason = f"Not among {_DEEP} results for its own first words either."
        return Loss(*say, "index", None, tuple(ranks), reason)
    leaves = [call.name for call in calls if not call.was_given]
    told = f"by {', '.join(dict.fromkeys(leaves))}" if leaves else f"within {_DEEP}"
    knows = "; it has the document, which it finds by its own words" if words else ""
    return Loss(*say, "retrieval", None, tuple(ranks), f"Not returned {told}{knows}.{unknown}")


@contextmanager
def watching() -> Iterator[list[_Call]]:
    """Yield a list to which each LlamaIndex retriever and postprocessor in the block is added."""
    calls: list[_Call] = []
    try:
        from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
        from llama_index.core.instrumentation.span import SimpleSpan
        from llama_index.core.instrumentation.span_handlers import BaseSpanHandler
    except ImportError:
        yield calls
        return

    class Watcher(BaseSpanHandler[SimpleSpan]):
        """Note what each call returned; a parent ends after the calls within it."""

        parents: dict[str, str | None] = {}  # noqa: RUF012 - pydantic copies it
        nested: set[str] = set()  # noqa: RUF012

        def new_span(self, id_: str, *_: Any, parent_span_id: str | None = None, **__: Any) -> Any:
            self.parents[id_] = parent_span_id
            return SimpleSpan(id_=id_, parent_id=parent_span_id)

        def prepare_to_exit_span(
            self, id_: str, bound_args: Any, instance: Any = None, result: Any = None, **_: Any
        ) -> Any:
            del bound_args
            span, method = self.open_spans.get(id_), _METHOD.search(id_)
            if method and isinstance(result, list):
                was_given = not method[1] or id_ in self.nested
                calls.append(_Call(type(instance).__name__, result, was_given))
                while method[1] and (parent := self.parents.get(id_)) is not None:
                    self.nested.add(parent)
                    id_ = parent
            return span

        def prepare_to_drop_span(self, id_: str, *_: Any, **__: Any) -> Any:
            return self.open_spans.get(id_)

    dispatcher, watcher = get_dispatcher(), Watcher()
    dispatcher.add_span_handler(watcher)
    try:
        yield calls
    finally:
        dispatcher.span_handlers.remove(watcher)


def _crossing(calls: Sequence[_Call], ranks: Sequence[StepRank]) -> str | None:
    """Return the last part that got the document and left it out.

    ``ranks`` may have more at their end.
    """
    given, lost = False, None
    for call, rank in zip(calls, ranks, strict=False):
        if rank.rank is not None:
            given, lost = True, None
        elif given and call.was_given and lost is None:
            lost = call.name
    return lost
