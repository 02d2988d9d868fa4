"""What a reranker that reads less gains, beside one that reads whole passages.

    python benchmarks/rerank.py ../shared/data/scifact ../shared/data/anthropic-docs --home DIR

Retrieves 20 passages for each query of the test split, lets the packaged cross-encoder read them
at 64 and at 256 tokens (pairs of query and passage), and replays what would have come of scoring
fewer of them. Printed for each way: nDCG@10 of documents over those passages, its difference to
the fused order and to all 20 at 256, both with 95 % bootstrap intervals, and the median number of
pairs and of tokens that the model reads for a query. ``unsure`` scores only passages that the
blend could still lift to the named rank, were the reranker to like them best and that one least.
Last are the user CPU milliseconds a query of both windows, and their ratio.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from catalog.core.settings import load_settings
from catalog.embedding.windows import ModelTokenCounter
from catalog.evaluation.significance import bootstrap_interval
from catalog.ingest.sync_report import Silent
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.models.packaged import MS_MARCO, locate
from catalog.retrieval.rerank.cross_encoder import FastEmbedReranker
from catalog.retrieval.rerank.scoring import RerankScore, blend, head_of, sort_positions
from catalog.search_v2.service import SearchServiceV2
from question_sets import CORPUS, read_beir

SEED = 20261123
POOL, WEIGHT = 20, 0.3
WINDOWS = (64, 256)
SPECIAL_TOKENS = 3  # of a pair


@dataclass(frozen=True)
class Asked:
    """A query's passages in the fused order, and the scores and tokens of each at each window."""

    paths: list[str]
    fused: list[float]
    grades: dict[str, int]
    scores: dict[int, list[float]]
    tokens: dict[int, list[int]]

    def ndcg(self, window: int, scored: int) -> float:
        """Return nDCG@10 of documents when the first ``scored`` passages are read."""
        said = [RerankScore(raw, 0.0) for raw in self.scores[window][:scored]]
        parts = blend("linear", self.fused, said, weight=WEIGHT)
        places = sort_positions(parts, scored) if scored else range(len(self.fused))
        documents = list(dict.fromkeys(self.paths[place] for place in places))[:10]
        best = sorted(self.grades.values(), reverse=True)[:10]
        return _discounted([self.grades.get(path, 0) for path in documents]) / _discounted(best)

    def unsure(self, rank: int) -> int:
        """Return how many passages the blend could still lift to that rank (from 1)."""
        low, high = min(self.fused), max(self.fused)
        reach = self.fused[min(rank, len(self.fused)) - 1]
        most = WEIGHT / (1 - WEIGHT) * (high - low)
        return sum(reach - score < most for score in self.fused)


Way = tuple[int, Callable[[Asked], int]]
"""The window, and how many passages of a query are scored."""

WAYS: Mapping[str, Way] = {
    "fused": (256, lambda _: 0),
    "20 at 256": (256, lambda asked: len(asked.paths)),
    "10 at 256": (256, lambda _: 10),
    "6 at 256": (256, lambda _: 6),
    "unsure to 1, at 256": (256, lambda asked: asked.unsure(1)),
    "unsure to 3, at 256": (256, lambda asked: asked.unsure(3)),
    "20 at 64": (64, lambda asked: len(asked.paths)),
    "6 at 64": (64, lambda _: 6),
}


def main() -> None:
    options = _arguments()
    settings = load_settings(overrides={"home": options.home}).settings
    rerankers = {size: FastEmbedReranker(max_tokens=size) for size in WINDOWS}
    tokenizer = (locate(MS_MARCO) or Path()) / "tokenizer.json"
    counter = ModelTokenCounter(tokenizer, "tokenizer of the reranker")
    for reranker in rerankers.values():
        reranker.scores("load", ["the model"])
    with Library(settings) as library:
        service = SearchServiceV2(library)
        for folder in options.folders:
            name = folder.resolve().name
            Indexer(library).build(folder / CORPUS, name, progress=Silent())
            queries = list(read_beir(folder, "test").answerable)
            random.Random(SEED).shuffle(queries)
            spent = dict.fromkeys(WINDOWS, 0.0)
            asked = [
                _ask(service, name, query.query, dict(query.relevant), rerankers, spent, counter)
                for query in queries[: options.queries]
            ]
            _print(name, asked, spent)


def _ask(
    service: SearchServiceV2,
    dataset: str,
    query: str,
    grades: dict[str, int],
    rerankers: dict[int, FastEmbedReranker],
    spent: dict[int, float],
    counter: ModelTokenCounter,
) -> Asked:
    nodes = service.retrieve(query, dataset=dataset, top_k=POOL, rerank=False, expand=False)
    scores: dict[int, list[float]] = {}
    tokens: dict[int, list[int]] = {}
    own = len(counter.spans(query)) + SPECIAL_TOKENS
    for size, reranker in rerankers.items():
        started = time.process_time()
        chunks = [node.passage.chunk for node in nodes]
        read = [reranker.fit(query, one.text, head=head_of(one))[0] for one in chunks]
        scores[size] = reranker.scores(query, read)
        spent[size] += time.process_time() - started
        tokens[size] = [min(size, own + len(counter.spans(text))) for text in read]
    paths = [node.node.metadata["path"] for node in nodes]
    return Asked(paths, [node.score or 0.0 for node in nodes], grades, scores, tokens)


def _print(name: str, asked: Sequence[Asked], spent: Mapping[int, float]) -> None:
    values = {
        way: np.array([one.ndcg(window, scored(one)) for one in asked])
        for way, (window, scored) in WAYS.items()
    }
    print(f"\n{name}, {len(asked)} queries: fused {values['fused'].mean():.3f}")
    for way, (window, scored) in WAYS.items():
        counts = [scored(one) for one in asked]
        read = [sum(one.tokens[window][:count]) for one, count in zip(asked, counts, strict=True)]
        print(
            f"{way:22}{np.median(counts):6.0f}{np.median(read):8.0f}"
            f"   to fused {_gain(values[way] - values['fused'])}"
            f"   to 20 at 256 {_gain(values[way] - values['20 at 256'])}"
        )
    cpu = {size: 1000 * seconds / len(asked) for size, seconds in spent.items()}
    small, large = WINDOWS
    told = ", ".join(f"{size} tokens {ms:.0f} ms" for size, ms in cpu.items())
    print(f"CPU a query: {told}, ratio {cpu[small] / cpu[large]:.2f}", flush=True)


def _gain(differences: Sequence[float]) -> str:
    ends = bootstrap_interval(list(differences))
    return f"{np.mean(differences):+.3f} [{ends.low:+.3f}, {ends.high:+.3f}]"


def _discounted(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(place + 2) for place, gain in enumerate(gains))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, help="collections in BEIR layout")
    parser.add_argument("--queries", type=int, default=300, help="of each, at most")
    parser.add_argument("--home", type=Path, required=True, help="folder of the store")
    return parser.parse_args()


if __name__ == "__main__":
    main()
