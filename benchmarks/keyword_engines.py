"""The keyword index alone beside bm25s and tantivy: the same tokens, the first hundred.

    python benchmarks/keyword_engines.py                          # 50,000 and 200,000 chunks
    python benchmarks/keyword_engines.py --chunks 50000 200000 1000000 --keep FOLDER

Latency is the CPU time of the asking thread, which a busy machine bends less than the clock. The
first round meets most terms for the first time, the second knows them. ``same`` is the share of
the first ten that ours has too. ``update`` is the clock time of replacing one chunk and asking
one query, without reading anything from SQL; bm25s has to index all again. Each engine runs in a
process of its own, which holds its index and nothing else, so that its memory is its own. Indexes
are built once and kept in the folder; tantivy is left out where it is not installed. The exponent
is that of the growth from the least number of chunks to the largest: 1 is linear.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from synthetic import queries, word_numbers

FIRST = 100
SAME = 10
Ask = Callable[[list[str]], list[int]]


def main() -> None:
    options = _arguments()
    if options.child:
        step, chunks, folder = options.child, options.chunks[0], options.keep
        print(json.dumps(STEPS[step](folder, chunks, options.queries)))
        return
    medians: dict[str, list[float]] = {}
    head = f"{'chunks':>10} {'engine':16}{'p50 ms':>8}{'p95 ms':>8}{'build s':>9}"
    print(f"{head}{'memory MB':>11}{'update ms':>11}{'same':>7}")
    for chunks in options.chunks:
        with tempfile.TemporaryDirectory() as scratch:
            folder = (options.keep or Path(scratch)) / str(chunks)
            found = {name: _run(name, folder, chunks, options) for name in _engines()}
        for measured in found.values():
            same = _same(found["ours"]["answers"], measured["answers"])
            for row, times in measured["times"].items():
                p50, p95 = np.percentile(times, [50, 95])
                medians.setdefault(row, []).append(float(p50))
                print(
                    f"{chunks:>10,} {row:16}{p50:>8.2f}{p95:>8.2f}{measured['build s']:>9.1f}"
                    f"{measured['memory MB']:>11.0f}{measured['update ms']:>11.1f}{same:>7.2f}",
                    flush=True,
                )
    if len(options.chunks) > 1:
        growth = math.log(options.chunks[-1] / options.chunks[0])
        for name, values in medians.items():
            print(f"{name:16} exponent {math.log(values[-1] / values[0]) / growth:.2f}")


def _engines() -> list[str]:
    return [name for name in ENGINES if name == "ours" or importlib.util.find_spec(name)]


def _run(name: str, folder: Path, chunks: int, options: argparse.Namespace) -> dict[str, Any]:
    """Build the engine's index, if it is not there, and ask it, each in a process of its own."""
    built = folder / f"{name}.json"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / name, ignore_errors=True)
        built.write_text(json.dumps(_in_a_process(f"{name}-build", folder, chunks, options)))
    return json.loads(built.read_text()) | _in_a_process(f"{name}-ask", folder, chunks, options)


def _in_a_process(
    step: str, folder: Path, chunks: int, options: argparse.Namespace
) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", step, "--chunks", str(chunks)]
    command += ["--keep", str(folder), "--queries", str(options.queries)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def build_ours(folder: Path, chunks: int, _count: int) -> dict[str, float]:
    """Build one part of the index and save its arrays."""
    from catalog.store.lexical.bm25 import build_part

    texts = list(enumerate(_texts(chunks)))
    started = time.thread_time()
    part = build_part((number, 0, tokens) for number, tokens in texts)
    np.savez(folder / "ours.npz", **part._asdict())
    return {"build s": time.thread_time() - started}


def ask_ours(folder: Path, chunks: int, count: int) -> dict[str, Any]:
    """Ask twice, then replace one chunk."""
    from catalog.store.derived import NO_DATASET
    from catalog.store.lexical.bm25 import Part, Words, build_part

    def ask_of(words: Words) -> Ask:
        def ask(tokens: list[str]) -> list[int]:
            return [hit.seq for hit in words.rank([(token,) for token in tokens], FIRST)]

        return ask

    with np.load(folder / "ours.npz") as stored:
        part = Part(**stored)
    words = Words(NO_DATASET, [part])
    first, answers = _ask(ask_of(words), count)
    again, _ = _ask(ask_of(words), count)
    memory = _memory()
    started = time.perf_counter()
    new = build_part([(chunks, 0, next(_texts(1)))])
    old = part._replace(live=np.arange(chunks) > 0)
    ask_of(Words(NO_DATASET, [old, new]))(_asked(1)[0])
    update = (time.perf_counter() - started) * 1000
    times = {"ours, first": first, "ours, again": again}
    return {"times": times, "answers": answers, "memory MB": memory, "update ms": update}


def build_bm25s(folder: Path, chunks: int, _count: int) -> dict[str, float]:
    """Index the numbers of the words: it needs no texts."""
    import bm25s

    from catalog.store.lexical.bm25 import K1, B

    numbers = np.concatenate(list(word_numbers(chunks)))
    known, places = np.unique(numbers, return_inverse=True)
    ids = places.astype(np.int32).reshape(numbers.shape)
    vocabulary = {f"term{number:x}": place for place, number in enumerate(known.tolist())}
    peer = bm25s.BM25(method="lucene", k1=K1, b=B)
    started = time.thread_time()
    peer.index((ids.tolist(), vocabulary), show_progress=False)
    spent = time.thread_time() - started
    peer.save(folder / "bm25s")
    return {"build s": spent}


def ask_bm25s(folder: Path, _chunks: int, count: int) -> dict[str, Any]:
    """Ask it as its README does."""
    import bm25s

    peer = bm25s.BM25.load(folder / "bm25s")

    def ask(tokens: list[str]) -> list[int]:
        found = peer.retrieve([tokens], k=FIRST, show_progress=False, return_as="documents")
        return [int(number) for number in found[0]]

    ask(_asked(1)[0])
    times, answers = _ask(ask, count)
    update = json.loads((folder / "bm25s.json").read_text())["build s"] * 1000
    found = {"times": {"bm25s": times}, "answers": answers}
    return found | {"memory MB": _memory(), "update ms": update}


def build_tantivy(folder: Path, chunks: int, _count: int) -> dict[str, float]:
    """Index with one thread, into one segment as the others have one."""
    import tantivy

    (folder / "tantivy").mkdir()
    schema = tantivy.SchemaBuilder()
    schema.add_unsigned_field("seq", stored=False, indexed=True, fast=True)
    schema.add_text_field("text", tokenizer_name="default", index_option="freq")
    index = tantivy.Index(schema.build(), path=str(folder / "tantivy"))
    writer = index.writer(heap_size=500_000_000, num_threads=1)
    started = time.process_time()
    for number, tokens in enumerate(_texts(chunks)):
        content = {"seq": number, "text": " ".join(tokens)}
        writer.add_document(tantivy.Document.from_dict(content, index.schema))
    writer.commit()
    writer.wait_merging_threads()
    return {"build s": time.process_time() - started}  # with the making of the texts


def ask_tantivy(folder: Path, chunks: int, count: int) -> dict[str, Any]:
    """Ask for any of the words, as a query of should-clauses."""
    import tantivy

    index = tantivy.Index.open(str(folder / "tantivy"))
    searcher = index.searcher()
    schema = index.schema

    def ask(tokens: list[str]) -> list[int]:
        terms = [
            (tantivy.Occur.Should, tantivy.Query.term_query(schema, "text", token, "freq"))
            for token in tokens
        ]
        found = searcher.search(tantivy.Query.boolean_query(terms), FIRST, count=False)
        places = [address for _, address in found.hits]
        return [int(seq) for seq in searcher.fast_field_values("seq", places)]

    ask(_asked(1)[0])
    times, answers = _ask(ask, count)
    memory = _memory()
    started = time.perf_counter()
    writer = index.writer(heap_size=50_000_000, num_threads=1)
    writer.delete_documents_by_term("seq", 0)
    content = {"seq": chunks, "text": " ".join(next(_texts(1)))}
    writer.add_document(tantivy.Document.from_dict(content, schema))
    writer.commit()
    index.reload()
    searcher = index.searcher()
    ask(_asked(1)[0])
    update = (time.perf_counter() - started) * 1000
    found = {"times": {"tantivy": times}, "answers": answers}
    return found | {"memory MB": memory, "update ms": update}


ENGINES = ("ours", "bm25s", "tantivy")
STEPS: dict[str, Callable[[Path, int, int], dict[str, Any]]] = {
    "ours-build": build_ours,
    "ours-ask": ask_ours,
    "bm25s-build": build_bm25s,
    "bm25s-ask": ask_bm25s,
    "tantivy-build": build_tantivy,
    "tantivy-ask": ask_tantivy,
}


def _texts(chunks: int) -> Iterator[list[str]]:
    for numbers in word_numbers(chunks):
        for row in numbers.tolist():
            yield [f"term{number:x}" for number in row]


def _asked(count: int) -> list[list[str]]:
    return [query.split() for query in queries(count)]


def _ask(ask: Ask, count: int) -> tuple[list[float], list[list[int]]]:
    times, answers = [], []
    for tokens in _asked(count):
        started = time.thread_time()
        answers.append(ask(tokens))
        times.append((time.thread_time() - started) * 1000)
    return times, answers


def _same(ours: list[list[int]], theirs: list[list[int]]) -> float:
    shares = [len({*a[:SAME]} & {*b[:SAME]}) / SAME for a, b in zip(ours, theirs, strict=True)]
    return float(np.mean(shares))


def _memory() -> float:
    return psutil.Process().memory_info().rss / 1e6


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--chunks", nargs="+", type=int, default=[50_000, 200_000])
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--keep", type=Path, help="the folder for what is built")
    parser.add_argument("--child", choices=list(STEPS), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
