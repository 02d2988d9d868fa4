"""Retrieval quality on collections in BEIR layout: every leg and hybrid, with intervals.

    python benchmarks/beir.py ../shared/data/scifact --split test
    python benchmarks/beir.py DIR [DIR …] --set fusion_mode=relative_score

Each collection is indexed once (kept under --home) and queried in every mode. Passages are
scored by document: a document's score is its best passage's. Prints nDCG@10, R@100 and, for
hybrid, the paired bootstrap interval of its nDCG@10 gain over each leg (10,000 resamples).
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ir_measures
from ir_measures import R, nDCG

from catalog.core.results import MODES
from catalog.core.settings import load_settings
from catalog.search_v2.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from catalog.search_v2.workspace import Workspace

MEASURES = [nDCG @ 10, R @ 100]
RESAMPLES = 10_000


def main() -> None:
    options = _arguments()
    overrides = {"home": options.home, "rag_v2": dict(_assigned(options.set))}
    with Workspace(load_settings(overrides=overrides).settings) as workspace:
        for folder in options.folders:
            _evaluate(workspace, folder.resolve(), options.split, options.top_k)


def _evaluate(workspace: Workspace, folder: Path, split: str, top_k: int) -> None:
    dataset = folder.name
    report = Indexer(workspace).build(folder / "corpus.jsonl", dataset)
    print(f"{dataset}/{split}: {report.documents} documents, {report.chunks} chunks")
    qrels = list(_qrels(folder / "qrels" / f"{split}.tsv"))
    judged = {one.query_id for one in qrels}
    queries = {i: text for i, text in _queries(folder / "queries.jsonl") if i in judged}
    scores = {
        mode: _scores(SearchServiceV2(workspace), dataset, mode, queries, qrels, top_k)
        for mode in MODES
    }
    for mode in MODES:
        means = "  ".join(f"{m} {_mean(scores[mode][str(m)]):.4f}" for m in MEASURES)
        print(f"  {mode:8} {means}")
    for leg in ("lexical", "vector"):
        gain, low, high = _gain(scores["hybrid"]["nDCG@10"], scores[leg]["nDCG@10"])
        print(f"  hybrid − {leg}: {gain:+.4f}  [{low:+.4f}, {high:+.4f}]  n={len(queries)}")


def _scores(
    service: SearchServiceV2,
    dataset: str,
    mode: str,
    queries: dict[str, str],
    qrels: list[Any],
    top_k: int,
) -> dict[str, dict[str, float]]:
    run = [
        ir_measures.ScoredDoc(query_id, path, float(top_k - rank))
        for query_id, text in queries.items()
        for rank, path in enumerate(_ranked(service, dataset, mode, text, top_k))
    ]
    scores: dict[str, dict[str, float]] = {str(m): dict.fromkeys(queries, 0.0) for m in MEASURES}
    for value in ir_measures.iter_calc(MEASURES, qrels, run):
        scores[str(value.measure)][value.query_id] = value.value
    return scores


def _ranked(service: SearchServiceV2, dataset: str, mode: str, text: str, top_k: int) -> list[str]:
    found = service.search(text, dataset=dataset, top_k=top_k, mode=mode)
    return list(dict.fromkeys(result.path for result in found))


def _gain(one: dict[str, float], other: dict[str, float]) -> tuple[float, float, float]:
    """Mean paired difference and its 95 % percentile bootstrap interval."""
    differences = [one[query] - other[query] for query in one]
    chance = random.Random(20261121)
    means = sorted(
        sum(chance.choices(differences, k=len(differences))) / len(differences)
        for _ in range(RESAMPLES)
    )
    low, high = means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES)]
    return sum(differences) / len(differences), low, high


def _mean(values: dict[str, float]) -> float:
    return sum(values.values()) / len(values)


def _qrels(path: Path) -> Iterator[Any]:
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        query, document, grade = line.split("\t")
        yield ir_measures.Qrel(query, document, int(grade))


def _queries(path: Path) -> Iterator[tuple[str, str]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield str(row["_id"]), row["text"]


def _assigned(pairs: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for pair in pairs:
        name, _, value = pair.partition("=")
        yield name, value


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--top-k", type=int, default=100)
    parser.add_argument("--home", type=Path, default=Path(".bench-home"))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
