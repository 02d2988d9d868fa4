"""Map formats to readers: one line in ``formats.toml`` for each format.

A file's format is recognised by its content, then by its name. An installed package adds a reader
by an entry point of ``catalog.readers``, named by the extension of its files.
"""

import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from catalog.core.documents import MetadataValue, ParsedDocument
from catalog.core.entry_points import find, list_added
from catalog.core.errors import ReadError
from catalog.ingest.readers.base import DEFAULT_LIMITS, Reader, ReadFailure, ReadLimits, file_type
from catalog.ingest.readers.decoding import binary_kind, decode
from catalog.ingest.readers.isolated import Request, read_isolated
from catalog.ingest.readers.metadata import (
    LEVEL,
    UNREADABLE,
    normalise,
    one_level,
    read_front_matter,
    settle_level,
)


class Format(NamedTuple):
    """A format, the class that reads it (in this package), and the extensions of its files.

    ``is_document``: files may be larger than text. ``is_binary``: recognised by content, whatever
    the name. ``part`` is the entry that identifies a ZIP archive of this format.
    """

    name: str
    reader: str
    extensions: str = ""
    is_document: bool = False
    is_binary: bool = False
    part: str = ""


_TABLE = files("catalog.ingest.readers").joinpath("formats.toml").read_text("utf-8")
FORMATS = tuple(Format(**row) for row in tomllib.loads(_TABLE)["formats"])
_BY_NAME = {entry.name: entry for entry in FORMATS}
_BY_EXTENSION = {extension: entry for entry in FORMATS for extension in entry.extensions.split()}
EXTENSIONS = frozenset(_BY_EXTENSION) | {"txt"}
DOCUMENT_EXTENSIONS = frozenset(name for name, entry in _BY_EXTENSION.items() if entry.is_document)
"""Extensions of formats whose files may be larger than text."""

_ADDED = "catalog.readers"
_HEAD_BYTES, _TAIL_BYTES = 65_536, 2048  # headers of mails are long
_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:\s++|<\?xml[^>]*+>|<!--(?:(?!-->).)*+-->)*+(?:<!doctype\s+html|<html[\s>])",
    re.IGNORECASE | re.DOTALL,
)
_MANUAL = re.compile(rb"(?:[.']\\\"[^\n]*+\n)*+\.TH ")
_NOTEBOOK = re.compile(rb'"nbformat"\s*:')
_MAIL = re.compile(
    rb"(From [^\n]*+\n)?(?:[!-9;-~]++:[^\n]*+\n|[ \t][^\n]*+\n)*?"
    rb"(?:Message-ID:\s*+<|MIME-Version:\s*+1|Received:\s++(?:from|by)\s|Return-Path:\s*+<)",
    re.IGNORECASE,
)
_UNPACK = "a compressed file: unpack it"
_NOT_READ = dict.fromkeys(["gzip", "xz", "zstd", "bzip2", "7z", "rar", "tar"], _UNPACK) | {
    "ole": "an old Word or PowerPoint file, or one with a password: "
    "save it as .docx or .pptx without a password",
    "xlsx": "an Excel workbook with a password: save it without one",
    "postscript": "PostScript: convert it to PDF",
    "mp4": "a recording (mp4): its transcript can be indexed (.srt, .vtt, .json)",
    "mobi": "a Kindle book: convert it to EPUB",
    "djvu": "DjVu: convert it to PDF",
}


def read_file(
    absolute: Path, path: str, *, root: Path | None = None, limits: ReadLimits = DEFAULT_LIMITS
) -> Iterator[ParsedDocument | ReadFailure]:
    """Yield the documents of one file: one, or one for each record, mail or attachment.

    ``absolute`` is the file to open, ``path`` the document's name; with ``root`` no folder between
    there and the file may be a symlink. A part that cannot be read is yielded as a ``ReadFailure``.
    The first step raises ``ReadError`` with the reason for a file that is unusable as a whole.
    """
    above = None if root is None else str(root)
    return read_isolated(Request(str(absolute), above, path, limits))


def read_open(
    handle: BinaryIO, path: str, *, limits: ReadLimits
) -> Iterator[str | ParsedDocument | ReadFailure]:
    """Yield the name of a file's format, then its items as :func:`read_file`, in this process."""
    top = handle.read(_TOP)
    size = handle.seek(0, 2)
    handle.seek(max(0, size - _TAIL_BYTES))
    name, corrected_type = sniff(path, top[:_HEAD_BYTES], handle.read(_TAIL_BYTES))
    yield name
    known = _BY_NAME.get(name) or Format(name, "")
    if known.is_document and size > limits.document_bytes:
        raise ReadError(f"too large: over {limits.document_bytes:,} bytes")
    above = "" if known.is_binary else decode(top)
    handle.seek(0)
    for item in load_reader(name).read(handle, path, limits=limits):
        if isinstance(item, ParsedDocument):
            yield label(replace(item, file_type=corrected_type or item.file_type), above)
        else:
            yield item
    extension, contents = file_type(path), {"html": "a web page or XML", "txt": "plain text"}
    if corrected_type in contents and extension in DOCUMENT_EXTENSIONS:
        reason = f"read as text, not as {extension}: its content is {contents[corrected_type]}"
        yield ReadFailure(path, reason)


_TOP = 1 << 17  # bytes of a text file, and characters of a document, that may state its level
_HEAD = re.compile(  # blocks (closed or not, without prose), comments and blank lines
    r"(?:\s++|[#%][^\n]*+\n|(?:WEBVTT|NOTE|STYLE|REGION)\b[^\n]*+\n(?:[^\n]++\n)*+|"
    r"<!--(?:(?!-->).)*+-->|\ufeff|(?:---|\+\+\+|;;;)[^\n]*+\n"
    r"(?:(?!(?:---|\+\+\+|\.\.\.|;;;)\s|\w[^:=\n]*+\n)[^\n]*+\n)*+(?:[-+.;]{3}[^\n]*+(?:\n|\Z))?)*+",
    re.DOTALL,
)
_FENCED = re.compile(r"(---|\+\+\+)[ \t]*\n.*?\n\1[ \t]*(?:\n|\Z)", re.DOTALL)
_HEAD_OF_PROSE = re.compile(rf"{_HEAD.pattern}(?:[^\S\n]*+\S[^\n]*+\n?)*+", re.DOTALL)
_CLAIM = re.compile(  # as a field's name, and no Markdown heading
    r"(?:^(?!\#+[ \t])(?:NOTE\b|WEBVTT\b[^\n]{0,40}?)?[^\w\n]{0,20}(?:x-|\w{1,20}[.:])?"
    r"|\{\s{0,9}[\"']?|,\s{0,9}[\"'])"
    rf"{LEVEL}[\w .-]{{0,20}}[\"'*_\])]{{0,4}}\s?[:：=]",
    re.IGNORECASE | re.MULTILINE,
)
_OF_WORD = re.compile(rf"<o:\w{{0,30}}{LEVEL}", re.IGNORECASE)  # in a page that Word has saved
_NO_PROSE = ("html", "mhtml", "latex", "code", "yaml", "json", "jsonl")  # front matter counts


def label(document: ParsedDocument, top: str = "") -> ParsedDocument:
    """Return the document with the level of confidentiality that it states, in whatever form.

    The level is ``unreadable`` if it is misnamed, nested, stated twice, or claimed at the top
    without being read. ``top`` is the beginning of the file. No sidecar replaces the level.
    """
    document = replace(document, metadata=settle_level(document.metadata))
    form, levels = _BY_EXTENSION.get(document.file_type), [document.metadata.get(LEVEL)]
    if form is None or not form.is_binary:
        text = document.text[document.body_start : document.body_start + _TOP]
        if document.source_type == "mail":  # whose first paragraph is its subject and people
            text = text.partition("\n\n")[2]
        is_prose = levels[0] is None and (form is None or form.name not in _NO_PROSE)
        # What the top of the file states is shown in another form by some readers.
        at_top = UNREADABLE if _OF_WORD.search(top) else _level_at_top(top, is_prose=False)
        levels += [at_top or _level_at_top(text, is_prose=is_prose)]
    return at_levels(document, *levels)


def at_levels(document: ParsedDocument, *levels: MetadataValue | None) -> ParsedDocument:
    """Return the document at the one level that is stated, ``unreadable`` if levels differ."""
    if not (level := one_level(*levels)):
        return document
    unread = f"its {LEVEL} cannot be read: only who may see everything finds it"
    is_told = level[LEVEL] != UNREADABLE or unread in document.remarks
    remarks = document.remarks if is_told else (*document.remarks, unread)
    metadata, written = {**document.metadata, **level}, document.written | level.keys()
    return replace(document, metadata=metadata, written=written, remarks=remarks)


def _level_at_top(text: str, *, is_prose: bool) -> MetadataValue | None:
    """Return the level in front matter, ``unreadable`` if another text at the top claims one."""
    text = text.lstrip("\ufeff \t\r\n")
    may_be_coded = text[:3] in ("---", "+++") and re.search(r"[\\!]", text) is not None
    if LEVEL not in text.casefold() and not may_be_coded:
        return None
    text = re.sub(r"\r\n?", "\n", text)
    fields, start, end, problem = read_front_matter(text)
    level = normalise(fields).get(LEVEL)
    block = None if fields else _FENCED.match(text)
    is_lost = (problem and level is None and LEVEL in text[:end].casefold()) or (
        block and _CLAIM.search(block[0])
    )
    start = end if fields else start
    match = _HEAD_OF_PROSE.match if is_prose and level is None else _HEAD.match
    head = cast("re.Match[str]", match(text, start))
    return UNREADABLE if is_lost or _CLAIM.search(text, start, head.end()) else level


def load_reader(name: str) -> Reader:
    """Import and make the reader of the format called ``name``, to run in this process."""
    if name not in _BY_NAME:
        return cast(Callable[[], Reader], find(_ADDED, name.removeprefix(_ADDED)))()
    module, _, class_name = _BY_NAME[name].reader.rpartition(".")
    return cast(Reader, getattr(import_module(f"{__package__}.{module}"), class_name)())


def sniff(path: str, head: bytes, tail: bytes) -> tuple[str, str | None]:
    """Return the name of a file's format and, if its extension is wrong, its true file type.

    Raises ``ReadError`` for binary content that no reader reads. The name decides only among texts
    (but for web pages, mails, subtitles and notebooks), and if only another package reads it.
    """
    extension = file_type(path)
    if not head and extension in DOCUMENT_EXTENSIONS:
        raise ReadError(f"broken: 0 bytes, which is no {extension} file")
    if extension not in EXTENSIONS and extension in list_added(_ADDED):
        return f"{_ADDED}{extension}", None
    if extension == "pdf" and b"%PDF-" in head:
        return "pdf", None
    if head.lstrip(b"\xef\xbb\xbf \t\r\n\x00").startswith(b"%PDF-"):
        return "pdf", "pdf"
    binary = binary_kind(head)
    if binary == "zip":
        return "archive", None
    if binary == "rtf":
        return "rtf", None if extension in ("rtf", "doc") else "rtf"
    if binary == "ole" and extension in ("msg", "xls", "xlt"):
        return _BY_EXTENSION[extension].name, None
    if binary is not None:
        binary = extension if binary == "ole" and extension in _NOT_READ else binary
        raise ReadError(_NOT_READ.get(binary, f"binary ({binary})"))
    if extension == "json" and _NOTEBOOK.search(tail):
        return "notebook", "ipynb"
    known = _BY_EXTENSION.get(extension)
    named = "plain" if known is None or known.is_binary else known.name
    if named not in ("plain", "csv"):
        return named, None
    if head.startswith(b"// <!-- <mdb:mork"):
        raise ReadError("Thunderbird's index of a mailbox: its mails are in the file beside it")
    if _HTML.match(head) or b"<Workbook" in head[:1000]:  # of Excel 2003
        return "html", "html"
    if _MANUAL.match(head):
        return "manual", None
    if (mail := _MAIL.match(head)) is not None:
        return ("mbox" if mail[1] else "mail"), None
    from catalog.ingest.readers.timed.subtitles import looks_like_subtitles

    if looks_like_subtitles(decode(head[:8192])):
        return "subtitles", None
    return named, "txt" if extension in DOCUMENT_EXTENSIONS else None
