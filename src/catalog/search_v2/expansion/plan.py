"""What else to ask for one query: decided once, seeing what the query itself found."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from catalog.core.errors import CatalogError
from catalog.core.query import SubQuery
from catalog.search_v2.expansion.expander import Expander
from catalog.search_v2.fusion import Leg
from catalog.search_v2.legs import LegRun
from catalog.search_v2.search_parts import SearchParts
from catalog.search_v2.stages import StageLog
from catalog.store.engine_types import Hit

_NEAREST = 3  # a line must be as near to the query as the median of this many best passages


class ExpansionPlan:
    """The further sub-queries of one request, and the stages that tell how they came about.

    No model is asked when the lexical leg is sure already. Raises :class:`ConfigError` when the
    library has no language model.
    """

    def __init__(
        self, search: SearchParts, *, strict: bool = False, expander: Expander | None = None
    ) -> None:
        self._search, self._expander = search, expander or search.expander
        self._sub_queries: tuple[SubQuery, ...] | None = None
        self.stages = StageLog(strict=strict)

    @property
    def identity(self) -> str:
        """Name the source of expansions: equal ones add the same to the same query."""
        return self._expander.identity

    def sub_queries(self, query: str, runs: Sequence[LegRun]) -> tuple[SubQuery, ...]:
        """Return the sub-queries to add to those answered; later calls repeat the first."""
        if self._sub_queries is None:
            self._sub_queries = tuple(self._decide(query, runs))
        return self._sub_queries

    def _decide(self, query: str, runs: Sequence[LegRun]) -> list[SubQuery]:
        rag = self._search.rag
        reason = explain_strong_signal(
            [hit.score for hit in _first_hits(runs, "lexical")],
            score=rag.strong_signal_score,
            gap=rag.strong_signal_gap,
        )
        if reason:
            self.stages.skipped("expand", reason)
            return []
        expansion = self._expander.expand(query)
        if expansion.error is not None:
            self.stages.failed("expand", expansion.ms, expansion.error)
            return []
        found = _first_hits(runs, "vector")
        parts = [SubQuery(line.kind, line.text, origin="expansion") for line in expansion.lines]
        near = [part for part in parts if self._is_near(query, part, found)]
        note = expansion.note
        if len(near) < len(parts):
            note = f"{note}; dropped: {len(parts) - len(near)} off the subject"
        if not near:
            note = f"{note}; the query alone is asked"
            self.stages.fell_back("expand", note)
        self.stages.ran("expand", expansion.ms, note)
        return near

    def _is_near(self, query: str, part: SubQuery, found: Sequence[Hit]) -> bool:
        """Return whether the line is as near to the query as what the query itself found."""
        if not found:
            return True
        import numpy as np

        vectors = self._search.query_vectors
        try:
            a, _ = vectors.embed(query)
            b, _ = vectors.embed(part.text, "document" if part.kind == "hyde" else "query")
        except CatalogError:
            return True  # its leg will fail the same way, and say so
        cosine = float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
        return cosine >= median(hit.score for hit in found[:_NEAREST])


def explain_strong_signal(scores: Sequence[float], *, score: float, gap: float) -> str:
    """Say why the best lexical hit needs no expansion; "" if it does.

    BM25 scores are mapped to 0-1 by ``s / (1 + s)``; the best must reach ``score`` and be
    ``gap`` ahead of the second (of 0, if there is none).
    """
    normalised = [max(0.0, raw) / (1 + max(0.0, raw)) for raw in scores[:2]]
    best, second = (*normalised, 0.0, 0.0)[:2]
    if not scores or best < score or best - second < gap:
        return ""
    return f"the best lexical hit is sure: {best:.2f}, {best - second:.2f} ahead"


def _first_hits(runs: Sequence[LegRun], leg: Leg) -> Sequence[Hit]:
    """Return the hits of the first run of a leg."""
    return next((run.hits for run in runs if run.leg == leg), ())
