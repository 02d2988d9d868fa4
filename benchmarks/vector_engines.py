"""What each embedded vector engine takes for a search, over the same stored vectors.

    python benchmarks/speed.py --chunks 50000 --alone --keep FOLDER --build   # makes such a store
    python benchmarks/vector_engines.py FOLDER/50000 [--queries 100]

Fills each engine's index from the store, then asks for the 48 nearest passages: of the whole
dataset, and of the tenth of it that a filter lets through. Prints milliseconds of CPU of the whole
process, and the share of the exact engine's ten nearest that the engine finds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from catalog.core.entry_points import OURS
from catalog.core.filters import parse_filters
from catalog.core.settings import load_settings
from catalog.library.library import Library
from catalog.store.database import Database
from catalog.store.restriction import Restriction
from catalog.store.vectors.base import VectorEngine, nearest
from ours import model
from synthetic import queries

DEPTH = 48
DATASET = "bench"
FILTERS = {"": None, ", filtered": "path~0.md"}


def main() -> None:
    """Print a line for each engine, without and with a filter."""
    options = _arguments()
    settings = load_settings(overrides={"home": options.folder / "ours"}).settings
    with Library(settings, model=model()) as library:
        vectors = [library.model.embed_query(text) for text in queries(options.queries)]
        exact = library.indexes.vector(DATASET, "flat")
        print(f"{'engine':24}{'fill s':>8}{'p50':>8}{'p95':>8}{'recall@10':>11}")
        for name in reversed(OURS["catalog.vectors"]):
            engine = library.indexes.vector(DATASET, name)
            filled, _ = _cpu(engine.rebuild)
            for label, asked in FILTERS.items():
                restriction = Restriction(DATASET, filter=parse_filters(asked))
                times, share = _measure(library.database, engine, exact, vectors, restriction)
                p50, p95 = np.percentile(times, [50, 95])
                row = f"{name + label:24}{filled:8.1f}{p50:8.1f}{p95:8.1f}{share:11.3f}"
                print(row, flush=True)


def _measure(
    database: Database,
    engine: VectorEngine,
    exact: VectorEngine,
    vectors: list[Any],
    restriction: Restriction,
) -> tuple[list[float], float]:
    """Return milliseconds of each search, and the mean recall@10."""
    nearest(engine, database, vectors[0], DEPTH, restriction)  # warm
    times, shares = [], []
    for vector in vectors:
        taken, hits = _cpu(partial(nearest, engine, database, vector, DEPTH, restriction))
        times.append(taken * 1000)
        wanted = {hit.seq for hit in nearest(exact, database, vector, 10, restriction)}
        found = {hit.seq for hit in hits[:10]}
        shares.append(len(found & wanted) / max(1, len(wanted)))
    return times, float(np.mean(shares))


def _cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--queries", type=int, default=100)
    return parser.parse_args()


if __name__ == "__main__":
    main()
