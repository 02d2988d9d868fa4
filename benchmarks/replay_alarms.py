"""How often ``catalog replay`` and the gates of ``compare`` alarm although nothing changed.

``python benchmarks/replay_alarms.py HOME DATASET GOLDEN [DRAWS]`` asks v2 and the keyword leg once,
then draws repeated lists of v2 with a fixed seed. In each draw, equal scores are ordered anew, all
scores move by up to a thousandth, and an approximate index misses each document with a probability
of 2 in 100. In a second row of draws, a coin assigns the answers of v2 and of the leg to the two
sides: many questions change, and neither side is better.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np

from catalog.core.settings import load_settings
from catalog.core.user_search import Ranking
from catalog.evaluation.comparison import compare_runs
from catalog.evaluation.gates import count_false_alarms
from catalog.evaluation.golden_files import read_golden
from catalog.evaluation.metrics import PRIMARY, score_run
from catalog.evaluation.replay import decide, rank_biased_overlap, tied_documents
from catalog.interfaces.cli.measure import Measurement
from catalog.library.library import Library

MISSED, MOVED = 0.02, 1e-3


def main() -> None:
    home, dataset, golden = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    draws = int(sys.argv[4]) if len(sys.argv) > 4 else 500
    queries = read_golden(golden)
    with Library(load_settings(overrides={"home": home}).settings) as library:
        job = Measurement(library, dataset, queries, 100, 0)
        leg, hybrid = job.ask(["lexical", "v2"])
    generator = np.random.default_rng(51)
    scores = score_run(hybrid, queries).per_query[PRIMARY]
    verdicts: dict[int, Counter[str]] = {n: Counter() for n in (0, 50, 100, len(scores))}
    churns = []
    for _ in range(draws):
        outcomes = {
            name: replace(one, answer=again(one.answer, generator))
            for name, one in hybrid.outcomes.items()
        }
        now = replace(hybrid, outcomes=outcomes)
        churn = fmean(
            1
            - rank_biased_overlap(
                *(tied_documents(it.outcomes[name].answer) for it in (hybrid, now))
            )
            for name in outcomes
        )
        churns.append(churn)
        after = score_run(now, queries).per_query[PRIMARY]
        differences = np.array([after[name] - scores[name] for name in scores])
        for labelled, counts in verdicts.items():
            chosen = generator.permutation(differences.size)[:labelled]
            counts[decide(differences[chosen], churn)[0]] += 1
    print(f"{draws} replays without a change; churn {fmean(churns):.4f}, at most {max(churns):.4f}")
    for labelled, counts in verdicts.items():
        print(f"  {labelled:4} labelled questions: {dict(counts)}")
    comparison = compare_runs(leg, hybrid, queries)
    print("gates, coin-dealt answers:", count_false_alarms(comparison, repetitions=draws, seed=51))
    dealt: Counter[str] = Counter()
    differences = comparison.differences(PRIMARY)
    for _ in range(draws):
        coins = generator.choice([-1.0, 1.0], differences.size)
        drawn = generator.integers(0, differences.size, differences.size)
        dealt[decide(coins * differences[drawn], 0.0)[0]] += 1
    print(f"FAIL of a replay, coin-dealt answers: {dict(dealt)}")


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
