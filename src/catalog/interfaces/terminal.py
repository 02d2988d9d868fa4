"""Results as a terminal shows them: the same text, whichever process made it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from catalog.core.dates import display_date
from catalog.core.results import CatalogEntry, CatalogPage
from catalog.interfaces.plain_text import complaint, json_text, one_line, safe

if TYPE_CHECKING:
    from catalog.interfaces.calls import CallResult, Given, GivenMany


@dataclass(frozen=True, slots=True)
class Form:
    """``bold``: the terminal can show matches so; ``explain``: tell how; ``numbers``: of lines."""

    json: bool = False
    bold: bool = False
    explain: bool = False
    numbers: bool = False


@dataclass(frozen=True, slots=True)
class TerminalText:
    """Text for standard output and standard error, and the exit code."""

    out: str
    err: str = ""
    code: int = 0

    @classmethod
    def of(cls, out: Iterable[str], err: Iterable[str] = ()) -> TerminalText:
        """The lines, each ended."""
        return cls("".join(f"{line}\n" for line in out), "".join(f"{line}\n" for line in err))


def render(operation: str, answer: CallResult, form: Form) -> TerminalText:
    """What a command prints for the operation's answer."""
    if form.json:
        return TerminalText.of([json_text(answer.to_dict())])
    return _text(operation, answer, form)


def _text(operation: str, answer: Any, form: Form) -> TerminalText:
    """Imported when needed: asking a server needs none of it."""
    from catalog.interfaces.terminal_passages import passages_text

    match operation:
        case "search":
            explain, bold = form.explain, form.bold
            return passages_text(answer.results, explain=explain, bold=bold, notes=answer.notes)
        case "get":
            return document_text(answer, numbers=form.numbers)
        case "multi_get":
            return documents_text(answer, numbers=form.numbers)
        case "browse":
            return catalog_text(answer)
        case "status":
            return status_text(answer.status)
    raise ValueError(f"no text for {operation!r}")


_LONGEST_DATE = 40  # characters; what is written there may be no date


def catalog_text(page: CatalogPage) -> TerminalText:
    """The page's documents; how many there are, by type, on standard error."""
    types = ", ".join(f"{count} {name}" for name, count in page.types.items())
    last = page.offset + len(page.entries)
    shown = f"{page.offset + 1}-{last} of {page.total}" if page.entries else f"0 of {page.total}"
    told = f"{shown} {_documents(page)}{f' ({types})' if types else ''} in {page.elapsed_ms:.1f} ms"
    return TerminalText.of(_catalog_lines(page), [safe(told), *map(complaint, page.notes)])


def _catalog_lines(page: CatalogPage) -> Iterator[str]:
    for number, entry in enumerate(page.entries, start=page.offset + 1):
        yield safe(f"[{number}] {one_line(entry.path)}  #{entry.docid}")
        yield safe(f"    {one_line(entry.title)}")
        yield safe(f"    {_about(entry)}")
        if entry.summary:
            yield safe(f"    | {one_line(entry.summary)}")
        yield ""
    if page.total == 0:
        yield safe(f"No document of {page.dataset!r} is like that.")
    elif not page.entries:
        yield safe(f"The listing ends before {page.offset + 1}: {page.total} {_documents(page)}.")


def _documents(page: CatalogPage) -> str:
    return "document" if page.total == 1 else "documents"


def _about(entry: CatalogEntry) -> str:
    date = one_line(display_date(entry.date or ""))[:_LONGEST_DATE]
    passages = "1 passage" if entry.chunks == 1 else f"{entry.chunks:,} passages"
    size = f"{_size_text(entry)} in {passages}"
    tags = " ".join(f"#{one_line(tag)}" for tag in entry.tags)
    return "  ".join(filter(None, (entry.file_type, date, size, tags)))


def _size_text(entry: CatalogEntry) -> str:
    count, unit = (entry.characters, "character") if entry.bytes is None else (entry.bytes, "byte")
    return f"{count:,} {unit}{'' if count == 1 else 's'}"


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


def status_text(status: dict[str, Any]) -> TerminalText:
    """One line for each thing, and one for each dataset."""
    return TerminalText.of(map(safe, _status_lines(status)))


def _status_lines(status: dict[str, Any]) -> Iterator[str]:
    for name, value in status.items():
        if name != "datasets":
            yield f"{name:16} {value}"
    for one in status["datasets"]:
        yield (
            f"dataset          {one['dataset']}: {one['documents']} documents, "
            f"{one['chunks']} chunks, {one['vectors']} of {one['windows']} vectors, "
            f"from {one['root']}"
        )
