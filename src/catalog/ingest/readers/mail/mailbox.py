"""Read many mails in one file (mbox).

archive.mbox › 2024-05-31 Drawings                  a mail, named by its date and subject
archive.mbox › 2024-05-31 Drawings › contract.pdf   its attachment
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from typing import BinaryIO

from catalog.core.documents import ParsedDocument
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.core.ids import sha1_hex
from catalog.core.places import WITHIN
from catalog.ingest.readers.base import ReadFailure, ReadLimits, cap_failures
from catalog.ingest.readers.mail.message import MailReader, name_of, number_name

_FROM_LINE = re.compile(rb"From (?:[^\n]*?\d:\d\d[^\n]*+|-?\s*+)\r?\n?")
_FIELD = re.compile(rb"[!-9;-~]++:|>From ")
_ESCAPED = re.compile(rb"^>(>*From )", re.MULTILINE)
_LONGEST_LINE = 1 << 20


class MboxReader:
    """Read the mails of an mbox file one by one.

    A reply is in the thread of the mail that it answers if that is above it in the file. A mail
    that is there twice is read once.
    """

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the documents of all mails; a mail that cannot be read is a ``ReadFailure``.

        Raises ``EmptyDocumentError`` if there is none.
        """
        reader, mailbox = MailReader(), _Mailbox(path)
        failures: list[ReadFailure] = []
        for line, data in _split(handle, limits.document_bytes):
            if data is None:
                reason = f"too large: over {limits.document_bytes:,} bytes"
                failures.append(ReadFailure(f"{path}:{line}", reason))
                continue
            try:
                items = reader.read(BytesIO(_ESCAPED.sub(rb"\1", data)), path, limits=limits)
                for item in mailbox.add(list(items)):
                    if isinstance(item, ParsedDocument):
                        yield item
                    else:
                        failures.append(item)
            except ReadError as error:
                failures.append(ReadFailure(f"{path}:{line}", str(error)))
        yield from cap_failures(failures)
        if not mailbox.contents:
            raise EmptyDocumentError("empty: no mail in it")


class _Mailbox:
    """The names, threads and contents of the mails of a file so far."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._names: Counter[str] = Counter()
        self._threads: dict[str, str] = {}
        self.contents: set[str] = set()

    def add(
        self, items: list[ParsedDocument | ReadFailure]
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the documents and failures of a mail; raise ``ReadError`` if it is there twice."""
        documents = [item for item in items if isinstance(item, ParsedDocument)]
        mail = documents[0]
        identity = sha1_hex("\0".join((str(mail.metadata), *(one.text for one in documents))))
        if identity in self.contents:
            raise ReadError("the same mail is above it in the file")
        self.contents.add(identity)
        title = mail.title if mail.path == self._path and "title" in mail.written else ""
        day = str(mail.metadata.get("created", ""))[:10]
        name = " ".join(filter(None, (day, name_of(title)))) or "mail"
        base = f"{self._path}{WITHIN}{number_name(self._names, name)}"
        stated = str(mail.metadata.get("thread", ""))
        thread = self._threads.get(stated, stated)
        self._threads.setdefault(str(mail.metadata.get("message_id", "")), thread)
        for item in items:
            path = base + item.path.removeprefix(self._path)
            if isinstance(item, ReadFailure):
                yield replace(item, path=path, document=item.document and path)
                continue
            is_mail = item.path == self._path
            is_untitled = item.title == item.path or (is_mail and "title" not in item.written)
            is_in_thread = stated and item.metadata.get("thread") == stated
            yield replace(
                item,
                path=path,
                title=path if is_untitled else item.title,
                file_type="mbox" if is_mail else item.file_type,
                metadata={**item.metadata, **({"thread": thread} if is_in_thread else {})},
            )


def _split(handle: BinaryIO, max_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield the line of each ``From `` line and the mail below it, ``None`` if it is too large.

    A ``From `` line comes after an empty line or at the top, has a time, and a field below it.
    """
    pieces: list[bytes] = []
    start = number = size = 0
    is_free, is_line_start = True, True
    line = handle.readline(_LONGEST_LINE)
    while line:
        following = handle.readline(_LONGEST_LINE)
        number += is_line_start
        is_from = is_free and line.startswith(b"From ") and _FROM_LINE.fullmatch(line) is not None
        if is_from and _FIELD.match(following):
            if start:
                yield start, b"".join(pieces) if size <= max_bytes else None
            pieces, start, size = [], number, 0
        elif start:
            size += len(line)
            if size <= max_bytes:
                pieces.append(line)
        is_free = is_line_start and line.endswith(b"\n") and not line.strip()
        is_line_start = line.endswith(b"\n")
        line = following
    if start:
        yield start, b"".join(pieces) if size <= max_bytes else None
