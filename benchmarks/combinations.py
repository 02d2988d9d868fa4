"""Every store with every index of words and of vectors, over the same corpus.

    python benchmarks/combinations.py                      # 10,000 and 50,000 chunks
    python benchmarks/combinations.py --chunks 200000 --keep FOLDER [--only postgres]

The store of each size is built once in SQLite and copied into Postgres, which comes in the package
``pgserver``. Indexes are filled by one process; each combination is measured in another, which
opens them and is asked ``--queries`` questions in each mode, fewer where they take long. Vectors of
queries are made before: no embedding is in the times. Milliseconds are by the clock; ``CPU`` is
what a hybrid search takes of all processes, Postgres' too, in the mean. ``MB`` is resident memory,
and beside it that of Postgres, its shared pages counted once. ``recall@10`` is the share of the
exact ten nearest that the vector index finds. A Qdrant server takes part where
``IDX_TEST_QDRANT_URL`` names one.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy.engine import make_url

from given import Given
from ours import DATASET, MODES, asker, open_library, recall
from speed import corpus_of, give
from step import WARM_UP, conditions, exponents, latency, memory, run, run_once, seconds

WORDS = {"sqlite": ("bm25", "fts"), "postgres": ("bm25", "fts")}
VECTORS = {
    "sqlite": ("flat", "qdrant", "sqlite-vec"),
    "postgres": ("flat", "qdrant", "sqlite-vec"),
}
QDRANT_URL = os.environ.get("IDX_TEST_QDRANT_URL")

GROWING = (*(f"{mode} p50" for mode in MODES), "hybrid CPU", "memory MB")


def main() -> None:
    """Print a table for each size, then how its columns grow."""
    options = _arguments()
    stores = [store for store in options.only if _is_there(store)]
    if QDRANT_URL is None:
        print("left out: a Qdrant server (IDX_TEST_QDRANT_URL names none)")
    found: dict[str, list[dict[str, float]]] = {}
    for chunks in options.chunks:
        with tempfile.TemporaryDirectory() as scratch:
            folder = corpus_of(options.keep or Path(scratch), chunks)
            give(folder, options.queries)
            built = run_once("ours", "build", folder)["build s"]
            print(f"\n{chunks:,} chunks, built in {built:.0f} s; {conditions()}")
            _print_head()
            for store in stores:
                for name, numbers in _measure(folder, store, options.queries):
                    _print_row(name, numbers)
                    found.setdefault(name, []).append(numbers)
    if len(options.chunks) > 1:
        _print_growth(options.chunks, found)


def fill(folder: Path, *, url: str | None, engines: dict[str, dict[str, str]]) -> dict[str, float]:
    """Fill the indexes of a store, each if it is not up to date; return the seconds of each."""
    found = {}
    for name, rag in engines.items():
        with open_library(_home(folder, url), given=Given(folder / "given"), url=url, **rag) as one:
            indexes = one.indexes
            engine = (
                indexes.lexical(DATASET) if "lexical_engine" in rag else indexes.vector(DATASET)
            )
            found[name] = seconds(engine.refresh)
    return found


def serve(
    folder: Path, count: int, *, url: str | None, server: int | None, **rag: Any
) -> dict[str, float]:
    """Open a combination and query it; ``server`` is the process of its Postgres."""
    given = Given(folder / "given")
    texts = list(given.queries())[: count + WARM_UP]
    with open_library(_home(folder, url), given=given, url=url, **rag) as library:
        ask = asker(library)
        found = {"open s": seconds(lambda: ask("hybrid")(texts[0]))}
        for mode in MODES:
            spent = _spent(server)
            found |= latency(mode, ask(mode), texts)
            of_server = (_spent(server) - spent) * 1000 / found[f"{mode} asked"]
            found[f"{mode} CPU"] += of_server
        found |= memory()
        found["server MB"] = sum(one.memory_full_info().pss for one in _processes(server)) / 1e6
        return found | {"recall@10": recall(library, texts)}


def copy(folder: Path, url: str) -> dict[str, float]:
    """Copy the store of a size into an empty database."""
    from catalog.store.backup import copy_store
    from catalog.store.database import Database

    source, target = Database.at(folder / "ours"), Database(make_url(url), _home(folder, url))
    try:
        return {"copy s": seconds(lambda: copy_store(source, target))}
    finally:
        source.close()
        target.close()


def _measure(folder: Path, store: str, count: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the name and numbers of each combination on a store."""
    words = {name: {"lexical_engine": name} for name in WORDS[store]}
    vectors = {name: {"vector_engine": name} for name in VECTORS[store]}
    if QDRANT_URL is not None:
        vectors["qdrant server"] = {"vector_engine": "qdrant", "qdrant_url": QDRANT_URL}
    with _postgres(folder) if store == "postgres" else nullcontext((None, None)) as (url, server):
        filled = run("combinations", "fill", folder, url=url, engines=words | vectors)
        print(f"{store}, filled in s: {', '.join(f'{n} {s:.1f}' for n, s in filled.items())}")
        for of_words, of_vectors in product(words, vectors):
            rag = words[of_words] | vectors[of_vectors]
            options: dict[str, Any] = {"count": count, "url": url, "server": server, **rag}
            name = f"{store}/{of_words}/{of_vectors}"
            yield name, run("combinations", "serve", folder, **options)


@contextmanager
def _postgres(folder: Path) -> Iterator[tuple[str, int]]:
    """Run a server over the size's folder, with its store copied into it once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pgserver

        running = pgserver.get_server(folder / "postgres", cleanup_mode="stop")
    try:
        uri = make_url(running.get_uri())
        url = uri.set(drivername="postgresql", database=DATASET).render_as_string(False)
        if not (folder / "combinations-copy.json").exists():
            running.psql(f"SET client_min_messages = error; DROP DATABASE IF EXISTS {DATASET};")
            running.psql(f"CREATE DATABASE {DATASET};")
        run_once("combinations", "copy", folder, url=url)
        yield url, running.get_pid()
    finally:
        running.cleanup()


def _home(folder: Path, url: str | None) -> Path:
    return folder / ("ours" if url is None else "ours-postgres")


def _processes(server: int | None) -> list[psutil.Process]:
    if server is None:
        return []
    return [psutil.Process(server), *psutil.Process(server).children(recursive=True)]


def _spent(server: int | None) -> float:
    """Return seconds of CPU of the server, so far."""
    times = [one.cpu_times() for one in _processes(server)]
    return sum(one.user + one.system for one in times)


def _is_there(store: str) -> bool:
    if store == "postgres" and importlib.util.find_spec("pgserver") is None:
        print("left out: Postgres (the package pgserver is not installed)")
        return False
    return True


def _print_head() -> None:
    modes = "".join(f"{mode + ' p50 / p95':>20}" for mode in MODES)
    print(f"{'store/words/vectors':30}{modes}{'CPU':>8}{'recall@10':>11}{'MB':>7}", end="")
    print(f"{'server MB':>11}{'open s':>8}")


def _print_row(name: str, found: dict[str, float]) -> None:
    modes = "".join(
        f"{found[f'{mode} p50']:>11.1f} /{found[f'{mode} p95']:>7.1f}" for mode in MODES
    )
    print(
        f"{name:30}{modes}{found['hybrid CPU']:>8.1f}{found['recall@10']:>11.3f}"
        f"{found['memory MB']:>7.0f}{found['server MB']:>11.0f}"
        f"{found['open s']:>8.1f}",
        flush=True,
    )


def _print_growth(sizes: Sequence[int], found: dict[str, list[dict[str, float]]]) -> None:
    print("\ngrows with the number of chunks to the power of")
    print(f"{'store/words/vectors':30}{''.join(f'{name:>13}' for name in GROWING)}")
    for name, every in found.items():
        rows = {row: [numbers[row] for numbers in every] for row in GROWING}
        powers = exponents(sizes, rows)
        print(f"{name:30}{''.join(f'{powers[row]:>13.2f}' for row in GROWING)}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--chunks", nargs="+", type=int, default=[10_000, 50_000])
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--keep", type=Path, help="the folder for what is built")
    parser.add_argument("--only", nargs="+", choices=list(VECTORS), default=list(VECTORS))
    return parser.parse_args()


if __name__ == "__main__":
    main()
