"""Cut a MIME message into its parts, in time and memory that grow with its size."""

from __future__ import annotations

import re
from binascii import Error as Base64Error
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from email.errors import MessageError
from email.header import decode_header
from email.message import Message
from email.parser import Parser
from email.policy import Compat32
from posixpath import splitext
from typing import cast

from catalog.core.places import WITHIN
from catalog.core.text import clean, storable
from catalog.ingest.readers.base import one_line
from catalog.ingest.readers.decoding import decode_with_remark

MAX_HEADER, _MAX_PARAMETERS = 20_000, 2_000  # characters: the library is quadratic in them
MAX_PARTS = 1000
_MAX_DEPTH = 10  # of parts in parts; the library's own parser is quadratic in it
_MAX_NAME = 120
_HEAD = re.compile(r"(?:(?:From |[!-9;-~]*+:|[\t ])[^\r\n]*+(?>\r\n|\r|\n|\Z))*+")


class _Policy(Compat32):
    """Keep the beginning of a long header."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        has_parameters = name.lower().startswith("content-")
        return name, value[: _MAX_PARAMETERS if has_parameters else MAX_HEADER]


@dataclass(slots=True)
class Part:
    """A message or a part of one: its headers, and its content or the parts in it.

    ``coded`` is the content as in the file. ``is_closed``: its last boundary is there.
    """

    head: Message
    kind: str
    coded: str
    inner: list[Part] = field(default_factory=list)
    is_closed: bool = True

    @property
    def data(self) -> bytes:
        """The decoded content."""
        data = self.head.get_payload(decode=True)
        return data if isinstance(data, bytes) else b""

    def walk(self) -> Iterator[Part]:
        """Yield this part and all parts in it."""
        yield self
        for one in self.inner:
            yield from one.walk()


def parse(data: bytes) -> tuple[Part, str | None]:
    """Return a message as a tree of parts, and what was left out of it, if anything."""
    found: list[Part] = []
    remarks: dict[str, None] = {}
    whole = _parse(data.decode("ascii", "surrogateescape"), "text/plain", 0, found, remarks)
    return whole, next(iter(remarks), None)


def _parse(
    source: str, default: str, depth: int, found: list[Part], remarks: dict[str, None]
) -> Part:
    end = cast("re.Match[str]", _HEAD.match(source)).end()
    coded = re.sub(r"\A(?:\r\n|\r|\n)", "", source[end:])
    head = Parser(policy=_Policy()).parsestr(source[:end], headersonly=True)
    head.set_payload(coded)
    head.set_default_type(default)
    part = Part(head, head.get_content_type(), coded)
    found.append(part)
    boundary = None
    with suppress(TypeError):  # of continued parameters, one without a number
        boundary = head.get_boundary()
    if part.kind.startswith("multipart/") and boundary:
        if depth == _MAX_DEPTH:
            remarks[f"read as far as parts nested {_MAX_DEPTH} deep"] = None
            head.set_payload("")
            return part
        inner_type = "message/rfc822" if part.kind == "multipart/digest" else "text/plain"
        for piece in _cut(part, boundary):
            if len(found) > MAX_PARTS:
                remarks[f"read as far as {MAX_PARTS:,} parts: it has more"] = None
                break
            part.inner.append(_parse(piece, inner_type, depth + 1, found, remarks))
    return part


def _cut(part: Part, boundary: str) -> Iterator[str]:
    """Yield the source of each part between the boundaries; the last one may be missing."""
    content, start = part.coded, -1
    pattern = rf"(?m)^--{re.escape(boundary)}(--)?[ \t]*+\r?(?:\n|\Z)"
    for line in re.finditer(pattern, content):
        if start >= 0:
            yield content[start : line.start()].removesuffix("\n").removesuffix("\r")
        if line[1]:
            return
        start = line.end()
    part.is_closed = False
    if start >= 0:
        yield content[start:]


def decode(data: bytes, charset: str | None = None) -> tuple[str, str | None]:
    """Return the text of a part or a header, and a remark if its encoding is a guess."""
    is_japanese = b"\x1b$" in data and not (charset or "").lower().startswith("iso-2022")
    return decode_with_remark(data, charset="iso-2022-jp-2" if is_japanese else charset)


def raw_headers(part: Message, name: str) -> list[str]:
    """Return the values of a header as in the file, bytes that are not ASCII as surrogates."""
    return [value for key, value in part.raw_items() if key.lower() == name]


def header(part: Message, name: str) -> str:
    """Return the first header of a name as text, "" without one."""
    return next(map(decode_words, raw_headers(part, name)), "")


def decode_words(text: str) -> str:
    """Return a header with its encoded words (RFC 2047) as text."""
    if not text.isascii() or "\x1b$" in text:
        text = decode(text.encode("utf-8", "surrogateescape"))[0]
    try:
        pieces = decode_header(text)
    except (MessageError, Base64Error, ValueError):
        return text
    words = (it if isinstance(it, str) else decode(it, charset)[0] for it, charset in pieces)
    return storable("".join(words))


def file_name(part: Message) -> str:
    """Return the name that a part is to be saved under, without folders; "" without one."""
    try:
        for name in ("content-disposition", "content-type"):
            for value in raw_headers(part, name)[:1]:
                if not value.isascii():
                    part.replace_header(name, decode_words(value))
        name = decode_words(part.get_filename() or "")
    except (ValueError, LookupError, TypeError):
        return ""
    name = one_line(clean(name.replace("\\", "/").rpartition("/")[2]))
    stem, suffix = splitext(name.replace(WITHIN.strip(), "-").strip(". "))
    return f"{stem[:_MAX_NAME]}{suffix[:_MAX_NAME]}"
