"""The keyword index alone beside bm25s: the same tokens, the first hundred, in one run.

    python benchmarks/keyword_engines.py                          # 50,000 and 200,000 chunks
    python benchmarks/keyword_engines.py --chunks 50000 1000000

Latency is the CPU time of the asking thread, which a busy machine bends less than the clock. The
first round meets most terms for the first time, the second knows them. Both engines are exact;
the last column says how many of the first ten are the same. The exponent is that of the growth
from the least number of chunks to the largest: 1 is linear.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import bm25s
import numpy as np

from catalog.store.lexical.bm25 import K1, B
from catalog.store.lexical.postings import SegmentBuilder
from catalog.store.lexical.snapshot import LexicalSnapshot, LiveSegment
from synthetic import WORDS_A_CHUNK, queries, words

FIRST = 100
SAME = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--chunks", nargs="+", type=int, default=[50_000, 200_000])
    parser.add_argument("--queries", type=int, default=200)
    options = parser.parse_args()
    asked = [query.split() for query in queries(options.queries)]
    medians: dict[str, list[float]] = {}
    print(f"{'chunks':>10} {'engine':16}{'p50 ms':>8}{'p95 ms':>8}{'build s':>9}{'same':>7}")
    for chunks in options.chunks:
        for name, (times, build, same) in _measure(chunks, asked).items():
            p50, p95 = np.percentile(times, [50, 95])
            medians.setdefault(name, []).append(float(p50))
            print(f"{chunks:>10,} {name:16}{p50:>8.2f}{p95:>8.2f}{build:>9.1f}{same:>7.2f}")
    if len(options.chunks) > 1:
        growth = math.log(options.chunks[-1] / options.chunks[0])
        for name, values in medians.items():
            print(f"{name:16} exponent {math.log(values[-1] / values[0]) / growth:.2f}")


def _measure(chunks: int, asked: list[list[str]]) -> dict[str, tuple[list[float], float, float]]:
    chance = np.random.default_rng(7)
    texts = [words(chance, WORDS_A_CHUNK).split() for _ in range(chunks)]
    started = time.thread_time()
    builder = SegmentBuilder()
    for number, tokens in enumerate(texts):
        builder.add(number, number, tokens)
    part = LiveSegment(builder.build(), np.ones(chunks, dtype=np.bool_))
    snapshot = LexicalSnapshot(None, (part,), K1, B)
    build = time.thread_time() - started
    peer = bm25s.BM25(method="lucene", k1=K1, b=B)
    started = time.thread_time()
    peer.index(texts, show_progress=False)
    peer_build = time.thread_time() - started

    def ours(tokens: list[str]) -> list[int]:
        terms = [(token,) for token in tokens]
        return [hit.seq for hit in snapshot.rank(terms, FIRST, snapshot.live_masks())]

    def theirs(tokens: list[str]) -> list[int]:
        found = peer.retrieve([tokens], k=FIRST, show_progress=False, return_as="documents")
        return [int(number) for number in found[0]]

    theirs(asked[0])
    first, answers = _times(ours, asked)
    again, _ = _times(ours, asked)
    peer_times, expected = _times(theirs, asked)
    same = np.mean(
        [len({*a[:SAME]} & {*b[:SAME]}) / SAME for a, b in zip(answers, expected, strict=True)]
    )
    return {
        "ours, first": (first, build, float(same)),
        "ours, again": (again, build, float(same)),
        "bm25s": (peer_times, peer_build, float(same)),
    }


def _times(
    ask: Callable[[list[str]], list[int]], asked: list[list[str]]
) -> tuple[list[float], list[list[int]]]:
    times, answers = [], []
    for tokens in asked:
        started = time.thread_time()
        answers.append(ask(tokens))
        times.append((time.thread_time() - started) * 1000)
    return times, answers


if __name__ == "__main__":
    main()
