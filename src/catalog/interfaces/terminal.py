"""Results as a terminal shows them: the same text in every process."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.cells import cell_len

from catalog.core.dates import display_date
from catalog.core.text import counted
from catalog.interfaces.plain_text import (
    LEAST_COLUMNS,
    complaint,
    fit,
    json_text,
    one_line,
    safe,
    shorten,
    wrap,
)
from catalog.interfaces.terminal_snippets import snippet_lines
from catalog.retrieval.citations import format_headings, format_shown_place

if TYPE_CHECKING:
    from catalog.core.answers import Answer, AnswerEvent, AnswerSentence, Artifact
    from catalog.core.results import (
        CatalogPage,
        Explanation,
        SearchResult,
        SearchResults,
        StageReport,
    )

_INDENT = "    "
_LONGEST_DATE = 40  # characters; the text there may not be a date
_LANGUAGES_SHOWN = 3
_QUERY_SHOWN = 60  # characters of an expansion
_EVIDENCE_SHOWN = 2000  # characters of a recording around a passage
_LEAST_TITLE = 8  # columns
_COPIES_SHOWN = 3
HARDLY = 0.05  # relevance below which a passage is only named here, and folded away on the page


@dataclass(frozen=True, slots=True)
class Form:
    """Options of printing an answer.

    ``bold``: the terminal can show matches so; ``explain``: say how scores came about and what each
    stage did; ``numbers``: number the lines; ``width``: columns of the terminal, ``None`` where
    lines are not wrapped.
    """

    json: bool = False
    bold: bool = False
    explain: bool = False
    numbers: bool = False
    width: int | None = None


class TerminalText(NamedTuple):
    """Text for standard output and standard error, and the exit code."""

    out: str
    err: str = ""
    code: int = 0

    @classmethod
    def of_lines(cls, out: Iterable[str], err: Iterable[str] = ()) -> TerminalText:
        """Return the text of the lines, each ended."""
        return cls("".join(f"{line}\n" for line in out), "".join(f"{line}\n" for line in err))


def render(verb: str, result: Any, form: Form) -> TerminalText:
    """Return the text that the verb's command prints for a result."""
    if form.json:
        from catalog.interfaces.calls import to_json

        return TerminalText.of_lines([json_text(to_json(result))])
    match verb:
        case "search":
            return passages_text(result, form)
        case "ask":
            return _answer_text(result, form)
        case "generate":
            return _artifact_text(result)
        case "get":
            lines = _document_lines(result, numbers=form.numbers)
            return TerminalText.of_lines(lines, map(complaint, result["notes"]))
        case "multi_get":
            return documents_text(result, numbers=form.numbers)
        case "browse":
            return TerminalText.of_lines(_catalog_lines(result, form.width), _page_account(result))
        case "status":
            lines = (fit(safe(line), form.width, " " * 17) for line in _status_lines(result))
            return TerminalText.of_lines(lines)
    raise ValueError(f"no text for {verb!r}")


def _duration(ms: float) -> str:
    """Return ``85 ms``, ``2.1 s`` or ``3 min 5 s``."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


# The documents of a listing, documents, and the store's status.


def _page_account(page: CatalogPage) -> Iterator[str]:
    first, last = page.offset + 1, page.offset + len(page.entries)
    types = ", ".join(f"{count} {name}" for name, count in page.types.items())
    extent = f"{first}-{last} of" if page.entries else "0 of"
    documents = counted(page.total, "document") + (f" ({types})" if types else "")
    yield safe(f"{extent} {documents} in {_duration(page.elapsed_ms)}")
    yield from map(complaint, page.notes)


def _catalog_lines(page: CatalogPage, width: int | None) -> Iterator[str]:
    for number, entry in enumerate(page.entries, start=page.offset + 1):
        name = entry.path if page.dataset else entry.source_doc_id
        yield safe(f"[{number}] {one_line(name)}  #{entry.docid}")
        file = entry.path.rpartition("/")[2]
        date = one_line(display_date(entry.date or ""))[:_LONGEST_DATE]
        size = (entry.characters, "character") if entry.bytes is None else (entry.bytes, "byte")
        size_of = f"{counted(*size)} in {counted(entry.chunks, 'passage')}"
        tags = " ".join(f"#{one_line(tag)}" for tag in entry.tags)
        told = ["  ".join(filter(None, (entry.file_type, date, size_of, tags)))]
        if entry.title not in (entry.path, file, file.rpartition(".")[0]):
            told.insert(0, one_line(entry.title))
        if entry.matching is not None:
            more = entry.matching - len(entry.places)
            places = one_line(", ".join(entry.places)) + (f" and {more:,} more" if more else "")
            told.append(f"{counted(entry.matching, 'passage')}: {places}")
        yield from (fit(safe(f"{_INDENT}{line}"), width) for line in told)
        if entry.matching is None and entry.summary:
            yield from wrap(safe(f"{_INDENT}{one_line(entry.summary)}"), width, _INDENT)
        yield ""
    if page.total == 0:
        yield fit(safe(f"No document in {' or '.join(page.datasets)} matches."), width)
    elif not page.entries:
        total = counted(page.total, "document")
        yield fit(f"There is no document {page.offset + 1}: the listing has {total}.", width)


def documents_text(answer: Mapping[str, Any], *, numbers: bool) -> TerminalText:
    """Return each document under its name; for standard error those left out."""

    def lines() -> Iterator[str]:
        for document in answer["documents"]:
            yield safe(f"==> {document['source_doc_id']}  #{document['docid']} <==")
            yield from _document_lines(document, numbers=numbers)
            yield ""

    skipped = [f"not returned: {item['path']}: {item['reason']}" for item in answer["skipped"]]
    return TerminalText.of_lines(lines(), map(complaint, (*skipped, *answer["notes"])))


def _document_lines(document: Mapping[str, Any], *, numbers: bool) -> Iterator[str]:
    lines = document["text"].split("\n")  # one more than there are, if the last one is ended
    for number, line in zip(document["numbers"], lines, strict=False):
        shown = "" if number is None else number
        yield safe(f"{shown:>6}  {line}" if numbers else line)


def describe_origin(preset: str | None, settings: Mapping[str, Any]) -> str:
    """Return a description of the preset and settings of a dataset."""
    from catalog.core.settings.loading import describe_shaping

    return describe_shaping(preset, settings) if settings else "settings its next update will note"


def _status_lines(status: Mapping[str, Any]) -> Iterator[str]:
    for name, value in status.items():
        if isinstance(value, Mapping):
            one_of = {"entries": "entry", "hits": "hit"}
            value = ", ".join(counted(count, one_of[what]) for what, count in value.items())
        if name != "datasets" and value is not None:  # a store without vectors has no model yet
            yield f"{name:16} {value}"
    for dataset in status["datasets"]:
        yield f"dataset          {dataset['dataset']}: {', '.join(_dataset_facts(dataset))}"
    if not status["datasets"]:
        yield "no dataset yet: create one with 'catalog index build FOLDER'"


def _dataset_facts(dataset: Mapping[str, Any]) -> Iterator[str]:
    """Yield counts, languages, and where a dataset came from, which a role does not see."""
    yield counted(dataset["documents"], "document")
    yield count_passages(dataset["chunks"], dataset["embedded"])
    if languages := list(dataset.get("languages", ())):
        yield f"in {', '.join(languages[:_LANGUAGES_SHOWN])}"
    if "root" in dataset and not dataset["root"] and not dataset["settings"]:
        yield "made by a pipeline"
    elif "root" in dataset:
        yield f"from {dataset['root']}" if dataset["root"] else "without a folder"
        yield f"made with {describe_origin(dataset['preset'], dataset['settings'])}"


def count_passages(passages: int, embedded: int) -> str:
    """Return ``23 passages, all embedded``, or the share that is, in per cent rounded down."""
    count = counted(passages, "passage")
    if embedded == passages:
        return f"{count}{', all embedded' * (passages > 0)}"
    share = embedded / passages  # as a search's notes say it
    return f"{count}, {embedded:,} embedded ({math.floor(100 * share)} %)"


# Passages, and how the search went.


def passages_text(results: SearchResults, form: Form) -> TerminalText:
    """Return the passages; for standard error their number, and failures.

    A passage of a recording is shown as its evidence. One that shares the evidence of an earlier
    passage refers to that.
    """
    return TerminalText.of_lines(
        _passage_lines(results, form), _search_account(results, explain=form.explain)
    )


def _passage_lines(results: SearchResults, form: Form) -> Iterator[str]:
    if results.low_confidence and len(results) > 0:
        doubt = "low confidence: perhaps none of these passages answers the query"
        yield from (fit(doubt, form.width), "")
    ranks = {result.rank for result in results}
    strong = max(1, sum(one.relevance >= HARDLY for one in results))
    shown = len(results) if form.explain else strong
    for number, result in enumerate(results):
        dataset = result.dataset if len(results.datasets) > 1 else ""
        if number < shown:
            yield from (*_result_lines(result, dataset, ranks, form), "")
            continue
        if number == shown:
            yield f"{len(results) - shown} more that hardly match:"
        yield from _first_lines(result, dataset, form.width)
    if len(results) == 0:
        where = " or ".join(map(repr, results.datasets))
        lines = [f"No passage of {where} answers {results.query!r}."]
        if results.searched is not None:
            lines.append(one_line(results.searched))
        if results.nearest:
            nearest = one_line(", ".join(results.nearest))
            lines.append(f"Nearest without these conditions: {nearest}")
        yield from (fit(safe(line), form.width) for line in lines)


def _result_lines(
    result: SearchResult, dataset: str, told: Collection[int], form: Form
) -> Iterator[str]:
    """Yield the lines of a result; ``told`` has the ranks of all results that are shown.

    ``dataset`` is printed with it unless it is empty.
    """
    evidence = result.evidence
    yield from _first_lines(result, dataset, form.width)
    if evidence is None:
        width = None if form.width is None else max(LEAST_COLUMNS, form.width - len(_INDENT))
        lines = snippet_lines(result, width=width, bold=form.bold)
        yield from (f"{_INDENT}{line}" for line in lines)
    elif result.evidence_at != result.rank and result.evidence_at in told:
        yield f"{_INDENT}see [{result.evidence_at}]"
    else:
        from catalog.retrieval.recordings import cut_lines, format_lines

        spoken = cut_lines(evidence.lines, _EVIDENCE_SHOWN, anchors=evidence.anchors)
        for line in map(safe, format_lines(spoken, evidence.best_sentence, _INDENT)):
            yield from wrap(line, form.width, 2 * _INDENT)
    if result.link is not None:
        yield safe(f"{_INDENT}{result.link}")
    if result.also_in:
        places = [
            f"{f'{other.dataset}:' if dataset else ''}{one_line(format_shown_place(other))}"
            for other in result.also_in
        ]
        more = len(places) - _COPIES_SHOWN
        others = ", ".join(places[:_COPIES_SHOWN]) + (f" and {more} more" if more > 0 else "")
        yield from wrap(safe(f"{_INDENT}also in {others}"), form.width, 2 * _INDENT)
    if form.explain:
        facts = [f"#{result.docid}  {one_line(', '.join(result.tags))}".rstrip()]
        if result.explain is not None:
            facts += explanation_lines(result.explain)
        yield from (fit(safe(f"{_INDENT}{line}"), form.width) for line in facts)


def _first_lines(result: SearchResult, dataset: str, width: int | None) -> Iterator[str]:
    """Yield title and headings, place and number; the place on a separate line if space is short.

    Then the title is shortened, but never the place, because ``get`` takes it.
    """
    within = f"{dataset}:" if dataset else ""
    if result.evidence is not None:
        title, place = f"{within}{result.evidence.media}", result.modality.replace("_", " ")
    else:
        title, place = _title(result), f"{within}{format_shown_place(result)}"
        title += " (quoted)" if result.modality == "quote" else ""
        if result.original is not None:
            place = f"{result.original} — {place}"
    title, place = safe(one_line(title)), safe(one_line(place))
    rank, number = f"[{result.rank}] ", result.certainty
    whole = f"{rank}{' — '.join(filter(None, (title, place)))}  {number}"
    if width is None or cell_len(whole) <= width or not title:
        yield whole
        return
    room = width - len(rank) - len(number) - 2
    yield f"{rank}{shorten(title, max(room, _LEAST_TITLE))}  {number}"
    yield f"{_INDENT}{place}"


def _title(result: SearchResult) -> str:
    """Return the title and the headings; leave out a file name or a title equal to the first."""
    others = result.sections[len(result.heading_path) :]
    name = result.path.rpartition("/")[2]
    title = one_line(result.title)
    path = [one_line(heading) for heading in result.heading_path]
    known = (result.path, name, name.rpartition(".")[0], "", *path[:1], *others[:1])
    return format_headings(path if title in known else [title, *path], others)


def _search_account(results: SearchResults, *, explain: bool) -> Iterator[str]:
    """Yield the number of passages, notes and failures; with ``explain`` also the stages."""
    told = [f"{counted(len(results), 'passage')} in {_duration(results.elapsed_ms)}"]
    if results.agent is not None:
        told.append(f"as agent {one_line(results.agent)}")
    # of changes to the query itself, for example that it was cut
    notes = [stage.note for stage in results.stages if stage.name == "normalise" and stage.note]
    yield safe("; ".join([*told, *map(one_line, notes)]))
    if explain:
        yield from map(safe, stage_lines(results.stages))
    yield from map(complaint, results.notes)
    yield from _failed_stages(results.stages)


def _failed_stages(stages: Iterable[StageReport]) -> Iterator[str]:
    for stage in stages:
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
    lists = []
    for part in explain.contributions:
        query = shorten(one_line(part.query), _QUERY_SHOWN)
        expansion = f', expansion "{query}",' if part.origin == "expansion" else ""
        lists.append(
            f"{part.contribution:+.6f}  {part.leg} ({part.engine}){expansion} rank {part.rank}, "
            f"score {part.raw_score:.4f}, weight {part.weight:.4g}"
        )
    if explain.bonus:
        kind = "top-rank" if explain.fusion == "rrf" else "words"
        lists.append(f"{explain.bonus:+.6f}  {kind} bonus")
    if (recency := explain.recency) is not None:
        lists.append(
            f"×{recency.factor:.6f}  recency ({recency.age_days:.0f} days old, "
            f"half-life {recency.half_life_days:g} days)"
        )
    branches = [f"├─ {line}" for line in lists[:-1]] + [f"└─ {line}" for line in lists[-1:]]
    if (reranked := explain.rerank) is None:
        yield f"score {explain.score:.6f} ({explain.fusion})"
        yield from branches
        return
    yield f"score {explain.score:.6f}"
    yield (
        f"├─ fused ({explain.fusion}) {explain.fused:.6f} → {reranked.fused_part:.6f} "
        f"of the {reranked.blend} blend"
    )
    yield from (f"│  {line}" for line in branches)
    score = "not read" if reranked.raw_score is None else f"score {reranked.raw_score:.4f}"
    if reranked.relevance is not None:
        score += f", relevance {100 * reranked.relevance:.0f} %"
    yield (
        f"└─ reranked ({reranked.model.rsplit('/', 1)[-1]}) rank {reranked.rank} before, {score} "
        f"→ {reranked.rerank_part:+.6f}"
    )


# Answers: sentences, sources, and what to know.


def _answer_text(answer: Answer, form: Form) -> TerminalText:
    """Return the answer and its sources; for standard error how it was made, and notes."""
    lines = [*_wrapped(answer.text, form.width), *_source_lines(answer, form.width)]
    return TerminalText.of_lines(lines, _answer_account(answer))


def stream_answer(events: Iterable[AnswerEvent], form: Form) -> Iterator[str | TerminalText]:
    """Yield the text of each sentence as it arrives, and last the text to print after them.

    That is the whole answer if it differs from the printed sentences, because a model may fail
    meanwhile.
    """
    written = shown = ""
    answer: Answer | None = None
    for event in events:
        if event.sentence is not None:
            part = f"{event.sentence.breaks}{event.sentence.marked()}"
            part = part if written else part.lstrip()
            written += part
            laid_out = "\n".join(_wrapped(written, form.width))
            yield laid_out.removeprefix(shown) if laid_out.startswith(shown) else safe(part)
            shown = laid_out
        answer = event.answer or answer
    assert answer is not None
    if written != answer.text:
        whole = _answer_text(answer, form)
        yield whole._replace(out=("\n\n" if written else "") + whole.out)
    else:
        rest = TerminalText.of_lines(_source_lines(answer, form.width), _answer_account(answer))
        yield rest._replace(out=f"\n{rest.out}")


def _wrapped(text: str, width: int | None) -> Iterator[str]:
    yield from (part for line in safe(text).split("\n") for part in wrap(line, width))


def _source_lines(answer: Answer, width: int | None) -> Iterator[str]:
    """Yield the sources by number or, without an answer, the nearest documents."""
    if (abstained := answer.abstained) is not None:
        near = [f"nearest: {one_line(f'{one.path} — {one.title}')}" for one in abstained.nearest]
        lines = [f"why: {abstained.reason}", *near, abstained.ingest]
        yield from (fit(safe(line), width) for line in lines)
        return
    by_rank = {result.rank: result for result in answer.results}
    yield ""
    for citation in answer.citations:
        place = format_shown_place(
            by_rank[citation.rank].model_copy(update={"snippet_locator": citation.locator})
        )
        within = f"{citation.dataset}:" if len(answer.results.datasets) > 1 else ""
        doubt = "" if citation.verified else "  (does not support it)"
        place = safe(f"{within}{place}{doubt}")
        source = safe(f"[{citation.n}] {one_line(citation.citation)}")
        if width is None or cell_len(f"{source} — {place}") <= width:
            yield f"{source} — {place}"
        else:
            yield from (fit(source, width), f"{_INDENT}{place}")
        if citation.link is not None:
            yield safe(f"{_INDENT}{citation.link}")


def _answer_account(answer: Answer) -> Iterator[str]:
    yield _writer(answer)
    yield from map(complaint, answer.notes)
    yield from _doubt_lines(answer.sentences, answer.stages)


def _writer(made: Answer | Artifact) -> str:
    who = f"by {one_line(made.model)}, " if made.model else ""
    return safe(
        f"{who}from {counted(len(made.results), 'passage')} in {_duration(made.elapsed_ms)}"
    )


def _doubt_lines(
    sentences: Iterable[AnswerSentence], stages: Iterable[StageReport]
) -> Iterator[str]:
    """Yield the unsupported sentences with reasons, and the failed stages."""
    for sentence in sentences:
        if not sentence.supported:
            start = one_line(sentence.text)[:60]
            yield complaint(f"unsupported: {start!r}: {'; '.join(sentence.reasons)}")
    yield from _failed_stages(stages)


def _artifact_text(artifact: Artifact) -> TerminalText:
    """Return the artifact in Markdown; for standard error its making, and the missing parts."""
    empty: dict[str, list[str]] = {}
    for section in artifact.sections:
        if section.reason is not None:
            empty.setdefault(section.reason, []).append(section.heading.lstrip("# "))
    missing = [f"{', '.join(names)}: {reason}" for reason, names in empty.items()]
    sentences = [one for section in artifact.sections for one in section.sentences]
    notes = map(complaint, (*missing, *artifact.notes))
    account = [_writer(artifact), *notes, *_doubt_lines(sentences, artifact.stages)]
    return TerminalText.of_lines(map(safe, artifact.markdown.split("\n")), account)
