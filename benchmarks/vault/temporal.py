"""Questions about moments of videos: asked in every mode, with the video known and unknown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from queries import Moment

from catalog.core.documents import Locator
from catalog.core.results import ResultLocator, SearchResult, SearchResults
from catalog.evaluation.significance import bootstrap_interval
from catalog.search_v2.service import SearchServiceV2

SHOWN = 5
NEAR_SECONDS = 15.0
MODES = {
    "lexical": ("lexical", False),
    "vector": ("vector", False),
    "hybrid": ("hybrid", False),
    "hybrid + rerank": ("hybrid", True),
}
_DEPTH = 30  # passages in which ten videos are looked for


@dataclass(frozen=True)
class Asked:
    """One question's scores.

    ``found``: of the first five passages, one is of the video and overlaps seconds that answer;
    ``first``: the first one does.
    ``near``: the snippet of one begins in such seconds, or at most 15 s from them. ``ndcg`` is
    nDCG@10 of videos, of which one is relevant.
    """

    found: bool
    first: bool
    near: bool
    ndcg: float
    results: SearchResults


@dataclass(frozen=True)
class Mean:
    """A mean over questions with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        """Of one value or more."""
        ends = bootstrap_interval(values)
        return cls(fmean(values), ends.low, ends.high, len(values))

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}] (n {self.n})"


def ask(
    service: SearchServiceV2, moments: Sequence[Moment], mode: str, *, known: bool
) -> list[Asked]:
    """Every question in a mode of :data:`MODES`; ``known`` asks the one video only."""
    name, rerank = MODES[mode]
    asked = []
    for moment in moments:
        results = service.search(
            moment.text,
            dataset="vault",
            mode=name,
            rerank=rerank,
            top_k=SHOWN if known else _DEPTH,
            doc_ids=[moment.path] if known else None,
            strict=True,
        )
        asked.append(_scored(moment, results))
    return asked


def video_of(path: str) -> str:
    """The video that a transcript or a frame's description belongs to."""
    folder, _, _ = path.partition("_frames/")
    return folder.removesuffix(".srt")


def _scored(moment: Moment, results: SearchResults) -> Asked:
    video = video_of(moment.path)
    ours = [result for result in results[:SHOWN] if video_of(result.path) == video]
    videos = list(dict.fromkeys(video_of(result.path) for result in results))[:10]
    right = [
        result.rank
        for result in ours
        if any(overlaps(result.locator, span) for span in moment.spans)
    ]
    return Asked(
        found=bool(right),
        first=1 in right,
        near=any(_begins_near(result, span) for result in ours for span in moment.spans),
        ndcg=1 / math.log2(videos.index(video) + 2) if video in videos else 0.0,
        results=results,
    )


def overlaps(where: ResultLocator | Locator, span: tuple[float, float]) -> bool:
    """Whether a place has a second in common with the span."""
    if where.time_start is None:
        return False
    end = where.time_start if where.time_end is None else where.time_end
    return where.time_start <= span[1] and span[0] <= end


def _begins_near(result: SearchResult, span: tuple[float, float]) -> bool:
    where = result.snippet_locator
    if where is None or where.time_start is None:
        return False
    return span[0] - NEAR_SECONDS <= where.time_start <= span[1] + NEAR_SECONDS
