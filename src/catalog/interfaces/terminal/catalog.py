"""The catalog of documents, a few lines for each."""

from __future__ import annotations

from collections.abc import Iterator

from catalog.core.browsing import CatalogEntry, CatalogPage
from catalog.core.dates import display_date
from catalog.interfaces.terminal.plain import complaint, one_line, safe
from catalog.interfaces.terminal.printed import TerminalText

_LONGEST_DATE = 40  # characters; what is written there may be no date


def catalog_text(page: CatalogPage) -> TerminalText:
    """The page's documents; how many there are, by type, on standard error."""
    types = ", ".join(f"{count} {name}" for name, count in page.types.items())
    last = page.offset + len(page.entries)
    shown = f"{page.offset + 1}-{last} of {page.total}" if page.entries else f"0 of {page.total}"
    told = f"{shown} {_documents(page)}{f' ({types})' if types else ''} in {page.elapsed_ms:.1f} ms"
    return TerminalText.of(_out(page), [safe(told), *map(complaint, page.notes)])


def _out(page: CatalogPage) -> Iterator[str]:
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
    size = f"{_size(entry)} in {passages}"
    tags = " ".join(f"#{one_line(tag)}" for tag in entry.tags)
    return "  ".join(filter(None, (entry.file_type, date, size, tags)))


def _size(entry: CatalogEntry) -> str:
    count, unit = (entry.characters, "character") if entry.bytes is None else (entry.bytes, "byte")
    return f"{count:,} {unit}{'' if count == 1 else 's'}"
