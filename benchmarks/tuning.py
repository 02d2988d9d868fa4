"""How often `catalog tune` adopts settings that are not better, and what its choices are worth.

    python benchmarks/tuning.py HOME DATASET GOLDEN.jsonl [--scores FILE.npz] [--draws 500]

The scores of all settings by question are computed once (and kept in FILE). Printed are

A/A       adoptions in simulated draws in which nothing is better: each draws as many questions,
          with replacement, and gives each setting, for each question, the score of a setting that
          is drawn for it
folds     false and right adoptions with other numbers of folds, and at other levels
grid      the gain on questions left out, choosing group by group and from all combinations
halves    the choice on half of the questions, and its gain on the other half, over many splits
power     how often `paired_test` shows a difference, beside the chance that the formula of
          `catalog golden power` gives: real differences of pairs of settings, moved to a mean
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from catalog.evaluation.comparison import decide_outcome
from catalog.evaluation.golden_files import read_golden
from catalog.evaluation.significance import PairedTest, paired_test
from catalog.evaluation.tuning import (
    GROUPS,
    Setting,
    Trial,
    choose,
    cross_validate,
    name_setting,
)
from catalog.library.library import Library
from catalog.retrieval.search import Searcher

Floats = npt.NDArray[np.float64]
SEED = 51
RESAMPLES = 2_000
TRIED = {name: GROUPS[name] for name in ("fusion", "depth", "limit")}
DRAWN = {name: group for name, group in GROUPS.items() if name != "rerank"}


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("home", type=Path)
    parser.add_argument("dataset")
    parser.add_argument("golden", type=Path)
    parser.add_argument("--scores", type=Path)
    parser.add_argument("--draws", type=int, default=500)
    options = parser.parse_args()
    if options.scores is None or not options.scores.exists():
        scores = try_all(options.home, options.dataset, options.golden)
        if options.scores is not None:
            names = [json.dumps(one) for one in scores]
            np.savez(options.scores, names=names, scores=np.array([*scores.values()]))
    else:
        kept = np.load(options.scores)
        names = [tuple((name, value) for name, value in json.loads(one)) for one in kept["names"]]
        scores = dict(zip(names, kept["scores"], strict=True))
    print(f"{options.dataset}: {len(scores)} settings, {scores[()].size} questions")
    print_false_adoptions(np.array([*scores.values()]), options.draws)
    print_folds(np.array([*scores.values()]), options.draws)
    print_ways_to_choose(scores)
    print_halves(scores)
    print_power(scores, options.draws)


def try_all(home: Path, dataset: str, golden: Path) -> dict[Setting, Floats]:
    """Return the scores of every combination of options, by its changes to the defaults."""
    queries = read_golden(golden)
    with Library.open(overrides={"home": home}) as library:
        trial = Trial(Searcher(library), queries, dataset)
        combined = ({**a, **b, **c} for a, b, c in product(*TRIED.values()))
        settings = [trial.normal(tuple(sorted(one.items()))) for one in combined]
        return {one: trial.score(one) for one in dict.fromkeys([(), *settings])}


def scorer(scores: Mapping[Setting, Floats]) -> Callable[[Setting], Floats]:
    """Return the score of a setting, also of one that names values which are the current ones."""
    known = {name for setting in scores for name, _ in setting}
    by_values = {frozenset(setting): values for setting, values in scores.items()}
    current = {
        name: value
        for options in TRIED.values()
        for option in options
        for name, value in option.items()
        if name not in known
    }
    defaults = {"fusion_mode": "adaptive", "lexical_weight": 1.0, "vector_weight": 1.0}
    defaults |= {"rrf_k": 60, "bonus_first": 0.05, "bonus_second": 0.02, "fts_top_k": 20}
    defaults |= {"vector_top_k": 20, "max_chunks_per_doc": 3} | current

    def score(setting: Setting) -> Floats:
        return by_values[frozenset(one for one in setting if defaults[one[0]] != one[1])]

    return score


def print_false_adoptions(scores: Floats, draws: int) -> None:
    """Count the adoptions if nothing is better."""
    print(f"\nA/A: adoptions of {draws} draws in which no setting is better")
    for count in (25, 50, 100, 200):
        adopted = gained = 0
        for draw in range(draws):
            generator = np.random.default_rng([SEED, count, draw])
            asked = generator.integers(0, scores.shape[1], size=count)
            drawn: dict[Setting, Floats] = {}

            def score(setting: Setting) -> Floats:
                if setting not in drawn:  # noqa: B023
                    rows = generator.integers(0, len(scores), size=count)  # noqa: B023
                    drawn[setting] = scores[rows, asked]  # noqa: B023
                return drawn[setting]  # noqa: B023

            gain = paired_test(score(()), cross_validate(score, DRAWN, count), resamples=RESAMPLES)
            gained += gain.difference > 0
            adopted += decide_outcome(gain) == "better"
        share = f"{adopted / draws:.1%}; a gain above 0 in {gained / draws:.0%}"
        print(f"  {count:4} questions: {adopted:3} adopted, {share}")


def left_out_gain(score: Callable[[Setting], Floats], resamples: int = RESAMPLES) -> PairedTest:
    """Test the settings that are chosen without a question."""
    now = score(())
    return paired_test(now, cross_validate(score, TRIED, now.size), resamples=resamples)


def print_folds(scores: Floats, draws: int) -> None:
    """Count adoptions, false and right, for other ways to leave questions out."""
    print(f"\nfolds: adoptions of {draws} draws; the best of 24 settings; 5, 2.5 and 1 % one-sided")
    ways = ((2, 1), (2, 10), (5, 1), (10, 1))
    for label, gain in (("nothing is better", 0.0), ("one gains .04", 0.04)):
        for count in (50, 100, 200):
            found = {way: list[float]() for way in ways}
            for draw in range(draws):
                generator = np.random.default_rng([SEED, count, draw])
                asked = generator.integers(0, scores.shape[1], size=count)
                rows = generator.choice(len(scores), 24, replace=False)
                drawn = scores[rows][:, asked] - scores[rows].mean(axis=1, keepdims=True)
                drawn[1] += gain
                for way in ways:
                    found[way].append(in_deviations(drawn, *way, generator))
            for (folds, repeats), values in found.items():
                shares = [float(np.mean(np.array(values) > z)) for z in (1.645, 1.96, 2.326)]
                told = "  ".join(f"{share:5.1%}" for share in shares)
                print(f"  {label:17} {count:4} questions  {folds:2} folds × {repeats:2}  {told}")


def in_deviations(drawn: Floats, folds: int, repeats: int, generator: np.random.Generator) -> float:
    """Return the gain on questions left out, in standard errors."""
    gains, total = np.zeros(drawn.shape[1]), drawn.sum(axis=1)
    for _ in range(repeats):
        for fold in np.array_split(generator.permutation(gains.size), folds):
            best = np.round(total - drawn[:, fold].sum(axis=1), 9).argmax()
            gains[fold] += (drawn[best, fold] - drawn[0, fold]) / repeats
    spread = float(gains.std(ddof=1))
    return float(gains.mean()) / (spread / math.sqrt(gains.size)) if spread else 0.0


def print_ways_to_choose(scores: Mapping[Setting, Floats]) -> None:
    """Print what choosing group by group gains on questions left out, and from all at once."""
    score, asked = scorer(scores), list[Setting]()

    def counting(setting: Setting) -> Floats:
        asked.append(setting)
        return score(setting)

    print("\ngroup by group, and from all combinations: gain on questions left out")
    in_turn, at_once = left_out_gain(counting, 10_000), of_all(scores)
    print(f"  {gain_text(in_turn)}  {len({*asked})} of {len(scores)} settings, group by group")
    print(f"  {gain_text(at_once)}  all of them")


def of_all(scores: Mapping[Setting, Floats]) -> PairedTest:
    """Test the best of all settings, chosen in one group."""
    score, groups = scorer(scores), {"all": [dict(one) for one in scores]}
    return paired_test(score(()), cross_validate(score, groups, score(()).size))


def gain_text(gain: PairedTest) -> str:
    """Return the gain with its interval and what follows."""
    decided = "adopted" if decide_outcome(gain) == "better" else "kept"
    low, high = gain.interval.low, gain.interval.high
    return f"{gain.difference:+.4f} [{low:+.4f}, {high:+.4f}] {decided}"


def print_halves(scores: Mapping[Setting, Floats], splits: int = 100) -> None:
    """Tune on half of the questions, and look at the other half, which it never saw."""
    score, now = scorer(scores), scores[()]
    gains, adopted = list[float](), list[float]()
    for split in range(splits):
        order = np.random.default_rng([SEED, split]).permutation(now.size)
        here, there = order[: now.size // 2], order[now.size // 2 :]
        gain = left_out_gain(lambda one: score(one)[here])  # noqa: B023
        chosen = choose(score, TRIED, here)
        gains.append(float((score(chosen) - now)[there].mean()))
        if chosen and decide_outcome(gain) == "better":
            adopted.append(gains[-1])
    print(f"\nhalves: tuned on one, measured on the other, {splits} splits")
    print(f"  the best of one half gains {np.mean(gains):+.4f} on the other, over all splits")
    if adopted:
        worse = sum(gain < 0 for gain in adopted)
        told = f"then it gains {np.mean(adopted):+.4f} on the other half"
        print(f"  adopted in {len(adopted)} splits; {told}, less than 0 in {worse}")
    else:
        print("  adopted in no split")
    best = choose(score, TRIED, np.arange(now.size))
    print(f"  best on all: {name_setting(best)}, {score(best).mean() - now.mean():+.4f}")


def print_power(scores: Mapping[Setting, Floats], draws: int) -> None:
    """Print how often a difference is shown, beside the chance by the formula."""
    print(f"\npower: shown in {draws} draws, beside the formula's chance")
    print("  pair                           deviation  difference  questions  shown  formula")
    for name, other in pairs(scores):
        differences = scores[other] - scores[()]
        spread = float(differences.std(ddof=1))
        for wanted, count in product((0.02, 0.05), (50, 100, 200, 400)):
            moved = differences - differences.mean() + wanted
            chance = NormalDist().cdf(wanted * math.sqrt(count) / spread - 1.959964)
            if not 0.2 < chance < 0.97:
                continue
            shown = 0
            for draw in range(draws):
                generator = np.random.default_rng([SEED, count, draw])
                drawn = moved[generator.integers(0, moved.size, size=count)]
                test = paired_test(np.zeros(count), drawn, resamples=RESAMPLES)
                shown += test.p < 0.05 and test.difference > 0
            about = f"  {name[:30]:30} {spread:9.3f}  {wanted:10.2f}  {count:9}"
            print(f"{about}  {shown / draws:5.0%}  {chance:7.0%}")


def pairs(scores: Mapping[Setting, Floats]) -> Sequence[tuple[str, Setting]]:
    """Return settings with small, usual and large differences from the current one."""
    spreads = {one: float((values - scores[()]).std()) for one, values in scores.items()}
    ordered = sorted((one for one in scores if spreads[one] > 0), key=spreads.__getitem__)
    wanted = (ordered[len(ordered) // 8], ordered[len(ordered) // 2], ordered[-1])
    return [(name_setting(one), one) for one in wanted]


if __name__ == "__main__":
    main()
