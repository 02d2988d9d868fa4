"""The open document: its text at the cited lines, as written or rendered, a page or a recording."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlencode, urlsplit

from markupsafe import Markup

from catalog.core.errors import CatalogError
from catalog.core.places import format_clock
from catalog.evaluation.report_text import make_showable
from catalog.interfaces.server.page.files import FRAMED, draw_page, find_document_file, media_kind
from catalog.interfaces.server.page.state import State, View

if TYPE_CHECKING:
    from markdown_it.rules_core import StateCore

    from catalog.interfaces.calls import LocalEngine

_BYTES = 300_000  # of one text; a place beyond them is shown with the text after it
_LINES = 5_000  # of one text
_BEFORE = 20  # lines (pages …) shown before such a place
_FRONT_MATTER = re.compile(r"---\n.*?\n(?:---|\.\.\.)(?=\n|$)", re.DOTALL)
_LONG_PARAGRAPH = 5_000  # characters; a longer one stays plain: "[" 300,000 times takes minutes
_BLOCKS = ("paragraph_open", "heading_open", "tr_open", "fence", "code_block", "hr")


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
        **dict.fromkeys(("drawn", "media", "rendered", "frame")),
    }
    try:
        if document["unit"] == "page":
            document, view["drawn"] = _page(engine, state, document, passage)
        elif "media_file" in document["metadata"]:
            view["media"] = _recording(engine, state, document, passage, found)
        elif document["path"].lower().endswith(FRAMED):
            find_document_file(engine, document["source_doc_id"])
            view["frame"] = f"/media?{urlencode({'doc': document['source_doc_id']})}"
    except CatalogError as error:  # the file is gone: the text is still there
        view["notes"] = [*view["notes"], str(error)]
    cited, sheet = (first, state.number("last", first)), state.one("sheet")
    is_same = passage is not None and first in (passage["locator"][name] for name in starts)
    best = passage["snippet_lines"] if passage is not None and is_same else None
    if document["unit"] == "line" and document["path"].lower().endswith((".md", ".markdown")):
        return {**view, "rendered": _render(document, cited, best or cited, state)}
    lines = list(_lines(document, cited, best or cited, sheet))
    return {**view, "lines": [one for one in lines if one["kind"] or not view["frame"]]}


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
        kind = _mark((number, number), cited, best) if is_here else ""
        yield {
            "number": None if number == before else number,
            "text": text,
            "kind": kind,
            "is_first": "best" in kind and is_first,
        }
        is_first = is_first and "best" not in kind
        before = number if number is not None else before


def _mark(lines: tuple[int, int], *marked: tuple[int, int]) -> str:
    """Return ``cited``, ``best`` or both for lines that overlap those, which are first and last."""
    return " ".join(
        name
        for name, (start, end) in zip(("cited", "best"), marked, strict=True)
        if start > 0 and start <= lines[1] and lines[0] <= end
    )


def _render(
    document: Mapping[str, Any], cited: tuple[int, int], best: tuple[int, int], state: State
) -> Markup:
    """Return Markdown as HTML, without HTML of its own and images; cited blocks are marked.

    Links lead to other documents of the dataset, or in another tab to the web.
    """
    from markdown_it import MarkdownIt

    numbers, text = document["numbers"], make_showable(document["text"]).replace("\r", " ")
    if numbers[:1] == [1] and (front := _FRONT_MATTER.match(text)):
        text = "\n" * front[0].count("\n") + text[front.end() :]
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    reader.core.ruler.before("inline", "long", _keep_long_plain)
    tokens, is_first = reader.parse(text), True
    for token in tokens:
        token.hidden = False  # a paragraph of a list, which may be cited alone
        if token.map and token.type in _BLOCKS:
            first, last = (
                numbers[min(at, len(numbers) - 1)] for at in (token.map[0], token.map[1] - 1)
            )
            token.attrSet("data-lines", f"{first}-{last}")
            if kind := _mark((first, last), cited, best):
                token.attrJoin("class", kind)
                if is_first and "best" in kind:
                    token.attrSet("id", "at")
                    is_first = False
        for part in token.children or ():
            if part.type == "link_open":
                part.attrs = _link(str(part.attrs["href"]), document["source_doc_id"], state)
            part.type = "text" if part.type == "image" else part.type  # its words
    return Markup(reader.renderer.render(tokens, reader.options, {}))  # noqa: S704 - no HTML of others


def _keep_long_plain(reading: StateCore) -> None:
    for token in reading.tokens:
        if token.type == "inline" and len(token.content) > _LONG_PARAGRAPH:
            token.type = "text"


def _link(target: str, own: str, state: State) -> dict[str, str | int | float]:
    """Return the attributes of a link in a document: to the web, or to another document."""
    if urlsplit(target).scheme in ("http", "https", "mailto"):
        return {"href": target, "target": "_blank", "rel": "noopener noreferrer"}
    dataset, _, path = own.partition(":")
    file = unquote(target.partition("#")[0])
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), file)) if file else path
    return {
        "href": state.address("first", "last", "sheet", "at", "page", doc=f"{dataset}:{beside}")
    }


def _page(
    engine: LocalEngine, state: State, document: dict[str, Any], passage: Mapping[str, Any] | None
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
