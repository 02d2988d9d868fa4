"""Read one mail: its text is a document, and each attachment another one.

mail.eml                  the mail: subject, people, date, the best text part
mail.eml › contract.pdf   an attachment, read by the reader of its format
mail.eml › fwd.eml        an attached mail, with attachments of its own below it
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from email.utils import getaddresses, parsedate_to_datetime
from io import BytesIO
from mimetypes import guess_extension
from posixpath import splitext
from typing import BinaryIO

from catalog.core.documents import MetadataValue, ParsedDocument
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.core.places import WITHIN, enclosing
from catalog.core.text import storable
from catalog.ingest.readers import base
from catalog.ingest.readers.base import ReadFailure, ReadLimits, choose_title, one_line
from catalog.ingest.readers.decoding import decode_with_remark, leave_out_base64
from catalog.ingest.readers.html import extract
from catalog.ingest.readers.mail.parts import MAX_HEADER, MailPart, decode_words, parse
from catalog.ingest.readers.mail.quotes import mark_segments
from catalog.ingest.readers.metadata import LEVEL, normalise, one_level
from catalog.ingest.readers.registry import load_reader, sniff

_MAX_DEPTH = 2  # of mails attached to mails
_MAIL = "message/rfc822"
_STUB = 300  # characters: a shorter plain text may only say that there is HTML
_SHOWN = ("subject", "from", "to", "cc", "date")
_TAGS = ("keywords", "x-keywords", "x-gmail-labels")
_READ = {*_SHOWN, *_TAGS, "bcc", "message-id", "references"}
_IDS = re.compile(r"<([^<>\s]{1,500})>")
_IN_MAILDIR = re.compile(r"(^|/)(?:cur|new)/([^/]+?)(?:[:;!]2,\w*)?$")
_APPLE = re.compile(rb"\s{0,9}(\d{1,12})\s{0,9}\n")  # bytes of the mail, above it in a .emlx
_PLAIN = ("text/plain", "text/html", "text/enriched")
_NO_BODY = ("text/calendar", "text/vcard", "text/x-vcard", "text/rfc822-headers")
_NOT_READ = re.compile(r"application/(?:pgp-|(?:x-)?pkcs7-|ms-tnef)|message/d|text/rfc822-headers")
_UNNAMED = {"text/plain": "text", "text/calendar": "invitation"}
_QUOTE_START = re.compile(r"<blockquote\b", re.IGNORECASE)
_QUOTE_END = re.compile(r"</blockquote\s*+>", re.IGNORECASE)
_OPEN, _CLOSE = "\ue010", "\ue011"  # stand for the tags of a quotation in the text of HTML


class MailReader:
    """Read a message (``.eml``, ``.emlx``, or a file of a Maildir) with its attachments."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the mail, its attachments, and failures for those that are not read.

        A file of a Maildir is named without ``cur``, ``new`` and flags, which change.
        """
        data = base.read_bytes(handle, limits.document_bytes)
        if path.endswith(".emlx") and (size := _APPLE.match(data)):
            data = data[size.end() : size.end() + int(size[1])]
        if not path.endswith(".eml"):
            path = _IN_MAILDIR.sub(r"\1\2", path)
        yield from read_message(data, path, limits=limits)


def read_message(
    data: bytes, path: str, *, limits: ReadLimits, file_type: str = "eml"
) -> Iterator[ParsedDocument | ReadFailure]:
    """Yield the documents of a message; first a failure if it was cut short, to keep older text.

    Raises ``ReadError`` if the mail is empty, attached too deeply or over a limit.
    """
    if path.count(WITHIN) > _MAX_DEPTH:
        raise ReadError("a mail in a mail in a mail: save it as a file")
    mail, remarks = parse(data)
    if not remarks and _is_cut_short(mail, data):
        reason = "it ends in the middle of a part: it is still being written, or lost its end"
        yield ReadFailure(path, reason, path)
    remarks += [
        f"read as far as {MAX_HEADER:,} characters of the header {name}"
        for name, value in mail.raw_items()
        if len(value) == MAX_HEADER and name.lower() in _READ
    ]
    levels, bodies, attached = [_stated_level(mail)], [], []
    for part, is_shown in _leaves(mail):
        if not _is_text(part, is_whole=part is mail):
            attached.append(part)
            continue
        levels.append(_stated_level(part))
        if is_shown or LEVEL.encode() in part.data.lower():
            text, level, guess = _read_text(part)
            levels.append(level)
            bodies += [text.rstrip()] if is_shown and text.strip() else []
            remarks += [guess] if is_shown and guess else []
    fields = _read_fields(mail) | one_level(*levels)
    shown = ((name, one_line(mail.header(name))) for name in _SHOWN)
    head = [f"{name.capitalize()}: {value}" for name, value in shown if value]
    body, left_out = leave_out_base64(storable("\n\n".join(bodies)))
    if len(body) > limits.text_bytes:
        raise ReadError(f"too long: over {limits.text_bytes:,} characters")
    text = "\n\n".join(filter(None, ("\n".join(head), body)))
    subject = fields.pop("subject", None)
    document = ParsedDocument(
        path=path,
        text=text,
        title=choose_title(path, subject),
        file_type=file_type,
        source_type="mail",
        metadata=fields,
        segments=tuple(mark_segments(body, len(text) - len(body))) if body else (),
        written=frozenset(fields) | ({"title"} if subject else set()),
    )
    items = [document, *_read_attachments(attached, document, limits)]
    documents = [item for item in items if isinstance(item, ParsedDocument) and item.text]
    if not documents:
        raise EmptyDocumentError("empty: a mail without subject, text and readable attachments")
    yield from documents
    said = [ReadFailure(path, it) for it in dict.fromkeys(filter(None, (*remarks, left_out)))]
    yield from base.cap_failures([*said, *(it for it in items if isinstance(it, ReadFailure))])


def _is_cut_short(mail: MailPart, data: bytes) -> bool:
    """Return whether the file ends within a line of a multipart mail, or within base64.

    Many mails lack the last boundary only.
    """
    last, is_open = mail, not mail.inner
    while last.inner:
        is_open |= not last.is_closed
        last = last.inner[-1]
    is_coded = last.header("content-transfer-encoding").strip().casefold() == "base64"
    lines = str(last.get_payload()).split() if is_coded and is_open else []
    rest = sum(map(len, lines)) % 4
    if rest == 1:  # which the library would not decode
        last.set_payload("\n".join(lines)[:-1])
    is_last_full = len(lines) > 1 and len(lines[-1]) == len(lines[0]) and lines[-1][-1] != "="
    is_in_line = is_open and data[-1:] not in b"\r\n"
    return rest > 0 or (mail.get_content_maintype() == "multipart" and (is_in_line or is_last_full))


def _leaves(part: MailPart, *, is_shown: bool = True) -> Iterator[tuple[MailPart, bool]]:
    """Yield the parts without parts in them, and whether each is shown if it is a text."""
    is_choice = part.get_content_type() == "multipart/alternative" and len(part.inner) > 1
    best = _best(part.inner) if is_choice else None
    for one in part.inner:
        yield from _leaves(one, is_shown=is_shown and (best is None or one is best))
    if not part.inner:
        yield part, is_shown


def _is_text(part: MailPart, *, is_whole: bool) -> bool:
    kind = part.get_content_type()
    if kind in _NO_BODY or not kind.startswith(("text/", "multipart/")):
        return False
    is_named = part.get_content_disposition() == "attachment" or part.file_name() != ""
    return not is_named or (is_whole and kind in _PLAIN)


def _best(alternatives: Sequence[MailPart]) -> MailPart:
    """Return the alternative with plain text, else the one with HTML.

    A short plain text that has other words than the HTML only says that there is HTML.
    """
    first: dict[str, tuple[MailPart, MailPart]] = {}
    for one in alternatives:
        for part in one.walk():
            if part.get_content_type() in _PLAIN and part.data.strip():
                first.setdefault(part.get_content_type(), (one, part))
    plain, html = first.get("text/plain"), first.get("text/html")
    if plain and html and len(plain[1].data) < 8 * _STUB:
        texts = (_read_text(part)[0].casefold() for _, part in (plain, html))
        words, known = (re.findall(r"\w+", text) for text in texts)
        shared = sum(map(frozenset(known).__contains__, words))
        if known and 2 * shared < len(words) and len("".join(words)) < _STUB:
            plain = None
    return (plain or html or (alternatives[0],))[0]


def _read_text(part: MailPart) -> tuple[str, MetadataValue | None, str | None]:
    """Return the text of a part, the level that its HTML states, and a remark on its encoding.

    Lines in a ``blockquote`` of HTML begin with ``>``.
    """
    text, guess = decode_with_remark(part.data, charset=part.get_content_charset())
    guess = guess and guess.partition(";")[0]
    text = text.replace(_OPEN, "\ufffd").replace(_CLOSE, "\ufffd")
    if part.get_content_type() != "text/html" or not text.strip():
        return re.sub(r"\r\n?", "\n", text), None, guess
    text = _QUOTE_START.sub(f"<p>{_OPEN}</p><blockquote", text)
    page = extract(_QUOTE_END.sub(f"</blockquote><p>{_CLOSE}</p>", text))
    lines, depth = [""], 0
    for line in page.text.split("\n"):
        depth = max(0, depth + line.count(_OPEN) - line.count(_CLOSE))
        if line not in (_OPEN, _CLOSE) and (line or lines[-1]):
            lines.append("> " * bool(depth and line.strip()) + line)
    return "\n".join(lines[1:]), page.metadata.get(LEVEL), guess


def _stated_level(part: MailPart) -> MetadataValue | None:
    """Return the confidentiality that the headers of a mail or a part state."""
    stated = [(name, decode_words(it)) for name, it in part.raw_items() if LEVEL in name.casefold()]
    plain = (normalise({re.sub("^x-", "", name, flags=re.I): it}) for name, it in stated)
    return one_level(*(it.get(LEVEL) for it in plain)).get(LEVEL)


def _read_fields(mail: MailPart) -> dict[str, MetadataValue]:
    named = (mail.header(name) for name in ("references", "in-reply-to", "message-id"))
    above, answered, own = (next(iter(_IDS.findall(ids)), None) for ids in named)
    raw: dict[str, object] = {"message_id": own, "thread": above or answered or own}
    people = {"author": ("from",), "to": ("to", "bcc"), "cc": ("cc",)}
    raw |= {field: _people(mail, names) for field, names in people.items()}
    raw["tags"] = ", ".join(filter(None, (mail.header(name) for name in _TAGS)))
    raw |= {"date": _date(mail), "subject": one_line(mail.header("subject"))}
    return normalise({name: value for name, value in raw.items() if value})


def _people(mail: MailPart, names: Sequence[str]) -> tuple[str, ...]:
    headers = [str(value) for name, value in mail.raw_items() if name.lower() in names]
    try:
        pairs = [(decode_words(name), address) for name, address in getaddresses(headers)]
    except RecursionError:  # comments in comments
        return ()
    return tuple(dict.fromkeys(filter(None, (one_line(text) for pair in pairs for text in pair))))


def _date(mail: MailPart) -> str:
    """Return the date, else that of the last hop, in ISO 8601; as written if it is no date."""
    written = one_line(mail.header("date"))
    for text in (written, mail.header("received").rpartition(";")[2]):
        with suppress(ValueError, TypeError, OverflowError, IndexError):
            return parsedate_to_datetime(text.strip()).isoformat()
    return written


def _read_attachments(
    parts: Sequence[MailPart], mail: ParsedDocument, limits: ReadLimits
) -> Iterator[ParsedDocument | ReadFailure]:
    """Yield the documents of the attachments, with the mail's fields where they have none."""
    names: Counter[str] = Counter()
    contents: set[bytes] = set()
    pictures = []
    for part in parts:
        kind = part.get_content_type()
        name = number_name(names, *splitext(part.file_name() or _name_unnamed(part, kind)))
        path = f"{mail.path}{WITHIN}{name}"
        if kind.startswith(("image/", "audio/", "video/")):
            pictures.append(name)
        elif _NOT_READ.match(kind):
            yield ReadFailure(path, "not read: signed, encrypted, or a report of the mail system")
        elif (data := part.data) not in contents:  # an invitation is often there twice
            contents.add(data)
            form, level = "mail" * (kind == _MAIL), _stated_level(part)
            yield from read_attached(data, path, mail.metadata, limits, form=form, level=level)
    if pictures:
        yield ReadFailure(mail.path, f"not read: {', '.join(pictures)[: base.MAX_TITLE]}")


def number_name(names: Counter[str], stem: str, suffix: str = "") -> str:
    """Return a name that is not among the names, such as ``plan (2).pdf``, and add it to them."""
    name = f"{stem}{suffix}"
    while names[name]:
        names[f"{stem}{suffix}"] += 1
        name = f"{stem} ({names[f'{stem}{suffix}']}){suffix}"
    names[name] = 1
    return name


def _name_unnamed(part: MailPart, kind: str) -> str:
    if kind == _MAIL:
        return f"{name_of(parse(part.data)[0].header('subject')) or 'message'}.eml"
    return f"{_UNNAMED.get(kind, 'part')}{guess_extension(kind) or '.bin'}"


def name_of(subject: str) -> str:
    """Return a subject as a part of a name."""
    return one_line(re.sub(r"[/\\›]", "-", subject))[:120].strip(". ")


def read_attached(
    data: bytes,
    path: str,
    fields: Mapping[str, MetadataValue],
    limits: ReadLimits,
    *,
    form: str = "",
    level: MetadataValue | None = None,
) -> Iterator[ParsedDocument | ReadFailure]:
    """Yield the documents of an attached file, and failures for what cannot be read of it.

    ``fields`` are those of the mail or PDF around it, ``form`` its format if that is known, and
    ``level`` the confidentiality that is stated beside it.
    """
    if limits.attachment is not None and limits.attachment not in enclosing(path):
        yield ReadFailure(path, base.LEFT_TO_ITSELF, path)
        return
    try:
        form = form or sniff(path, data[:8192], data[-8192:])[0]
        if form == "mbox":  # whose mails take a process of their own
            yield ReadFailure(path, "an attached mailbox: save it as a file")
            return
        for item in load_reader(form).read(BytesIO(data), path, limits=limits):
            yield _belonging(item, path, fields, level)
    except ReadError as error:
        yield ReadFailure(path, str(error), path)
    except Exception as error:  # noqa: BLE001 - recorded: the mail and the others stay
        yield ReadFailure(path, f"the reader failed: {type(error).__name__}: {error}", path)


def _belonging(
    item: ParsedDocument | ReadFailure,
    path: str,
    above: Mapping[str, MetadataValue],
    level: MetadataValue | None,
) -> ParsedDocument | ReadFailure:
    """Return a document of an attachment with its name and the fields of its mail or PDF.

    A file's own tags count, its mail's date, and the authors of both; a mail without a date has
    that of its mail.
    """
    if isinstance(item, ReadFailure):
        return item
    own, fields = dict(item.metadata), dict(above)
    is_mail = item.source_type == "mail"
    if is_mail:
        fields = {"created": fields["created"]} if "created" in fields.keys() - own.keys() else {}
    elif own.get("author") and fields.get("author") not in (None, own["author"]):
        both = (own["author"], fields["author"])
        listed = (it if isinstance(it, tuple) else (it,) for it in both)
        own["author"] = tuple(dict.fromkeys(str(name) for names in listed for name in names))
    if "created" in fields:  # what a file says of itself is often the date of a template
        own = {key: value for key, value in own.items() if key not in ("created", "modified")}
    levels = one_level(level, above.get(LEVEL), item.metadata.get(LEVEL))
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
