"""A result's snippet as lines of a terminal: prose is wrapped, code and tables are cut."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len

from catalog.interfaces.plain_text import crop, safe, wrap

if TYPE_CHECKING:
    from catalog.core.results import SearchResult

_ELLIPSIS = "…"
_ENDED = re.compile(r"[.!?…。！？｡:|]['\"”’»)\]」』`*_]*+\s*+\Z")
_ENDS = re.compile(r"[^\S\n]*(?:\n[^\S\n]*(?:\n|[#|`~]|[-*+] |\d+[.)] )|\Z)")
_FENCE = re.compile(r"^\s{0,3}(?:```|~~~)", re.MULTILINE)
_ITEM = re.compile(r"\s*(?:[-*+•–▪]|\d{1,3}[.)]|#\.|>)\s+")
_VERBATIM = re.compile(
    r"    |\t"  # code
    r"|\s*[|+╭│├╰┌└]"  # a table, or lines drawn with signs
    r"|\s*(?:\$|>>>|\.\.\.)\s"  # a session at a prompt
    r"|\s*([-=~^*_#])\1{2,}+[\s=-]*+\Z"  # a rule
    r"|\s*[\w.-]{1,40}\s*[:=](?:\s|\Z)"  # a field and its value
    r"|.*\S[ \t]{3,}\S"  # columns
)
_FLOWS_ON = re.compile(r"[^\W\d_]|[\"'“‘«(`*_]")
_FULL = 60  # columns from which a line was broken to fit a page
_SOURCE_TYPES_TEXT = """
    py pyi js mjs ts tsx jsx c h cc cpp hpp cs java kt go rs rb php pl r lua swift scala sh bash
    zsh ps1 bat sql css scss json jsonl ndjson yaml yml toml ini cfg conf xml csv tsv tex"""
_SOURCE_TYPES = frozenset(_SOURCE_TYPES_TEXT.split())


class _Line(NamedTuple):
    start: int
    end: int
    text: str
    is_prose: bool


def snippet_lines(result: SearchResult, *, width: int | None, bold: bool) -> Iterator[str]:
    """Yield the lines of the snippet, safe to print; matches are bold if wanted.

    An ellipsis stands where a sentence or paragraph goes on. ``width`` is in columns: prose is
    wrapped to it, lines of code and tables are cut. With ``None`` every line is as in the file.
    """
    text, passage = _visible(result.snippet), _visible(result.text)
    before, _, after = passage.partition(text or "\n")
    begins_within = result.start_offset > 0 and text.lstrip()[:1].islower()
    if before.strip():
        begins_within = not before.rstrip(" \t").endswith("\n\n") and not _ENDED.search(before)
    ends_within = after.strip() != "" and _ENDS.match(after) is None
    lines = _split(text, result, before, is_joined=width is not None)
    for number, (start, end, line, is_prose) in enumerate(lines):
        found = ((low - start, high - start) for low, high in result.matches)
        matches = [(low, high) for low, high in found if high > 0 and low < end - start]
        if is_prose and number == 0 and begins_within:
            by = len(line) - len(line.lstrip()) - len(_ELLIPSIS) - 1
            line = f"{_ELLIPSIS} {line.lstrip()}"
            matches = [(low - by, high - by) for low, high in matches]
        if is_prose and number == len(lines) - 1 and ends_within:
            line = f"{line.rstrip()}{_ELLIPSIS}"
        styled = matches if bold else ()
        if width is None or is_prose:
            item = _ITEM.match(line)
            shown = wrap(line, width, " " * cell_len(item[0] if item else ""), bold=styled)
        else:
            shown = [crop(line, width, styled, matches[0][0] if matches else 0)]
        yield from (one.rstrip() for one in shown)


def _split(text: str, result: SearchResult, before: str, *, is_joined: bool) -> list[_Line]:
    """Return the lines to show, without blank ends and the heading printed above.

    Lines of prose that were broken to fit a page are joined.
    """
    is_code = result.file_type.lower() in _SOURCE_TYPES
    is_fenced = len(_FENCE.findall(before)) % 2 == 1
    lines, at = list[_Line](), 0
    for text_line in text.split("\n"):
        is_fence = _FENCE.match(text_line) is not None
        is_prose = not (is_code or is_fenced or is_fence or _VERBATIM.match(text_line))
        is_fenced ^= is_fence
        line = _Line(at, at + len(text_line), text_line, is_prose and bool(text_line.strip()))
        at = line.end + 1
        last = lines[-1] if lines else None
        is_full = last and cell_len(last.text.rpartition("\0")[2]) >= _FULL
        flows_on = line.is_prose and _FLOWS_ON.match(text_line.lstrip())
        if is_joined and last and last.is_prose and is_full and flows_on:
            lines[-1] = _Line(last.start, line.end, f"{last.text}\0{text_line}", True)
        elif text_line.strip() or (last and last.text.strip()):
            lines.append(line)
    *_, heading = result.title, *(result.sections or result.heading_path)
    is_heading = lines and not is_code and lines[0].text.startswith("#")
    told = lines[0].text.strip("# ") if is_heading else None
    if told and told.casefold() == " ".join(heading.split()).casefold() and lines[1:]:
        lines = lines[1 if lines[1].text.strip() else 2 :]
    while lines and not lines[-1].text.strip():
        lines.pop()
    return [line._replace(text=line.text.replace("\0", " ")) for line in lines]


def _visible(text: str) -> str:
    return safe(text.replace("\r\n", " \n").replace("\r", "\n"))
