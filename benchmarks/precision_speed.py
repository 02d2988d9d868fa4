"""What reranking and expansion cost, the first time and again.

    python benchmarks/precision_speed.py [--home DIR]

The text is the Python language reference that every CPython carries, cut into passages of at most
200 tokens. 60 golden queries are asked: plain, reranked for the first time, reranked again, and
reranked with an expansion again. The peer of the first is the bare fastembed cross-encoder over
all of the best 20 passages; that of the repeats is the plain query. The expansion's lines are made
up, for a repeat asks no model. Milliseconds, median and 95th percentile, models loaded before.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from pydoc_data.topics import topics

from fastembed.rerank.cross_encoder import TextCrossEncoder

from catalog.core.settings import load_settings
from catalog.evaluation.golden_files import read_golden
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.models.packaged import MS_MARCO, locate
from catalog.retrieval.expansion import ExpansionLine
from catalog.retrieval.parts import SearchParts
from catalog.search_v2.service import SearchServiceV2
from catalog.store import llm_cache

GOLDEN = Path(__file__).parents[1] / "golden_queries" / "python-docs.jsonl"
QUERIES = 60
DATASET = "python"
BARE = "catalog/bare-cross-encoder"


class MadeUp:
    """Lines of the form a language model would give, at once."""

    name = fingerprint = "made up"
    prompt = ""

    def expand(self, query: str) -> list[ExpansionLine]:
        words = query.split()
        return [
            ExpansionLine("lex", f"{' '.join(words[:3])} statement"),
            ExpansionLine("lex", f"{' '.join(words[-3:])} object"),
            ExpansionLine("vec", f"python language: {query}"),
            ExpansionLine("vec", f"explain {query}"),
            ExpansionLine("hyde", f"In Python, {query}: this is how it is done."),
        ]


def main() -> None:
    options = _arguments()
    sizes = {"chunk_size": 200, "chunk_overlap": 30, "chunk_min_size": 32}
    home = options.home or Path(tempfile.mkdtemp(prefix="catalog-bench-"))
    settings = load_settings(overrides={"home": home, "rag_v2": sizes}).settings
    with Library(settings) as library:
        _index(library, home)
        service = SearchServiceV2(library, SearchParts(library, expansion_source=MadeUp()))
        queries = [query.query for query in read_golden(GOLDEN).answerable[:QUERIES]]
        _measure(service, library, queries)


def _measure(service: SearchServiceV2, library: Library, queries: Sequence[str]) -> None:
    def plain(query: str) -> None:
        service.search(query, dataset=DATASET, rerank=False, expand=False)

    def reranked(query: str) -> None:
        service.search(query, dataset=DATASET, rerank=True, expand=False)

    def both(query: str) -> None:
        service.search(query, dataset=DATASET, rerank=True, expand=True)

    bare = _bare_model()
    passages = {query: _passages(service, query) for query in queries}

    def bare_rerank(query: str) -> None:
        list(bare.rerank(query, passages[query], batch_size=20))

    service.parts.rerank_cache.clear_memory()
    with library.database.write() as connection:
        llm_cache.clear(connection, "rerank")  # of an earlier run
    reranked("load the models")
    bare_rerank(queries[0])
    for query in queries:
        plain(query)  # embeds it
    tokens = [len(bare.model.tokenizer.encode(text).ids) for text in passages[queries[0]]]
    print(f"20 passages of {statistics.mean(tokens):.0f} tokens on average")
    first = _times(reranked, queries)
    peer = _times(bare_rerank, queries)
    _print("reranked, first time", first)
    _print("bare cross-encoder", peer, over=first, what="ours / bare")
    plain_again = _times(plain, queries)
    _print("plain, again", plain_again)
    _print("reranked, again", _times(reranked, queries), under=plain_again)
    _times(both, queries)
    _print("expanded and reranked, again", _times(both, queries), under=plain_again)


def _passages(service: SearchServiceV2, query: str) -> list[str]:
    nodes = service.retrieve(query, dataset=DATASET, top_k=20, rerank=False, expand=False)
    return [node.node.get_content() for node in nodes]


def _bare_model() -> TextCrossEncoder:
    from fastembed.common.model_description import ModelSource

    model = MS_MARCO
    folder = locate(model)
    TextCrossEncoder.add_custom_model(BARE, sources=ModelSource(hf=BARE), model_file=model.weights)
    return TextCrossEncoder(BARE, specific_model_path=str(folder))


def _times(ask: Callable[[str], None], queries: Sequence[str]) -> list[float]:
    found = []
    for query in queries:
        started = time.perf_counter()
        ask(query)
        found.append((time.perf_counter() - started) * 1000)
    return found


def _print(
    name: str,
    times: Sequence[float],
    *,
    under: Sequence[float] = (),
    over: Sequence[float] = (),
    what: str = "to plain",
) -> None:
    def ends(values: Sequence[float]) -> tuple[float, float]:
        return statistics.median(values), statistics.quantiles(values, n=20)[-1]

    p50, p95 = ends(times)
    told = f"{name:30}{p50:9.1f}{p95:9.1f}"
    if under:
        told += f"   {what} {p50 / ends(under)[0]:.2f} / {p95 / ends(under)[1]:.2f}"
    if over:
        told += f"   {what} {ends(over)[0] / p50:.2f} / {ends(over)[1] / p95:.2f}"
    print(told, flush=True)


def _index(library: Library, home: Path) -> None:
    folder = home / "topics"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in topics.items():
        (folder / f"{name.replace('/', '-')}.rst").write_text(text, encoding="utf-8")
    Indexer(library).build(folder, DATASET)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--home", type=Path, help="folder to keep the index in, for a second run")
    return parser.parse_args()


if __name__ == "__main__":
    main()
