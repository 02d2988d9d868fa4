"""Tables of contents: where they are, and what of them is no prose."""

from __future__ import annotations

import re
from collections.abc import Iterator

from catalog.ingest.chunking.sentences import END_MARK

HEAD_CHARS = 9_000  # of a text, read before anything is left out

_MOST_CONTENTS = 30
_DOTS = r"\.(?<!\.\.)(?<!\. \.)(?:(?: \.){3,}+|(?: ?\.){3,}+[ \t]*+[\divxlc]{1,6})"
_LEADER = re.compile(rf"{_DOTS}[ \t]*$", re.MULTILINE)
_PAGE_NUMBER = re.compile(r"\s\d{1,4}\s{0,2}\Z")
_ENTRY_NUMBER = re.compile(r"\s*(?:\d{1,3}|[A-Z]|[IVX]{1,5})(?:\.\d{1,3}){0,4}\.?\s+\S")
_BARE_NUMBER = re.compile(r"\s*[\divxlc]{1,6}\s*\Z")
_LONGEST_ENTRY = 120
_FEWEST_ENTRIES = 3


def beyond_contents(text: str, begin: int) -> tuple[str, int]:
    """What stands before a table of contents with dotted lines, and where that table ends.

    Without one in the beginning of the text it is ``""`` and ``begin``.
    """
    first = _LEADER.search(text, begin, begin + HEAD_CHARS)
    if first is None:
        return "", begin
    end = first.end()
    for _ in range(_MOST_CONTENTS):
        last = end
        for found in _LEADER.finditer(text, end, end + HEAD_CHARS // 3):
            last = found.end()
        if last == end:
            break
        end = last
    return text[begin : first.end()], end


def without_contents(lines: list[str]) -> Iterator[str]:
    """The lines but those of a table of contents: dotted ones, and runs of numbered ones.

    A run is lines that end in a page number or begin with the number of a heading: at least
    three, one of them both, or one of them dotted.
    """
    run: list[str] = []
    kinds: list[int] = []
    for line in lines:
        kind = _entry(line) if line.strip() else 0
        if kind or not line.strip():
            run.append(line)
            kinds.append(kind)
        else:
            yield from _told_of(run, kinds)
            run, kinds = [], []
            yield line
    yield from _told_of(run, kinds)


def _told_of(run: list[str], kinds: list[int]) -> list[str]:
    """The run of lines, or one blank line if it is a table of contents."""
    entries = sum(kind > 0 for kind in kinds)
    is_sure = max(kinds, default=0)
    return [""] if is_sure > 2 or (is_sure > 1 and entries >= _FEWEST_ENTRIES) else run


def _entry(line: str) -> int:
    """How much a line is like one of a table of contents: 3 dotted, 2 likely, 1 maybe, 0 not."""
    if ("..." in line or ". ." in line) and _LEADER.search(line):
        return 3
    if len(line) > _LONGEST_ENTRY:
        return 0
    if len(line) < 12 and _BARE_NUMBER.match(line):
        return 1
    is_numbered = _ENTRY_NUMBER.match(line) is not None
    has_page = line[-3:].rstrip()[-1:].isdigit() and _PAGE_NUMBER.search(line) is not None
    if is_numbered and has_page:
        return 2
    return int(has_page or (is_numbered and not END_MARK.search(line[-3:])))
