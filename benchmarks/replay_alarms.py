"""How often ``catalog replay`` and the gates of ``compare`` alarm although nothing changed.

``python benchmarks/replay_alarms.py V2.json LEXICAL.json [DRAWS [SEED]]``

The files are those of ``catalog replay --save`` for labelled questions, of v2 and of the keyword
leg. Lists of v2 are drawn again: equal scores are ordered anew, all scores move by up to a
thousandth, and an approximate index misses each document with a probability of 2 in 100. Then a
coin assigns the answers of v2 and of the leg to the two sides: many questions change, and neither
side is better.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import numpy.typing as npt

from catalog.core.user_search import Ranking
from catalog.evaluation.comparison import compare_runs
from catalog.evaluation.gates import count_false_alarms
from catalog.evaluation.golden import GoldenSet
from catalog.evaluation.metrics import PRIMARY, score_run
from catalog.evaluation.replay import (
    MOST_MOVED,
    decide,
    rank_biased_overlap,
    read_snapshot,
    tied_documents,
)
from catalog.evaluation.runs import BackendRun, QueryOutcome

MISSED, MOVED = 0.02, 1e-3


def main() -> None:
    files, draws = map(Path, sys.argv[1:3]), int(sys.argv[3]) if len(sys.argv) > 3 else 500
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 51
    hybrid, leg = map(read_snapshot, files)
    labels = (
        [it.model_copy(update={"span": None}) for it in one.expected] for one in hybrid.golden
    )
    whole = (
        one.model_copy(update={"expected": tuple(of)})
        for one, of in zip(hybrid.golden, labels, strict=True)
    )
    queries = replace(hybrid.golden, queries=tuple(whole))  # labels of whole documents
    count_replays(hybrid.run, queries, draws, seed)
    comparison = compare_runs(leg.run, hybrid.run, queries)
    print(
        "gates, answers dealt by a coin:",
        count_false_alarms(comparison, repetitions=draws, seed=seed),
    )
    dealt, generator = Counter[str](), np.random.default_rng(seed)
    differences = comparison.differences(PRIMARY)
    for _ in range(draws):
        coins = generator.choice([-1.0, 1.0], differences.size)
        drawn = generator.integers(0, differences.size, differences.size)
        dealt[verdict(coins * differences[drawn], 0.0)] += 1
    print("verdicts of a replay, answers dealt by a coin:", dict(dealt))


def count_replays(before: BackendRun, queries: GoldenSet, draws: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    scores = score_run(before, queries).per_query[PRIMARY]
    verdicts: dict[int, Counter[str]] = {n: Counter() for n in (0, 50, 100, len(scores))}
    old = {name: tied_documents(one.answer) for name, one in before.outcomes.items()}
    churns = []
    for _ in range(draws):
        answers = {name: again(one.answer, generator) for name, one in before.outcomes.items()}
        outcomes = {name: QueryOutcome(answer) for name, answer in answers.items()}
        churns.append(
            fmean(
                1 - rank_biased_overlap(old[name], tied_documents(answer))
                for name, answer in answers.items()
            )
        )
        after = score_run(replace(before, outcomes=outcomes), queries).per_query[PRIMARY]
        differences = np.array([after[name] - scores[name] for name in scores])
        for labelled, counts in verdicts.items():
            chosen = generator.permutation(differences.size)[:labelled]
            counts[verdict(differences[chosen], churns[-1])] += 1
    print(f"{draws} replays without a change; churn {fmean(churns):.4f}, at most {max(churns):.4f}")
    for labelled, counts in verdicts.items():
        print(f"  {labelled:4} labelled questions: {dict(counts)}", flush=True)


def verdict(differences: npt.NDArray[np.float64], churn: float) -> str:
    """Return the verdict; what can show no loss passes within the limit, and needs no bounds.

    With 7 questions that differ, the test's p is at least 1 / 2⁷, which is above the level.
    """
    can_lose = differences.sum() < 0 and np.count_nonzero(differences) > 7
    if churn <= MOST_MOVED and not can_lose:
        return "PASS"
    return decide(differences, churn)[0]


def again(answer: Ranking | None, generator: np.random.Generator) -> Ranking | None:
    """Return the list as another ask of the same search might give it."""
    if answer is None:
        return None
    kept = [hit for hit in answer.hits if generator.random() >= MISSED]
    scores = [(hit.score or 0.0) * (1 + MOVED * generator.uniform(-1, 1)) for hit in kept]
    moved = [
        replace(hit, score=score, also_in=tuple(replace(it, score=score) for it in hit.also_in))
        for hit, score in zip(kept, scores, strict=True)
    ]
    order = generator.permutation(len(moved))
    ranked = sorted((moved[n] for n in order), key=lambda hit: -(hit.score or 0.0))
    return replace(answer, hits=tuple(ranked))


if __name__ == "__main__":
    main()
