"""Everything that is measured of size, in turn: ``make bench-scale``.

    python benchmarks/scale.py                                        # 10,000 and 50,000 chunks
    python benchmarks/scale.py --chunks 10000 50000 200000 1000000 --keep FOLDER
    python benchmarks/scale.py --parts clients --keep FOLDER
    python benchmarks/scale.py --peer txtai=PYTHON --peer haiku=PYTHON

Corpora, stores and indexes stay in the folder and are not made again, so that a run that was cut
short goes on where it was; what is timed is timed anew. A part that fails is said to have, and
the next one goes on. What is left out is said with its reason.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from step import conditions

HERE = Path(__file__).parent
CLIENTS = ("1", "4", "16", "64")
STOCK_UP_TO = 200_000  # chunks: it takes 1.8 GB for 50,000
COMBINED_UP_TO = 200_000  # chunks: sixteen processes, and a copy in Postgres
PARTS = ("stacks", "combinations", "ingest", "clients")


def main() -> None:
    """Run the parts; exit with 1 if one failed."""
    options = _arguments()
    failed = []
    for title, command in _commands(options):
        print(
            f"\n== {title}\n   {conditions()}\n   python benchmarks/{' '.join(command)}", flush=True
        )
        started = time.perf_counter()
        done = subprocess.run([sys.executable, str(HERE / command[0]), *command[1:]], check=False)
        print(f"   {time.perf_counter() - started:.0f} s", flush=True)
        if done.returncode:
            print(f"   FAILED with {done.returncode}", flush=True)
            failed.append(title)
    sys.exit(1 if failed else 0)


def _commands(options: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    """Yield title and command of what is run; say what is not, and why."""
    kept = ["--keep", str(options.keep), "--queries", str(options.queries)]
    sizes: list[int] = sorted(options.chunks)
    if "stacks" in options.parts:
        beside = [size for size in sizes if size <= STOCK_UP_TO]
        if not options.peer:
            _leave_out("txtai and haiku.rag", "no --peer names a Python that has them")
        peers = [word for one in options.peer for word in ("--peer", one)]
        if beside:
            command = ["speed.py", "--chunks", *map(str, beside), *kept, *peers]
            yield "beside other stacks", command
        if len(beside) < len(sizes):
            _leave_out(f"other stacks above {STOCK_UP_TO:,}", "LlamaIndex takes 1.8 GB for 50,000")
        command = ["speed.py", "--chunks", *map(str, sizes), *kept, "--alone"]
        yield "growth", [*command, "--plot", str(options.keep / "growth.svg")]
    if "combinations" in options.parts:
        combined = [size for size in sizes if size <= COMBINED_UP_TO]
        if len(combined) < len(sizes):
            _leave_out(f"combinations above {COMBINED_UP_TO:,}", "combinations.py does them alone")
        if combined:
            yield "combinations", ["combinations.py", "--chunks", *map(str, combined), *kept]
    if "ingest" in options.parts:
        yield "indexing beside the bare model", ["ingest.py"]
    if "clients" in options.parts:
        for size in sizes:
            if not (options.keep / str(size) / "ours-build.json").exists():
                _leave_out(f"clients at {size:,}", "its store is not built: --parts stacks")
                continue
            store = ["--store", str(options.keep / str(size))]
            yield f"clients at {size:,}", ["serving.py", "--clients", *CLIENTS, *store]


def _leave_out(what: str, reason: str) -> None:
    print(f"\n== left out: {what} ({reason})", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--chunks", nargs="+", type=int, default=[10_000, 50_000])
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--keep", type=Path, default=Path(".bench"), help="the folder for stores")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
