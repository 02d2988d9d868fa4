"""Compare the blends of a reranker with the fused order.

    python benchmarks/precision.py ../shared/data/scifact ../shared/data/tutorialvqa … \
        --golden golden_queries/python-docs.jsonl --dataset python --home DIR

Every query is asked once: the legs, fusion, and the reranker over its 20 best candidates, more than
the settings say (the store keeps the scores, so that a second run costs little). Every blend then
orders the same candidates. Printed are nDCG@10 over those, the difference to the fused order, and
for the default blend its 95 % bootstrap interval. Splits and the golden set are real questions,
``exact`` are queries of rare tokens (see fusion.py).
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from catalog.core.settings import load_settings
from catalog.evaluation.golden import Expected, GoldenQuery, GoldenSet
from catalog.evaluation.golden_files import CORPUS, read_beir, read_golden
from catalog.evaluation.significance import bootstrap_interval
from catalog.ingest.sync_report import Silent
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.retrieval.passages import Passage
from catalog.retrieval.rerank.scoring import BlendName, RerankScore, blend, sort_positions
from catalog.search_v2.nodes import ScoredPassage
from catalog.search_v2.service import SearchServiceV2
from catalog.store.chunks import read_documents
from fusion import exact_queries

SEED = 20261122
CAP = 300  # queries of one set
POOL = 20
BLENDS: dict[str, tuple[BlendName, float]] = {
    "position": ("position", 0.0),
    "replace": ("replace", 0.0),
    **{f"lin {w:.2f}": ("linear", w) for w in (0.1, 0.2, 0.3, 0.4, 0.5)},
}
DEFAULT = "lin 0.30"


@dataclass(frozen=True)
class QuerySet:
    """Queries asked of one collection."""

    dataset: str
    kind: str
    golden: GoldenSet

    @property
    def name(self) -> str:
        """Collection and kind."""
        return f"{self.dataset} {self.kind}"


def main() -> None:
    options = _arguments()
    settings = load_settings(overrides={"home": options.home}).settings
    with Library(settings) as library:
        deep = SearchServiceV2(library).with_settings(
            {"rerank_candidates": POOL, "similarity_threshold": 0.0, "token_budget": 0}
        )
        sets = list(_sets(library, options))
        seen = {
            one.name: {query.id: _candidates(deep, query, one.dataset) for query in one.golden}
            for one in sets
        }
        _print_blends(sets, seen, settings.rag_v2.rerank_weight)


def _sets(library: Library, options: argparse.Namespace) -> Iterator[QuerySet]:
    for folder in options.folders:
        name = folder.resolve().name
        Indexer(library).build(folder / CORPUS, name, progress=Silent())
        splits = sorted(path.stem for path in (folder / "qrels").glob("*.tsv"))
        for split in splits:
            golden = _some(read_beir(folder, split), CAP)
            yield QuerySet(name, split, golden)
        with library.database.read() as connection:
            texts = {d.path: f"{d.title} {d.text}" for d in read_documents(connection, name)}
        yield QuerySet(name, "exact", _some(_labelled(exact_queries(texts)), CAP))
    if options.golden:
        library.require_dataset(options.dataset)
        golden = read_golden(options.golden)
        asked = tuple(query for query in golden if query.filters is None)
        yield QuerySet(options.dataset, "golden", GoldenSet(golden.name, asked))


def _candidates(service: SearchServiceV2, query: GoldenQuery, dataset: str) -> list[Passage]:
    """Return the first passages of a query, read by the reranker."""
    options = {"dataset": dataset, "top_k": POOL, "filters": query.filters}
    nodes = service.retrieve(query.query, rerank=True, expand=False, **options)
    return [node.passage for node in nodes if isinstance(node, ScoredPassage)]


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
    seen: Mapping[str, Mapping[str, list[Passage]]],
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
            f"[{ends.low:+.4f}, {ends.high:+.4f}]",
            flush=True,
        )
    print(f"in the settings: {weight}")


def _ndcg(
    candidates: Sequence[Passage], query: GoldenQuery, how: tuple[BlendName, float] | None
) -> float:
    """Of documents, each at its first passage among the candidates."""
    listed = sorted(candidates, key=lambda one: -one.fused.score)
    places: Sequence[int] = range(len(listed))
    if how is not None:
        read = [one.reranked.raw_score for one in listed if one.reranked is not None]
        worst = min((score for score in read if score is not None), default=0.0)
        raw = [_raw_score(one, worst) for one in listed]
        judged = [RerankScore(one, 1 / (1 + math.exp(-one))) for one in raw]
        parts = blend(how[0], [one.fused.score for one in listed], judged, weight=how[1])
        places = sort_positions(parts, len(listed))
    documents = list(dict.fromkeys(listed[place].chunk.path for place in places))[:10]
    gains = [query.relevant.get(path, 0) for path in documents]
    return _discounted(gains) / _discounted(sorted(query.relevant.values(), reverse=True)[:10])


def _raw_score(passage: Passage, worst: float) -> float:
    """Return what the reranker said, the worst score for a passage that it was not given."""
    record = passage.reranked
    return worst if record is None or record.raw_score is None else record.raw_score


def _discounted(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(place + 2) for place, gain in enumerate(gains))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, help="collections in BEIR layout")
    parser.add_argument("--golden", type=Path, help="labelled queries, JSON Lines")
    parser.add_argument("--dataset", help="what they are asked of, indexed already")
    parser.add_argument("--home", type=Path, required=True, help="folder of the store")
    return parser.parse_args()


if __name__ == "__main__":
    main()
