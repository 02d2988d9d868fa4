"""The main job on real text: index the Python language reference, search it, cite it.

The text is what every CPython ships for ``help()`` (``pydoc_data.topics``), written out as one
reStructuredText file a topic, and this project's own pages. Twenty questions with a known answer
are put to each leg alone and to hybrid, so that one can see where fusion helps and where not.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from pydoc_data.topics import topics

from catalog.core.results import MODES, SearchResults
from catalog.core.settings import load_settings
from catalog.interfaces.cli.output import print_results, say
from catalog.interfaces.cli.progress import TerminalProgress
from catalog.search_v2.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from catalog.search_v2.workspace import Workspace

PROJECT = Path(__file__).parents[1]
HOME = PROJECT / "demo-home"
SHOWN = ("do nothing placeholder statement", "__getattr__ missing attribute")
QUESTIONS = {
    "how do I make sure a file gets closed even if an error happens": "with.rst",
    "stop a loop early": "break.rst",
    "jump straight to the next iteration": "continue.rst",
    "anonymous function in one expression": "lambda.rst",
    "change a variable of the enclosing function": "nonlocal.rst",
    "what counts as false in a condition": "truth.rst",
    "which operator binds tighter": "operator-summary.rst",
    "do nothing placeholder statement": "pass.rst",
    "catch an error and clean up afterwards": "try.rst",
    "__getattr__ missing attribute": "attribute-access.rst",
    "str.removeprefix": "string-methods.rst",
    "f-string format specifier for thousands separator": "formatstrings.rst",
    "set a breakpoint and step through code": "debugger.rst",
    "re-raise an exception with a different cause": "raise.rst",
    "remove an item from a dictionary by key": "typesmapping.rst",
    "list.append extend insert pop": "typesseq-mutable.rst",
    "0x hexadecimal literal underscore": "integers.rst",
    "j suffix complex literal": "imaginary.rst",
    "wait for a coroutine": "await.rst",
    "**kwargs unpacking when calling": "calls.rst",
}


def main() -> None:
    started = time.perf_counter()
    folder = write_documents(HOME / "documents")
    settings = load_settings(overrides={"home": HOME / "store"}).settings
    with Workspace(settings) as workspace:
        with TerminalProgress() as progress:
            report = Indexer(workspace).build(folder, "python", progress=progress)
        say(
            f"Indexed {report.documents} documents as {report.chunks} chunks in "
            f"{report.seconds:.0f} s ({report.embedded} texts embedded, {report.reused} reused)."
        )
        service = SearchServiceV2(workspace)
        for query in SHOWN:
            say(f'\n$ catalog search "{query}" --dataset python --top-k 2 --explain\n')
            sys.stdout.flush()
            found = service.search(query, dataset="python", top_k=2, explain=True)
            print_results(found, explain=True)
        compare(service)
    say(f"\nDone in {time.perf_counter() - started:.0f} s. Ask your own questions:")
    say(f'  .venv/bin/catalog --home {HOME.name}/store search "your question"')


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


def compare(service: SearchServiceV2) -> None:
    """For each question the rank of the expected topic, by mode; then the mean of 1/rank."""
    say(
        f"\n{'rank of the topic that answers (– : not in the first 10)':58}"
        + "".join(f"{mode:>9}" for mode in MODES)
    )
    gained = dict.fromkeys(MODES, 0.0)
    ahead = dict.fromkeys(("lexical", "vector"), 0)
    for question, expected in QUESTIONS.items():
        ranks = {
            mode: rank_of(expected, service.search(question, dataset="python", mode=mode))
            for mode in MODES
        }
        for mode in MODES:
            gained[mode] += 1 / ranks[mode] if ranks[mode] else 0.0
        for leg in ahead:
            ahead[leg] += (ranks["hybrid"] or 11) < (ranks[leg] or 11)
        say(f"{question[:57]:58}" + "".join(f"{ranks[mode] or '–':>9}" for mode in MODES))
    means = "".join(f"{gained[mode] / len(QUESTIONS):>9.3f}" for mode in MODES)
    say(f"{'mean reciprocal rank at 10':58}{means}")
    say(
        f"Of {len(QUESTIONS)} questions hybrid ranks the topic higher than lexical on "
        f"{ahead['lexical']}, higher than vectors on {ahead['vector']}."
    )


def rank_of(expected: str, found: SearchResults) -> int | None:
    """The rank of the expected document among the distinct documents found."""
    return position(expected, dict.fromkeys(result.path for result in found))


def position(wanted: str, listed: Iterable[str]) -> int | None:
    """Where ``wanted`` stands, from 1."""
    return next((rank for rank, one in enumerate(listed, start=1) if one == wanted), None)


if __name__ == "__main__":
    main()
