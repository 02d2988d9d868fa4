"""What an engine answers: rows of the truth with the engine's own score."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Hit(NamedTuple):
    """One chunk (by its row number) and its raw score, larger is better."""

    seq: int
    score: float


def best_first(hits: Iterable[Hit], k: int) -> list[Hit]:
    """The ``k`` best, highest score first, ties by row number."""
    return sorted(hits, key=lambda hit: (-hit.score, hit.seq))[:k]
