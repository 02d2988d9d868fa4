"""Writing to a terminal: plain text out of documents, never their control characters."""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterator
from typing import Any, TextIO

from catalog.core.results import Evidence, SearchResult, SearchResults
from catalog.interfaces.cli.explain import explanation_lines, one_line, stage_lines
from catalog.search_v2.citations import header, parts
from catalog.search_v2.evidence import line_text

_KEPT = frozenset("\n\t")
_BREAK = re.compile(r"\r\n|\n|\r")
_BOLD, _PLAIN = "\x1b[1m", "\x1b[22m"


def complain(message: str) -> None:
    """A message on standard error; its further lines are set in, so that none looks like ours."""
    first, *others = [safe(line.strip()) for line in message.splitlines() if line.strip()] or [""]
    print("\n  ".join([f"catalog: {first}", *others]), file=sys.stderr)


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


def print_results(answer: SearchResults, *, explain: bool) -> None:
    """Passages for a person to read, and on standard error how the search went.

    Matches are bold on a terminal, unless the environment has ``NO_COLOR``. A passage of a
    recording is its evidence; one that shares an earlier passage's refers to that.
    """
    bold = _styles(sys.stdout)
    if answer.low_confidence:
        best = "" if answer.confidence is None else f" (best {_per_cent(answer.confidence)})"
        say(f"low confidence: nothing here answers surely{best}")
        say()
    for result in answer:
        relevance = result.relevance
        sure = "" if relevance is None else f"  relevance {_per_cent(relevance)}"
        name = header(result) if result.evidence is None else _recording(result, result.evidence)
        say(f"[{result.rank}] {name}  score {result.score:.4f}{sure}  #{result.docid}")
        if result.evidence is not None:
            for line in _witnessed(result, result.evidence):
                say(f"    {line}")
        else:
            say(f"    {' > '.join(result.heading_path) or result.title}")
            for line in _shown(result, bold):
                print(f"    | {line}")
        if result.link is not None:
            say(f"    {result.link}")
        if explain and result.explain is not None:
            for line in explanation_lines(result.explain):
                say(f"    {line}")
        say()
    if len(answer) == 0:
        say(f"No passage of {answer.dataset!r} answers {answer.query!r}.")
    told = [_account(answer, explain=explain), *(stage_lines(answer.stages) if explain else ())]
    for line in told:
        print(safe(line), file=sys.stderr)
    for stage in answer.stages:
        if stage.status == "failed":
            complain(f"stage {stage.name} failed: {one_line(stage.note)}")


def _recording(result: SearchResult, evidence: Evidence) -> str:
    return one_line(f"{evidence.media} — {result.modality.replace('_', ' ')}")


def _witnessed(result: SearchResult, evidence: Evidence) -> Iterator[str]:
    """The evidence's lines, or which result has them already."""
    if result.evidence_at not in (None, result.rank):
        yield f"see [{result.evidence_at}]"
    else:
        yield from map(line_text, evidence.lines)


def _shown(result: SearchResult, bold: bool) -> list[str]:
    """The snippet's lines, safe; the matches bold if asked for."""
    before, after = (_BOLD, _PLAIN) if bold else ("", "")
    pieces = [
        f"{before}{clean}{after}" if matched else clean
        for part, matched in parts(result.snippet, result.matches)
        for clean in [safe(_BREAK.sub("\n", part))]
    ]
    return "".join(pieces).split("\n")


def _styles(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _per_cent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _account(answer: SearchResults, *, explain: bool) -> str:
    found = f"{len(answer)} passages in {answer.elapsed_ms:.1f} ms"
    if explain:
        return f"{found}:"
    ran = [
        f"{stage.name} {stage.ms:.1f} ms" + (f" ({one_line(stage.note)})" if stage.note else "")
        for stage in answer.stages
        if stage.status == "ran" and (stage.note or stage.name not in ("normalise", "shape"))
    ]
    return f"{found}: {', '.join(ran)}"
