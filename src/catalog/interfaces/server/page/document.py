"""The open document: its text at the cited lines, a drawn page, or a recording that plays."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from catalog.core.errors import CatalogError
from catalog.core.places import format_clock
from catalog.interfaces.server.page.files import draw_page, find_document_file, media_kind
from catalog.interfaces.server.page.state import State, View

if TYPE_CHECKING:
    from catalog.interfaces.calls import LocalEngine

_BYTES = 300_000  # of one text; a place beyond them is shown with the text after it
_LINES = 5_000  # of one text
_BEFORE = 20  # lines (pages …) shown before such a place


def document_view(engine: LocalEngine, state: State, found: Sequence[Mapping[str, Any]]) -> View:
    """Return the open document with its cited lines marked, or the error of ``get``.

    The opened passage, if it is among the passages ``found``, gives the cited lines of a page and
    the evidence of a recording.
    """
    name, first = state.one("doc"), state.number("first", 0)
    own = [one for one in found if one["source_doc_id"] == name]
    starts = ("start", "line_start")
    own.sort(key=lambda one: first not in [one["locator"][name] for name in starts])
    passage = own[0] if own else None
    arguments = {"reference": name, "max_bytes": _BYTES}
    if passage is not None:
        arguments["dataset"] = passage["dataset"]
    try:
        document = _get(engine, arguments)
        if first and document["end"] and first > document["end"]:
            document = _get(engine, {**arguments, "line_start": max(1, first - _BEFORE)})
    except CatalogError as error:
        return {"title": name, "error": str(error)[:2000]}
    view = {
        "error": "",
        "title": document["title"] or document["path"],
        "path": document["path"],
        "unit": document["unit"],
        "notes": document["notes"],
        "metadata": [
            (key, ", ".join(map(str, value)) if isinstance(value, list) else str(value))
            for key, value in document["metadata"].items()
        ],
        "moment": format_clock(state.number("at", 0)) if state.one("at") else "",
        "drawn": None,
        "media": None,
    }
    try:
        if document["unit"] == "page":
            document, view["drawn"] = _page(engine, state, document, passage)
        elif "media_file" in document["metadata"]:
            view["media"] = _recording(engine, state, document, passage, found)
    except CatalogError as error:  # the file is gone: the text is still there
        view["notes"] = [*view["notes"], str(error)]
    cited, sheet = (first, state.number("last", first)), state.one("sheet")
    is_same = passage is not None and first in (passage["locator"][name] for name in starts)
    best = passage["snippet_lines"] if passage is not None and is_same else None
    return {**view, "lines": list(_lines(document, cited, best or cited, sheet))}


def _get(engine: LocalEngine, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with at most :data:`_LINES` lines."""
    document = engine.ask("get", arguments)
    lines = document["text"].split("\n")
    if len(lines) <= _LINES:
        return document
    numbers = document["numbers"][:_LINES]
    return {
        **document,
        "text": "\n".join(lines[:_LINES]),
        "numbers": numbers,
        "end": next((one for one in reversed(numbers) if one is not None), document["end"]),
        "notes": [*document["notes"], f"the first {_LINES:,} lines are shown"],
    }


def _lines(
    document: Mapping[str, Any], cited: tuple[int, int], best: tuple[int, int], sheet: str
) -> Iterator[View]:
    """Yield the lines with their numbers, each number once, cited and best ones marked.

    In a workbook only rows of the ``sheet`` are marked, if one is given.
    """
    before, is_first = None, True
    cells = document["cells"] or itertools.repeat("")
    lines = zip(document["numbers"], document["text"].split("\n"), cells, strict=False)
    for number, text, of_row in lines:
        is_here = number is not None and (not sheet or (of_row or "").startswith(f"{sheet}!"))
        is_cited, is_best = (
            is_here and start > 0 and start <= number <= end for start, end in (cited, best)
        )
        yield {
            "number": None if number == before else number,
            "text": text,
            "kind": " ".join(("cited",) * is_cited + ("best",) * is_best),
            "is_first": is_best and is_first,
        }
        is_first = is_first and not is_best
        before = number if number is not None else before


def _page(
    engine: LocalEngine,
    state: State,
    document: dict[str, Any],
    passage: Mapping[str, Any] | None,
) -> tuple[dict[str, Any], View | None]:
    """Return the text of one page, and the page drawn with boxes over the cited lines."""
    file = find_document_file(engine, document["source_doc_id"])
    if file.suffix.lower() != ".pdf":
        return document, None
    total = document["total"] or 1
    number = min(max(1, state.number("page", state.number("first", 1))), total)
    drawn = draw_page(file, number, passage["snippet"] if passage else "")
    about = {"reference": document["source_doc_id"], "line_start": number, "line_end": number}
    address = urlencode({"doc": document["source_doc_id"], "page": number})
    return engine.ask("get", about), {
        **drawn._asdict(),
        "number": number,
        "total": total,
        "source": f"/page.png?{address}",
        "turned": [
            (label, state.address(page=other))
            for label, other in (("Previous page", number - 1), ("Next page", number + 1))
            if 1 <= other <= total
        ],
    }


def _recording(
    engine: LocalEngine,
    state: State,
    document: Mapping[str, Any],
    passage: Mapping[str, Any] | None,
    found: Sequence[Mapping[str, Any]],
) -> View | None:
    """Return the player of a recording and its evidence, line by line."""
    name, at = document["source_doc_id"], state.number("at", 0)
    rank = passage["evidence_at"] if passage else None
    evidence = next((one["evidence"] for one in found if one["rank"] == rank), None)
    lines = [
        {
            **line,
            "clock": format_clock(line["time_start"]),
            "open": state.address(at=int(line["time_start"])),
            "is_now": line["time_start"] <= at < line["time_end"],
        }
        for line in (evidence or {"lines": ()})["lines"]
    ]
    kind = media_kind(find_document_file(engine, name))
    source = f"/media?{urlencode({'doc': name})}#t={at}"
    return {"kind": kind.partition("/")[0], "source": source, "lines": lines} if kind else None
