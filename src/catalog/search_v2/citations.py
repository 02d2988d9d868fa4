"""Saying in one line where a passage stands: for a person, for a language model, for a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

from catalog.core.models import Chunk, Locator
from catalog.core.results import TIMED, ResultLocator, SearchResult

_BRACKETS = str.maketrans("[]", "()")
_JOINERS = "\u200c\u200d"  # of emoji, and of scripts that need them


def citation(passage: SearchResult | Chunk, at: Locator | None = None) -> str:
    """``[source: Title, page 3]``, or ``pages 3-4``, ``t=12:34``, ``lines 120-131``, or no place.

    The time is that of the best sentence, ``at`` or a result's own, and the whole passage's where
    it has none; pages and lines are the whole passage's. Of a recording the time comes before the
    page (of a slide), of anything else the page before the time. A title that is blank gives way
    to the path; square brackets in it become round ones, so that the citation is one line and
    closes once.
    """
    name = _one_line(passage.title) or _one_line(passage.path)
    place = _place(passage, at or _best(passage))
    return f"[source: {', '.join(filter(None, (name.translate(_BRACKETS), place)))}]"


def chunk_citation(chunk_id: str) -> str:
    """``[chunk: id]``."""
    return f"[chunk: {chunk_id}]"


def header(result: SearchResult) -> str:
    """``@@ notes/keys.md:120-131 @@``: the path and the snippet's lines.

    Of a recording ``@@ talk.vtt 12:34-13:05 @@``, the snippet's seconds. Of what has no lines that
    too, ``@@ book.pdf page 3 @@`` or ``@@ book.pdf pages 3-4 @@``, or the path.
    """
    path, where = _one_line(result.path), _snippets(result)
    is_told_by_lines = result.snippet_lines is not None and result.modality not in TIMED
    if where.time_start is not None and not is_told_by_lines and _times_first(result):
        end = where.time_start if where.time_end is None else where.time_end
        return f"@@ {path} {_range(clock(where.time_start), clock(end))} @@"
    if result.snippet_lines is not None:
        return f"@@ {path}:{_range(*map(str, result.snippet_lines))} @@"
    return f"@@ {' '.join(filter(None, (path, _pages(where))))} @@"


def marked(
    snippet: str, matches: Sequence[tuple[int, int]], before: str = "**", after: str = "**"
) -> str:
    """The snippet with every match between ``before`` and ``after``."""
    return "".join(
        f"{before}{part}{after}" if matched else part for part, matched in parts(snippet, matches)
    )


def parts(snippet: str, matches: Sequence[tuple[int, int]]) -> Iterator[tuple[str, bool]]:
    """The snippet in consecutive parts, each with whether it is a match."""
    at = 0
    for start, end in matches:
        yield snippet[at:start], False
        yield snippet[start:end], True
        at = end
    yield snippet[at:], False


def clock(seconds: float) -> str:
    """``12:34``, beyond an hour ``1:02:03``; a part of a second is dropped."""
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def _snippets(passage: SearchResult | Chunk) -> ResultLocator | Locator:
    """Where the snippet stands; of a passage that has none of its own, where that does."""
    own = passage.snippet_locator if isinstance(passage, SearchResult) else None
    return own or passage.locator


def _best(passage: SearchResult | Chunk) -> ResultLocator | Locator:
    """The same, with the second of the best sentence."""
    where = _snippets(passage)
    if isinstance(where, ResultLocator) and isinstance(passage, SearchResult):
        seconds = where.time_start if passage.moment is None else passage.moment
        return where.model_copy(update={"time_start": seconds})
    return where


def _place(passage: SearchResult | Chunk, where: ResultLocator | Locator) -> str:
    if where.time_start is not None and _times_first(passage):
        return f"t={clock(where.time_start)}"
    if passage.locator.page is not None:
        return _pages(passage.locator)
    first, last = passage.locator.line_start, passage.locator.line_end
    if first is None:
        return ""
    last = first if last is None else last
    return f"{'line' if last == first else 'lines'} {_range(str(first), str(last))}"


def _pages(where: ResultLocator | Locator) -> str:
    """``page 3``, ``pages 3-4``, or nothing."""
    if where.page is None:
        return ""
    last = where.page if where.page_end is None else where.page_end
    return f"{'page' if last == where.page else 'pages'} {_range(str(where.page), str(last))}"


def _times_first(passage: SearchResult | Chunk) -> bool:
    return passage.locator.page is None or passage.modality in TIMED


def _range(first: str, last: str) -> str:
    return first if first == last else f"{first}-{last}"


def _one_line(name: str) -> str:
    """Without control and formatting characters; white space of any kind is one blank."""
    kept = (
        char
        for char in name
        if char.isspace()
        or char in _JOINERS
        or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
    )
    return " ".join("".join(kept).split())
