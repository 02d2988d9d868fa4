"""When to merge segments: seldom enough to be cheap, often enough for few and clean ones."""

from __future__ import annotations

import numpy as np

from catalog.store.lexical.postings import PostingsSegment
from catalog.store.lexical.segment_building import merge
from catalog.store.lexical.snapshot import Part

MAX_PARTS = 8
CHURN_ROWS = 2_000
CHURN_SHARE = 0.05


def compacted(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """At most two parts: all in one, or the large one as it is and the rest merged.

    All are merged once the rows outside the first part and its removed ones exceed
    :data:`CHURN_ROWS` and :data:`CHURN_SHARE` of it.
    """
    if len(parts) == 0:
        return ()
    base, rest = parts[0], parts[1:]
    churn = base.dead + sum(len(part.segment) for part in rest)
    if churn > max(CHURN_ROWS, CHURN_SHARE * len(base.segment)):
        return (_merged(parts),)
    return (base, *((_merged(rest),) if len(rest) > 1 else rest))


def with_fewer_parts(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts after the first merged, once there are more than :data:`MAX_PARTS`."""
    return parts if len(parts) <= MAX_PARTS else (parts[0], _merged(parts[1:]))


def _merged(parts: tuple[Part, ...]) -> Part:
    segment: PostingsSegment = merge([(part.segment, part.live) for part in parts])
    return Part(segment, np.ones(len(segment), dtype=np.bool_))
