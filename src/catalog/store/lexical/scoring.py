"""BM25 over segments, from the statistics of the live chunks at the time of the query.

    score(q, d) = Σ_t  idf(t) · tf / (tf + k1 · (1 - b + b · |d| / avg))
    idf(t) = ln(1 + (N - n_t + 0.5) / (n_t + 0.5))

with N live chunks, n_t of them holding t, and t running over the query's tokens, repeated ones
as often as they stand there. Robertson and Zaragoza, "The Probabilistic Relevance Framework:
BM25 and Beyond" (2009), with Lucene's idf and without the constant factor (k1 + 1).
Nothing is computed ahead, so an index kept up to date scores exactly like one built afresh.
"""

from __future__ import annotations

from math import log1p

import numpy as np
import numpy.typing as npt

from catalog.store.hits import Hit
from catalog.store.lexical.postings import Counts, Int32, Int64

Scores = npt.NDArray[np.float64]


def term_weight(chunks: int, holding: int) -> float:
    """The idf of a term that ``holding`` of ``chunks`` chunks hold; always above zero."""
    return log1p((chunks - holding + 0.5) / (holding + 0.5))


def length_norms(lengths: Int32, average: float, k1: float, b: float) -> Scores:
    """What a chunk's length adds to the denominator of each of its terms."""
    return np.asarray(k1 * (1 - b + b * lengths / average), dtype=np.float64)


def saturated(counts: Counts, norms: Scores) -> Scores:
    """Term frequencies brought into [0, 1): repetition counts less and less."""
    return counts / (counts + norms)


def best(seqs: Int64, scores: Scores, k: int) -> list[Hit]:
    """The ``k`` highest scores, ties by row number, also where a tie crosses the cut."""
    if len(scores) > k:
        cut = np.partition(scores, len(scores) - k)[len(scores) - k]
        kept = scores >= cut
        seqs, scores = seqs[kept], scores[kept]
    order = np.lexsort((seqs, -scores))[:k]
    return [
        Hit(seq, score)
        for seq, score in zip(seqs[order].tolist(), scores[order].tolist(), strict=True)
    ]
