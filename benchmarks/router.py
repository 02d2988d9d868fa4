"""What the catalog and the router cost: milliseconds of a listing, and of a query with and without.

    python benchmarks/router.py                      # 50,000 chunks of 5,000 documents
    python benchmarks/router.py --chunks 20000

Documents and their vectors are synthetic (see synthetic.py), queries are embedded by the real
model. The two searches take turns, so that a busy machine slows both; no query is asked twice.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from synthetic import SyntheticEncoder, queries, write_corpus

WARM_UP = 5


def main() -> None:
    """Build, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chunks", type=int, default=50_000)
    parser.add_argument("--queries", type=int, default=100)
    options = parser.parse_args()
    from catalog.library.browse import DocumentCatalog
    from catalog.library.indexing import Indexer
    from catalog.search_v2.service import SearchServiceV2

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_corpus(folder / "corpus", options.chunks)
        with _library(folder / "home") as library:
            Indexer(library).build(folder / "corpus", "bench")
            asked = queries(WARM_UP + 2 * options.queries)
            listing = DocumentCatalog(library)

            def show(**asked: Any) -> Callable[[str], Any]:
                return lambda query: listing.query(
                    dataset="bench", **{name: asked[name] or query for name in asked}
                )

            for name, call in (
                ("listing, a query", show(query="")),
                ("listing, a query and a name", show(query="", name="doc001")),
                ("listing, no query", show(sort="name")),
                ("listing, by date", show(sort="modified")),
            ):
                _print(name, [_ms(call, query) for query in asked][WARM_UP:])
            off = SearchServiceV2(library)
            on = off.with_settings({"router_enabled": True})
            for mode in ("lexical", "vector", "hybrid"):
                times: dict[str, list[float]] = {"off": [], "on": []}
                for number, query in enumerate(asked):
                    service, which = ((off, "off"), (on, "on"))[number % 2]
                    ask = partial(service.search, dataset="bench", mode=mode)
                    times[which].append(_ms(ask, query))
                for which, measured in times.items():
                    _print(f"{mode}, router {which}", measured[WARM_UP:])


def _library(home: Path) -> Any:
    from catalog.core.settings import EmbeddingSettings, load_settings
    from catalog.embedding import get_model
    from catalog.embedding.model import EmbeddingModel
    from catalog.library.library import Library

    sizes = {"chunk_size": 500, "chunk_overlap": 0, "chunk_min_size": 0, "query_cache_size": 0}
    settings = load_settings(overrides={"home": home, "rag_v2": sizes}).settings
    real = get_model(EmbeddingSettings())
    encoder = SyntheticEncoder(real)
    return Library(settings, model=EmbeddingModel(encoder, query_prefix=real.query_prefix))


def _ms(call: Callable[[str], Any], query: str) -> float:
    started = time.perf_counter()
    call(query)
    return (time.perf_counter() - started) * 1000


def _print(name: str, measured: list[float]) -> None:
    p50, p95 = np.percentile(measured, [50, 95])
    print(f"{name:32}{p50:8.1f}{p95:8.1f}", flush=True)


if __name__ == "__main__":
    main()
