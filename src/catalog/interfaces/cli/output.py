"""Writing to a terminal: plain text out of documents, never their control characters."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterable
from typing import Any

from catalog.core.results import SearchResult, SearchResults

_KEPT = frozenset("\n\t")


def complain(message: str) -> None:
    """One line on standard error."""
    print(f"catalog: {safe(message)}", file=sys.stderr)


def say(line: str = "") -> None:
    """One line on standard output, safe for a terminal."""
    print(safe(line))


def print_json(value: Any) -> None:
    """One JSON document on standard output; lone surrogates, which UTF-8 lacks, become ``?``."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    print(text.encode("utf-8", "replace").decode("utf-8"))


def safe(text: str) -> str:
    """The text without characters that could steer a terminal (escape codes, overrides)."""
    return "".join(
        char if char in _KEPT or unicodedata.category(char) not in ("Cc", "Cf", "Cs") else "�"
        for char in text.replace("\r\n", "\n")
    )


def place_of(result: SearchResult) -> str:
    """``path:12-20``, or page and time where those exist."""
    where = result.locator
    lines = f":{where.line_start}-{where.line_end}" if where.line_start is not None else ""
    page = f" page {where.page}" if where.page is not None else ""
    return f"{result.path}{lines}{page}"


def print_results(answer: SearchResults, *, explain: bool) -> None:
    """Passages for a person to read, then one line on how the search went."""
    for result in answer:
        trail = " > ".join(result.heading_path) or result.title
        say(f"[{result.rank}] {place_of(result)}  #{result.docid}  {result.score:.4f}")
        say(f"    {trail}")
        for line in result.snippet.splitlines():
            say(f"    | {line}")
        if explain and result.explain is not None:
            for line in explanation_lines(result):
                say(f"      {line}")
        say()
    if len(answer) == 0:
        say(f"No passage of {answer.dataset!r} answers {answer.query!r}.")
    print(_account(answer), file=sys.stderr)
    for stage in answer.stages:
        if stage.status == "failed":
            complain(f"stage {stage.name} failed: {stage.note}")


def explanation_lines(result: SearchResult) -> Iterable[str]:
    """The parts of the score, adding up to it."""
    explain = result.explain
    assert explain is not None
    yield f"score {explain.score:.6f} = ({explain.fusion})"
    for part in explain.contributions:
        yield (
            f"  + {part.contribution:.6f}  {part.leg} ({part.engine}) rank {part.rank}, "
            f"score {part.raw_score:.4f}, weight {part.weight:g}"
        )
    if explain.bonus:
        yield f"  + {explain.bonus:.6f}  top-rank bonus"


def _account(answer: SearchResults) -> str:
    parts = [
        f"{stage.name} {stage.ms:.1f} ms" + (f" ({stage.note})" if stage.note else "")
        for stage in answer.stages
        if stage.status == "ran" and (stage.note or stage.name not in ("normalise", "shape"))
    ]
    return safe(f"{len(answer)} passages in {answer.elapsed_ms:.1f} ms: {', '.join(parts)}")
