"""Documents as they are, with or without numbers of lines."""

from __future__ import annotations

from collections.abc import Iterator

from catalog.interfaces.operations.documents import Given, GivenMany
from catalog.interfaces.terminal.plain import complaint, safe
from catalog.interfaces.terminal.printed import TerminalText


def document_text(answer: Given, *, numbers: bool) -> TerminalText:
    """The lines."""
    return TerminalText.of(_lines(answer, numbers), map(complaint, answer.notes))


def documents_text(answer: GivenMany, *, numbers: bool) -> TerminalText:
    """Each document under its name, and on standard error what was left out."""

    def out() -> Iterator[str]:
        for one in answer.documents:
            yield safe(f"==> {one.found.document.source_doc_id}  #{one.found.document.docid} <==")
            yield from _lines(one, numbers)
            yield ""

    skipped = [f"not given: {one.path}: {one.reason}" for one in answer.skipped]
    return TerminalText.of(out(), map(complaint, (*skipped, *answer.notes)))


def _lines(answer: Given, numbers: bool) -> Iterator[str]:
    for number, line in enumerate(answer.found.lines, start=answer.found.line_start):
        yield safe(f"{number:6}  {line}" if numbers else line)
