"""Read one mail: its text is a document, and each attachment another one.

mail.eml                  the mail: subject, people, date, the best text part
mail.eml › contract.pdf   an attachment, also of an attached mail: mail.eml › fwd.eml › plan.pdf
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from email.errors import MessageError
from email.header import decode_header
from email.message import Message
from email.utils import getaddresses, parsedate_to_datetime
from hashlib import blake2b
from io import BytesIO
from itertools import chain
from mimetypes import guess_extension
from posixpath import splitext
from typing import Any, BinaryIO, cast

from catalog.core.documents import MetadataValue, ParsedDocument
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.core.places import WITHIN
from catalog.core.text import clean, storable
from catalog.ingest.readers import base
from catalog.ingest.readers.base import Items, ReadFailure, ReadLimits, choose_title, one_line
from catalog.ingest.readers.decoding import decode_with_remark, leave_out_base64, wide_encoding
from catalog.ingest.readers.html import HtmlReader, extract
from catalog.ingest.readers.mail.quotes import mark_segments
from catalog.ingest.readers.metadata import LEVEL, normalise, one_level
from catalog.ingest.readers.registry import load_reader, sniff

_MAX_HEADER, _MAX_PARAMETERS = 20_000, 2_000  # characters: the library is quadratic in them
_MAX_PARTS, _MAX_NESTED, _MAX_MAILS, _MAX_STUB = 1000, 10, 2, 600
_HEAD = re.compile(r"\A(?:(?:From |[!-9;-~]*+:|[\t ])[^\r\n]*+(?>\r\n|\r|\n|\Z))*+(?:\r\n|\r|\n)?")
_FIELD = re.compile(r"^([!-9;-~]++):[\t ]*+(.*+(?:\n[\t ].*+)*+)", re.MULTILINE)
_ID = re.compile(r"<([^<>\s]{1,500})>")
_IN_MAILDIR = re.compile(r"(^|/)(?:cur|new)/([^/›]+?(?<!\.eml))(?:[:;!]2,\w*)?$")
_APPLE = re.compile(rb"\s{0,9}(\d{1,12})\s{0,9}\n")  # bytes of the mail, above it in a .emlx
_BODY = re.compile(r"multipart/|text/(?!calendar|(?:x-)?vcard|rfc822-headers)")
_NOT_READ = re.compile(
    "(image|audio|video)/|application/(pgp|(x-)?pkcs7|ms-tnef)|message/d|text/rfc"
)
_FATAL = "reading it takes too much memory or time, or it is damaged"
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"  # stand for the tags of a quotation in the text of HTML

Fields = Mapping[str, MetadataValue]


class _Part(Message):
    inner: Sequence[_Part] = ()
    is_closed = False  # its last boundary is there

    @property
    def data(self) -> bytes:
        return cast(bytes, self.get_payload(decode=True) or b"")

    def header(self, name: str) -> str:
        return _decode_words(str(self.get(name, "")))

    def file_name(self) -> str:
        name = _decode_words(self.get_filename("")).replace("\\", "/")
        return name_of(clean(name.rpartition("/")[2]))

    def get_param(self, param: str, failobj: Any = None, *args: Any, **kwargs: Any) -> Any:
        with suppress(TypeError):  # of continued parameters, one without a number
            return super().get_param(param, failobj, *args, **kwargs)
        return failobj


class MailReader:
    """Read a message (``.eml``, ``.emlx``, or a file of a Maildir) with its attachments."""

    def read(self, handle: BinaryIO, path: str, *, limits: ReadLimits) -> Items:
        """Yield its documents, of a Maildir without ``cur``, ``new`` and flags, which change."""
        data = base.read_bytes(handle, limits.document_bytes)
        if path.endswith(".emlx") and (size := _APPLE.match(data)):
            data = data[size.end() : size.end() + int(size[1])]
        yield from read_message(data, _IN_MAILDIR.sub(r"\1\2", path), limits=limits)


class MhtmlReader(HtmlReader):
    """Read the page of a web archive, as browsers save it; its places are paragraphs."""

    unit = "paragraph"

    def read(self, handle: BinaryIO, path: str, *, limits: ReadLimits) -> Items:
        """Yield the document of the first HTML part; raise ``ReadError`` if there is none."""
        archive, _ = parse(base.read_bytes(handle, limits.text_bytes))
        page = next((one for one in archive.walk() if one.get_content_type() == "text/html"), None)
        if page is None:
            raise ReadError("a web archive without a page")
        charset = page.get_content_charset("").encode()
        source = BytesIO(b'<meta charset="%b">%b' % (charset, page.data))
        url = page.header("content-location") or archive.header("snapshot-content-location")
        fields = normalise({"source_url": url.strip()})
        levels = [_stated_level(one) for one in archive.walk()]
        for item in super().read(source, path, limits=limits):
            if isinstance(item, ParsedDocument):
                level = one_level(item.metadata.get(LEVEL), *levels)
                item = replace(item, metadata={**fields, **item.metadata, **level})
            yield item


def read_message(data: bytes, path: str, *, limits: ReadLimits, file_type: str = "eml") -> Items:
    """Yield the documents of a message; first a failure if it was cut short, to keep older text."""
    if path.count(WITHIN) > _MAX_MAILS:
        raise ReadError("a mail in a mail in a mail: save it as a file")
    mail, remarks = parse(data)
    if not remarks and _is_cut_short(mail, data):
        yield ReadFailure(path, "it ends in the middle of a part, or is still being written", path)
    levels, bodies, attached = [_stated_level(mail)], list[str](), list[_Part]()
    for part, is_shown in _leaves(mail):
        kind = part.get_content_type()
        is_named = part.get_content_disposition() == "attachment" or part.file_name() != ""
        if not _BODY.match(kind) or (is_named and part is not mail):
            attached.append(part)
            continue
        levels.append(_stated_level(part))
        if is_shown or LEVEL.encode() in part.data.lower():
            text, level, guess = _read_text(part)
            levels.append(level)
            bodies += [text.rstrip()] if is_shown and text.strip() else []
            remarks += [guess.partition(";")[0]] if is_shown and guess else []
    shown = ((it, one_line(mail.header(it))) for it in ("subject", "from", "to", "cc", "date"))
    head = "\n".join(f"{name.capitalize()}: {value}" for name, value in shown if value)
    body, left_out = leave_out_base64(storable("\n\n".join(bodies)))
    if len(body) > limits.text_bytes:
        raise ReadError(f"too long: over {limits.text_bytes:,} characters")
    text, subject = "\n\n".join(filter(None, (head, body))), one_line(mail.header("subject"))
    fields = _read_fields(mail) | one_level(*levels)
    document = replace(
        ParsedDocument(path, text, choose_title(path, subject), file_type, "mail", fields),
        segments=tuple(mark_segments(body, len(text) - len(body))) if body else (),
        written=frozenset([*fields, "title"] if subject else fields),
    )
    said, count = dict.fromkeys(filter(None, (*remarks, left_out))), 0
    failures = [ReadFailure(path, reason) for reason in said]
    for item in chain([document], _attached(attached, document, limits)):
        if isinstance(item, ReadFailure):
            failures.append(item)
        elif item.text:
            count += 1
            yield item
    if not count:
        raise EmptyDocumentError("empty: a mail without subject, text and readable attachments")
    yield from base.cap_failures(failures)


def parse(data: bytes) -> tuple[_Part, list[str]]:
    """Return a tree of parts, and what is left out; the library is quadratic in their nesting."""
    parts, remarks = list[_Part](), list[str]()

    def read(source: str, kind: str, depth: int) -> _Part:
        parts.append(part := _Part())
        content = _HEAD.sub("", source)
        head = source[: len(source) - len(content)].encode("ascii", "surrogateescape")
        for name, value in _FIELD.findall(re.sub(r"\r\n?", "\n", decode_with_remark(head)[0])):
            most = _MAX_PARAMETERS if name.lower().startswith("content-") else _MAX_HEADER
            part[name] = value[:most]
            if len(value) > most == _MAX_HEADER:
                remarks.append(f"read as far as {most:,} characters of the header {name}")
        part.set_default_type(kind)
        part.set_payload(content)
        boundary = part.get_content_maintype() == "multipart" and part.get_boundary()
        if not boundary or depth == _MAX_NESTED:
            return part
        kind = "message/rfc822" if part.get_content_subtype() == "digest" else "text/plain"
        line = rf"(?m)(?:\r?\n)?^--{re.escape(boundary)}(--)?[ \t]*+\r?(?:\n|\Z)"
        _, *cut = re.split(line, content)
        part.is_closed = "--" in cut[::2]
        inner = part.inner = list[_Part]()
        for is_last, piece in zip(cut[::2], cut[1::2], strict=True):
            if is_last or len(parts) > _MAX_PARTS:
                break
            inner.append(read(piece, kind, depth + 1))
        part.set_payload([*inner] or content)
        return part

    data = decode_with_remark(data)[0].encode() if wide_encoding(data) else data
    data = data.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    mail = read(data.decode("ascii", "surrogateescape"), "text/plain", 0)
    return mail, remarks + [f"read as far as {_MAX_PARTS:,} parts"] * (len(parts) > _MAX_PARTS)


def _is_cut_short(mail: _Part, data: bytes) -> bool:
    """Return whether the file ends in base64, or in a line of parts; many lack only the last."""
    *_, last = mail.walk()
    is_coded = "base64" in last.get("content-transfer-encoding", "").casefold()
    lines = str(last.get_payload()).split() if is_coded else []
    rest = sum(map(len, lines)) % 4
    if rest == 1:  # which the library would not decode
        last.set_payload("".join(lines)[:-1])
    is_full = len(lines) > 1 and len(lines[-1]) == len(lines[0]) and lines[-1][-1] != "="
    is_in_line = mail.is_multipart() and (is_full or data[-1:] not in b"\r\n")
    return not mail.is_closed and (is_in_line or rest > 0)


def _decode_words(text: str) -> str:
    if "=?" not in text:
        return storable(text)
    with suppress(MessageError, ValueError):
        pieces = [it for it in decode_header(text) if isinstance(it[0], bytes)]
        text = "".join(decode_with_remark(it, charset=name)[0] for it, name in pieces) or text
    return storable(text)


def _leaves(part: _Part, *, is_shown: bool = True) -> Iterator[tuple[_Part, bool]]:
    """Yield the parts without parts in them, and whether each is shown if it is a text."""
    best = _best(part.inner) if part.get_content_subtype() == "alternative" else None
    for one in part.inner:
        yield from _leaves(one, is_shown=is_shown and best in (None, one))
    if not part.inner:
        yield part, is_shown


def _best(alternatives: Sequence[_Part]) -> _Part | None:
    """Return the one with plain text, unless that only says that there is HTML; else the HTML."""
    pairs = [(one, leaf) for one in alternatives for leaf in one.walk() if leaf.data.strip()]
    first = {leaf.get_content_type(): (one, leaf) for one, leaf in reversed(pairs)}
    plain, html = first.get("text/plain"), first.get("text/html")
    if plain and html and len(plain[1].data) < _MAX_STUB:
        words, known = (re.findall(r"\w+", _read_text(it)[0].lower()) for _, it in (plain, html))
        if known and 2 * sum(map({*known}.__contains__, words)) < len(words):
            plain = None
    return (plain or html or (None,))[0]


def _read_text(part: _Part) -> tuple[str, MetadataValue | None, str | None]:
    """Return a part's text (``>`` marks quotations), its HTML's level, and a remark on its text."""
    text, guess = decode_with_remark(part.data, charset=part.get_content_charset())
    if part.get_content_type() != "text/html" or not text.strip():
        return re.sub(r"\r\n?", "\n", text), None, guess
    marked = re.sub("(?i)<blockquote", rf"<p>{_OPEN}</p>\g<0>", text)
    page = extract(re.sub("(?i)</blockquote", rf"<p>{_CLOSE}</p>\g<0>", marked))
    lines, depth = [""], 0
    for line in page.text.split("\n"):
        depth = max(0, depth + line.count(_OPEN) - line.count(_CLOSE))
        if line not in (_OPEN, _CLOSE) and (line or lines[-1]):
            lines.append("> " * bool(depth and line.strip()) + line)
    return "\n".join(lines[1:]), page.metadata.get(LEVEL), guess


def _stated_level(part: _Part) -> MetadataValue | None:
    named = [(name.lower(), it) for name, it in part.items() if LEVEL in name.lower()]
    stated = (normalise({name.removeprefix("x-"): _decode_words(it)}) for name, it in named)
    return one_level(*(fields.get(LEVEL) for fields in stated)).get(LEVEL)


def _read_fields(mail: _Part) -> dict[str, MetadataValue]:
    ids = (_ID.search(mail.header(name)) for name in ("references", "in-reply-to", "message-id"))
    above, answered, own = (found and found[1] for found in ids)
    tags = filter(None, map(mail.header, ("keywords", "x-keywords", "x-gmail-labels")))
    raw: dict[str, object] = {"tags": ", ".join(tags), "date": one_line(mail.header("date"))}
    raw |= {"message_id": own, "thread": above or answered or own}
    with suppress(ValueError, TypeError, OverflowError, IndexError):
        raw["date"] = parsedate_to_datetime(mail.header("date")).isoformat()
    for field, names in {"author": ["from"], "to": ["to", "bcc"], "cc": ["cc"]}.items():
        headers = [value for name, value in mail.items() if name.lower() in names]
        with suppress(RecursionError):  # comments in comments
            texts = (_decode_words(text) for pair in getaddresses(headers) for text in pair)
            raw[field] = tuple(dict.fromkeys(filter(None, map(one_line, texts))))
    return normalise({name: value for name, value in raw.items() if value})


def _attached(parts: list[_Part], mail: ParsedDocument, limits: ReadLimits) -> Items:
    names, contents, not_read = Counter[str](), set[bytes](), list[str]()
    for part in parts:
        kind, name = part.get_content_type(), part.file_name()
        if kind == "message/rfc822":  # called so that it is read as one
            subject = name_of(parse(part.data)[0].header("subject"))
            name = f"{splitext(name)[0] or subject or 'message'}.eml"
        name = number_name(names, *splitext(name or f"part{guess_extension(kind) or '.bin'}"))
        if _NOT_READ.match(kind):
            not_read.append(f"{name} ({kind})")
        elif (data := part.data) not in contents:  # an invitation is often there twice
            contents.add(data)
            fields = {**mail.metadata, **one_level(mail.metadata.get(LEVEL), _stated_level(part))}
            yield from read_attached(data, f"{mail.path}{WITHIN}{name}", fields, limits)
    if not_read:
        yield ReadFailure(mail.path, f"not read: {', '.join(not_read)[: base.MAX_TITLE]}")


def number_name(names: Counter[str], stem: str, suffix: str = "") -> str:
    """Return a name that is not among the names, such as ``plan (2).pdf``, and add it to them."""
    names[name := f"{stem}{suffix}"] += 1
    return name if names[name] == 1 else number_name(names, f"{stem} ({names[name]})", suffix)


def name_of(subject: str) -> str:
    """Return a subject as a part of a name."""
    return one_line(re.sub(r"[/\\›]", "-", subject))[:120].strip(". ")


def read_attached(data: bytes, path: str, fields: Fields, limits: ReadLimits) -> Items:
    """Yield the documents of a file attached to a mail or a PDF that has these fields.

    A file's own tags count, its mail's date, and the authors of both. A mail has its own fields,
    but without a date that of the mail around it. What cannot be read is a failure.
    """
    if (name := blake2b(data, digest_size=20).hexdigest()) in limits.fatal:
        yield ReadFailure(path, _FATAL, path)
        return
    limits.starting(name)
    try:
        reader = load_reader(sniff(path, data[:8192], data[-8192:])[0])
        for item in reader.read(BytesIO(data), path, limits=limits):
            yield item if isinstance(item, ReadFailure) else _belonging(item, path, fields)
    except ReadError as error:
        yield ReadFailure(path, str(error), path)
    except Exception as error:  # noqa: BLE001 - recorded: the mail and the others stay
        yield ReadFailure(path, f"the reader failed: {type(error).__name__}: {error}", path)
    limits.starting("")


def _belonging(item: ParsedDocument, path: str, fields: Fields) -> ParsedDocument:
    own, is_mail = dict(item.metadata), item.source_type == "mail"
    levels, date = one_level(fields.get(LEVEL), own.get(LEVEL)), fields.get("created")
    if is_mail:
        fields = {"created": date} if date is not None and "created" not in own else {}
    for key in ("created", "modified") if "created" in fields else ():
        own.pop(key, None)  # what a file says of itself is often the date of a template
    named = (one.get("author", ()) for one in (own, fields))
    names = [str(name) for it in named for name in (it if isinstance(it, tuple) else (it,))]
    authors = {"author": tuple(dict.fromkeys(names))} if len({*names}) > 1 else {}
    name = item.path if item.path.startswith(path) else f"{path}{WITHIN}{item.path}"
    is_untitled = item.title == choose_title(item.path) and not is_mail
    return replace(
        item,
        path=name,
        title=name if is_untitled else item.title,
        source_type="attachment" if item.source_type == "file" else item.source_type,
        metadata={**fields, **own, **authors, **levels},
        written=item.written | levels.keys(),
    )
