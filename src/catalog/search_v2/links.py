"""Links that open a recording at a second, or a document at a page.

YouTube reads ``t`` (its embedded player ``start``) of the query, Vimeo ``#t=65s``; every other
address and file gets a media fragment ``#t=65`` (https://www.w3.org/TR/media-frags/) or, for a
page, ``#page=4`` (RFC 8118). A link never names a scheme but http and https.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, quote, urlsplit

from catalog.core.text import without_userinfo

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


def moved(link: str, seconds: float) -> str:
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
        url = urlsplit(without_userinfo(address.strip()))
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
