"""What a running server saves a command, and what an agent's call costs beside its query.

    python benchmarks/serving.py [--corpus FOLDER] [--turns 15] [--calls 200]
    python benchmarks/serving.py --clients 1 4 16 64 [--store FOLDER] [--calls 400]

Indexes the folder (default: this project's docs) with the real model into a new home, then
prints milliseconds, median and 95th percentile: whole ``catalog`` processes alone and with
``catalog serve`` running, with their ratio; and what one MCP call takes beside its query, over
stdio and streamable HTTP, as the SDK's client sees it. With ``--clients`` instead: so many clients
of ``/v1/search`` at once, each asking again as soon as it is answered, in a process of their own
on the same cores; answers a second, milliseconds, how many were refused (503) and asked again, and
how many failed otherwise. The knee of the curve is the number of clients after which the next one
adds less than a tenth to the answers a second: beyond it clients only wait longer. ``--store`` is a
size's folder of ``benchmarks/speed.py --keep``, in place of a folder of documents.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path

import httpx
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from catalog.interfaces.home_socket import server_of
from step import conditions, knee
from synthetic import queries

BUSY = 503
QUERY = "how is a document published"
CATALOG = str(Path(sys.executable).with_name("catalog"))
SERVE = (CATALOG, "serve", "--http", "127.0.0.1:0")
OFFLINE = {"IDX_EMBEDDING__OFFLINE": "true"}


def main() -> None:
    options = _arguments()
    if options.serve:
        serve_store(options.serve)
        return
    with tempfile.TemporaryDirectory(prefix="serving-") as folder:
        home = Path(folder) / "home"
        environment = {**os.environ, **OFFLINE, "IDX_HOME": str(home)}
        os.environ.update(environment)
        if options.store:
            environment["IDX_HOME"] = str(options.store / "ours")
            serve_synthetic = [sys.executable, __file__, "--serve", str(options.store)]
            words = iter(queries(options.calls * len(options.clients)))
            _crowds(environment, options.clients, options.calls, words, serve_synthetic)
            return
        build = ["index", "build", str(options.corpus), "--dataset", "docs"]
        subprocess.run([CATALOG, *build], check=True, capture_output=True, env=environment)
        if options.clients:
            numbered = (f"{QUERY} {number}" for number in count())
            _crowds(environment, options.clients, options.calls, numbered)
            return
        _commands(environment, options.turns)
        _calls(environment, options.calls)


def _crowds(
    environment: dict[str, str],
    sizes: Sequence[int],
    calls: int,
    texts: Iterator[str],
    command: Sequence[str] = SERVE,
) -> None:
    print(f"{calls} hybrid queries of 10 passages, all different: p50 / p95 in ms; {conditions()}")
    rates = []
    with _server(environment, command) as address:
        for size in sizes:
            asked = list(islice(texts, calls))
            started = time.perf_counter()
            times, refused, failed = asyncio.run(_crowd(f"{address}/v1/search", size, asked))
            rates.append(len(times) / (time.perf_counter() - started))
            print(
                f"  {size:3} clients {rates[-1]:7.1f} answers/s {_told(times)}"
                f"   refused {refused}   failed {failed}",
                flush=True,
            )
    print(f"knee: {knee(sizes, rates)} clients")


async def _crowd(url: str, size: int, texts: Sequence[str]) -> tuple[list[float], int, int]:
    """Return the milliseconds of each answer, how often it was refused before, and failures."""
    times: list[float] = []
    refused, failed, remaining = 0, 0, iter(texts)

    async def ask(client: httpx.AsyncClient) -> None:
        nonlocal refused, failed
        for text in remaining:
            body = {"query": text}
            started = time.perf_counter()
            try:
                while (answer := await client.post(url, json=body)).status_code == BUSY:
                    refused += 1
                    await asyncio.sleep(float(answer.headers["Retry-After"]))
                answer.raise_for_status()
            except httpx.HTTPError:
                failed += 1
            else:
                times.append((time.perf_counter() - started) * 1000)

    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=size), timeout=60) as client:
        await client.post(url, json={"query": "warm up"})
        await asyncio.gather(*(ask(client) for _ in range(size)))
    return times, refused, failed


def serve_store(folder: Path) -> None:
    """Serve a store with made-up vectors, whose model no setting names, as the command does."""
    from catalog.core.files import settings_key
    from catalog.interfaces.calls import LocalEngine
    from catalog.interfaces.server import asgi
    from catalog.interfaces.server.security import parse_address
    from ours import open_library

    home = folder / "ours"
    with open_library(home) as library:
        address = parse_address("127.0.0.1:0")
        asgi.serve(LocalEngine(library), address, home, settings_key(home, None))


def _commands(environment: dict[str, str], turns: int) -> None:
    asked = {
        "search, hybrid": ["search", QUERY],
        "search, lexical": ["search", QUERY, "--mode", "lexical"],
        "get": ["get", "scoring.md:1-5"],
        "browse": ["browse", "--type", "md"],
    }
    alone = {name: _processes(arguments, environment, turns) for name, arguments in asked.items()}
    with _server(environment):
        served = {
            name: _processes(arguments, environment, turns) for name, arguments in asked.items()
        }
    bare = _times(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), turns)
    print(f"whole processes, {turns} each: p50 / p95 in ms; target with a server: 350")
    for name in asked:
        before, after = alone[name], served[name]
        print(
            f"  {name:18} alone {_told(before)}   served {_told(after)}   ratio "
            f"{statistics.median(after) / statistics.median(before):.2f}"
        )
    print(f"  {'python -c pass':18}       {_told(bare)}")


def _processes(arguments: Sequence[str], environment: dict[str, str], turns: int) -> list[float]:
    def run() -> None:
        subprocess.run([CATALOG, *arguments], check=True, capture_output=True, env=environment)

    run()
    return _times(run, turns)


def _calls(environment: dict[str, str], calls: int) -> None:
    queries = [f"{QUERY} {number}" for number in range(calls)]
    rows = {"stdio": asyncio.run(_asked(Client(_stdio(environment)), queries, "alone"))}
    with _server(environment) as address:
        web = Client(f"{address}/mcp")
        rows["streamable HTTP"] = asyncio.run(_asked(web, queries, "web"))
        served = Client(_stdio(environment))
        rows["stdio, served"] = asyncio.run(_asked(served, queries, "served"))
    print(f"MCP: hybrid queries of 10 passages, {calls} different ones: p50 / p95 in ms; target 20")
    for name, pairs in rows.items():
        beside = [whole - query for whole, query in pairs]
        query = _told([query for _, query in pairs])
        print(f"  {name:18} beside the query {_told(beside)}   the query itself {query}")


def _stdio(environment: dict[str, str]) -> StdioServerParameters:
    return StdioServerParameters(command=CATALOG, args=["mcp"], env=environment)


async def _asked(client: Client, queries: Sequence[str], name: str) -> list[tuple[float, float]]:
    """What each call took and what of that the search did, in milliseconds.

    Every query is asked under that name, so that none has its vector kept from another row.
    """
    times = []
    async with client as session:
        await session.call_tool("query", {"query": "warm up", "rerank": False})
        for query in queries:
            started = time.perf_counter()
            asked = {"query": f"{query} {name}", "rerank": False}
            answer = await session.call_tool("query", asked)
            took = (time.perf_counter() - started) * 1000
            assert not answer.is_error, answer
            assert answer.structured_content is not None
            times.append((took, answer.structured_content["elapsed_ms"]))
    return times


@contextmanager
def _server(environment: dict[str, str], command: Sequence[str] = SERVE) -> Iterator[str]:
    home, quiet = Path(environment["IDX_HOME"]), subprocess.DEVNULL
    with subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet) as process:
        try:
            while (greeting := server_of(home)) is None:
                time.sleep(0.05)
                assert process.poll() is None
            yield f"http://127.0.0.1:{greeting.port}"
        finally:
            process.terminate()
            process.wait(20)


def _timed(run: Callable[[str], None], queries: Sequence[str]) -> list[float]:
    times = []
    for query in queries:
        started = time.perf_counter()
        run(query)
        times.append((time.perf_counter() - started) * 1000)
    return times


def _times(run: Callable[[], object], turns: int) -> list[float]:
    return _timed(lambda _: (run(), None)[1], [""] * turns)


def _told(times: Sequence[float]) -> str:
    listed = sorted(times)
    worst = listed[min(len(listed) - 1, round(0.95 * len(listed)))]
    return f"{statistics.median(listed):7.1f} / {worst:7.1f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    docs = Path(__file__).parents[1] / "docs"
    parser.add_argument("--corpus", type=Path, default=docs)
    parser.add_argument("--store", type=Path, help="of speed.py --keep, for --clients")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument(
        "--clients", type=int, nargs="+", help="how many at once, one after another"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
