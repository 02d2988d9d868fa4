"""Passages for a person to read in a terminal, and how the search went."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from catalog.core.results import (
    Contribution,
    Explanation,
    Reranked,
    SearchResult,
    SearchResults,
    StageReport,
)
from catalog.interfaces.plain_text import complaint, one_line, safe
from catalog.interfaces.terminal import TerminalText
from catalog.search_v2.citations import format_header, format_headings, split_at_matches
from catalog.search_v2.evidence import cut_lines, format_lines

_QUERY_SHOWN = 60  # characters of an expansion
_EVIDENCE_SHOWN = 2000  # characters of what a recording holds around a passage
_BREAK = re.compile(r"\r\n|\n|\r")
_BOLD, _PLAIN = "\x1b[1m", "\x1b[22m"


def passages_text(results: SearchResults, *, explain: bool, bold: bool) -> TerminalText:
    """Return the passages; on standard error how the search went.

    A passage of a recording is shown as its evidence. One that shares the evidence of an earlier
    passage refers to that.
    """
    return TerminalText.of_lines(
        _passage_lines(results, explain=explain, bold=bold),
        _account_lines(results, explain=explain),
    )


def _passage_lines(results: SearchResults, *, explain: bool, bold: bool) -> Iterator[str]:
    if results.low_confidence:
        best = f" (best {_per_cent(results.confidence)})" if results.confidence is not None else ""
        yield f"low confidence: nothing here answers surely{best}"
        yield ""
    for result in results:
        dataset = result.dataset if len(results.datasets) > 1 else ""
        yield from _result_lines(result, dataset, explain=explain, bold=bold)
        yield ""
    if len(results) == 0:
        where = " or ".join(map(repr, results.datasets))
        yield safe(f"No passage of {where} answers {results.query!r}.")


def _result_lines(
    result: SearchResult, dataset: str, *, explain: bool, bold: bool
) -> Iterator[str]:
    """Yield the lines of a passage; ``dataset`` is told with it unless it is empty."""
    evidence = result.evidence
    name = " — ".join(filter(None, (result.original, format_header(result))))
    if evidence is not None:
        name = one_line(f"{evidence.media} — {result.modality.replace('_', ' ')}")
    if dataset:
        name = f"{dataset}: {name}"
    relevance = f"  relevance {_per_cent(result.relevance)}" if result.relevance is not None else ""
    yield safe(f"[{result.rank}] {name}  score {result.score:.4f}{relevance}  #{result.docid}")
    if evidence is None:
        others = result.sections[len(result.heading_path) :]
        yield safe(f"    {format_headings(result.heading_path, others) or result.title}")
        for line in _snippet_lines(result, bold=bold):
            yield f"    | {line}"
    elif result.evidence_at not in (None, result.rank):
        yield f"    see [{result.evidence_at}]"
    else:
        lines = cut_lines(evidence.lines, _EVIDENCE_SHOWN, anchors=evidence.anchors)
        yield from map(safe, format_lines(lines, evidence.best_sentence, "    "))
    if result.tags:
        yield safe(f"    tags: {one_line(', '.join(result.tags))}")
    if result.link is not None:
        yield safe(f"    {result.link}")
    if explain and result.explain is not None:
        for line in explanation_lines(result.explain):
            yield safe(f"    {line}")


def _snippet_lines(result: SearchResult, *, bold: bool) -> list[str]:
    """Return the lines of the snippet, safe; the matches bold if wanted."""
    before, after = (_BOLD, _PLAIN) if bold else ("", "")
    pieces = []
    for text, is_match in split_at_matches(result.snippet, result.matches):
        clean = safe(_BREAK.sub("\n", text))
        pieces.append(f"{before}{clean}{after}" if is_match else clean)
    return "".join(pieces).split("\n")


def _account_lines(results: SearchResults, *, explain: bool) -> Iterator[str]:
    """Return how many passages there are and what the stages did, notes, and failures."""
    count = f"{len(results)} passages in {results.elapsed_ms:.1f} ms:"
    if explain:
        yield count
        yield from map(safe, stage_lines(results.stages))
    else:
        stages = ", ".join(
            f"{stage.name} {stage.ms:.1f} ms" + (f" ({one_line(stage.note)})" if stage.note else "")
            for stage in results.stages
            if stage.status == "ran" and (stage.note or stage.name not in ("normalise", "shape"))
        )
        yield safe(f"{count} {stages}")
    yield from map(complaint, results.notes)
    for stage in results.stages:
        if stage.status == "failed":
            yield complaint(f"stage {stage.name} failed: {one_line(stage.note)}")


def stage_lines(stages: Sequence[StageReport]) -> Iterator[str]:
    """Yield one line for each stage: name, status, milliseconds and note."""
    width = max((len(stage.name) for stage in stages), default=0)
    for stage in stages:
        note = one_line(stage.note)
        yield f"{stage.name:<{width}}  {stage.status:<7}  {stage.ms:8.1f} ms  {note}".rstrip()


def explanation_lines(explain: Explanation) -> Iterator[str]:
    """Yield the score as a tree of its parts, six decimals each; the last may be a digit off."""
    lists = [_contribution_line(part) for part in explain.contributions]
    if explain.bonus:
        lists.append(f"{explain.bonus:+.6f}  top-rank bonus")
    reranked = explain.rerank
    if reranked is None:
        yield f"score {explain.score:.6f} ({explain.fusion})"
        yield from _branches(lists)
        return
    yield f"score {explain.score:.6f}"
    yield (
        f"├─ fused ({explain.fusion}) {explain.fused:.6f} → {reranked.fused_part:.6f} "
        f"of the {reranked.blend} blend"
    )
    yield from (f"│  {line}" for line in _branches(lists))
    yield f"└─ {_rerank_line(reranked)}"


def _branches(lines: Sequence[str]) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        yield f"{'└─' if number == len(lines) else '├─'} {line}"


def _contribution_line(part: Contribution) -> str:
    expansion = f", expansion {_quoted(part.query)}," if part.origin == "expansion" else ""
    return (
        f"{part.contribution:+.6f}  {part.leg} ({part.engine}){expansion} rank {part.rank}, "
        f"score {part.raw_score:.4f}, weight {part.weight:.4g}"
    )


def _rerank_line(reranked: Reranked) -> str:
    model = reranked.model.rsplit("/", 1)[-1]
    score = "not read" if reranked.raw_score is None else f"score {reranked.raw_score:.4f}"
    if reranked.relevance is not None:
        score += f", relevance {100 * reranked.relevance:.0f} %"
    return f"reranked ({model}) rank {reranked.rank} before, {score} → {reranked.rerank_part:+.6f}"


def _quoted(query: str) -> str:
    line = one_line(query)
    return f'"{line}"' if len(line) <= _QUERY_SHOWN else f'"{line[: _QUERY_SHOWN - 1].rstrip()}…"'


def _per_cent(share: float) -> str:
    return f"{100 * share:.0f} %"
