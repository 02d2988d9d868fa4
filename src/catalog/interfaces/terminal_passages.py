"""Passages for a person to read in a terminal, and how the search went."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from catalog.core.results import (
    Contribution,
    Explanation,
    Reranked,
    SearchResult,
    SearchResults,
    StageReport,
)
from catalog.interfaces.plain_text import complaint, one_line, safe
from catalog.interfaces.terminal import Form, TerminalText, format_duration
from catalog.interfaces.terminal_snippets import snippet_lines
from catalog.interfaces.text_layout import LEAST_COLUMNS, display_width, shorten, wrap
from catalog.search_v2.citations import (
    format_headings,
    format_other_place,
    format_snippet_place,
)
from catalog.search_v2.cut_evidence import cut_lines
from catalog.search_v2.evidence import format_lines

_QUERY_SHOWN = 60  # characters of an expansion
_EVIDENCE_SHOWN = 2000  # characters of what a recording holds around a passage
_INDENT = "    "
_LEAST_TITLE = 8  # columns
_COPIES_SHOWN = 3


def passages_text(results: SearchResults, form: Form) -> TerminalText:
    """Return the passages; on standard error how many there are, and what went wrong.

    A passage of a recording is shown as its evidence. One that shares the evidence of an earlier
    passage refers to that.
    """
    return TerminalText.of_lines(
        _passage_lines(results, form), _account_lines(results, explain=form.explain)
    )


def _passage_lines(results: SearchResults, form: Form) -> Iterator[str]:
    if results.low_confidence and len(results) > 0:
        yield "low confidence: no passage answers this surely"
        yield ""
    ranks = {result.rank for result in results}
    for result in results:
        dataset = result.dataset if len(results.datasets) > 1 else ""
        yield from _result_lines(result, dataset, ranks, form)
        yield ""
    if len(results) == 0:
        where = " or ".join(map(repr, results.datasets))
        yield safe(f"No passage of {where} answers {results.query!r}.")
        if results.searched is not None:
            yield safe(one_line(results.searched))
        if results.nearest:
            yield safe(f"Nearest without these conditions: {one_line(', '.join(results.nearest))}")


def _result_lines(
    result: SearchResult, dataset: str, told: Collection[int], form: Form
) -> Iterator[str]:
    """Yield the lines of a result; ``told`` are the ranks of those that are shown.

    ``dataset`` is told with it unless it is empty.
    """
    evidence = result.evidence
    yield from _first_lines(result, dataset, form.width)
    width = None if form.width is None else max(LEAST_COLUMNS, form.width - len(_INDENT))
    if evidence is None:
        bold = form.bold
        yield from (f"{_INDENT}{line}" for line in snippet_lines(result, width=width, bold=bold))
    elif result.evidence_at != result.rank and result.evidence_at in told:
        yield f"{_INDENT}see [{result.evidence_at}]"
    else:
        lines = cut_lines(evidence.lines, _EVIDENCE_SHOWN, anchors=evidence.anchors)
        for line in map(safe, format_lines(lines, evidence.best_sentence, _INDENT)):
            yield from [line] if form.width is None else wrap(line, form.width, 2 * _INDENT)
    if result.link is not None:
        yield safe(f"{_INDENT}{result.link}")
    if result.also_in:
        line = safe(f"{_INDENT}also in {_other_places(result, within=bool(dataset))}")
        yield from [line] if form.width is None else wrap(line, form.width, 2 * _INDENT)
    if form.explain:
        yield safe(f"{_INDENT}#{result.docid}  {one_line(', '.join(result.tags))}").rstrip()
        for line in explanation_lines(result.explain) if result.explain is not None else ():
            yield safe(f"{_INDENT}{line}")


def _other_places(result: SearchResult, *, within: bool) -> str:
    """Return where else the text stands, ``within`` which datasets, and how many more there are."""
    shown = [
        f"{f'{other.dataset}:' if within else ''}{one_line(format_other_place(other))}"
        for other in result.also_in[:_COPIES_SHOWN]
    ]
    more = len(result.also_in) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _first_lines(result: SearchResult, dataset: str, width: int | None) -> Iterator[str]:
    """Yield title and headings, place and number; the place on a line of its own for want of room.

    The title is shortened then, the place never: it is what ``get`` takes.
    """
    evidence = result.evidence
    within = f"{dataset}:" if dataset else ""
    if evidence is not None:
        title, place = f"{within}{evidence.media}", result.modality.replace("_", " ")
    else:
        title, place = _title(result), f"{within}{format_snippet_place(result)}"
        if result.original is not None:
            place = f"{result.original} — {place}"
    title, place = safe(one_line(title)), safe(one_line(place))
    number = result.certainty
    rank = f"[{result.rank}] "
    whole = f"{rank}{' — '.join(filter(None, (title, place)))}  {number}"
    if width is None or display_width(whole) <= width or not title:
        yield whole
        return
    room = width - len(rank) - len(number) - 2
    yield f"{rank}{shorten(title, max(room, _LEAST_TITLE))}  {number}"
    yield f"{_INDENT}{place}"


def _title(result: SearchResult) -> str:
    """Return the title and the headings, of which the title may be the first; no name of a file."""
    others = result.sections[len(result.heading_path) :]
    name = result.path.rpartition("/")[2]
    title = one_line(result.title)
    if title in (result.path, name, name.rpartition(".")[0]):
        title = ""
    path = [one_line(heading) for heading in result.heading_path]
    if title and title not in (*path[:1], *others[:1]):
        path = [title, *path]
    return format_headings(path, others)


def _account_lines(results: SearchResults, *, explain: bool) -> Iterator[str]:
    """Yield how many passages there are, notes and failures; if wanted, what the stages did."""
    shown = len(results)
    count = f"{shown} passage{'' if shown == 1 else 's'} in {format_duration(results.elapsed_ms)}"
    whose = [] if results.agent is None else [f"as agent {one_line(results.agent)}"]
    yield safe("; ".join([count, *whose, *_query_notes(results.stages)]))
    if explain:
        yield from map(safe, stage_lines(results.stages))
    yield from map(complaint, results.notes)
    for stage in results.stages:
        if stage.status == "failed":
            yield complaint(f"stage {stage.name} failed: {one_line(stage.note)}")


def _query_notes(stages: Sequence[StageReport]) -> Iterator[str]:
    """Yield what became of the query itself, such as that it was cut."""
    for stage in stages:
        if stage.name == "normalise" and stage.note:
            yield one_line(stage.note)


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
        kind = "top-rank" if explain.fusion == "rrf" else "words"
        lists.append(f"{explain.bonus:+.6f}  {kind} bonus")
    if (recency := explain.recency) is not None:
        half_life = f"half-life {recency.half_life_days:g} days"
        lists.append(
            f"×{recency.factor:.6f}  recency ({recency.age_days:.0f} days old, {half_life})"
        )
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
