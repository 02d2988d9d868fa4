"""Which blend wins, and how good relevance is that was fitted elsewhere.

    python benchmarks/precision.py ../shared/data/scifact ../shared/data/tutorialvqa … \
        --golden golden_queries/python-docs.jsonl --dataset python --home DIR

Every query is asked once: the legs, fusion, and the reranker over its 20 best candidates, more than
the settings say (the store keeps the scores, so that a second run costs little). Every blend then
orders the same candidates. Printed are nDCG@10 over those, the difference to the fused order, and
for the default blend its 95 % bootstrap interval. Three kinds of sets: splits and the golden set
are real questions, ``exact`` are queries of rare tokens (see fusion.py), ``foreign`` are real
questions of another collection, which this one cannot answer: they are for calibration only.

Relevance is fitted on training splits, the golden set and foreign questions, never on a test split,
and never on a collection that has a test split alone.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from catalog.core.param_types import Mode
from catalog.core.settings import load_settings
from catalog.evaluation.calibration import (
    CANDIDATES,
    LabelledCandidate,
    auc,
    collect_candidates,
    fit_calibration,
    measure_quality,
)
from catalog.evaluation.golden import Expected, GoldenQuery, GoldenSet
from catalog.evaluation.golden_files import CORPUS, read_beir, read_golden
from catalog.evaluation.significance import bootstrap_interval
from catalog.ingest.sync_report import Silent
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.search_v2.relevance import Calibration
from catalog.search_v2.rerank.blending import BlendName, RerankScore, blend, sort_positions
from catalog.search_v2.service import SearchServiceV2
from catalog.store.chunks import read_documents
from fusion import exact_queries

SEED = 20261122
CAP = 300  # queries of one set
FOREIGN = 80
POOL = 20
BLENDS: dict[str, tuple[BlendName, float]] = {
    "position": ("position", 0.0),
    "replace": ("replace", 0.0),
    **{f"lin {w:.2f}": ("linear", w) for w in (0.1, 0.2, 0.3, 0.4, 0.5)},
}
DEFAULT = "lin 0.30"
MODES: tuple[tuple[Mode, bool], ...] = (
    ("hybrid", False),
    ("hybrid", True),
    ("lexical", False),
    ("vector", False),
)


@dataclass(frozen=True)
class QuerySet:
    """Queries asked of one collection; ``fitted``: the calibration may see them."""

    dataset: str
    kind: str
    golden: GoldenSet
    fitted: bool

    @property
    def name(self) -> str:
        """Collection and kind."""
        return f"{self.dataset} {self.kind}"


def main() -> None:
    options = _arguments()
    settings = load_settings(overrides={"home": options.home}).settings
    with Library(settings) as library:
        service = SearchServiceV2(library)
        deep = service.with_settings({"rerank_candidates": POOL})
        sets = list(_sets(library, options))
        seen = {
            one.name: collect_candidates(
                deep, one.golden, one.dataset, rerank=True, depth=POOL, progress=Silent()
            )
            for one in sets
        }
        _print_blends(sets, seen, settings.rag_v2.rerank_weight)
        for mode, reranked in MODES:
            _calibrated(service, sets, mode, reranked=reranked)


def _sets(library: Library, options: argparse.Namespace) -> Iterator[QuerySet]:
    real: dict[str, GoldenSet] = {}
    for folder in options.folders:
        name = folder.resolve().name
        Indexer(library).build(folder / CORPUS, name, progress=Silent())
        splits = sorted(path.stem for path in (folder / "qrels").glob("*.tsv"))
        for split in splits:
            golden = _some(read_beir(folder, split), CAP)
            real[name] = golden
            yield QuerySet(name, split, golden, fitted=split != "test")
        with library.database.read() as connection:
            texts = {d.path: f"{d.title} {d.text}" for d in read_documents(connection, name)}
        yield QuerySet(name, "exact", _some(_labelled(exact_queries(texts)), CAP), fitted=False)
    if options.golden:
        library.require_dataset(options.dataset)
        golden = read_golden(options.golden)
        real[options.dataset] = golden
        asked = tuple(query for query in golden if query.filters is None)
        yield QuerySet(options.dataset, "golden", GoldenSet(golden.name, asked), fitted=True)
    names = list(real)
    for name, other in zip(names, names[1:] + names[:1], strict=True):
        foreign = tuple(
            GoldenQuery(id=query.id, query=query.query, kind="unanswerable")
            for query in _some(real[other], FOREIGN)
        )
        fitted = any(path.stem != "test" for path in _qrels(options, name)) or name not in {
            folder.resolve().name for folder in options.folders
        }
        yield QuerySet(name, "foreign", GoldenSet(f"{other} asked of {name}", foreign), fitted)


def _qrels(options: argparse.Namespace, name: str) -> list[Path]:
    folders = [folder for folder in options.folders if folder.resolve().name == name]
    return [path for folder in folders for path in (folder / "qrels").glob("*.tsv")]


def _some(golden: GoldenSet, most: int) -> GoldenSet:
    if len(golden) <= most:
        return golden
    return GoldenSet(golden.name, tuple(random.Random(SEED).sample(golden.queries, most)))


def _labelled(queries: Mapping[str, Mapping[str, int]]) -> GoldenSet:
    made = tuple(
        GoldenQuery(
            id=f"exact-{number}",
            query=text,
            expected=tuple(Expected(path=path, grade=grade) for path, grade in grades.items()),
        )
        for number, (text, grades) in enumerate(queries.items())
    )
    return GoldenSet("exact", made)


def _print_blends(
    sets: Sequence[QuerySet],
    seen: Mapping[str, Mapping[str, list[LabelledCandidate]]],
    weight: float,
) -> None:
    print(f"{'nDCG@10':24}{'n':>4}{'fused':>8}" + "".join(f"{name:>10}" for name in BLENDS))
    for one in sets:
        asked = [query for query in one.golden if query.relevant]
        if not asked:
            continue
        fused = [_ndcg(seen[one.name][query.id], query, None) for query in asked]
        scores = {
            name: [_ndcg(seen[one.name][query.id], query, how) for query in asked]
            for name, how in BLENDS.items()
        }
        cells = "".join(f"{np.mean(scores[name]) - np.mean(fused):+10.4f}" for name in BLENDS)
        print(f"{one.name:24}{len(asked):4}{np.mean(fused):8.4f}{cells}")
        gains = np.subtract(scores[DEFAULT], fused)
        ends = bootstrap_interval(list(gains))
        print(
            f"    {DEFAULT}: {np.mean(scores[DEFAULT]):.4f}, {gains.mean():+.4f} "
            f"[{ends.low:+.4f}, {ends.high:+.4f}]{'' if one.fitted else '   held out'}",
            flush=True,
        )
    print(f"in the settings: {weight}")


def _ndcg(
    candidates: Sequence[LabelledCandidate], query: GoldenQuery, how: tuple[BlendName, float] | None
) -> float:
    """Of documents, each at its first passage among the candidates."""
    listed = sorted(candidates, key=lambda one: -one.fused)
    places: Sequence[int] = range(len(listed))
    if how is not None:
        raw = [one.features.rerank for one in listed]
        judged = [RerankScore(one, 1 / (1 + math.exp(-one))) for one in raw]
        parts = blend(how[0], [one.fused for one in listed], judged, weight=how[1])
        places = sort_positions(parts, len(listed))
    documents = list(dict.fromkeys(listed[place].path for place in places))[:10]
    gains = [query.relevant.get(path, 0) for path in documents]
    return _discounted(gains) / _discounted(sorted(query.relevant.values(), reverse=True)[:10])


def _discounted(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(place + 2) for place, gain in enumerate(gains))


def _calibrated(
    service: SearchServiceV2, sets: Sequence[QuerySet], mode: Mode, *, reranked: bool
) -> None:
    """Fit on what may be seen, and print how good it is on all."""
    seen = {
        one.name: list(
            collect_candidates(
                service, one.golden, one.dataset, mode=mode, rerank=reranked, progress=Silent()
            ).values()
        )
        for one in sets
        if one.kind != "exact"
    }
    used = [one for one in sets if one.fitted and one.kind != "exact"]
    groups = [
        [query for one in used if one.dataset == dataset for query in seen[one.name] if query]
        for dataset in dict.fromkeys(one.dataset for one in used)
    ]
    about = f"{', '.join(one.name for one in used)}; {sum(map(len, groups))} queries"
    made = fit_calibration(groups, mode=mode, reranked=reranked, about=about)
    print(f"\nrelevance, {mode}{' reranked' if reranked else ''}: {made}")
    for dataset in dict.fromkeys(one.dataset for one in sets):
        _print_quality([one for one in sets if one.dataset == dataset], seen, made)


def _print_quality(
    sets: Sequence[QuerySet], seen: Mapping[str, list[list[LabelledCandidate]]], made: Calibration
) -> None:
    best: list[float] = []
    answerable: list[bool] = []
    for one in sets:
        if one.kind == "exact":
            continue
        queries = seen[one.name]
        found = measure_quality(queries, made)
        sure = [
            max((made.relevance(c.features) for c in query[:CANDIDATES]), default=0.0)
            for query in queries
        ]
        best += sure
        answerable += [bool(query.relevant) for query in one.golden]
        if any(query.relevant for query in one.golden):
            told = f"AUC {found.auc:.3f}, error {found.error:.3f}, "
        else:
            told = ""
        print(
            f"  {one.name:24} n {len(queries):4}  {told}best relevance {np.mean(sure):.2f}, "
            f"below .5 in {np.mean(np.array(sure) < 0.5):.0%}"
            f"{'' if one.fitted else '   held out'}"
        )
    if len(set(answerable)) == 2:
        told = auc(np.array(best), np.array(answerable))
        print(f"    answerable from not, by the best relevance: AUC {told:.3f}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, help="collections in BEIR layout")
    parser.add_argument("--golden", type=Path, help="labelled queries, JSON Lines")
    parser.add_argument("--dataset", help="what they are asked of, indexed already")
    parser.add_argument("--home", type=Path, required=True, help="folder of the store")
    return parser.parse_args()


if __name__ == "__main__":
    main()
