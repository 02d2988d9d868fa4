"""The main job on real text: index the Python language reference, search it, cite it.

The text is what every CPython ships for ``help()`` (``pydoc_data.topics``), written out as one
reStructuredText file a topic, and this project's own pages. The golden queries are then put to
each leg alone and to hybrid, so that one can see where fusion helps and where not.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from catalog.core.settings import load_settings
from catalog.evaluation.backends import Backends
from catalog.evaluation.golden_files import read_golden
from catalog.evaluation.metrics import PRIMARY, score_run
from catalog.evaluation.run_records import record_run
from catalog.evaluation.runs import run_backends
from catalog.evaluation.summary import table_lines
from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.cli.output import TerminalProgress, has_styles, say
from catalog.interfaces.terminal import Form, render
from catalog.interfaces.tools import call_tool
from catalog.library.indexing import Indexer
from catalog.library.library import Library

PROJECT = Path(__file__).parents[1]
HOME = PROJECT / "demo-home"
SHOWN = (
    ("do nothing placeholder statement", False),
    ("__getattr__ missing attribute", False),
    ("run cleanup code even if something fails", True),
)
GOLDEN = PROJECT / "golden_queries" / "python-docs.jsonl"
SHOWN_QUERIES = 4
BACKENDS = ("lexical", "vector", "v2")


def main() -> None:
    started = time.perf_counter()
    folder = write_documents(HOME / "documents")
    settings = load_settings(overrides={"home": HOME / "store"}).settings
    with Library(settings) as library:
        with TerminalProgress() as progress:
            report = Indexer(library).build(folder, "python", progress=progress)
        say(
            f"Indexed {report.documents} documents as {report.chunks} chunks in "
            f"{report.seconds:.0f} s ({report.embedded} texts embedded, {report.reused} reused)."
        )
        engine = LocalEngine(library)
        for query, rerank in SHOWN:
            flag = " --rerank" if rerank else ""
            say(f'\n$ catalog search "{query}" --dataset python --top-k 2{flag} --explain\n')
            asked = {"query": query, "top_k": 2, "rerank": rerank, "explain": True}
            show(engine, "search", asked)
        say('\n$ catalog browse "import system" --limit 2\n')
        show(engine, "browse", {"query": "import system", "limit": 2})
        say("\nWhat an agent gets from search_chunks:\n")
        asked = {"query": "how is a name bound", "top_k": 1}
        say(call_tool(engine, "search_chunks", asked).text)
        measure(library)
    say(f"\nDone in {time.perf_counter() - started:.0f} s. Ask your own questions:")
    store = f".venv/bin/catalog --home {HOME.name}/store"
    say(f'  {store} search "your question"')
    say("Let your coding agent ask them:")
    say(f"  {store} mcp")
    say("Put v2 beside the plain LlamaIndex stack, with a report to read in a browser:")
    say(f"  {store} compare --golden {GOLDEN.relative_to(PROJECT)} --report report.html")


def show(engine: LocalEngine, operation: str, arguments: dict[str, Any]) -> None:
    """What the command of that name prints."""
    sys.stdout.flush()
    form = Form(bold=has_styles(sys.stdout), explain=True)
    printed = render(operation, engine.answer(operation, arguments), form)
    sys.stdout.write(printed.out)
    sys.stdout.flush()
    sys.stderr.write(printed.err)


def write_documents(folder: Path) -> Path:
    """The reference and this project's pages, as files; the folder is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in topics.items():
        (folder / f"{name}.rst").write_text(text, encoding="utf-8")
    for page in (PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))):
        copy = folder / "catalog" / page.relative_to(PROJECT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, copy)
    return folder


def measure(library: Library) -> None:
    """The table of ``catalog eval``, and the queries on which hybrid gained and lost most."""
    golden = read_golden(GOLDEN)
    say(f"\n{len(golden)} labelled queries, {len(golden.unanswerable)} of them unanswerable:\n")
    sys.stdout.flush()
    with Backends(library) as backends, TerminalProgress() as progress:
        loaded = [backends.load(name) for name in BACKENDS]
        runs = run_backends(loaded, golden, dataset="python", repeats=1, progress=progress)
    now = time.time()
    records = [
        record_run(library.database, run, score_run(run, golden), golden, now=now) for run in runs
    ]
    for line in table_lines(records):
        say(line)
    scores = [record.scores[PRIMARY] for record in records]
    gains = {query: scores[2][query] - max(one[query] for one in scores[:2]) for query in scores[2]}
    ordered = sorted(golden.answerable, key=lambda query: gains[query.id])
    for title, queries in (
        ("Most ahead of the better leg", ordered[: -SHOWN_QUERIES - 1 : -1]),
        ("Most behind it", ordered[:SHOWN_QUERIES]),
    ):
        say(f"\n{title} ({PRIMARY}):")
        for query in queries:
            say(f"  {gains[query.id]:+.3f}  {query.query}")


if __name__ == "__main__":
    main()
