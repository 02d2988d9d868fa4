"""Format citations (the place of a passage in one line) and links that open the source there.

YouTube reads the parameter ``t`` (its embedded player ``start``), Vimeo ``#t=65s``. All other
addresses and files get a media fragment ``#t=65`` (https://www.w3.org/TR/media-frags/) or, for a
page, ``#page=4`` (RFC 8118). Links have no scheme but http and https.
"""

import re
import unicodedata
from collections.abc import Sequence
from urllib.parse import SplitResult, quote, urlsplit

from catalog.core.documents import Chunk, Locator
from catalog.core.places import WITHIN, format_clock, format_count, whole_second
from catalog.core.results import TIMED_MODALITIES, OtherPlace, ResultLocator, SearchResult
from catalog.core.text import strip_userinfo

_BRACKETS = str.maketrans("[]", "()")
_JOINERS = "\u200c\u200d"  # of emoji, and of scripts that need them
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # categories of control and formatting
_SCHEME = re.compile(r"\s*[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_HOST = re.compile(r"[^\s\"'<>\\^`{|}]+")
_YOUTUBE = re.compile(r"(?:(?:www|m|music)\.)?(?:youtube(?:-nocookie)?\.com|youtu\.be)")
_VIMEO = re.compile(r"(?:(?:www|player)\.)?vimeo\.com")
_SAFE = "%:@!$&'()*+,;=/?~-._[]"  # characters of an address that stay as they are


def format_citation(chunk: Chunk, at: Locator | None = None) -> str:
    """Return ``[source: Title, lines 120-131]`` or another place, such as ``t=12:34``.

    The place depends on the format: ``page 4 (pages 3-5)``, ``slide 4``, ``cell 3, lines 2-8``,
    ``record 17 of corpus.jsonl``, the headings and ``paragraphs 12-15``, or the cells of a
    workbook: ``[source: Budget › Costs!A12:F30]``. What a mail quotes from another is marked by
    ``quoted``. Time and first page are those of the best sentence, ``at``. Square brackets become
    round ones, so that the citation has one closing bracket.
    """
    name = _one_line(chunk.title) or _one_line(chunk.path)
    place, parts = format_place(chunk, at), [name]
    if chunk.locator.cells is not None:
        parts = [f"{name} › {place}"]
    else:
        if chunk.locator.unit == "paragraph":
            parts.append(_one_line(format_headings(chunk.heading_path, chunk.sections)))
        parts += ["quoted" if chunk.modality == "quote" else "", place]
    return f"[source: {', '.join(filter(None, parts)).translate(_BRACKETS)}]"


def format_place(chunk: Chunk, at: Locator | None = None) -> str:
    """Return the place in :func:`format_citation`, such as ``lines 120-131``; "" if unknown."""
    second = (at or chunk.locator).time_start
    if second is not None and is_cited_by_time(chunk):
        return f"t={format_clock(second)}"
    return _format_place(chunk.locator, file=chunk.file, best_page=None if at is None else at.page)


def format_headings(path: Sequence[str], others: Sequence[str]) -> str:
    """Return ``Guide > Method; Results``: the headings over a passage, and those in it."""
    return "; ".join(filter(None, (" > ".join(path), *others)))


def format_shown_place(passage: SearchResult | OtherPlace) -> str:
    """Return ``notes/keys.md:120-131``: the path, and the place of the snippet or the copy.

    Others are ``talk.vtt 12:34-13:05``, ``book.pdf pages 3-4``, ``budget.xlsx › Costs!A12:F30``.
    """
    where = passage.locator
    if isinstance(passage, SearchResult):
        where = passage.snippet_locator or where
    path, start, end = _one_line(passage.path), where.time_start, where.time_end
    has_lines = where.unit in ("line", "time") and where.line_start is not None
    prefers_lines = has_lines and passage.modality not in TIMED_MODALITIES
    if start is not None and not prefers_lines and is_cited_by_time(passage):
        last = start if end is None else end
        return f"{path} {_format_range(format_clock(start), format_clock(last))}"
    if has_lines:
        return f"{path}:{_format_range(str(where.line_start), str(where.line_end))}"
    place = _one_line(_format_place(where, file=where.file))
    return (" › " if where.cells else " ").join(filter(None, (path, place)))


def recording_link(source_url: object, file: str, seconds: float) -> str:
    """Return the link that plays a recording from a second, rounded down.

    The link is the recording's web address if it has one, else its file. A time in the address is
    replaced and its other parameters stay; user name and password are removed.
    """
    address = _address_at(source_url, seconds) if isinstance(source_url, str) else None
    return address or file_link(file, f"t={whole_second(seconds)}")


def move_link(link: str, seconds: float) -> str:
    """Change the second in a link that :func:`recording_link` returned."""
    address = _address_at(link, seconds) if _SCHEME.match(link) else None
    return address or f"{link.rpartition('#')[0]}#t={whole_second(seconds)}"


def page_link(path: str, page: int) -> str | None:
    """Return the link that opens a PDF at a page in a browser; ``None`` for other files.

    Files attached to mails cannot be opened so.
    """
    is_file = path.lower().endswith(".pdf") and WITHIN not in path
    return file_link(path, f"page={page}") if is_file else None


def file_link(path: str, fragment: str) -> str:
    """Return a relative link to a file, percent-encoded so that no path looks like an address."""
    return f"{quote(re.sub(r'^/{2,}', '/', path))}#{fragment}"


def _format_place(
    where: ResultLocator | Locator, *, file: str | None = None, best_page: int | None = None
) -> str:
    """Return the unit and its numbers, such as ``pages 3-4``; "" if unknown."""
    if where.cells is not None:
        return where.cells
    if where.page is not None:
        unit = "slide" if where.unit == "slide" else "page"
        pages = format_count(unit, where.page, where.page_end)
        is_one = where.page_end in (None, where.page)
        return pages if best_page is None or is_one else f"{unit} {best_page} ({pages})"
    lines = format_count("line", where.line_start, where.line_end)
    if where.unit in ("line", "time"):
        return lines
    place = format_count(where.unit, where.start, where.end)
    if where.unit == "record" and file:
        place = f"{place} of {file}"
    return ", ".join(filter(None, (place, lines)))


def is_cited_by_time(passage: SearchResult | OtherPlace | Chunk) -> bool:
    """Return whether a passage with a time is cited by it: it has no page, or is a recording's."""
    return passage.locator.page is None or passage.modality in TIMED_MODALITIES


def _format_range(first: str, last: str) -> str:
    return first if first == last else f"{first}-{last}"


def _one_line(name: str) -> str:
    """Remove control and formatting characters; replace white space of any kind by one blank."""
    if not name.isprintable():  # most names are
        name = "".join(
            char
            for char in name
            if char.isspace() or char in _JOINERS or unicodedata.category(char) not in _UNSEEN
        )
    return " ".join(name.split())


def _address_at(address: str, seconds: float) -> str | None:
    """Return a web address at a second; ``None`` if it is invalid or has another scheme."""
    try:
        url = urlsplit(strip_userinfo(address.strip()))
        host = (url.hostname or "").lower()
    except ValueError:
        return None
    if url.scheme not in ("http", "https") or not _HOST.fullmatch(url.netloc) or not host:
        return None
    second = whole_second(seconds)
    if _YOUTUBE.fullmatch(host):
        name = "start" if url.path.startswith("/embed/") else "t"
        query = _replace_parameters(url.query, f"{name}={second}", ("t", "start"))
        fragment = _replace_parameters(url.fragment, "", ("t",))
        return _quote_url(url._replace(query=query, fragment=fragment))
    added = f"t={second}s" if _VIMEO.fullmatch(host) else f"t={second}"
    return _quote_url(url._replace(fragment=_replace_parameters(url.fragment, added, ("t",))))


def _replace_parameters(parameters: str, added: str, names: tuple[str, ...]) -> str:
    """Return ``a=1&b=2`` without the parameters in ``names``, and with ``added`` at the end."""
    others = (part for part in parameters.split("&") if part.partition("=")[0] not in names)
    return "&".join(filter(None, (*others, added)))


def _quote_url(url: SplitResult) -> str:
    parts = {name: quote(getattr(url, name), safe=_SAFE) for name in ("path", "query", "fragment")}
    return url._replace(**parts).geturl()
