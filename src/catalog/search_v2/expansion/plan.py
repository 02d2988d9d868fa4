"""What else to ask for one query: decided once, seeing what the query itself found."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from catalog.core.errors import CatalogError
from catalog.core.query import SubQuery
from catalog.search_v2.feedback import expansion_text
from catalog.search_v2.legs import LegResult, LexicalRetriever
from catalog.search_v2.stages import StageLog
from catalog.store.chunks import load_chunks
from catalog.store.engine_types import Hit
from catalog.store.lexical.analysis import Analyzer

if TYPE_CHECKING:
    from catalog.library.library import Library
    from catalog.search_v2.expansion.expander import Expander

_NEAR = 3  # a line must be as near to the query as the median of this many best passages
_ANALYZER = Analyzer()


class ExpansionPlan:
    """The further sub-queries of one request, and the account of how they came about.

    ``expander`` gives lines of a language model and ``feedback_terms`` words of the best lexical
    hits (RM3); either may be off. Both are left out when the lexical leg is sure already.
    """

    def __init__(
        self,
        library: Library,
        dataset: str,
        *,
        expander: Expander | None,
        feedback_terms: int = 0,
        strict: bool = False,
    ) -> None:
        self._library, self._dataset = library, dataset
        self._expander, self._feedback_terms = expander, feedback_terms
        self._rag = library.settings.rag_v2
        self._parts: tuple[SubQuery, ...] | None = None
        self.stages = StageLog(strict=strict)

    @property
    def identity(self) -> tuple[str, int]:
        """Plans of equal identity add the same to the same query."""
        return (self._expander.identity if self._expander else "", self._feedback_terms)

    def parts(self, query: str, answers: Sequence[LegResult]) -> tuple[SubQuery, ...]:
        """The sub-queries to add to those answered already; later calls repeat the first."""
        if self._parts is None:
            self._parts = tuple(self._decided(query, answers))
        return self._parts

    def _decided(self, query: str, answers: Sequence[LegResult]) -> list[SubQuery]:
        lexical = _hits(answers, lexical=True)
        why = explain_strong_signal(
            [hit.score for hit in lexical],
            score=self._rag.strong_signal_score,
            gap=self._rag.strong_signal_gap,
        )
        if why:
            names = (("expand", self._expander), ("feedback", self._feedback_terms))
            for name, on in names:
                if on:
                    self.stages.skipped(name, why)
            return []
        return [
            *self._from_model(query, _hits(answers, lexical=False)),
            *self._from_feedback(query, lexical),
        ]

    def _from_model(self, query: str, vector: Sequence[Hit]) -> list[SubQuery]:
        if self._expander is None:
            return []
        expansion = self._expander.expand(query)
        if expansion.error is not None:
            self.stages.failed("expand", expansion.ms, expansion.error)
            return []
        parts = [SubQuery(line.kind, line.text, origin="expansion") for line in expansion.lines]
        near = [part for part in parts if self._near(query, part, vector)]
        note = expansion.note
        if len(near) < len(parts):
            note = f"{note}; dropped: {len(parts) - len(near)} off the subject"
        if not near:
            note = f"{note}; the query alone is asked"
            self.stages.fell_back("expand", note)
        self.stages.ran("expand", expansion.ms, note)
        return near

    def _near(self, query: str, part: SubQuery, found: Sequence[Hit]) -> bool:
        """Whether the line is as near to the query as what the query itself found."""
        if not found:
            return True
        import numpy as np

        vectors = self._library.query_vectors
        try:
            asked, _ = vectors.embed(query)
            line, _ = vectors.embed(part.text, "document" if part.kind == "hyde" else "query")
        except CatalogError:
            return True  # its leg will fail the same way, and say so
        cosine = float(asked @ line / (np.linalg.norm(asked) * np.linalg.norm(line)))
        return cosine >= median(hit.score for hit in found[:_NEAR])

    def _from_feedback(self, query: str, lexical: Sequence[Hit]) -> list[SubQuery]:
        if not self._feedback_terms:
            return []
        started = time.perf_counter()
        best = lexical[: self._rag.feedback_documents]
        with self._library.database.read() as connection:
            chunks = load_chunks(connection, self._dataset, [hit.seq for hit in best])
        there = [hit for hit in best if hit.seq in chunks]
        text = expansion_text(
            _ANALYZER,
            query,
            [chunks[hit.seq].text for hit in there],
            [hit.score for hit in there],
            terms=self._feedback_terms,
        )
        ms = (time.perf_counter() - started) * 1000
        self.stages.ran("feedback", ms, f"lex: {text}" if text else "no further words")
        return [SubQuery("lex", f"{query} {text}", origin="expansion")] if text else []


def explain_strong_signal(scores: Sequence[float], *, score: float, gap: float) -> str:
    """Why the best lexical hit needs no expansion, or nothing.

    BM25 scores are mapped to 0-1 by ``s / (1 + s)``; the best must reach ``score`` and be
    ``gap`` ahead of the second (of 0, if there is none).
    """
    normalised = [max(0.0, one) / (1 + max(0.0, one)) for one in scores[:2]]
    if not normalised:
        return ""
    best, second = normalised[0], normalised[1] if len(normalised) > 1 else 0.0
    if best < score or best - second < gap:
        return ""
    return f"the best lexical hit is sure: {best:.2f}, {best - second:.2f} ahead"


def _hits(answers: Sequence[LegResult], *, lexical: bool) -> Sequence[Hit]:
    """The first original answer of a leg."""
    return next(
        (
            answer.hits
            for answer in answers
            if isinstance(answer.asked.leg, LexicalRetriever) == lexical
        ),
        (),
    )
