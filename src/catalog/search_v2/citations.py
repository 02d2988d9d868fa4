"""Citations: where a passage stands, in one line; and links that open its source there.

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
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # categories of control and formatting
_SCHEME = re.compile(r"\s*[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_HOST = re.compile(r"[^\s\"'<>\\^`{|}]+")
_YOUTUBE = frozenset(
    f"{before}{site}"
    for site in ("youtube.com", "youtube-nocookie.com", "youtu.be")
    for before in ("", "www.", "m.", "music.")
)
_VIMEO = frozenset(["vimeo.com", "www.vimeo.com", "player.vimeo.com"])
_SAFE = "%:@!$&'()*+,;=/?~-._[]"  # characters of an address that stay as they are


def format_citation(passage: SearchResult | Chunk, at: Locator | None = None) -> str:
    """Return ``[source: Title, page 3]``, or with ``t=12:34`` or ``lines 120-131`` or no place.

    The time is that of the best sentence, ``at`` or a result's own, and the whole passage's where
    it has none; pages and lines are the whole passage's. Of a recording the time comes before the
    page (of a slide), of anything else the page before the time. A title that is blank gives way
    to the path; square brackets in it become round ones, so that the citation is one line and
    closes once.
    """
    name = _one_line(passage.title) or _one_line(passage.path)
    start = at.time_start if at is not None else _best_second(passage)
    place = _format_place(passage, start)
    return f"[source: {', '.join(filter(None, (name.translate(_BRACKETS), place)))}]"


def format_chunk_citation(chunk_id: str) -> str:
    """Return ``[chunk: id]``."""
    return f"[chunk: {chunk_id}]"


def format_header(result: SearchResult) -> str:
    """Return ``@@ notes/keys.md:120-131 @@``: the path and the snippet's lines.

    Of a recording ``@@ talk.vtt 12:34-13:05 @@``, the snippet's seconds. Of what has no lines that
    too, ``@@ book.pdf page 3 @@`` or ``@@ book.pdf pages 3-4 @@``, or the path.
    """
    path, where = _one_line(result.path), _snippet_locator(result)
    start, end, lines = where.time_start, where.time_end, result.snippet_lines
    prefers_lines = lines is not None and result.modality not in TIMED_MODALITIES
    if start is not None and not prefers_lines and _is_timed_first(result):
        last = format_clock(start if end is None else end)
        return f"@@ {path} {_format_range(format_clock(start), last)} @@"
    if lines is not None:
        return f"@@ {path}:{_format_range(*map(str, lines))} @@"
    return f"@@ {' '.join(filter(None, (path, _format_pages(where))))} @@"


def split_at_matches(
    snippet: str, matches: Sequence[tuple[int, int]]
) -> Iterator[tuple[str, bool]]:
    """Split a snippet into consecutive parts, each with whether it is a match."""
    at = 0
    for start, end in matches:
        yield snippet[at:start], False
        yield snippet[start:end], True
        at = end
    yield snippet[at:], False


def format_clock(seconds: float) -> str:
    """Return ``12:34``, beyond an hour ``1:02:03``; a part of a second is dropped."""
    minutes, second = divmod(_whole(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def recording_link(source_url: object, file: str, seconds: float) -> str:
    """Return the link that plays a recording from a second, rounded down.

    That is its address if it has one of the web, else its file. A time that the address has
    already is replaced, its other parameters stay; a user's name or password goes.
    """
    address = _address_at(source_url, seconds) if isinstance(source_url, str) else None
    return address or file_link(file, f"t={_whole(seconds)}")


def move_link(link: str, seconds: float) -> str:
    """Return a link of :func:`recording_link` for another second."""
    address = _address_at(link, seconds) if _SCHEME.match(link) else None
    return address or f"{link.rpartition('#')[0]}#t={_whole(seconds)}"


def page_link(path: str, page: int) -> str | None:
    """Return the link to a page of a PDF, which browsers open at it; of other files ``None``."""
    return file_link(path, f"page={page}") if path.lower().endswith(".pdf") else None


def file_link(path: str, fragment: str) -> str:
    """Return a relative link to a file, percent-encoded: no path can be taken for an address."""
    return f"{quote(re.sub(r'^/{2,}', '/', path))}#{fragment}"


def _snippet_locator(passage: SearchResult | Chunk) -> ResultLocator | Locator:
    """Return where the snippet stands, or else the passage."""
    own = passage.snippet_locator if isinstance(passage, SearchResult) else None
    return own or passage.locator


def _best_second(passage: SearchResult | Chunk) -> float | None:
    if isinstance(passage, SearchResult) and passage.moment is not None:
        return passage.moment
    return _snippet_locator(passage).time_start


def _format_place(passage: SearchResult | Chunk, second: float | None) -> str:
    if second is not None and _is_timed_first(passage):
        return f"t={format_clock(second)}"
    where = passage.locator
    if where.page is not None or where.line_start is None:
        return _format_pages(where)
    last = where.line_start if where.line_end is None else where.line_end
    name = "line" if last == where.line_start else "lines"
    return f"{name} {_format_range(str(where.line_start), str(last))}"


def _format_pages(where: ResultLocator | Locator) -> str:
    """Return ``page 3``, ``pages 3-4``, or nothing."""
    if where.page is None:
        return ""
    last = where.page if where.page_end is None else where.page_end
    name = "page" if last == where.page else "pages"
    return f"{name} {_format_range(str(where.page), str(last))}"


def _is_timed_first(passage: SearchResult | Chunk) -> bool:
    return passage.locator.page is None or passage.modality in TIMED_MODALITIES


def _format_range(first: str, last: str) -> str:
    return first if first == last else f"{first}-{last}"


def _one_line(name: str) -> str:
    """Strip control and formatting characters; white space of any kind is one blank."""
    visible = (
        char
        for char in name
        if char.isspace() or char in _JOINERS or unicodedata.category(char) not in _UNSEEN
    )
    return " ".join("".join(visible).split())


def _whole(seconds: float) -> int:
    return max(0, int(seconds))


def _address_at(address: str, seconds: float) -> str | None:
    """Return a web address at a second; ``None`` if it is broken or of another scheme."""
    try:
        url = urlsplit(strip_userinfo(address.strip()))
        host = (url.hostname or "").lower()
    except ValueError:
        return None
    if url.scheme not in ("http", "https") or not _HOST.fullmatch(url.netloc) or not host:
        return None
    second = _whole(seconds)
    if host in _YOUTUBE:
        name = "start" if url.path.startswith("/embed/") else "t"
        query = _replace_parameters(url.query, f"{name}={second}", ("t", "start"))
        fragment = _replace_parameters(url.fragment, "", ("t",))
        return _quote_url(url._replace(query=query, fragment=fragment))
    added = f"t={second}s" if host in _VIMEO else f"t={second}"
    return _quote_url(url._replace(fragment=_replace_parameters(url.fragment, added, ("t",))))


def _replace_parameters(parameters: str, added: str, names: tuple[str, ...]) -> str:
    """Return ``a=1&b=2`` without those of the names, and with one more at the end."""
    others = (part for part in parameters.split("&") if part.partition("=")[0] not in names)
    return "&".join(filter(None, (*others, added)))


def _quote_url(url: SplitResult) -> str:
    return url._replace(
        path=quote(url.path, safe=_SAFE),
        query=quote(url.query, safe=_SAFE),
        fragment=quote(url.fragment, safe=_SAFE),
    ).geturl()
