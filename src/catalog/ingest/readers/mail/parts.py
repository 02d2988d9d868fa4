"""Cut a MIME message into its parts; the library's own parser is quadratic in their nesting."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
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
_MAX_PARTS, _MAX_DEPTH, _MAX_NAME = 1000, 10, 120
_HEAD = re.compile(r"(?:(?:From |[!-9;-~]*+:|[\t ])[^\r\n]*+(?>\r\n|\r|\n|\Z))*+")


class _Policy(Compat32):
    """Keep the beginning of a long header."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        has_parameters = name.lower().startswith("content-")
        return name, value[: _MAX_PARAMETERS if has_parameters else MAX_HEADER]


class MailPart(Message):
    """A message or a part of one, with its content as in the file or the parts in it."""

    is_closed = True  # its last boundary is there

    @property
    def inner(self) -> list[MailPart]:
        """The parts in it."""
        return cast(list[MailPart], self.get_payload()) if self.is_multipart() else []

    @property
    def data(self) -> bytes:
        """The decoded content."""
        return cast(bytes, self.get_payload(decode=True) or b"")

    def header(self, name: str) -> str:
        """Return the first header of a name as text, "" without one."""
        raw = (value for key, value in self.raw_items() if key.lower() == name)
        return next(map(decode_words, raw), "")

    def file_name(self) -> str:
        """Return the name that a part is to be saved under, without folders; "" without one."""
        name = ""
        with suppress(ValueError, LookupError, TypeError):
            for field in ("content-disposition", "content-type"):
                if not (value := self.header(field)).isascii():
                    self.replace_header(field, value)
            name = decode_words(self.get_filename() or "")
        name = one_line(clean(name.replace("\\", "/").rpartition("/")[2]))
        stem, suffix = splitext(name.replace(WITHIN.strip(), "-").strip(". "))
        return f"{stem[:_MAX_NAME]}{suffix[:_MAX_NAME]}"


def parse(data: bytes) -> tuple[MailPart, list[str]]:
    """Return a message as a tree of parts, and a remark on what was left out of it."""
    remarks: list[str] = []
    left = _MAX_PARTS

    def read(source: str, kind: str, depth: int) -> MailPart:
        nonlocal left
        left -= 1
        end = cast("re.Match[str]", _HEAD.match(source)).end()
        parser = Parser(cast(type[Message], MailPart), policy=_Policy())
        part = cast(MailPart, parser.parsestr(source[:end], headersonly=True))
        part.set_default_type(kind)
        part.set_payload(content := re.sub(r"\A(?:\r\n|\r|\n)", "", source[end:]))
        boundary = None
        with suppress(TypeError):  # of continued parameters, one without a number
            boundary = part.get_content_maintype() == "multipart" and part.get_boundary()
        if boundary and depth == _MAX_DEPTH:
            remarks.append(f"read as far as parts nested {_MAX_DEPTH} deep")
            part.set_payload("")
        elif boundary:
            is_digest = part.get_content_subtype() == "digest"
            kind = "message/rfc822" if is_digest else "text/plain"
            inner: list[Message | str] = []
            for piece in _cut(part, content, boundary):
                if left < 0:
                    remarks.append(f"read as far as {_MAX_PARTS:,} parts: it has more")
                    break
                inner.append(read(piece, kind, depth + 1))
            part.set_payload(inner or content)
        return part

    return read(data.decode("ascii", "surrogateescape"), "text/plain", 0), remarks[:1]


def _cut(part: MailPart, content: str, boundary: str) -> Iterator[str]:
    """Yield the source of each part between the boundaries; the last one may be missing."""
    start = -1
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


def decode_words(text: str) -> str:
    """Return a header with its encoded words (RFC 2047) as text."""
    if not text.isascii() or "\x1b$" in text:
        text = decode_with_remark(text.encode("utf-8", "surrogateescape"))[0]
    with suppress(MessageError, ValueError):
        pieces = [it for it in decode_header(text) if isinstance(it[0], bytes)]
        text = "".join(decode_with_remark(it, charset=name)[0] for it, name in pieces) or text
    return storable(text)
