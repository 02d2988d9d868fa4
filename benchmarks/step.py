"""One step of a system that is measured, in a process of its own, so that its memory is its own.

    python benchmarks/step.py ours serve FOLDER '{"count": 200}'

A system is a module beside this one with functions ``build`` and ``serve``; both take the folder
of a size and options, and return numbers by the name of their row. Nothing here needs the
project, for peers run on a Python of their own, which has ``numpy`` and ``psutil``.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import psutil

WARM_UP = 5  # queries that are asked before those that count
LEAST = 10  # queries that count
LONG_SECONDS = 30.0  # of all that count, after which no more are asked


def main() -> None:
    """Do the step that the arguments name, and print its numbers as JSON."""
    system, act, folder, options = sys.argv[1:]
    step = getattr(importlib.import_module(system), act)
    print(json.dumps(step(Path(folder), **json.loads(options))))


def run(
    system: str, act: str, folder: Path, *, python: str = sys.executable, **options: Any
) -> dict[str, Any]:
    """Return the numbers of a step that another process did."""
    arguments = [system, act, str(folder), json.dumps(options)]
    done = subprocess.run(
        [python, __file__, *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def run_once(
    system: str, act: str, folder: Path, *, python: str = sys.executable, **options: Any
) -> dict[str, Any]:
    """Return the numbers of a step; those of one that was done before are read from the folder."""
    kept = folder / f"{system}-{act}.json"
    if not kept.exists():
        kept.write_text(json.dumps(run(system, act, folder, python=python, **options)))
    return dict(json.loads(kept.read_text()))


def seconds(work: Callable[[], Any]) -> float:
    """Return how long the work takes by the clock."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def latency(name: str, ask: Callable[[str], Any], texts: Sequence[str]) -> dict[str, float]:
    """Return the median and the 95th percentile in ms by the clock, and the mean of CPU time.

    CPU is that of all threads of this process. The first few queries are not counted. Where they
    take long, fewer are asked, and ten counted at the least; ``asked`` is how many were, in all.
    """
    warm: list[float] = []
    for text in texts[:WARM_UP]:
        warm.append(seconds(lambda text=text: ask(text)))  # type: ignore[misc]
        if sum(warm) > LONG_SECONDS / LEAST:
            break
    times: list[float] = []
    spent = time.process_time()
    for text in texts[WARM_UP:]:
        if len(times) >= LEAST and sum(times) > LONG_SECONDS:
            break
        times.append(seconds(lambda text=text: ask(text)))  # type: ignore[misc]
    spent = (time.process_time() - spent) / len(times)
    p50, p95 = (np.percentile(times, [50, 95]) * 1000).tolist()
    asked = len(warm) + len(times)
    found = {"p50": p50, "p95": p95, "CPU": spent * 1000, "asked": asked}
    return {f"{name} {row}": value for row, value in found.items()}


def memory() -> dict[str, float]:
    """Return resident memory, and the part of it that is this process's own (not mapped files)."""
    used = psutil.Process().memory_full_info()
    return {"memory MB": used.rss / 1e6, "private MB": used.uss / 1e6}


def exponents(sizes: Sequence[int], rows: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the powers of the size that the rows grow with: least squares of logarithms.

    1 is linear, 0 is no growth. A row with a value that is not above zero has none.
    """
    logs = np.log(sizes)
    return {
        name: float(np.polyfit(logs, np.log(values), 1)[0])
        for name, values in rows.items()
        if min(values) > 0
    }


def knee(sizes: Sequence[int], rates: Sequence[float]) -> int:
    """Return the first number of clients after which the next adds less than a tenth of answers.

    The last one if each adds that much: the curve has no knee so far.
    """
    for size, rate, following in zip(sizes, rates, rates[1:], strict=False):
        if following < 1.1 * rate:
            return size
    return sizes[-1]


def conditions() -> str:
    """Return date, machine, its load and versions, as they belong beside every number."""
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    cores = f"{os.cpu_count()} cores of {_processor()}"
    versions = f"CPython {platform.python_version()}, numpy {np.__version__}"
    return f"{date.today()}, {cores}, {versions}, load {load}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    main()
