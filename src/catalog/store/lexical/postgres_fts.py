"""Keyword search in a truth that is in Postgres: the words and the scores of the FTS5 engine."""

from __future__ import annotations

import math

from sqlalchemy import Connection, func, select

from catalog.store.engine_types import Hit, Hits, Restriction, Spread, best_first
from catalog.store.filter_sql import among
from catalog.store.full_text import LEAST
from catalog.store.postgres_words import score_chunks
from catalog.store.schema import chunks


def search_words(
    connection: Connection, match: str, k: int, restriction: Restriction, weights: dict[str, float]
) -> Hits:
    """Return the best chunks that match an FTS5 MATCH text of ours, and the spread of all scores.

    ``weights`` are by column. The words of every row that matches are read, so that a word that
    is in very many passages takes its time.
    """
    scores = score_chunks(connection, match, weights)
    if not scores:
        return Hits()
    of_dataset = _within(connection, scores, Restriction(restriction.dataset))
    inside = of_dataset
    if not restriction.is_whole_dataset:
        inside = _within(connection, of_dataset, restriction)
    hits = best_first(((seq, max(score, LEAST)) for seq, score in inside.items()), k)
    return Hits((Hit(*hit) for hit in hits), _spread(connection, of_dataset, restriction))


def _within(
    connection: Connection, scores: dict[int, float], restriction: Restriction
) -> dict[int, float]:
    query = select(chunks.c.seq).where(among(chunks.c.seq, scores), restriction.clause())
    return {seq: scores[seq] for seq in connection.scalars(query)}


def _spread(connection: Connection, scores: dict[int, float], restriction: Restriction) -> Spread:
    in_datasets = chunks.c.dataset.in_(restriction.datasets)
    size = connection.scalar(select(func.count()).select_from(chunks).where(in_datasets)) or 1
    mean = math.fsum(scores.values()) / size
    square = math.fsum(score * score for score in scores.values()) / size
    return Spread(mean, math.sqrt(max(0.0, square - mean * mean)))
