"""Read mails saved by Outlook (``.msg``) as if they were messages."""

from __future__ import annotations

from collections.abc import Iterator
from email.message import EmailMessage
from email.utils import format_datetime, formataddr
from typing import TYPE_CHECKING, BinaryIO

from catalog.core.documents import ParsedDocument
from catalog.core.errors import ReadError
from catalog.ingest.readers.base import ReadFailure, ReadLimits, read_bytes
from catalog.ingest.readers.mail.message import read_message

if TYPE_CHECKING:
    from oxmsg import Message

_NOT_KEPT = ("content-", "mime-version")  # of headers: they describe a body that is not there


class MsgReader:
    """Read a mail saved by Outlook, with its attachments."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the mail, its attachments, and failures for those that are not read.

        Raises ``ReadError`` if the file is broken or empty.
        """
        from oxmsg import Message

        data = read_bytes(handle, limits.document_bytes)
        try:
            message, is_whole = _as_message(Message.load(data))
        except Exception as error:  # broken files make the library raise nearly anything
            raise ReadError("a broken Outlook message") from error
        yield from read_message(message.as_bytes(), path, limits=limits, file_type="msg")
        if not is_whole:
            yield ReadFailure(path, "mails and objects attached to it are not read")


def _as_message(source: Message) -> tuple[EmailMessage, bool]:
    """Return the message in an Outlook file, and whether it has all attachments."""
    message = EmailMessage()
    sent = "" if source.sent_date is None else format_datetime(source.sent_date)
    to = ", ".join(formataddr((one.name, one.email_address)) for one in source.recipients)
    usual = {"From": source.sender, "To": to, "Date": sent, "Subject": source.subject}
    for name, value in (*source.message_headers.items(), *usual.items()):
        if value and name not in message and not name.lower().startswith(_NOT_KEPT):
            message[name] = " ".join(value.split())
    if (source.body or "").strip() or source.html_body is None:
        message.set_content(source.body or "")
    else:
        message.set_content(source.html_body, subtype="html")
    attached = [(one, one.file_bytes) for one in source.attachments]
    for one, content in attached:
        if content is not None:
            kind, _, subtype = (one.mime_type or "").partition("/")
            name = one.file_name or "attachment"
            message.add_attachment(content, maintype=kind, subtype=subtype, filename=name)
    return message, all(content is not None for _, content in attached)
