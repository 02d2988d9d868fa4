"""Fit and judge the decision whether to answer at all: the tables of docs/abstention.md.

    python benchmarks/abstention_fit.py ../shared/data --homes 'HOMES/{}' [--sentences]

``HOMES/NAME`` is a store with the dataset NAME, of all of the collection's documents or of some;
``python`` is asked the golden set of this project. Each collection is asked its own questions,
which are labelled, and some of the others' (*far*; not of the one other of medicine). *Near* are
its own questions after the labelled documents were taken out of what was found. Each is judged by
a fit on the other collections, and all collections weigh the same. With ``--sentences`` the
packaged cross-encoder reads too, of each of the first five passages, three sentences around each of
the three with most of the question's words, and a fit with its best score is printed as well.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from catalog.answers.extracting import sentence_bounds
from catalog.core.settings import load_settings
from catalog.evaluation.calibration import auc
from catalog.evaluation.golden import GoldenQuery
from catalog.evaluation.golden_files import read_beir, read_golden
from catalog.library.library import Library
from catalog.search_v2.passages import ScoredPassage
from catalog.search_v2.query_words import language_of_words, query_coverage, query_words
from catalog.search_v2.rerank.cross_encoder import FastEmbedReranker
from catalog.search_v2.service import SearchServiceV2
from catalog.store.chunks import read_documents

COLLECTIONS = ("anthropic-docs", "python", "scifact", "nfcorpus", "tutorialvqa", "arguana")
MEDICINE = {"scifact", "nfcorpus"}
NEAR = ("anthropic-docs", "python", "scifact", "nfcorpus")  # labelled densely enough
GOLDEN = Path("golden_queries/python-docs.jsonl")
FAR = 12  # questions of each other collection
SEED = 7
WEIGHTS = {"own": 200, "far": 150, "near": 50}
READ, AROUND = 5, 3  # passages that the cross-encoder reads, and sentences of each
Row = tuple[str, str, float, float, float]
"""Collection, kind, logit of relevance, coverage, and the cross-encoder's best score, or 0."""
Ranked = Sequence[tuple[int, ScoredPassage]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--homes", required=True)
    parser.add_argument("--queries", type=int, default=80)
    parser.add_argument("--collections", nargs="+", default=COLLECTIONS)
    parser.add_argument("--sentences", action="store_true")
    options = parser.parse_args()
    reranker = FastEmbedReranker(max_tokens=256) if options.sentences else None
    questions = {name: _questions(options.data, name) for name in options.collections}
    rows = [
        row
        for name in options.collections
        for row in _collect(name, questions, options.homes.format(name), options.queries, reranker)
    ]
    _report(rows, options.collections, ("relevance", "coverage"))
    if options.sentences:
        _report(rows, options.collections, ("relevance", "coverage", "sentences"))


def _questions(data: Path, name: str) -> list[GoldenQuery]:
    golden = read_golden(GOLDEN) if name == "python" else read_beir(data / name, "test")
    return [query for query in golden if query.filters is None]


def _collect(
    name: str,
    questions: dict[str, list[GoldenQuery]],
    home: str,
    most: int,
    reranker: FastEmbedReranker | None,
) -> Iterator[Row]:
    with Library(load_settings(overrides={"home": home}).settings) as library:
        service = SearchServiceV2(library)
        calibration = service.parts.calibration("hybrid", reranked=False)
        assert calibration is not None
        with library.database.read() as connection:
            paths = {document.path for document in read_documents(connection, name)}
        own = [one for one in questions[name] if not one.relevant or paths & {*one.relevant}]
        asked = [("own", one) for one in random.Random(SEED).sample(own, min(most, len(own)))]
        for other in questions:
            if other not in (name, "arguana") and not {name, other} <= MEDICINE:
                drawn = random.Random(name + other).sample(questions[other], FAR)
                asked += [("far", query) for query in drawn]
        for kind, query in asked:
            nodes = service.retrieve(query.query, top_k=20)
            passages = [one for one in nodes if isinstance(one, ScoredPassage)]
            if kind == "own" and not query.relevant:
                kind = "unanswerable"
            ranked = list(enumerate(passages, start=1))
            score = _best_score(reranker, query.query, ranked)
            yield from _row(name, kind, query.query, ranked, calibration.rank, score)
            others = [pair for pair in ranked if pair[1].chunk.path not in query.relevant]
            if kind == "own" and name in NEAR and len(others) < len(ranked):
                score = _best_score(reranker, query.query, others)
                yield from _row(name, "near", query.query, others, calibration.rank, score)


def _best_score(reranker: FastEmbedReranker | None, query: str, ranked: Ranked) -> float:
    """Return the best raw score of any sentences, read under title and headings."""
    if reranker is None:
        return 0.0
    read = []
    for _, passage in ranked[:READ]:
        chunk = passage.chunk
        head = " > ".join(dict.fromkeys([chunk.title, *chunk.sections]))
        parts = _around_words(query, chunk.text)
        read += [reranker.fit(query, part, head=head)[0] for part in parts]
    return max(reranker.scores(query, read), default=-12.0)


def _around_words(query: str, text: str) -> set[str]:
    """Return the sentences with most of the query's words, each with one on either side."""
    words = query_words(query, language_of_words(text))
    spans = list(sentence_bounds(text)) or [(0, len(text))]
    ranks = [words.rank(words.matches(text[slice(*span)])) for span in spans]
    best = sorted(range(len(spans)), key=lambda at: ranks[at], reverse=True)[:AROUND]
    last = len(spans) - 1
    return {text[spans[max(0, at - 1)][0] : spans[min(last, at + 1)][1]] for at in best}


def _row(
    name: str, kind: str, query: str, ranked: Ranked, by_rank: float, score: float
) -> Iterator[Row]:
    """Yield the row of the first ten passages, whose relevance is moved to their new places."""
    logits = [
        math.log(one.relevance / (1 - one.relevance)) + by_rank * (1 / place - 1 / before)
        for place, (before, one) in enumerate(ranked[:10], start=1)
        if one.relevance is not None
    ]
    if logits:
        chunks = [one.chunk for _, one in ranked[:3]]
        shares = [query_coverage(query, one.text, (one.title, *one.sections)) for one in chunks]
        yield name, kind, max(logits), max(shares), score


def _report(rows: Sequence[Row], names: Sequence[str], features: Sequence[str]) -> None:
    collection, kind = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    values = np.array([[*row[2 : 2 + len(features)], 1.0] for row in rows])
    estimates = np.full(len(rows), np.nan)
    for name in names:
        is_judged = collection == name
        fitted = _fit(values[~is_judged], collection[~is_judged], kind[~is_judged])
        estimates[is_judged] = 1 / (1 + np.exp(-values[is_judged] @ fitted))
    print(", ".join(features), "and constant:", np.round(_fit(values, collection, kind), 4))

    def refused(of: str, least: float, among: Sequence[str]) -> float:
        groups = [estimates[(collection == name) & (kind == of)] for name in among]
        return float(np.mean([(group < least).mean() for group in groups if len(group)]))

    near = [name for name in names if name in NEAR]
    for least in (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        own, own_near = refused("own", least, names), refused("own", least, near)
        far, close = refused("far", least, names), refused("near", least, near)
        print(
            f"{least:.2f}  answerable refused {own:.3f}  far recall {far:.2f} precision "
            f"{far / (far + own):.2f}  near recall {close:.2f} precision "
            f"{close / (close + own_near):.2f}"
        )
    for of in ("far", "near", "unanswerable"):
        areas = [
            auc(estimates[both], kind[both] == "own")
            for name in names
            for both in [(collection == name) & np.isin(kind, ["own", of])]
            if of in kind[both]
        ]
        if areas:
            n = np.sum(kind == of)
            print(f"{of}: n {n}, AUC {np.mean(areas):.3f}, mean of collections")


def _fit(values: np.ndarray, collection: np.ndarray, kind: np.ndarray) -> np.ndarray:
    """Logistic regression by Newton's method; kinds weigh the same in each collection."""
    weights = np.zeros(len(values))
    for name in set(collection):
        for of, weight in WEIGHTS.items():
            chosen = (collection == name) & (kind == of)
            weights[chosen] = weight / max(1, chosen.sum())
    labels, solution = (kind == "own").astype(float), np.zeros(values.shape[1])
    ridge = np.diag([*[1.0] * (values.shape[1] - 1), 1e-6])
    for _ in range(50):
        estimates = 1 / (1 + np.exp(-values @ solution))
        spread = (values * (weights * estimates * (1 - estimates))[:, None]).T @ values + ridge
        slope = values.T @ (weights * (labels - estimates)) - ridge @ solution
        solution += np.linalg.solve(spread, slope)
    return solution


if __name__ == "__main__":
    main()
