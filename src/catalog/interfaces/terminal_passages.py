"""Passages for a person to read in a terminal, and how the search went."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from catalog.core.results import (
    Contribution,
    Evidence,
    Explanation,
    Reranked,
    SearchResult,
    SearchResults,
    StageReport,
)
from catalog.interfaces.plain_text import complaint, one_line, safe
from catalog.interfaces.terminal import TerminalText
from catalog.search_v2.citations import format_header, split_at_matches
from catalog.search_v2.evidence import format_line

_QUERY_SHOWN = 60  # characters of an expansion


@dataclass(frozen=True, slots=True)
class _Branch:
    text: str
    leaves: tuple[str, ...] = ()


def explanation_lines(explain: Explanation) -> Iterator[str]:
    """The score as a tree of its parts, six decimals each, so that the last may be a digit off."""
    reranked = explain.rerank
    lists = (*map(_list_line, explain.contributions), *_bonus(explain))
    if reranked is None:
        yield f"score {explain.score:.6f} ({explain.fusion})"
        yield from _tree([_Branch(one) for one in lists])
        return
    yield f"score {explain.score:.6f}"
    fused = (
        f"fused ({explain.fusion}) {explain.fused:.6f} → {reranked.fused_part:.6f} "
        f"of the {reranked.blend} blend"
    )
    yield from _tree([_Branch(fused, lists), _Branch(_rerank_line(reranked))])


def stage_lines(stages: Iterable[StageReport]) -> Iterator[str]:
    """One line for each step: name, status, milliseconds and note."""
    listed = list(stages)
    width = max((len(stage.name) for stage in listed), default=0)
    for stage in listed:
        note = one_line(stage.note)
        yield f"{stage.name:<{width}}  {stage.status:<7}  {stage.ms:8.1f} ms  {note}".rstrip()


def _tree(branches: Sequence[_Branch]) -> Iterator[str]:
    for number, branch in enumerate(branches, start=1):
        fork, bar = ("└─", "  ") if number == len(branches) else ("├─", "│ ")
        yield f"{fork} {branch.text}"
        yield from (f"{bar} {line}" for line in _tree([_Branch(leaf) for leaf in branch.leaves]))


def _list_line(part: Contribution) -> str:
    expansion = f", expansion {_short(part.query)}," if part.origin == "expansion" else ""
    return (
        f"{part.contribution:+.6f}  {part.leg} ({part.engine}){expansion} rank {part.rank}, "
        f"score {part.raw_score:.4f}, weight {part.weight:.4g}"
    )


def _bonus(explain: Explanation) -> tuple[str, ...]:
    return (f"{explain.bonus:+.6f}  top-rank bonus",) if explain.bonus else ()


def _rerank_line(reranked: Reranked) -> str:
    model = reranked.model.rsplit("/", 1)[-1]
    said = "not read" if reranked.raw_score is None else f"score {reranked.raw_score:.4f}"
    if reranked.relevance is not None:
        said += f", relevance {100 * reranked.relevance:.0f} %"
    return f"reranked ({model}) rank {reranked.rank} before, {said} → {reranked.rerank_part:+.6f}"


def _short(query: str) -> str:
    line = one_line(query)
    return f'"{line}"' if len(line) <= _QUERY_SHOWN else f'"{line[: _QUERY_SHOWN - 1].rstrip()}…"'


_BREAK = re.compile(r"\r\n|\n|\r")
_BOLD, _PLAIN = "\x1b[1m", "\x1b[22m"


def passages_text(
    answer: SearchResults, *, explain: bool, bold: bool, notes: Iterable[str] = ()
) -> TerminalText:
    """The passages on standard output, the account of the search on standard error.

    A passage of a recording is its evidence; one that shares an earlier passage's refers to that.
    """
    return TerminalText.of(
        _out(answer, explain=explain, bold=bold), _err(answer, notes, explain=explain)
    )


def _out(answer: SearchResults, *, explain: bool, bold: bool) -> Iterator[str]:
    if answer.low_confidence:
        best = "" if answer.confidence is None else f" (best {_per_cent(answer.confidence)})"
        yield f"low confidence: nothing here answers surely{best}"
        yield ""
    for result in answer:
        yield from _result(result, explain=explain, bold=bold)
        yield ""
    if len(answer) == 0:
        yield safe(f"No passage of {answer.dataset!r} answers {answer.query!r}.")


def _result(result: SearchResult, *, explain: bool, bold: bool) -> Iterator[str]:
    relevance = result.relevance
    sure = "" if relevance is None else f"  relevance {_per_cent(relevance)}"
    name = format_header(result) if result.evidence is None else _recording(result, result.evidence)
    yield safe(f"[{result.rank}] {name}  score {result.score:.4f}{sure}  #{result.docid}")
    if result.evidence is not None:
        for line in _witnessed(result, result.evidence):
            yield safe(f"    {line}")
    else:
        yield safe(f"    {' > '.join(result.heading_path) or result.title}")
        for line in _shown(result, bold):
            yield f"    | {line}"
    if result.link is not None:
        yield safe(f"    {result.link}")
    if explain and result.explain is not None:
        for line in explanation_lines(result.explain):
            yield safe(f"    {line}")


def _err(answer: SearchResults, notes: Iterable[str], *, explain: bool) -> Iterator[str]:
    yield safe(_account(answer, explain=explain))
    if explain:
        yield from map(safe, stage_lines(answer.stages))
    for note in notes:
        yield complaint(note)
    for stage in answer.stages:
        if stage.status == "failed":
            yield complaint(f"stage {stage.name} failed: {one_line(stage.note)}")


def _recording(result: SearchResult, evidence: Evidence) -> str:
    return one_line(f"{evidence.media} — {result.modality.replace('_', ' ')}")


def _witnessed(result: SearchResult, evidence: Evidence) -> Iterator[str]:
    """The evidence's lines, or which result has them already."""
    if result.evidence_at not in (None, result.rank):
        yield f"see [{result.evidence_at}]"
    else:
        yield from map(format_line, evidence.lines)


def _shown(result: SearchResult, bold: bool) -> list[str]:
    """The snippet's lines, safe; the matches bold if asked for."""
    before, after = (_BOLD, _PLAIN) if bold else ("", "")
    pieces = [
        f"{before}{clean}{after}" if matched else clean
        for part, matched in split_at_matches(result.snippet, result.matches)
        for clean in [safe(_BREAK.sub("\n", part))]
    ]
    return "".join(pieces).split("\n")


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
