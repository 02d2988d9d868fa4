"""What else to ask for one query: decided once, seeing what the query itself found."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from catalog.core.errors import CatalogError
from catalog.core.query import SubQuery
from catalog.retrieval.expansion.expander import Expander
from catalog.retrieval.expansion.lines import ExpansionLine, describe_dropped
from catalog.retrieval.fusion import Leg
from catalog.retrieval.legs import LegRun
from catalog.retrieval.search_parts import SearchParts
from catalog.retrieval.stages import StageLog
from catalog.store.engine_types import Hit

_FOUND = 100  # a line must be as near to the query as this one of the passages it found,
_SHARE = 4  # or the one at a quarter of all there are, if they are so few,
_LEAST = 2  # but not the first


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

    def sub_queries(
        self, query: str, runs: Sequence[LegRun], count: Callable[[], int]
    ) -> tuple[SubQuery, ...]:
        """Return the sub-queries to add to those answered; later calls repeat the first.

        ``count`` counts the passages of the dataset that can be found by meaning.
        """
        if self._sub_queries is None:
            self._sub_queries = tuple(self._decide(query, runs, count))
        return self._sub_queries

    def _decide(
        self, query: str, runs: Sequence[LegRun], count: Callable[[], int]
    ) -> list[SubQuery]:
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
        least = _nearness(next((run for run in runs if run.leg == "vector"), None), count)
        near: list[SubQuery] = []
        far: list[tuple[ExpansionLine, str]] = []
        for line in expansion.lines:
            if line.kind == "lex" or least is None or self._is_near(query, line, least):
                near.append(SubQuery(line.kind, line.text, origin="expansion"))
            else:
                far.append((line, "off the subject"))
        note = "; ".join(filter(None, (expansion.note, describe_dropped(far))))
        if not near:
            note = f"{note}; the query alone is asked"
            self.stages.fell_back("expand", note, reason="the query alone is asked")
        self.stages.ran("expand", expansion.ms, note)
        return near

    def _is_near(self, query: str, line: ExpansionLine, least: float) -> bool:
        """Return whether the cosine of line and query is ``least`` or more."""
        import numpy as np

        vectors = self._search.query_vectors
        try:
            a, _ = vectors.embed(query)
            b, _ = vectors.embed(line.text, "document" if line.kind == "hyde" else "query")
        except CatalogError:
            return True  # its leg will fail the same way, and say so
        return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b))) >= least


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


def _nearness(run: LegRun | None, count: Callable[[], int]) -> float | None:
    """Return the cosine that a line must have with the query, by what the query's leg found.

    ``None`` if it found nothing. Of 188 golden queries with the labelled answer as the line 176
    pass, and 17 % of other queries' answers; the median of the first three hits let 104 pass.
    """
    if run is None or not run.hits:
        return None
    passages = count() if len(run.hits) >= run.top_k else len(run.hits)
    place = min(_FOUND, max(_LEAST, passages // _SHARE), len(run.hits))
    return run.hits[place - 1].score


def _first_hits(runs: Sequence[LegRun], leg: Leg) -> Sequence[Hit]:
    """Return the hits of the first run of a leg."""
    return next((run.hits for run in runs if run.leg == leg), ())
