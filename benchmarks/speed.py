"""Speed and memory beside the stock LlamaIndex stack, in the same run, as ratios.

    python benchmarks/speed.py                        # 10,000 and 50,000 chunks
    python benchmarks/speed.py --chunks 10000 --queries 100
    python benchmarks/speed.py --chunks 50000 200000 1000000 --alone   # without the stock stack
    python benchmarks/speed.py --keep FOLDER --build    # then without --build, on a quiet machine

The peer is QueryFusionRetriever over BM25Retriever and QdrantVectorStore on a local path, over
the same chunks and document vectors. Documents' vectors are synthetic and cost nothing on either
side; every query is embedded by the real model on both. ``recall@10`` is the share of the ten
nearest passages of all that the vector index finds; an exponent of 1 is linear growth. Each
system runs in a process of its own, so that its memory is its own. With ``--keep`` what is built
stays in the folder and is not built again. ``--plot`` draws the medians over the sizes. Nothing
here is a pass or a fail: machines differ, ratios less so.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from plot import draw_growth
from synthetic import SyntheticEncoder, queries, write_corpus

WARM_UP = 5
ROWS = (
    "build s", "open s", "lexical p50", "lexical p95", "vector p50", "vector p95", "recall@10",
    "hybrid p50", "hybrid p95", "filtered p95", "memory MB", "private MB", "no change s",
    "one file s",
)  # fmt: skip
GROWING = ("lexical p50", "vector p50", "hybrid p50", "hybrid p95", "memory MB")
ASKED_EXACTLY = 20  # queries


def main() -> None:
    options = _arguments()
    if options.child:
        print(json.dumps(STEPS[options.child](options.folder, options.count)))
        return
    medians: dict[str, list[float]] = {}
    for chunks in options.chunks:
        with tempfile.TemporaryDirectory() as scratch:
            folder = (options.keep or Path(scratch)) / str(chunks)
            if not (folder / "corpus").exists():
                write_corpus(folder / "corpus", chunks)
            found: dict[str, dict[str, float]] = {"ours": {}, "stock": {}}
            for step in STEPS:
                system, act = step.split("-")
                if (options.alone and system == "stock") or (options.build and act == "serve"):
                    continue
                found[system] |= _measured(step, folder, options.queries)
        if options.build:
            continue
        _print(chunks, found["ours"], found["stock"])
        for row in GROWING:
            medians.setdefault(row, []).append(found["ours"][row])
    if len(options.chunks) > 1 and medians:
        sizes = np.log(options.chunks)
        for row, values in medians.items():
            exponent = np.polyfit(sizes, np.log(values), 1)[0]
            print(f"{row} grows with the number of chunks to the power of {exponent:.2f}")
        if options.plot:
            draw_growth(options.plot, options.chunks, medians)


def build_ours(folder: Path, _count: int) -> dict[str, float]:
    """Index the corpus."""
    from catalog.library.indexing import Indexer

    with _library(folder / "ours") as library:
        return {"build s": _seconds(lambda: Indexer(library).build(folder / "corpus", "bench"))}


def serve_ours(folder: Path, count: int) -> dict[str, float]:
    """Open the store, query it, then update it."""
    from catalog.library.indexing import Indexer
    from catalog.search_v2.service import SearchServiceV2

    found: dict[str, float] = {}
    with _library(folder / "ours") as library:
        service = SearchServiceV2(library)

        def ask(mode: str, **search: Any) -> Callable[[str], Any]:
            return lambda query: service.search(query, dataset="bench", mode=mode, **search)

        found["open s"] = _seconds(lambda: ask("hybrid")("warm up"))
        for mode in ("lexical", "vector", "hybrid"):
            found |= _latency(mode, ask(mode), count)
        inside = ask("hybrid", filters="path~doc0001")
        found["filtered p95"] = _latency("filtered", inside, count)["filtered p95"]
        found |= _memory()
        found["recall@10"] = _recall(library)
        found["no change s"] = _seconds(lambda: Indexer(library).update("bench"))
        changed = folder / "corpus" / "doc00003.md"
        word = f"zanzibar{uuid.uuid4().hex[:8]}"
        text = re.sub("^# Section 3-4.*", f"# Section 3-4 {word}", changed.read_text(), flags=re.M)
        changed.write_text(text)

        def update_and_find() -> None:
            Indexer(library).update("bench")
            assert "doc00003.md" in [hit.path for hit in ask("hybrid")(word)]

        found["one file s"] = _seconds(update_and_find)
    return found


def build_stock(folder: Path, _count: int) -> dict[str, float]:
    """Index the same sections with the plain LlamaIndex parts."""
    from llama_index.retrievers.bm25 import BM25Retriever

    model = _model()

    def build() -> None:
        nodes = _stock_nodes(folder, model)
        _stock_index(folder, model, nodes)
        lexical = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=20)
        lexical.persist(str(folder / "bm25"))

    return {"build s": _seconds(build)}


def serve_stock(folder: Path, count: int) -> dict[str, float]:
    """Open what was built and query it."""
    from llama_index.core.llms.mock import MockLLM
    from llama_index.core.retrievers import QueryFusionRetriever
    from llama_index.retrievers.bm25 import BM25Retriever

    def start() -> QueryFusionRetriever:
        lexical = BM25Retriever.from_persist_dir(str(folder / "bm25"))
        vector = _stock_index(folder, _model(), []).as_retriever(similarity_top_k=20)
        fusion = QueryFusionRetriever(
            [lexical, vector],
            llm=MockLLM(),
            mode="reciprocal_rerank",
            similarity_top_k=30,
            num_queries=1,
            use_async=False,
        )
        fusion.retrieve("warm up")
        return fusion

    started = time.perf_counter()
    fusion = start()
    found = {"open s": time.perf_counter() - started}
    lexical, vector = fusion._retrievers
    for name, retriever in (("lexical", lexical), ("vector", vector), ("hybrid", fusion)):
        found |= _latency(name, retriever.retrieve, count)
    found |= _memory()
    nodes = _stock_nodes(folder, _model())
    found["recall@10"] = _stock_recall(vector, nodes)

    def update_one_file() -> None:
        """What the stock parts can do: replace the file's points, index all words again."""
        mine = [node for node in nodes if node.metadata["path"] == "doc00003.md"]
        vector._index.delete_nodes([node.node_id for node in mine])
        vector._index.insert_nodes(mine)
        BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=20)

    return found | {"one file s": _seconds(update_one_file)}


def _stock_nodes(folder: Path, model: Any) -> list[Any]:
    from llama_index.core.schema import TextNode

    texts = [
        (file.name, section)
        for file in sorted((folder / "corpus").glob("*.md"))
        for section in file.read_text().split("\n\n# ")
    ]
    return [
        TextNode(
            id_=str(uuid.uuid5(uuid.NAMESPACE_URL, str(number))),
            text=text,
            metadata={"path": path},
            embedding=model.encoder.encode([text])[0].tolist(),
            excluded_embed_metadata_keys=["path"],
        )
        for number, (path, text) in enumerate(texts)
    ]


def _stock_index(folder: Path, model: Any, nodes: list[Any]) -> Any:
    from llama_index.core import StorageContext, VectorStoreIndex
    from llama_index.vector_stores.qdrant import QdrantVectorStore
    from qdrant_client import QdrantClient

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    store = QdrantVectorStore("bench", client=QdrantClient(path=str(folder / "qdrant")))
    if not nodes:
        return VectorStoreIndex.from_vector_store(store, embed_model=model)
    context = StorageContext.from_defaults(vector_store=store)
    return VectorStoreIndex(nodes, storage_context=context, embed_model=model)


STEPS: dict[str, Callable[[Path, int], dict[str, float]]] = {
    "ours-build": build_ours,
    "ours-serve": serve_ours,
    "stock-build": build_stock,
    "stock-serve": serve_stock,
}


def _latency(name: str, ask: Callable[[str], Any], count: int) -> dict[str, float]:
    times = []
    for number, query in enumerate(queries(count + WARM_UP)):
        taken = _seconds(lambda query=query: ask(query)) * 1000  # type: ignore[misc]
        if number >= WARM_UP:
            times.append(taken)
    return {f"{name} p50": float(np.median(times)), f"{name} p95": float(np.percentile(times, 95))}


def _recall(library: Any) -> float:
    """Return the share of the ten nearest that the vector index finds."""
    from catalog.store.engine_types import Restriction

    index, exact = library.indexes.vector("bench"), library.indexes.exact("bench")
    shares = []
    for query in queries(ASKED_EXACTLY):
        vector = library.model.embed_query(query)
        found, nearest = (
            {hit.seq for hit in engine.search(vector, 10, Restriction("bench"))}
            for engine in (index, exact)
        )
        shares.append(len(found & nearest) / len(nearest))
    return float(np.mean(shares))


def _stock_recall(retriever: Any, nodes: list[Any]) -> float:
    """Return the share of the ten nearest that the stock index finds."""
    matrix = np.array([node.embedding for node in nodes], dtype=np.float32)
    ids, shares = [node.node_id for node in nodes], []
    for query in queries(ASKED_EXACTLY):
        scores = matrix @ np.asarray(retriever._embed_model.get_query_embedding(query))
        nearest = {ids[row] for row in np.argsort(-scores)[:10].tolist()}
        found = {hit.node.node_id for hit in retriever.retrieve(query)[:10]}
        shares.append(len(found & nearest) / len(nearest))
    return float(np.mean(shares))


def _library(home: Path) -> Any:
    from catalog.core.settings import load_settings
    from catalog.library.library import Library

    sizes = {"chunk_size": 500, "chunk_overlap": 0, "chunk_min_size": 0, "query_cache_size": 0}
    settings = load_settings(overrides={"home": home, "rag_v2": sizes}).settings
    return Library(settings, model=_model())


def _model() -> Any:
    from catalog.core.settings import EmbeddingSettings
    from catalog.embedding import get_embed_model
    from catalog.embedding.resilient import ResilientEmbedding

    real = get_embed_model(EmbeddingSettings())
    encoder = SyntheticEncoder(real)
    return ResilientEmbedding(encoder, query_prefix=real.query_prefix)


def _seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _memory() -> dict[str, float]:
    """Resident memory, and the part of it that is this process's own (not mapped files)."""
    used = psutil.Process().memory_full_info()
    return {"memory MB": used.rss / 1e6, "private MB": used.uss / 1e6}


def _measured(step: str, folder: Path, count: int) -> dict[str, float]:
    """Do the step in a process of its own; a build that was kept is not done again."""
    kept = folder / f"{step}.json"
    if step.endswith("-build") and kept.exists():
        return dict(json.loads(kept.read_text()))
    found = _in_a_process(step, folder, count)
    kept.write_text(json.dumps(found))
    return found


def _in_a_process(name: str, folder: Path, count: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", name, "--folder", str(folder)]
    done = subprocess.run(
        [*command, "--count", str(count)], check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _print(chunks: int, ours: dict[str, float], stock: dict[str, float]) -> None:
    print(f"\n{chunks:,} chunks (times in ms unless marked s)")
    print(f"{'':14}{'ours':>10}{'stock':>10}{'ours/stock':>12}")
    for row in ROWS:
        mine, theirs = ours.get(row), stock.get(row)
        ratio = f"{mine / theirs:.3f}" if mine and theirs else "–"
        shown = f"{theirs:.2f}" if theirs is not None else "–"
        print(f"{row:14}{mine:>10.2f}{shown:>10}{ratio:>12}")
    print(f"no change / build: {ours['no change s'] / ours['build s']:.4f}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--chunks", nargs="+", type=int, default=[10_000, 50_000])
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--alone", action="store_true", help="leave the stock stack out")
    parser.add_argument("--keep", type=Path, help="the folder for what is built")
    parser.add_argument("--build", action="store_true", help="build only")
    parser.add_argument("--plot", type=Path, help="an SVG file to draw")
    parser.add_argument("--child", choices=list(STEPS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
