"""Read many mails in one file (mbox), and Outlook's own files (``.msg``).

archive.mbox › 2024-05-31 Drawings                  a mail, named by its date and subject
archive.mbox › 2024-05-31 Drawings › contract.pdf   its attachment
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from email.message import EmailMessage
from email.utils import format_datetime, formataddr
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO

from catalog.core.documents import ParsedDocument
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.core.ids import sha1_hex
from catalog.core.places import WITHIN
from catalog.ingest.readers.base import ReadFailure, ReadLimits, cap_failures, read_bytes
from catalog.ingest.readers.mail.message import MailReader, name_of, number_name, read_message

if TYPE_CHECKING:
    from oxmsg import Message

_FROM_LINE = re.compile(rb"From (?:[^\n]*?\d:\d\d[^\n]*+|-?\s*+)\r?\n?")
_FIELD = re.compile(rb"[!-9;-~]++:|>From ")
_ESCAPED = re.compile(rb"^>(>*From )", re.MULTILINE)
_LONGEST_LINE = 1 << 20


class MboxReader:
    """Read the mails of an mbox file one by one.

    A mail's places are lines of the file. A reply is in the thread of the mail that it answers if
    that is above it in the file. A mail that is there twice is read once.
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
                for item in mailbox.add(list(items), line):
                    if isinstance(item, ParsedDocument):
                        yield item
                    else:
                        failures.append(item)
            except (ReadError, RecursionError) as error:
                reason = str(error) if isinstance(error, ReadError) else "it is nested too deeply"
                failures.append(ReadFailure(f"{path}:{line}", reason))
        yield from cap_failures(failures)
        if not mailbox.contents:
            raise EmptyDocumentError("empty: no mail in it")


@dataclass(slots=True)
class _Mailbox:
    """The names, threads and contents of the mails of a file so far."""

    path: str
    names: Counter[str] = field(default_factory=Counter)
    threads: dict[str, str] = field(default_factory=dict)
    contents: set[str] = field(default_factory=set)

    def add(
        self, items: list[ParsedDocument | ReadFailure], line: int
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the documents and failures of the mail that begins in a line of the file."""
        documents = [item for item in items if isinstance(item, ParsedDocument)]
        first = documents[0]
        identity = sha1_hex("\0".join((str(first.metadata), *(one.text for one in documents))))
        if identity in self.contents:
            yield ReadFailure(f"{self.path}:{line}", "the same mail is above it in the file")
            return
        self.contents.add(identity)
        base = self._name(first)
        stated = str(first.metadata.get("thread", ""))
        thread = self.threads.get(stated, stated)
        self.threads.setdefault(str(first.metadata.get("message_id", "")), thread)
        for item in items:
            path = base + item.path.removeprefix(self.path)
            if isinstance(item, ReadFailure):
                yield replace(item, path=path, document=item.document and path)
                continue
            is_mail = item.path == self.path
            is_untitled = item.title == item.path or (is_mail and "title" not in item.written)
            is_in_thread = stated and item.metadata.get("thread") == stated
            yield replace(
                item,
                path=path,
                title=path if is_untitled else item.title,
                file_type="mbox" if is_mail else item.file_type,
                metadata={**item.metadata, **({"thread": thread} if is_in_thread else {})},
                places=item.places.moved(line) if is_mail else item.places,
            )

    def _name(self, mail: ParsedDocument) -> str:
        """Return the path of a mail: its date and subject, and a number if others have both."""
        day = str(mail.metadata.get("created", ""))[:10]
        title = mail.title if mail.path == self.path and "title" in mail.written else ""
        name = " ".join(filter(None, (day, name_of(title)))) or "mail"
        return f"{self.path}{WITHIN}{number_name(self.names, name)}"


def _split(handle: BinaryIO, max_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield the line of each ``From `` line and the mail below it, ``None`` if it is too large.

    A ``From `` line comes after an empty line or at the top, has a time, and a field below it.
    """
    pieces: list[bytes] | None = None
    start = number = size = 0
    is_free, is_line_start = True, True
    line = handle.readline(_LONGEST_LINE)
    while line:
        following = handle.readline(_LONGEST_LINE)
        number += is_line_start
        is_from = is_free and line.startswith(b"From ") and _FROM_LINE.fullmatch(line) is not None
        if is_from and _FIELD.match(following):
            if start:
                yield start, b"".join(pieces) if pieces is not None else None
            pieces, start, size = [], number, 0
        elif start:
            size += len(line)
            pieces = None if size > max_bytes else pieces
            if pieces is not None:
                pieces.append(line)
        is_free = is_line_start and not line.strip()
        is_line_start = line.endswith(b"\n")
        is_free &= is_line_start
        line = following
    if start:
        yield start, b"".join(pieces) if pieces is not None else None


class MsgReader:
    """Read a mail saved by Outlook as if it were a message; its places are paragraphs."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the mail, its attachments, and failures for those that are not read.

        Raises ``ReadError`` if the file is broken or empty.
        """
        message, is_whole = _convert(read_bytes(handle, limits.document_bytes))
        yield from read_message(
            message.as_bytes(), path, limits=limits, unit="paragraph", file_type="msg"
        )
        if not is_whole:
            yield ReadFailure(path, "mails and objects attached to it are not read")


def _convert(data: bytes) -> tuple[EmailMessage, bool]:
    """Return the message in an Outlook file, and whether it has all attachments."""
    from oxmsg import Message

    try:
        return _as_message(Message.load(data))
    except Exception as error:  # broken files make the library raise nearly anything
        raise ReadError("a broken Outlook message") from error


def _as_message(source: Message) -> tuple[EmailMessage, bool]:
    message = EmailMessage()
    for name, value in source.message_headers.items():
        if name.lower() in _KEPT:
            message[name] = " ".join(value.split())
    to = ", ".join(formataddr((one.name, one.email_address)) for one in source.recipients)
    sent = "" if source.sent_date is None else format_datetime(source.sent_date)
    for name, value in (
        ("From", source.sender or ""), ("To", to), ("Date", sent), ("Subject", source.subject)
    ):  # fmt: skip
        if value and name not in message:
            message[name] = " ".join(value.split())
    body, html = source.body, source.html_body
    if body is not None and body.strip():
        message.set_content(body)
    elif html is not None:
        message.set_content(html, subtype="html")
    attached = [(one, one.file_bytes) for one in source.attachments]
    for one, content in attached:
        if content is not None:
            kind, _, subtype = (one.mime_type or "").partition("/")
            name = one.file_name or "attachment"
            message.add_attachment(content, maintype=kind, subtype=subtype, filename=name)
    return message, all(content is not None for _, content in attached)


_KEPT = frozenset(
    [
        "from",
        "to",
        "cc",
        "bcc",
        "subject",
        "date",
        "message-id",
        "references",
        "in-reply-to",
        "keywords",
        "received",
    ]
)
