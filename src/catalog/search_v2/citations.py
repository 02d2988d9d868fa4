"""Saying where a passage stands, in one line, and links that open a recording or a document there.

YouTube reads ``t`` (its embedded player ``start``) of the query, Vimeo ``#t=65s``; every other
address and file gets a media fragment ``#t=65`` (https://www.w3.org/TR/media-frags/) or, for a
page, ``#page=4`` (RFC 8118). A link never names a scheme but http and https.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from urllib.parse import SplitResult, quote, urlsplit

from catalog.core.documents import Chunk, Locator
from catalog.core.results import TIMED_MODALITIES, ResultLocator, SearchResult
from catalog.core.text import strip_userinfo

_BRACKETS = str.maketrans("[]", "()")
_JOINERS = "\u200c\u200d"  # of emoji, and of scripts that need them


def format_citation(passage: SearchResult | Chunk, at: Locator | None = None) -> str:
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


def format_chunk_citation(chunk_id: str) -> str:
    """``[chunk: id]``."""
    return f"[chunk: {chunk_id}]"


def format_header(result: SearchResult) -> str:
    """``@@ notes/keys.md:120-131 @@``: the path and the snippet's lines.

    Of a recording ``@@ talk.vtt 12:34-13:05 @@``, the snippet's seconds. Of what has no lines that
    too, ``@@ book.pdf page 3 @@`` or ``@@ book.pdf pages 3-4 @@``, or the path.
    """
    path, where = _one_line(result.path), _snippets(result)
    is_told_by_lines = result.snippet_lines is not None and result.modality not in TIMED_MODALITIES
    if where.time_start is not None and not is_told_by_lines and _times_first(result):
        end = where.time_start if where.time_end is None else where.time_end
        return f"@@ {path} {_range(format_clock(where.time_start), format_clock(end))} @@"
    if result.snippet_lines is not None:
        return f"@@ {path}:{_range(*map(str, result.snippet_lines))} @@"
    return f"@@ {' '.join(filter(None, (path, _pages(where))))} @@"


def mark_matches(
    snippet: str, matches: Sequence[tuple[int, int]], before: str = "**", after: str = "**"
) -> str:
    """The snippet with every match between ``before`` and ``after``."""
    return "".join(
        f"{before}{part}{after}" if matched else part
        for part, matched in split_at_matches(snippet, matches)
    )


def split_at_matches(
    snippet: str, matches: Sequence[tuple[int, int]]
) -> Iterator[tuple[str, bool]]:
    """The snippet in consecutive parts, each with whether it is a match."""
    at = 0
    for start, end in matches:
        yield snippet[at:start], False
        yield snippet[start:end], True
        at = end
    yield snippet[at:], False


def format_clock(seconds: float) -> str:
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
        return f"t={format_clock(where.time_start)}"
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
    return passage.locator.page is None or passage.modality in TIMED_MODALITIES


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


_SCHEME = re.compile(r"\s*[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_HOST = re.compile(r"[^\s\"'<>\\^`{|}]+")
_YOUTUBE = frozenset(
    f"{before}{site}"
    for site in ("youtube.com", "youtube-nocookie.com", "youtu.be")
    for before in ("", "www.", "m.", "music.")
)
_VIMEO = frozenset(["vimeo.com", "www.vimeo.com", "player.vimeo.com"])
_KEPT = "%:@!$&'()*+,;=/?~-._[]"  # characters of an address that stay as they are


def seek_link(target: str, seconds: float) -> str | None:
    """The address, or the file's path, that plays from that second (rounded down).

    A time that the address has already is replaced, its other parameters stay; a user's name or
    password goes. ``None`` for an address that is broken or of another scheme than http and https.
    """
    if _SCHEME.match(target):
        return _address_at(target, _whole(seconds))
    return file_link(target, f"t={_whole(seconds)}")


def file_link(path: str, fragment: str) -> str:
    """A relative link to a file, percent-encoded, so that no path is taken for an address."""
    return f"{quote(re.sub(r'^/{2,}', '/', path))}#{fragment}"


def recording_link(source_url: object, file: str, seconds: float) -> str:
    """Where a recording plays from that second: at its address if that is one, else its file."""
    address = _address_at(source_url, _whole(seconds)) if isinstance(source_url, str) else None
    return address or file_link(file, f"t={_whole(seconds)}")


def move_link(link: str, seconds: float) -> str:
    """A link of :func:`recording_link`, to another second."""
    address = _address_at(link, _whole(seconds)) if _SCHEME.match(link) else None
    return address or f"{link.rpartition('#')[0]}#t={_whole(seconds)}"


def page_link(path: str, page: int) -> str | None:
    """The page of a PDF, which browsers open at it; of other files ``None``."""
    return file_link(path, f"page={page}") if path.lower().endswith(".pdf") else None


def _whole(seconds: float) -> int:
    return max(0, int(seconds))


def _address_at(address: str, second: int) -> str | None:
    try:
        url = urlsplit(strip_userinfo(address.strip()))
        host = (url.hostname or "").lower()
    except ValueError:
        return None
    if url.scheme not in ("http", "https") or not _HOST.fullmatch(url.netloc) or not host:
        return None
    if host in _YOUTUBE:
        name = "start" if url.path.startswith("/embed/") else "t"
        query = _with(url.query, f"{name}={second}", ("t", "start"))
        return _written(url._replace(query=query, fragment=_with(url.fragment, "", ("t",))))
    moment = f"t={second}s" if host in _VIMEO else f"t={second}"
    return _written(url._replace(fragment=_with(url.fragment, moment, ("t",))))


def _with(parameters: str, added: str, replaced: tuple[str, ...]) -> str:
    """``a=1&b=2`` without those of the names replaced, and with one more at the end."""
    kept = [one for one in parameters.split("&") if one.partition("=")[0] not in replaced]
    return "&".join(filter(None, (*kept, added)))


def _written(url: SplitResult) -> str:
    return url._replace(
        path=quote(url.path, safe=_KEPT),
        query=quote(url.query, safe=_KEPT),
        fragment=quote(url.fragment, safe=_KEPT),
    ).geturl()
