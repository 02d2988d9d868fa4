"""How often ``catalog replay`` and the gates of ``compare`` alarm although nothing changed.

``python benchmarks/replay_alarms.py V2.json LEXICAL.json [DRAWS [SEED]]``

The files are those of ``catalog replay --save`` for labelled questions, of v2 and of the keyword
leg. Lists of v2 are drawn again: equal scores are ordered anew, all scores move by up to a
thousandth, and an approximate index misses each document with a probability of 2 in 100. Each list
is drawn 100 times; a simulated replay takes one of these of each question. Then a coin assigns the
answers of v2 and of the leg to the two sides: many questions change, and neither side is better.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np

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
from catalog.evaluation.significance import Floats, wilson_interval

MISSED, MOVED, LISTS = 0.02, 1e-3, 100


def main() -> None:
    files, draws = map(Path, sys.argv[1:3]), int(sys.argv[3]) if len(sys.argv) > 3 else 4_000
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
    comparison = compare_runs(leg.run, hybrid.run, queries)
    alarms = count_false_alarms(comparison, repetitions=draws, seed=seed)
    print(f"gates, answers dealt by a coin, {alarms['differing']} of {alarms['queries']} differ")
    for gate in alarms["gates"]:
        print(f"  {gate['gate']}: {told(gate['fired'], draws)}", flush=True)
    differences = comparison.differences(PRIMARY)
    sides = np.array([differences, -differences])
    print_verdicts("a coin deals", sides, 0.0, draws, seed)
    print_replays(hybrid.run, queries, draws, seed)


def print_replays(before: BackendRun, queries: GoldenSet, draws: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    scores = score_run(before, queries).per_query[PRIMARY]
    old = {name: tied_documents(one.answer) for name, one in before.outcomes.items()}
    rows, churns = [], []
    for _ in range(LISTS):
        answers = {name: again(one.answer, generator) for name, one in before.outcomes.items()}
        outcomes = {name: QueryOutcome(answer) for name, answer in answers.items()}
        overlaps = (rank_biased_overlap(old[one], tied_documents(answers[one])) for one in old)
        churns.append(1 - fmean(overlaps))
        after = score_run(replace(before, outcomes=outcomes), queries).per_query[PRIMARY]
        rows.append([after[name] - scores[name] for name in scores])
    print(f"churn without a change {fmean(churns):.4f}, at most {max(churns):.4f}")
    half = LISTS // 2
    both = np.array(rows[:half]) - np.array(rows[half:])
    both = np.concatenate([both, -both])  # neutral: 50 pairs of lists alone would favour one
    for labelled in (50, 100, len(scores)):
        for which, these in (("second list drawn", np.array(rows)), ("both drawn", both)):
            name = f"{labelled} labels, {which}"
            print_verdicts(name, these, max(churns), draws, seed, labelled)


def print_verdicts(
    name: str, rows: Floats, churn: float, draws: int, seed: int, labelled: int = 0
) -> None:
    """Count verdicts; a draw takes for each question one of its rows, in ``labelled`` columns.

    Without ``labelled`` it takes as many questions as there are, with replacement.
    """
    generator, counts, n = np.random.default_rng([seed, labelled]), Counter[str](), rows.shape[1]
    for _ in range(draws):
        drawn = generator.integers(0, len(rows), labelled or n)
        chosen = generator.permutation(n)[:labelled] if labelled else generator.integers(0, n, n)
        counts[verdict(rows[drawn, chosen], churn)] += 1
    fails, holds = (told(counts[one], draws) for one in ("FAIL", "HOLD"))
    print(f"  replays, {name}: FAIL {fails}; HOLD {holds}", flush=True)


def told(count: int, draws: int) -> str:
    low, high = wilson_interval(count, draws)
    return f"{count} of {draws}, {count / draws:.2%} [{low:.2%}, {high:.2%}]"


def verdict(differences: Floats, churn: float) -> str:
    """Return the verdict; what can show no loss passes within the limit, and needs no bounds.

    With 7 questions that differ, the test's p is at least 1 / 2⁷, and with a loss below two
    standard errors it is about .023: both are above the level.
    """
    error = np.sqrt(np.square(differences).sum())
    can_lose = differences.sum() < -2 * error and np.count_nonzero(differences) > 7
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
