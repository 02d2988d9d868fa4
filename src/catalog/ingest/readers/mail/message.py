"""Read one mail: its text is a document, and each attachment another one.

mail.eml                  the mail: subject, people, date, the best text part
mail.eml › contract.pdf   an attachment, read by the reader of its format
mail.eml › fwd.eml        an attached mail, with attachments of its own below it
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
from catalog.ingest.readers.decoding import leave_out_base64
from catalog.ingest.readers.html import extract
from catalog.ingest.readers.mail.parts import (
    MAX_HEADER,
    Part,
    decode,
    decode_words,
    file_name,
    header,
    parse,
    raw_headers,
)
from catalog.ingest.readers.mail.quotes import mark_segments
from catalog.ingest.readers.metadata import LEVEL, normalise, one_level
from catalog.ingest.readers.registry import load_reader, sniff

_MAX_DEPTH = 2  # of mails attached to mails
_ENDS = 8192  # bytes by which a format is recognised
_STUB = 300  # characters: a shorter plain text may only say that there is HTML
_SHOWN = ("subject", "from", "to", "cc", "date")
_PEOPLE = {"author": ("from",), "to": ("to", "bcc"), "cc": ("cc",)}
_TAGS = ("keywords", "x-keywords", "x-gmail-labels")
_READ = {*_SHOWN, *_TAGS, "bcc", "message-id", "references"}
_IDS = re.compile(r"<([^<>\s]{1,500})>")
_IN_MAILDIR = re.compile(r"(^|/)(?:cur|new)/([^/]+?)(?:[:;!]2,\w*)?$")
_APPLE = re.compile(rb"\s{0,9}(\d{1,12})\s{0,9}\n")  # bytes of the mail, above it in a .emlx
_PLAIN = ("text/plain", "text/html", "text/enriched")
_NO_BODY = ("text/calendar", "text/vcard", "text/x-vcard", "text/rfc822-headers")
_NOT_READ = re.compile(r"application/(?:pgp-|(?:x-)?pkcs7-|ms-tnef)|message/d|text/rfc822-headers")
_UNNAMED = {"text/plain": "text", "text/calendar": "invitation"}
_CUT_SHORT = "it ends in the middle of a part: it is still being written, or lost its end"
_QUOTE_START = re.compile(r"<blockquote\b", re.IGNORECASE)
_QUOTE_END = re.compile(r"</blockquote\s*+>", re.IGNORECASE)
_OPEN, _CLOSE = "\ue010", "\ue011"  # stand for the tags of a quotation in the text of HTML


class MailReader:
    """Read a message (``.eml``, ``.emlx``, or a file of a Maildir) with its attachments."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the mail, its attachments, and failures for those that are not read.

        A file of a Maildir is named without ``cur``, ``new`` and flags, which change. Raises
        ``ReadError`` if the mail is empty, attached too deeply or over a limit.
        """
        data = read_bytes(handle, limits.document_bytes)
        if path.endswith(".emlx") and (size := _APPLE.match(data)):
            data = data[size.end() : size.end() + int(size[1])]
        if not path.endswith(".eml"):
            path = _IN_MAILDIR.sub(r"\1\2", path)
        yield from read_message(data, path, limits=limits)


def read_message(
    data: bytes, path: str, *, limits: ReadLimits, file_type: str = "eml"
) -> Iterator[ParsedDocument | ReadFailure]:
    """Yield the documents of one message, as :class:`MailReader` does.

    A mail that was cut short begins with a failure for it, so that its earlier text is kept. Raises
    ``ReadError`` like the class.
    """
    if path.count(WITHIN) > _MAX_DEPTH:
        raise ReadError("a mail in a mail in a mail: save it as a file")
    mail, remark = parse(data)
    if remark is None and _is_cut_short(mail, data):
        yield ReadFailure(path, _CUT_SHORT, path)
    texts, hidden, attached = _sort_parts(mail)
    bodies, remarks = [], [remark] if remark else []
    remarks += [
        f"read as far as {MAX_HEADER:,} characters of the header {name}"
        for name, value in mail.head.raw_items()
        if len(value) == MAX_HEADER and name.lower() in _READ
    ]
    levels = [_stated_level(part) for part in (mail, *texts, *hidden)]
    for part in texts:
        text, level, guess = _read_text(part)
        levels.append(level)
        bodies += [text.rstrip()] if text.strip() else []
        remarks += [guess] if guess else []
    levels += [_read_text(part)[1] for part in hidden if LEVEL.encode() in part.data.lower()]
    fields = _read_fields(mail) | one_level(*levels)
    head = [f"{name.capitalize()}: {shown}" for name in _SHOWN if (shown := _shown(mail, name))]
    body = storable("\n\n".join(bodies))
    body, left_out = leave_out_base64(body)
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
    failures = [item for item in items if isinstance(item, ReadFailure)]
    if not documents:
        raise EmptyDocumentError("empty: a mail without subject, text and readable attachments")
    yield from documents
    remarks += [left_out] if left_out else []
    yield from cap_failures([*(ReadFailure(path, it) for it in dict.fromkeys(remarks)), *failures])


def _is_cut_short(mail: Part, data: bytes) -> bool:
    """Return whether the file ends within a line of a multipart mail, or within base64.

    Then make the base64 one that the library decodes. Many mails lack the last boundary only.
    """
    last, is_open = mail, not mail.inner
    while last.inner:
        is_open |= not last.is_closed
        last = last.inner[-1]
    is_coded = header(last.head, "content-transfer-encoding").strip().casefold() == "base64"
    lines = last.coded.split() if is_coded and is_open else []
    rest = sum(map(len, lines)) % 4
    if rest == 1:
        last.head.set_payload(last.coded.rstrip()[:-1])
    is_last_full = len(lines) > 1 and len(lines[-1]) == len(lines[0]) and lines[-1][-1] != "="
    is_in_line = is_open and data[-1:] not in b"\r\n"
    return rest > 0 or (mail.kind.startswith("multipart/") and (is_in_line or is_last_full))


def _sort_parts(mail: Part) -> tuple[list[Part], list[Part], list[Part]]:
    """Return the text parts to show, those that are not shown, and the attachments.

    Of alternatives the plain text counts, else the HTML; all attachments stay.
    """
    texts: list[Part] = []
    hidden: list[Part] = []
    attached: list[Part] = []

    def sort(part: Part, *, is_shown: bool) -> None:
        is_choice = part.kind == "multipart/alternative" and len(part.inner) > 1
        best = _best(part.inner) if is_choice else None
        for one in part.inner:
            sort(one, is_shown=is_shown and (best is None or one is best))
        if not part.inner:
            is_text = _is_text(part, is_whole=part is mail)
            (texts if is_text and is_shown else hidden if is_text else attached).append(part)

    sort(mail, is_shown=True)
    return texts, hidden, attached


def _is_text(part: Part, *, is_whole: bool) -> bool:
    is_named = part.head.get_content_disposition() == "attachment" or file_name(part.head) != ""
    if part.kind in _NO_BODY or not part.kind.startswith(("text/", "multipart/")):
        return False
    return not is_named or (is_whole and part.kind in _PLAIN)


def _best(alternatives: Sequence[Part]) -> Part:
    """Return the alternative with plain text, else the one with HTML.

    A short plain text that has other words than the HTML only says that there is HTML.
    """
    first: dict[str, tuple[Part, Part]] = {}
    for one in alternatives:
        for part in one.walk():
            if part.kind in _PLAIN and part.data.strip():
                first.setdefault(part.kind, (one, part))
    plain, html = first.get("text/plain"), first.get("text/html")
    if plain and html and len(words := _words(plain[1])) and len("".join(words)) < _STUB:
        known = set(_words(html[1]))
        if known and 2 * sum(word in known for word in words) < len(words):
            plain = None
    return (plain or html or (alternatives[0],))[0]


def _words(part: Part) -> list[str]:
    return re.findall(r"\w+", _read_text(part)[0].casefold())


def _read_text(part: Part) -> tuple[str, MetadataValue | None, str | None]:
    """Return the text of a part, the level that its HTML states, and a remark on its encoding.

    Lines in a ``blockquote`` of HTML begin with ``>``.
    """
    text, guess = decode(part.data, part.head.get_content_charset())
    guess = guess and guess.partition(";")[0]
    text = text.replace(_OPEN, "\ufffd").replace(_CLOSE, "\ufffd")
    if part.kind != "text/html" or not text.strip():
        return re.sub(r"\r\n?", "\n", text), None, guess
    text = _QUOTE_START.sub(f"<p>{_OPEN}</p><blockquote", text)
    page = extract(_QUOTE_END.sub(f"</blockquote><p>{_CLOSE}</p>", text))
    lines, depth = [""], 0
    for line in page.text.split("\n"):
        depth = max(0, depth + line.count(_OPEN) - line.count(_CLOSE))
        if line not in (_OPEN, _CLOSE) and (line or lines[-1]):
            lines.append("> " * bool(depth and line.strip()) + line)
    return "\n".join(lines[1:]), page.metadata.get(LEVEL), guess


def _stated_level(part: Part) -> MetadataValue | None:
    """Return the confidentiality that the headers of a mail or a part state."""
    stated = [name for name in part.head if LEVEL in name.casefold()]
    plain = (
        (re.sub(r"^x-", "", name, flags=re.I), header(part.head, name.lower())) for name in stated
    )
    return one_level(*(it for one in plain for it in normalise(dict([one])).values())).get(LEVEL)


def _read_fields(mail: Part) -> dict[str, MetadataValue]:
    """Return the metadata of a mail, ``subject`` only if it has one."""
    raw: dict[str, object] = {}
    for field, names in _PEOPLE.items():
        if people := _people(mail, names):
            raw[field] = people
    raw["date"] = _date(mail)
    raw["tags"] = ", ".join(filter(None, (header(mail.head, name) for name in _TAGS)))
    named = (header(mail.head, name) for name in ("references", "in-reply-to", "message-id"))
    above, answered, own = (next(iter(_IDS.findall(ids)), None) for ids in named)
    raw["message_id"], raw["thread"] = own, above or answered or own
    raw["subject"] = _shown(mail, "subject")
    return normalise(raw)


def _shown(mail: Part, name: str) -> str:
    return one_line(header(mail.head, name))


def _people(mail: Part, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names and addresses in these headers."""
    headers = [str(value) for name in names for value in raw_headers(mail.head, name)]
    try:
        pairs = [(decode_words(name), address) for name, address in getaddresses(headers)]
    except RecursionError:  # comments in comments
        return ()
    found = (one_line(text) for pair in pairs for text in pair)
    return tuple(dict.fromkeys(filter(None, found)))


def _date(mail: Part) -> str | None:
    """Return the date, else that of the last hop, in ISO 8601; as written if it is no date."""
    written = _shown(mail, "date")
    for text in filter(None, (written, _shown(mail, "received").rpartition(";")[2])):
        try:
            return parsedate_to_datetime(text.strip()).isoformat()
        except (ValueError, TypeError, OverflowError, IndexError):
            continue
    return written or None


def _read_attachments(
    parts: Sequence[Part], mail: ParsedDocument, limits: ReadLimits
) -> Iterator[ParsedDocument | ReadFailure]:
    """Yield the documents of the attachments, with the mail's fields where they have none."""
    names: Counter[str] = Counter()
    contents: set[bytes] = set()
    pictures = []
    for part in parts:
        stem, suffix = splitext(file_name(part.head) or _name_unnamed(part))
        name = number_name(names, stem, suffix)
        path = f"{mail.path}{WITHIN}{name}"
        if part.kind.startswith(("image/", "audio/", "video/")):
            pictures.append(name)
        elif _NOT_READ.match(part.kind):
            yield ReadFailure(path, "not read: signed, encrypted, or a report of the mail system")
        elif part.data not in contents:  # an invitation is often there twice
            contents.add(part.data)
            form, level = "mail" * (part.kind == "message/rfc822"), _stated_level(part)
            fields = mail.metadata
            yield from read_attached(part.data, path, fields, limits, form=form, level=level)
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


def _name_unnamed(part: Part) -> str:
    if part.kind == "message/rfc822":
        return f"{name_of(header(parse(part.data)[0].head, 'subject')) or 'message'}.eml"
    return f"{_UNNAMED.get(part.kind, 'part')}{guess_extension(part.kind) or '.bin'}"


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
        yield ReadFailure(path, LEFT_TO_ITSELF, path)
        return
    try:
        form = form or sniff(path, data[:_ENDS], data[-_ENDS:])[0]
        if form == "mbox":  # whose mails take a process of their own
            yield ReadFailure(path, "an attached mailbox: save it as a file")
            return
        for item in load_reader(form).read(BytesIO(data), path, limits=limits):
            if isinstance(item, ParsedDocument):
                item = _belonging(item, path, fields, level)
            yield item
    except ReadError as error:
        yield ReadFailure(path, str(error), path)
    except Exception as error:  # noqa: BLE001 - recorded: the mail and the others stay
        yield ReadFailure(path, f"the reader failed: {type(error).__name__}: {error}", path)


def _belonging(
    item: ParsedDocument,
    path: str,
    above: Mapping[str, MetadataValue],
    level: MetadataValue | None,
) -> ParsedDocument:
    """Return a document of an attachment with its name and the fields of its mail or PDF.

    A file's own tags count, its mail's date, and the authors of both; a mail without a date has
    that of its mail.
    """
    is_mail = item.source_type == "mail"
    undated = {"created"} - item.metadata.keys()
    inherited = {LEVEL, *undated} if is_mail else above.keys()
    fields = {name: value for name, value in above.items() if name in inherited}
    levels = one_level(level, above.get(LEVEL), item.metadata.get(LEVEL))
    own = dict(item.metadata)
    if not is_mail and own.get("author") and fields.get("author") not in (None, own["author"]):
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
