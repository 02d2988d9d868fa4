"""Speed and memory beside other stacks, over the same chunks and vectors, as ratios.

    python benchmarks/speed.py                        # 10,000 and 50,000 chunks
    python benchmarks/speed.py --chunks 10000 --queries 100
    python benchmarks/speed.py --chunks 50000 200000 1000000 --alone   # without stock and v1
    python benchmarks/speed.py --keep FOLDER --build    # then without --build, on a quiet machine
    python benchmarks/speed.py --peer txtai=PYTHON --peer haiku=PYTHON
    python benchmarks/speed.py --chunks 1000 10000 --real FOLDER   # of benchmarks/given.py

Documents' vectors cost nothing on any side. They are synthetic, apart from their words, unless
``--real`` names a folder of people's texts and a model's vectors. Every query is embedded by the
real model, unless there are peers: those have no such model, so that queries' vectors are made
before for all, and an embedding is in nobody's times. A peer runs on the Python that has it
(``txtai_peer.py``, ``haiku_peer.py``). ``recall@10`` is the share of the ten nearest passages of
all that the vector index finds; an exponent of 1 is linear growth. Each system runs in a process
of its own, so that its memory is its own; ``CPU`` is the mean of all its threads, where times are
by the clock. With ``--keep`` what is built stays in the folder and is not built again. ``--plot``
draws the medians over the sizes. Nothing here is a pass or a fail.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from given import Given, write_given
from ours import model, sections
from plot import draw_growth
from step import WARM_UP, conditions, exponents, run, run_once
from synthetic import queries, write_corpus

ROWS = (
    "build s", "open s", "lexical p50", "lexical p95", "lexical CPU", "vector p50", "vector p95",
    "vector CPU", "recall@10",
    "hybrid p50", "hybrid p95", "hybrid CPU", "filtered p95", "memory MB", "private MB",
    "no change s", "one file s",
)  # fmt: skip
GROWING = ("lexical p50", "vector p50", "hybrid p50", "hybrid p95", "memory MB")
RETURNS = {
    "ours": "passages with snippet, citation, relevance",
    "stock": "nodes with text and score",
    "v1": "passages with text and score",
    "txtai": "ids and texts with score; of one leg alone: ids with score",
    "haiku": "texts with score",
}
Numbers = dict[str, float]


def main() -> None:
    """Print a table for each size, then how the rows grow."""
    options = _arguments()
    peers = dict(one.split("=", 1) for one in options.peer)
    every = []
    for chunks in options.chunks:
        with tempfile.TemporaryDirectory() as scratch:
            folder = corpus_of(options.keep or Path(scratch), chunks, options.real)
            found = _measure(folder, options, peers)
        if not options.build:
            _print(chunks, found)
            every.append(found)
    if len(every) > 1:
        _print_growth(options, every)


def corpus_of(keep: Path, chunks: int, real: Path | None = None) -> Path:
    """Return the folder of a size, with its corpus written if it was not."""
    folder = keep / str(chunks)
    if not (folder / "corpus").exists() and real:
        Given(real).first(chunks, folder)
    elif not (folder / "corpus").exists():
        write_corpus(folder / "corpus", chunks)
    return folder


def give(folder: Path, count: int) -> None:
    """Write the texts and vectors that peers are given, if they are not there."""
    embedding = model()
    write_given(
        folder / "given",
        sections(folder),
        queries(count + WARM_UP),
        embedding.encoder.encode,
        embedding.embed_query,
    )


def _measure(
    folder: Path, options: argparse.Namespace, peers: Mapping[str, str]
) -> dict[str, Numbers]:
    """Return the numbers of each system; of a build alone if so asked."""
    if peers and not options.real:
        give(folder, options.queries)
    found: dict[str, Numbers] = {}
    for system in ("ours",) if options.alone else ("ours", "stock", "v1"):
        found[system] = run_once(system, "build", folder)
        if not options.build:
            served: dict[str, Any] = {"count": options.queries, "is_given": bool(peers)}
            found[system] |= run(system, "serve", folder, **served)
    for name, python in peers.items():
        system = f"{name}_peer"
        found[name] = run_once(system, "build", folder, python=python)
        if not options.build:
            found[name] |= run(system, "serve", folder, python=python, count=options.queries)
    return found


def _print(chunks: int, found: Mapping[str, Numbers]) -> None:
    ours = found["ours"]
    others = [name for name in found if name != "ours"]
    print(f"\n{chunks:,} chunks; {conditions()} (times in ms unless marked s)")
    head = "".join(f"{name:>10}{'ours/' + name:>13}" for name in others)
    print(f"{'':14}{'ours':>10}{head}")
    for row in ROWS:
        digits = 3 if row == "recall@10" else 2
        line = f"{row:14}{ours[row]:>10.{digits}f}"
        for name in others:
            theirs = found[name].get(row)
            shown = (f"{theirs:.{digits}f}", f"{ours[row] / theirs:.3f}") if theirs else ("–", "–")
            line += f"{shown[0]:>10}{shown[1]:>13}"
        print(line)
    for name in found:
        print(f"{name} returns {RETURNS[name]}")
    print(f"no change / build: {ours['no change s'] / ours['build s']:.4f}", flush=True)


def _print_growth(options: argparse.Namespace, every: Sequence[Mapping[str, Numbers]]) -> None:
    for name in every[0]:
        rows = {row: [found[name][row] for found in every] for row in ROWS if row in every[0][name]}
        print(f"\n{name}: grows with the number of chunks to the power of")
        for row, exponent in exponents(options.chunks, rows).items():
            print(f"  {row:14}{exponent:6.2f}")
    if options.plot:
        ours = {row: [found["ours"][row] for found in every] for row in GROWING}
        caption = f"catalog {version('catalog')}; {conditions()}"
        draw_growth(options.plot, options.chunks, ours, caption)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--chunks", nargs="+", type=int, default=[10_000, 50_000])
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--alone", action="store_true", help="leave the stock stack and v1 out")
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="NAME=PYTHON",
        help="txtai or haiku, and the Python that has it",
    )
    parser.add_argument("--real", type=Path, help="a folder of given.py: texts, vectors, questions")
    parser.add_argument("--keep", type=Path, help="the folder for what is built")
    parser.add_argument("--build", action="store_true", help="build only")
    parser.add_argument("--plot", type=Path, help="an SVG file to draw")
    return parser.parse_args()


if __name__ == "__main__":
    main()
