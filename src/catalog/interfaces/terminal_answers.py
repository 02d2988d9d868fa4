"""An answer for a person to read in a terminal: its sentences, its sources, and what to know."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

from catalog.core.answers import Abstained, Answer, AnswerCitation, AnswerEvent, AnswerSentence
from catalog.core.artifacts import Artifact
from catalog.core.results import SearchResult, StageReport
from catalog.interfaces.plain_text import complaint, one_line, safe
from catalog.interfaces.terminal import Form, TerminalText, format_duration
from catalog.interfaces.text_layout import wrap
from catalog.search_v2.citations import format_snippet_place

_INDENT = "    "


def answer_text(answer: Answer, form: Form) -> TerminalText:
    """Return the answer and its sources; on standard error how it was made, and notes."""
    return TerminalText.of_lines(
        [*_answer_lines(answer, form), *source_lines(answer, form)], account_lines(answer)
    )


def stream_answer(events: Iterable[AnswerEvent], form: Form) -> Generator[str, None, TerminalText]:
    """Yield the text of each sentence as it comes and return what is to be printed after them.

    That is the whole answer where it is not what was written: a model may fail on its way.
    """
    written = ""
    answer: Answer | None = None
    for event in events:
        if event.sentence is not None:
            part = f"{event.sentence.breaks}{event.sentence.marked()}"
            part = part if written else part.lstrip()
            yield safe(part)
            written += part
        answer = event.answer or answer
    assert answer is not None
    if written != answer.text:
        whole = answer_text(answer, form)
        return whole._replace(out=("\n\n" if written else "") + whole.out)
    rest = TerminalText.of_lines(source_lines(answer, form), account_lines(answer))
    return rest._replace(out=f"\n{rest.out}")


def source_lines(answer: Answer, form: Form) -> Iterator[str]:
    """Yield the sources by number or, of an answer that is none, the nearest documents."""
    if answer.abstained is not None:
        yield from _abstention_lines(answer.abstained, form)
        return
    by_number = {result.rank: result for result in answer.results}
    yield ""
    for citation in answer.citations:
        yield from _citation_lines(citation, by_number[citation.n], len(answer.results.datasets))


def account_lines(answer: Answer) -> Iterator[str]:
    """Yield who wrote the answer, from how many passages, how long it took, and the notes."""
    yield _account(answer.model, len(answer.results), answer.elapsed_ms)
    yield from map(complaint, answer.notes)
    yield from _doubt_lines(answer.sentences, answer.stages)


def _account(model: str | None, count: int, ms: float) -> str:
    who = f"by {one_line(model)}, " if model else ""
    passages = f"{count} passage{'' if count == 1 else 's'}"
    return safe(f"{who}from {passages} in {format_duration(ms)}")


def _doubt_lines(
    sentences: Iterable[AnswerSentence], stages: Iterable[StageReport]
) -> Iterator[str]:
    """Yield which sentences are unsupported and why, and which stages failed."""
    for sentence in sentences:
        if not sentence.supported:
            start = one_line(sentence.text)[:60]
            yield complaint(f"unsupported: {start!r}: {'; '.join(sentence.reasons)}")
    for stage in stages:
        if stage.status == "failed":
            yield complaint(f"stage {stage.name} failed: {one_line(stage.note)}")


def artifact_text(artifact: Artifact) -> TerminalText:
    """Return the artifact in Markdown; on standard error how it was made, and what is missing."""
    missing = [
        f"no evidence for {section.heading.lstrip('# ')}: {section.reason}"
        for section in artifact.sections
        if section.reason is not None
    ]
    sentences = [one for section in artifact.sections for one in section.sentences]
    account = [
        _account(artifact.model, len(artifact.results), artifact.elapsed_ms),
        *map(complaint, (*missing, *artifact.notes)),
        *_doubt_lines(sentences, artifact.stages),
    ]
    return TerminalText.of_lines(map(safe, artifact.markdown.split("\n")), account)


def _answer_lines(answer: Answer, form: Form) -> Iterator[str]:
    for line in safe(answer.text).split("\n"):
        yield from [line] if form.width is None else wrap(line, form.width, "")


def _citation_lines(citation: AnswerCitation, result: SearchResult, datasets: int) -> Iterator[str]:
    within = f"{citation.dataset}:" if datasets > 1 else ""
    at = citation.locator
    lines = (at.line_start, at.line_end) if at.unit == "line" and at.line_start else None
    shown = result.model_copy(update={"snippet_locator": at, "snippet_lines": lines})
    place = f"{within}{format_snippet_place(shown)}"
    doubt = "" if citation.verified else "  (does not say so)"
    yield safe(f"[{citation.n}] {one_line(citation.citation)} — {place}{doubt}")
    if citation.link is not None:
        yield safe(f"{_INDENT}{citation.link}")


def _abstention_lines(abstained: Abstained, form: Form) -> Iterator[str]:
    lines = [f"why: {abstained.reason}"]
    lines += [f"nearest: {one_line(f'{near.path} — {near.title}')}" for near in abstained.nearest]
    for line in map(safe, [*lines, abstained.ingest]):
        yield from [line] if form.width is None else wrap(line, form.width, _INDENT)
