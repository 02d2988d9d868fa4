"""Read one mail: its text is a document, and each attachment another one.

mail.eml                  the mail: subject, people, date, the best text part
mail.eml › contract.pdf   an attachment, read by the reader of its format
mail.eml › fwd.eml        an attached mail, with attachments of its own below it
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from email import policy
from email.errors import (
    CloseBoundaryNotFoundDefect,
    MessageError,
    NoBoundaryInMultipartDefect,
    StartBoundaryNotFoundDefect,
)
from email.header import decode_header
from email.message import Message
from email.parser import BytesParser
from email.utils import getaddresses, parsedate_to_datetime
from io import BytesIO
from itertools import islice
from posixpath import splitext
from typing import BinaryIO, cast

from catalog.core.documents import MetadataValue, ParsedDocument
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.core.places import WITHIN, Unit, enclosing
from catalog.core.text import clean, storable
from catalog.ingest.readers.base import (
    LEFT_TO_ITSELF,
    MAX_TITLE,
    ReadFailure,
    ReadLimits,
    cap_failures,
    choose_title,
    one_line,
    read_bytes,
)
from catalog.ingest.readers.decoding import decode_with_remark, leave_out_base64
from catalog.ingest.readers.mail.body import (
    MailLine,
    MailText,
    join_lines,
    mark_segments,
    place_lines,
    tell_kinds,
)
from catalog.ingest.readers.metadata import LEVEL, normalise, one_level
from catalog.ingest.readers.registry import load_reader, sniff

_MAX_DEPTH = 5
_MAX_PARTS = 1000
_BOUNDARY = re.compile(rb"boundary\s*+=\s*+\"?([^\s\";]{1,100})", re.IGNORECASE)
_TOO_MANY = f"read as far as {_MAX_PARTS:,} parts: it has more"
_MAX_HEADER = 20_000  # characters
_MAX_NAME = 120
_ENDS = 8192  # bytes by which a format is recognised
_SHOWN = ("subject", "from", "to", "cc", "date")
_PEOPLE = {"author": ("from",), "to": ("to", "bcc"), "cc": ("cc",)}
_TAGS = ("keywords", "x-keywords", "x-gmail-labels")
_READ = {*_SHOWN, *_TAGS, "bcc", "message-id", "references"}
_IDS = re.compile(r"<([^<>\s]{1,500})>")
_IN_MAILDIR = re.compile(r"(^|/)(?:cur|new)/([^/]+?)(?:[:;!]2,\w*)?$")
_NOT_READ = {
    "application/pgp-encrypted": "encrypted",
    "application/pgp-signature": "a signature",
    "application/pkcs7-signature": "a signature",
    "application/x-pkcs7-signature": "a signature",
    "application/pkcs7-mime": "S/MIME: encrypted or signed",
    "application/x-pkcs7-mime": "S/MIME: encrypted or signed",
    "application/ms-tnef": "Outlook's own form",
    "message/delivery-status": "a report of the mail system",
    "message/disposition-notification": "a report of the mail system",
    "text/rfc822-headers": "the header of another mail",
}
_UNNAMED = {"text/plain": "text.txt", "text/calendar": "invitation.ics"}
_EXTENSION = re.compile(r"[a-z0-9]{2,5}")
_PICTURES = ("image", "audio", "video")
_UNCLOSED = CloseBoundaryNotFoundDefect, NoBoundaryInMultipartDefect, StartBoundaryNotFoundDefect
_CUT_SHORT = "it ends in the middle of a part: it is still being written, or lost its end"


class _Policy(policy.Compat32):
    """Keep the beginning of a header that would take minutes."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        return name, value[:_MAX_HEADER]


class MailReader:
    """Read a message (``.eml``, or a file of a Maildir) with its attachments."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the mail, its attachments, and failures for those that are not read.

        A file of a Maildir is named without ``cur``, ``new`` and flags, which change. Raises
        ``ReadError`` if the mail is empty, nested too deeply or over a limit.
        """
        data = read_bytes(handle, limits.document_bytes)
        if not path.endswith(".eml"):
            path = _IN_MAILDIR.sub(r"\1\2", path)
        yield from read_message(data, path, limits=limits)


def read_message(
    data: bytes, path: str, *, limits: ReadLimits, unit: Unit = "line", file_type: str = "eml"
) -> Iterator[ParsedDocument | ReadFailure]:
    """Yield the documents of one message, as :class:`MailReader` does; ``unit`` is of its places.

    A mail that was cut short begins with a failure for it, so that its earlier text is kept. Raises
    ``ReadError`` like the class.
    """
    if path.count(WITHIN) > _MAX_DEPTH:
        raise ReadError(f"mails are attached to mails more than {_MAX_DEPTH} deep")
    whole, data = data, _cut_parts(data)
    message = BytesParser(policy=_Policy()).parsebytes(data)
    texts, attached, levels = _split(message)
    remarks = [
        f"read as far as {_MAX_HEADER:,} characters of the header {name}"
        for name, value in message.raw_items()
        if len(value) == _MAX_HEADER and name.lower() in _READ
    ]
    if len(data) < len(whole) or len(texts) + len(attached) == _MAX_PARTS:
        remarks.append(_TOO_MANY)
    elif _mend_end(message, data):
        yield ReadFailure(path, _CUT_SHORT, path)
    text = MailText(data)
    head = _head_lines(message, data)
    for part in texts:
        text.add(part)
    fields = _read_fields(message, [*levels, *text.levels])
    document, left_out = _make_document(path, head, text.lines, fields, unit=unit, limits=limits)
    document = replace(document, file_type=file_type)
    items = [document, *_read_attachments(attached, document, limits)]
    documents = [item for item in items if isinstance(item, ParsedDocument) and item.text]
    if not documents:
        raise EmptyDocumentError("empty: a mail without subject, text and readable attachments")
    yield from documents
    remarks += [*dict.fromkeys(text.remarks), *([left_out] if left_out is not None else [])]
    failures = [item for item in items if isinstance(item, ReadFailure)]
    yield from cap_failures([*(ReadFailure(path, one) for one in remarks), *failures])


def _cut_parts(data: bytes) -> bytes:
    """Return the data with as many parts as the parser takes in a few seconds."""
    boundaries = dict.fromkeys(islice(_BOUNDARY.findall(data), _MAX_DEPTH * 4))
    starts = re.compile(b"\n--(?:" + b"|".join(map(re.escape, boundaries)) + b")")
    after = islice(starts.finditer(data), 2 * _MAX_PARTS, None) if boundaries else ()
    return next((data[: match.start() + 1] for match in after), data)


def _mend_end(message: Message, data: bytes) -> bool:
    """Return whether the file ends in a line of a multipart mail, or within base64.

    Then make the base64 one that the library decodes. Many mails lack the last boundary only.
    """
    last, is_open = message, not message.is_multipart()
    while isinstance(inner := last.get_payload(), list) and inner:
        is_open |= any(isinstance(defect, _UNCLOSED) for defect in last.defects)
        last = cast(Message, inner[-1])
    is_multipart = message.get_content_maintype() == "multipart"
    is_coded = str(last.get("content-transfer-encoding", "")).strip().casefold() == "base64"
    lines = str(last.get_payload()).split() if is_coded and is_open else []
    rest = sum(map(len, lines)) % 4
    if rest == 1:
        last.set_payload(str(last.get_payload()).rstrip()[:-1])
    is_last_full = len(lines) > 1 and len(lines[-1]) == len(lines[0]) and lines[-1][-1] != "="
    is_in_line = is_open and data[-1:] not in b"\r\n"
    return rest > 0 or (is_multipart and (is_in_line or is_last_full))


def _make_document(
    path: str,
    head: Sequence[MailLine],
    body: Sequence[MailLine],
    fields: dict[str, MetadataValue],
    *,
    unit: Unit,
    limits: ReadLimits,
) -> tuple[ParsedDocument, str | None]:
    """Return the document of a mail, and a remark on base64 that was left out of its text."""
    whole, left_out = leave_out_base64(join_lines(body), [line.first for line in body])
    if len(whole) > limits.text_bytes:
        raise ReadError(f"too long: over {limits.text_bytes:,} characters")
    bodies = [line._replace(text=one) for line, one in zip(body, whole.split("\n"), strict=False)]
    gap = [MailLine("", 1, 1)] if head and bodies else []
    lines = [*head, *gap, *bodies]
    start = len(join_lines([*head, *gap])) + (1 if head else 0)
    texts = [line.text for line in bodies]
    title = head[0].text.removeprefix("Subject: ") if head else ""
    document = ParsedDocument(
        path=path,
        text=join_lines(lines),
        title=choose_title(path, title if "subject" in fields else None),
        file_type="eml",
        source_type="mail",
        metadata={name: value for name, value in fields.items() if name != "subject"},
        segments=tuple(mark_segments(texts, tell_kinds(texts), start)) if bodies else (),
        written=frozenset(fields) - {"subject"} | ({"title"} if "subject" in fields else set()),
        places=place_lines(lines, unit),
    )
    return document, left_out


def _head_lines(message: Message, data: bytes) -> list[MailLine]:
    """Return subject, people and date as lines of the text."""
    numbers: dict[str, int] = {}
    for number, line in enumerate(data[:_MAX_HEADER].splitlines(), start=1):
        if not line.strip() and numbers:
            break
        numbers.setdefault(line.partition(b":")[0].decode("latin-1").strip().lower(), number)
    lines = []
    for name in _SHOWN:
        if shown := one_line(_header(message, name)):
            number = numbers.get(name, 1)
            lines.append(MailLine(f"{name.capitalize()}: {shown}", number, number))
    return lines


def _read_fields(message: Message, levels: Sequence[str]) -> dict[str, MetadataValue]:
    """Return the metadata of a mail, ``subject`` only if it has one."""
    raw: dict[str, object] = {}
    for field, names in _PEOPLE.items():
        if people := _people(message, names):
            raw[field] = people
    raw["date"] = _date(message)
    raw["tags"] = ", ".join(filter(None, (_header(message, name) for name in _TAGS)))
    own = _IDS.findall(_header(message, "message-id"))[:1]
    before = _IDS.findall(_header(message, "references"))[:1]
    before = before or _IDS.findall(_header(message, "in-reply-to"))[:1]
    raw["message_id"], raw["thread"] = next(iter(own), None), next(iter((*before, *own)), None)
    raw["subject"] = one_line(_header(message, "subject"))
    stated = _stated_levels(message)
    own = [level for _, level in stated]
    stated += [(LEVEL, level) for level in dict.fromkeys(levels) if level not in own]
    return normalise(raw) | _read_level(stated)


def _stated_levels(part: Message) -> list[tuple[str, str]]:
    """Return name and value of the headers of a mail or a part that state a confidentiality."""
    plain = [(name[2:] if name.lower().startswith("x-") else name, name) for name in part]
    return [(said, _header(part, name.lower())) for said, name in plain if LEVEL in said.casefold()]


def _read_level(stated: Sequence[tuple[str, str]]) -> dict[str, MetadataValue]:
    """Return the confidentiality that headers state."""
    fields = [normalise(dict([one])) for one in stated]
    return one_level(*(level for one in fields for level in one.values()))


def _people(message: Message, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names and addresses in these headers."""
    headers = [str(value) for name in names for value in _raw(message, name)]
    pairs = [(_decode_words(name), address) for name, address in getaddresses(headers)]
    found = (one_line(text) for pair in pairs for text in pair)
    return tuple(dict.fromkeys(filter(None, found)))


def _date(message: Message) -> str | None:
    """Return the date, else that of the last hop, in ISO 8601; as written if it is no date."""
    written = _header(message, "date")
    for text in filter(None, (written, _header(message, "received").rpartition(";")[2])):
        try:
            return parsedate_to_datetime(text.strip()).isoformat()
        except (ValueError, TypeError, OverflowError, IndexError):
            continue
    return one_line(written) or None


def _raw(message: Message, name: str) -> list[str]:
    """Return the values of a header as in the file, bytes that are not ASCII as surrogates."""
    return [value for key, value in message.raw_items() if key.lower() == name]


def _header(message: Message, name: str) -> str:
    """Return the first header of a name as text, "" without one."""
    return next(map(_decode_words, _raw(message, name)), "")


def _decode_words(text: str) -> str:
    """Return a header with its encoded words (RFC 2047) as text."""
    data = text.encode("utf-8", "surrogateescape")
    plain = decode_with_remark(data)[0] if not text.isascii() else text
    try:
        pieces = decode_header(plain)
    except (MessageError, ValueError):
        return plain
    return storable(
        "".join(
            piece if isinstance(piece, str) else decode_with_remark(piece, charset=charset)[0]
            for piece, charset in pieces
        )
    )


def _split(message: Message) -> tuple[list[Message], list[Message], list[str]]:
    """Return the text parts to show, the attachments, and confidentialities of all other parts.

    Of alternatives the plain text counts, else the HTML; all attachments stay.
    """
    texts: list[Message] = []
    attached: list[Message] = []
    levels: list[str] = []
    waiting = [(message, True)]
    while waiting and len(texts) + len(attached) < _MAX_PARTS:
        part, is_shown = waiting.pop()
        inner = part.get_payload() if part.get_content_maintype() == "multipart" else None
        if isinstance(inner, list):
            inner = cast("list[Message]", inner)
            best = inner
            if part.get_content_subtype() == "alternative":
                best = sorted(inner, key=_rank)[:1]
            waiting += [(one, is_shown and one in best) for one in reversed(inner)]
        elif part.get_content_maintype() == "multipart" or _is_text(part, part is message):
            texts += [part] if is_shown else []
        else:
            attached.append(part)
            continue
        levels += [level for _, level in _stated_levels(part) if part is not message]
    return texts, attached, levels


def _is_text(part: Message, is_whole: bool) -> bool:
    is_named = part.get_content_disposition() == "attachment" or _file_name(part) != ""
    is_text = part.get_content_type() in ("text/plain", "text/html", "text/enriched")
    return is_text and (is_whole or not is_named)


def _rank(alternative: Message) -> int:
    """Return 0 for an alternative with plain text, 1 with HTML, 2 for any other."""
    kinds = {
        part.get_content_type()
        for part in alternative.walk()
        if not part.is_multipart() and str(part.get_payload()).strip()
    }
    return 0 if "text/plain" in kinds else 1 if "text/html" in kinds else 2


def _file_name(part: Message) -> str:
    """Return the name that a part is to be saved under, without folders; "" without one."""
    try:
        for header in ("content-disposition", "content-type"):
            for value in _raw(part, header)[:1]:
                if not value.isascii():
                    part.replace_header(header, _decode_words(value))
        name = _decode_words(part.get_filename() or "")
    except (ValueError, LookupError, TypeError):
        return ""
    name = one_line(clean(name.replace("\\", "/").rpartition("/")[2]))
    name = name.replace(WITHIN.strip(), "-")
    stem, suffix = splitext(name.strip(". "))
    return f"{stem[:_MAX_NAME]}{suffix[:_MAX_NAME]}"


def _read_attachments(
    parts: Sequence[Message], mail: ParsedDocument, limits: ReadLimits
) -> Iterator[ParsedDocument | ReadFailure]:
    """Yield the documents of the attachments, with the mail's fields where they have none."""
    names: Counter[str] = Counter()
    contents: set[bytes] = set()
    pictures = []
    for part in parts:
        kind, data = part.get_content_type(), _content(part)
        stem, suffix = splitext(_file_name(part) or _name_unnamed(part))
        name = number_name(names, stem, suffix)
        path = f"{mail.path}{WITHIN}{name}"
        if part.get_content_maintype() in _PICTURES:
            pictures.append(name)
        elif kind in _NOT_READ:
            yield ReadFailure(path, f"not read: {_NOT_READ[kind]}")
        elif limits.attachment is not None and limits.attachment not in enclosing(path):
            yield ReadFailure(path, LEFT_TO_ITSELF, path)
        elif data not in contents:  # an invitation is often there twice
            contents.add(data)
            yield from _read_attachment(data, path, part, mail, limits)
    if pictures:
        yield ReadFailure(mail.path, f"not read: {', '.join(pictures)[:MAX_TITLE]}")


def number_name(names: Counter[str], stem: str, suffix: str = "") -> str:
    """Return a name that is not among the names, such as ``plan (2).pdf``, and add it to them."""
    name = f"{stem}{suffix}"
    while names[name]:
        names[f"{stem}{suffix}"] += 1
        name = f"{stem} ({names[f'{stem}{suffix}']}){suffix}"
    names[name] = 1
    return name


def _content(part: Message) -> bytes:
    inner = part.get_payload()
    if not isinstance(inner, list):
        data = part.get_payload(decode=True)
        return data if isinstance(data, bytes) else b""
    try:
        return b"\n".join(cast(Message, one).as_bytes() for one in inner)
    except (ValueError, LookupError, TypeError, AttributeError):
        return b""


def _name_unnamed(part: Message) -> str:
    kind = part.get_content_type()
    if kind == "message/rfc822":
        inner = part.get_payload()
        subject = _header(cast(Message, inner[0]), "subject") if isinstance(inner, list) else ""
        return f"{name_of(subject) or 'message'}.eml"
    subtype = part.get_content_subtype()
    extension = subtype if _EXTENSION.fullmatch(subtype) else "bin"
    return _UNNAMED.get(kind, f"part.{extension}")


def name_of(subject: str) -> str:
    """Return a subject as a part of a name."""
    return one_line(re.sub(r"[/\\›]", "-", subject))[:_MAX_NAME].strip(". ")


def _read_attachment(
    data: bytes, path: str, part: Message, mail: ParsedDocument, limits: ReadLimits
) -> Iterator[ParsedDocument | ReadFailure]:
    try:
        level = _read_level(_stated_levels(part))
        is_mail = part.get_content_type() == "message/rfc822"
        form = "mail" if is_mail else sniff(path, data[:_ENDS], data[-_ENDS:])[0]
        if form == "mbox":  # whose mails take a process of their own
            yield ReadFailure(path, "a mailbox in a mail: save it as a file")
            return
        for item in load_reader(form).read(BytesIO(data), path, limits=limits):
            if isinstance(item, ParsedDocument):
                yield _belonging(item, path, mail, level.get(LEVEL))
            else:
                yield item
    except ReadError as error:
        yield ReadFailure(path, str(error), path)
    except Exception as error:  # noqa: BLE001 - recorded: the mail and the others stay
        yield ReadFailure(path, f"the reader failed: {type(error).__name__}: {error}", path)


def _belonging(
    item: ParsedDocument, path: str, mail: ParsedDocument, level: MetadataValue | None
) -> ParsedDocument:
    """Return a document of an attachment with its name and the fields of its mail.

    A file's own tags count, its mail's date, and the authors of both; a mail without a date has
    that of its mail.
    """
    is_mail = item.source_type == "mail"
    undated = {"created"} - item.metadata.keys()
    inherited = {LEVEL, *undated} if is_mail else mail.metadata.keys()
    fields = {name: value for name, value in mail.metadata.items() if name in inherited}
    levels = one_level(level, mail.metadata.get(LEVEL), item.metadata.get(LEVEL))
    own = dict(item.metadata)
    if not is_mail and own.get("author") and fields.get("author"):
        own["author"] = tuple(dict.fromkeys((*_texts(own["author"]), *_texts(fields["author"]))))
    if "created" in fields:  # what a file says of itself is often the date of a template
        own = {key: value for key, value in own.items() if key not in ("created", "modified")}
    name = item.path if item.path.startswith(path) else f"{path}{WITHIN}{item.path}"
    is_untitled = item.title == choose_title(item.path) and not is_mail
    return replace(
        item,
        path=name,
        title=name if is_untitled else item.title,
        source_type="attachment" if item.source_type == "file" else item.source_type,
        metadata={**fields, **own, **levels},
        written=item.written | levels.keys(),
    )


def _texts(value: MetadataValue) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, tuple) else (str(value),)
