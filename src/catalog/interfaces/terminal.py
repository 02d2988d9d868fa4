"""Results as a terminal shows them: the same text, whichever process made it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from catalog.core.catalog_page import CatalogEntry, CatalogPage
from catalog.core.dates import display_date
from catalog.core.settings import describe_shaping
from catalog.interfaces.plain_text import complaint, json_text, one_line, safe
from catalog.interfaces.text_layout import wrap

_LONGEST_DATE = 40  # characters; what is written there may be no date


@dataclass(frozen=True, slots=True)
class Form:
    """Options of printing an answer.

    ``bold``: the terminal can show matches so; ``explain``: say how scores came about and what
    each stage did; ``numbers``: number the lines; ``width``: columns of the terminal, ``None``
    where lines stay as they are.
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


_LANGUAGES_SHOWN = 3


def render(verb: str, result: Any, form: Form) -> TerminalText:
    """Return what the verb's command prints for the result of its function."""
    if form.json:
        from catalog.interfaces.calls import to_json

        return TerminalText.of_lines([json_text(to_json(result))])
    match verb:
        case "search":
            from catalog.interfaces.terminal_passages import passages_text

            return passages_text(result, form)
        case "ask":
            from catalog.interfaces.terminal_answers import answer_text

            return answer_text(result, form)
        case "generate":
            from catalog.interfaces.terminal_answers import artifact_text

            return artifact_text(result)
        case "get":
            lines = _document_lines(result, numbers=form.numbers)
            return TerminalText.of_lines(lines, map(complaint, result["notes"]))
        case "multi_get":
            return documents_text(result, numbers=form.numbers)
        case "browse":
            return catalog_text(result, form.width)
        case "status":
            return TerminalText.of_lines(map(safe, _status_lines(result)))
    raise ValueError(f"no text for {verb!r}")


def format_duration(ms: float) -> str:
    """Return ``85 ms``, ``2.1 s`` or ``3 min 5 s``."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def catalog_text(page: CatalogPage, width: int | None = None) -> TerminalText:
    """Return the page's documents; on standard error how many there are, by type.

    Summaries are wrapped to ``width`` columns, if any.
    """
    types = ", ".join(f"{count} {name}" for name, count in page.types.items())
    last = page.offset + len(page.entries)
    extent = f"{page.offset + 1}-{last} of {page.total}" if page.entries else f"0 of {page.total}"
    counts = f"{extent} {_documents(page)}{f' ({types})' if types else ''}"
    account = safe(f"{counts} in {format_duration(page.elapsed_ms)}")
    return TerminalText.of_lines(
        _catalog_lines(page, width), [account, *map(complaint, page.notes)]
    )


def _catalog_lines(page: CatalogPage, width: int | None) -> Iterator[str]:
    for number, entry in enumerate(page.entries, start=page.offset + 1):
        name = entry.path if page.dataset else entry.source_doc_id
        yield safe(f"[{number}] {one_line(name)}  #{entry.docid}")
        file = entry.path.rpartition("/")[2]
        if entry.title not in (entry.path, file, file.rpartition(".")[0]):
            yield safe(f"    {one_line(entry.title)}")
        yield safe(f"    {_entry_facts(entry)}")
        if entry.summary:
            summary = safe(f"    {one_line(entry.summary)}")
            yield from [summary] if width is None else wrap(summary, width, "    ")
        yield ""
    if page.total == 0:
        yield safe(f"No document of {' or '.join(map(repr, page.datasets))} is like that.")
    elif not page.entries:
        yield safe(f"The listing ends before {page.offset + 1}: {page.total} {_documents(page)}.")


def _documents(page: CatalogPage) -> str:
    return "document" if page.total == 1 else "documents"


def _entry_facts(entry: CatalogEntry) -> str:
    """Return type, date, size and tags of a document, where known."""
    date = one_line(display_date(entry.date or ""))[:_LONGEST_DATE]
    count, unit = (entry.characters, "character") if entry.bytes is None else (entry.bytes, "byte")
    passages = "1 passage" if entry.chunks == 1 else f"{entry.chunks:,} passages"
    size = f"{count:,} {unit}{'' if count == 1 else 's'} in {passages}"
    tags = " ".join(f"#{one_line(tag)}" for tag in entry.tags)
    return "  ".join(filter(None, (entry.file_type, date, size, tags)))


def documents_text(answer: Mapping[str, Any], *, numbers: bool) -> TerminalText:
    """Return each document under its name; on standard error which were left out."""

    def lines() -> Iterator[str]:
        for document in answer["documents"]:
            yield safe(f"==> {document['source_doc_id']}  #{document['docid']} <==")
            yield from _document_lines(document, numbers=numbers)
            yield ""

    skipped = [f"not given: {item['path']}: {item['reason']}" for item in answer["skipped"]]
    return TerminalText.of_lines(lines(), map(complaint, (*skipped, *answer["notes"])))


def _document_lines(document: Mapping[str, Any], *, numbers: bool) -> Iterator[str]:
    lines = document["text"].split("\n")  # one more than there are, if the last one is ended
    for number, line in zip(document["numbers"], lines, strict=False):
        shown = "" if number is None else number
        yield safe(f"{shown:>6}  {line}" if numbers else line)


def describe_origin(preset: str | None, settings: Mapping[str, Any]) -> str:
    """Say what a dataset was made with."""
    return describe_shaping(preset, settings) if settings else "settings its next update will note"


def _describe_source(dataset: Mapping[str, Any]) -> list[str]:
    """Say where a dataset came from and what it was made with."""
    if not dataset["root"] and not dataset["settings"]:
        return ["made by a pipeline"]
    origin = describe_origin(dataset["preset"], dataset["settings"])
    place = f"from {dataset['root']}" if dataset["root"] else "without a folder"
    return [place, f"made with {origin}"]


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _status_lines(status: Mapping[str, Any]) -> Iterator[str]:
    for name, value in status.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{count} {what}" for what, count in value.items())
        if name != "datasets" and value is not None:  # a store without vectors has no model yet
            yield f"{name:16} {value}"
    for dataset in status["datasets"]:
        yield f"dataset          {_describe_dataset(dataset)}"
    if not status["datasets"]:
        yield "no dataset yet: make one with 'catalog index build FOLDER --dataset NAME'"


def count_passages(passages: int, embedded: int) -> str:
    """Return ``23 passages, all embedded``, or how many of them are, in per cent rounded down."""
    noun = "passage" if passages == 1 else "passages"
    if embedded == passages:
        return f"{passages:,} {noun}{', all embedded' * (passages > 0)}"
    share = embedded / passages  # as a search's notes say it
    return f"{passages:,} {noun}, {embedded:,} embedded ({math.floor(100 * share)} %)"


def _describe_dataset(dataset: Mapping[str, Any]) -> str:
    languages = ", ".join(list(dataset["languages"])[:_LANGUAGES_SHOWN])
    parts = [
        _count(dataset["documents"], "document"),
        count_passages(dataset["chunks"], dataset["embedded"]),
        *([f"in {languages}"] if languages else []),
        *_describe_source(dataset),
    ]
    return f"{dataset['dataset']}: {', '.join(parts)}"
