"""A folder of precomputed embeddings: loading its snapshot, and a query, beside plain NumPy.

    python benchmarks/precomputed.py --chunks 100000 --dim 1536 --files 10000

Makes a snapshot of so many embeddings without their files, loads it, and asks; then writes as
many files as told, and reads them. Prints seconds and milliseconds by the clock, in a process that
has just begun, and of a query the ratio to ``matrix @ query`` on an array in memory.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from catalog.search_v2.precomputed.embedding_index import EmbeddingIndex
from catalog.search_v2.precomputed.semantic_retriever import SemanticContextRetriever

from catalog.search_v2.precomputed import embedding_index

QUERIES = 30


def main() -> None:
    """Print what loading and asking take."""
    options = _arguments()
    chance = np.random.default_rng(3)
    shape = (options.chunks, options.dim)
    matrix = chance.standard_normal(shape, dtype=np.float32)
    queries = chance.standard_normal((QUERIES, options.dim), dtype=np.float32)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "cache"
        (folder / embedding_index.SNAPSHOT).mkdir(parents=True)
        ids = [f"{number:064x}" for number in range(options.chunks)]
        changed_at = embedding_index._changed_at(folder)
        embedding_index._write_snapshot(folder, EmbeddingIndex(ids, matrix), changed_at)
        loaded, retriever = _timed(lambda: SemanticContextRetriever(folder))
        print(f"{options.chunks:,} × {options.dim} from the snapshot: {loaded:.3f} s")
        ours = [_timed(lambda q=query: retriever.retrieve(q))[0] for query in queries]
        plain = [_timed(lambda q=query: matrix @ q)[0] for query in queries]
        print(f"first query {ours[0] * 1000:.1f} ms, then p50 {_ms(ours[1:])}, plain {_ms(plain)}")
        print(f"ours/plain: {np.median(ours[1:]) / np.median(plain):.2f}")
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(options.files):
            row = matrix[number % options.chunks].tolist()
            (Path(scratch) / f"{number:064x}").write_text(json.dumps(row))
        read, _ = _timed(lambda: SemanticContextRetriever(scratch))
        print(f"{options.files:,} files read: {read:.2f} s")


def _ms(times: list[float]) -> str:
    return f"{np.median(times) * 1000:.1f} ms"


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=1536)
    parser.add_argument("--files", type=int, default=10_000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
