"""Map formats to readers: one line in ``FORMATS`` for each format.

A file's format is recognised by its content, then by its name. Readers are imported when first
needed. A new format takes a line in the table and a module with its reader. An installed package
adds one by an entry point of ``catalog.readers``, named by the extension of its files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, cast

from catalog.core.documents import MetadataValue, ParsedDocument
from catalog.core.entry_points import find, list_added
from catalog.core.errors import ReadError
from catalog.ingest.readers.base import DEFAULT_LIMITS, Reader, ReadFailure, ReadLimits, file_type
from catalog.ingest.readers.decoding import binary_kind, decode
from catalog.ingest.readers.metadata import (
    LEVEL,
    UNREADABLE,
    end_of_front_matter,
    normalise,
    one_level,
    read_front_matter,
    settle_level,
)


@dataclass(frozen=True, slots=True)
class Format:
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


_CODE = (
    "bash bat c cc cfg clj conf cpp cs css cxx dart el erl ex exs go gradle h hpp hs ini java "
    "jl js jsx kt less lisp lua mjs ml php pl proto ps1 py pyi r rb rs scala scss sh sql "
    "svelte svg swift toml ts tsx vb vue xml xsd xsl zig"
)
_WORD, _SLIDES, _BOOK = "word/document.xml", "ppt/presentation.xml", "META-INF/container.xml"
_SHEETS, _OPEN = "xl/workbook.xml", "content.xml"
_WORKBOOKS = "xlsx xlsm xltx xltm xlsb xls xlt ods ots"

FORMATS = (
    Format("markdown", "markdown.MarkdownReader", "md markdown mdown mkd mdx qmd rmd"),
    Format("rst", "rst.RstReader", "rst rest"),
    Format("org", "text.OrgReader", "org"),
    Format("asciidoc", "text.AsciiDocReader", "adoc asciidoc"),
    Format("latex", "text.LatexReader", "tex ltx"),
    Format("manual", "text.ManualReader"),
    Format("html", "html.HtmlReader", "html htm xhtml"),
    Format("mhtml", "html.MhtmlReader", "mhtml mht"),
    Format("jsonl", "records.JsonLinesReader", "jsonl ndjson"),
    Format("json", "records.JsonReader", "json json3", is_document=True),
    Format("enex", "records.EnexReader", "enex", is_document=True),
    Format("calendar", "text.CalendarReader", "ics vcf"),
    Format("bibtex", "text.BibtexReader", "bib"),
    Format("subtitles", "timed.subtitles.SubtitleReader", "srt vtt sbv ass ssa ttml dfxp lrc"),
    Format("csv", "text.CsvReader", "csv tsv tab psv"),
    Format("yaml", "text.CodeReader", "yaml yml"),
    Format("code", "text.CodeReader", _CODE),
    Format("plain", "text.PlainTextReader"),
    Format("notebook", "notebook.NotebookReader", "ipynb", is_document=True),
    Format("mail", "mail.message.MailReader", "eml emlx", is_document=True),
    Format("mbox", "mail.mailbox.MboxReader", "mbox"),
    Format("msg", "mail.outlook.MsgReader", "msg", is_document=True, is_binary=True),
    Format("pdf", "pdf.reader.PdfReader", "pdf", is_document=True, is_binary=True),
    Format("archive", "archive.ArchiveReader", is_document=True, is_binary=True),
    Format("docx", "docx.DocxReader", "docx docm dotx dotm", True, True, _WORD),
    Format("pptx", "pptx.PptxReader", "pptx pptm potx ppsx", True, True, _SLIDES),
    Format("workbook", "workbook.WorkbookReader", _WORKBOOKS, True, True, _SHEETS),
    Format(
        "opendocument",
        "opendocument.OpenDocumentReader",
        "odt ott odp otp",
        is_document=True,
        is_binary=True,
        part=_OPEN,
    ),
    Format("rtf", "rtf.RtfReader", "rtf", is_document=True, is_binary=True),
    Format("epub", "epub.EpubReader", "epub", True, True, _BOOK),
    Format("fictionbook", "epub.FictionBookReader", "fb2", is_document=True),
    Format("fodt", "opendocument.OpenDocumentReader", "fodt fodp", is_document=True),
)
_BY_NAME = {entry.name: entry for entry in FORMATS}
_TEXT_FORMATS = {
    extension: entry.name
    for entry in FORMATS
    if not entry.is_binary
    for extension in entry.extensions.split()
}
EXTENSIONS = frozenset(extension for entry in FORMATS for extension in entry.extensions.split()) | {
    "txt"
}
DOCUMENT_EXTENSIONS = frozenset(
    extension for entry in FORMATS if entry.is_document for extension in entry.extensions.split()
)
"""Extensions of formats whose files may be larger than text."""

_BINARY_EXTENSIONS = frozenset(
    extension for entry in FORMATS if entry.is_binary for extension in entry.extensions.split()
)

_ADDED = "catalog.readers"
_HEAD_BYTES = 8192
_TAIL_BYTES = 2048
_SPREADSHEET_ML = re.compile(rb"<Workbook\s[^<>]*urn:schemas-microsoft-com:office:spreadsheet")
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
_IN_MAILDIR = re.compile(r"(?:^|/)(?:cur|new)/[^/]+")
_HEADERS = re.compile(rb"(?:[!-9;-~]++:[^\n]*+\n?(?:[ \t][^\n]*+\n?)*+)++")
_OLE = {  # one container for many programs: only the name tells which one wrote the file
    "xlsx": "an Excel workbook with a password: save it without one",
}
_NOT_READ = {
    "ole": "an old Word or PowerPoint file, or one with a password: "
    "save it as .docx or .pptx without a password",
    "postscript": "PostScript: convert it to PDF",
    "mp4": "a recording (mp4): its transcript can be indexed (.srt, .vtt, .json)",
    "gzip": "a compressed file: unpack it",
    "xz": "a compressed file: unpack it",
    "zstd": "a compressed file: unpack it",
    "bzip2": "a compressed file: unpack it",
    "7z": "an archive: unpack it",
    "rar": "an archive: unpack it",
    "tar": "an archive: unpack it",
    "mobi": "a Kindle book: convert it to EPUB",
    "djvu": "DjVu: convert it to PDF",
}

_CONTENTS = {"txt": "plain text", "html": "a web page"}


def read_file(
    absolute: Path, path: str, *, root: Path | None = None, limits: ReadLimits = DEFAULT_LIMITS
) -> Iterator[ParsedDocument | ReadFailure]:
    """Yield the documents of one file: one, or one for each record, mail or attachment.

    ``absolute`` is the file to open, ``path`` the document's name; with ``root`` no folder between
    there and the file may be a symlink. A part that cannot be read is yielded as a ``ReadFailure``,
    and the rest continues. For a file that is unusable as a whole, ``ReadError`` (whose message is
    the reason, without the path) is raised at the first step of the iteration.
    """
    from catalog.ingest.readers.isolated import Request, read_isolated

    above = None if root is None else str(root)
    yield from read_isolated(Request(str(absolute), above, path, limits))


def read_open(
    handle: BinaryIO, path: str, *, limits: ReadLimits
) -> Iterator[str | ParsedDocument | ReadFailure]:
    """Yield the name of a file's format, then its items as :func:`read_file`, in this process."""
    head, tail, size = _read_ends(handle)
    name, corrected_type = sniff(path, head, tail)
    yield name
    if name in _BY_NAME and _BY_NAME[name].is_document and size > limits.document_bytes:
        raise ReadError(f"too large: over {limits.document_bytes:,} bytes")
    is_binary = name in _BY_NAME and _BY_NAME[name].is_binary
    top = "" if is_binary else decode(handle.read(_TOP))
    handle.seek(0)
    for item in load_reader(name).read(handle, path, limits=limits):
        if not isinstance(item, ParsedDocument):
            yield item
            continue
        labelled = label(item, top)
        yield labelled if corrected_type is None else replace(labelled, file_type=corrected_type)
    extension = file_type(path)
    if corrected_type in _CONTENTS and extension in DOCUMENT_EXTENSIONS:
        reason = f"read as text, not as {extension}: its content is {_CONTENTS[corrected_type]}"
        yield ReadFailure(path, reason)


_TOP = 1 << 17
"""Bytes at the top of a text file, and characters of a document, that may state its level."""
_ABOVE = r"(?:[#%]|WEBVTT\b)[^\n]*+\n|<!--(?:(?!-->).)*+-->|\ufeff"
_BLOCK = (  # closed or not; a line without a colon is prose
    r"(?:---|\+\+\+|;;;)[^\n]*+\n"
    r"(?:(?!(?:---|\+\+\+|\.\.\.|;;;)\s|\w[^:=\n]*+\n)[^\n]*+\n)*+(?:[-+.;]{3}[^\n]*+(?:\n|\Z))?"
)
_HEAD = re.compile(rf"(?:\s++|{_BLOCK}|{_ABOVE})*+", re.DOTALL)
_PARAGRAPH = re.compile(r"(?:[^\S\n]*+\S[^\n]*+\n?)*+")
_CLAIM = re.compile(  # as a field's name, and no Markdown heading
    r"(?:^(?!\#+[ \t])[^\w\n]{0,20}(?:x-|\w{1,20}[.:])?|\{\s{0,9}[\"']?|,\s{0,9}[\"'])"
    rf"{LEVEL}[\w .-]{{0,20}}[\"'*_\])]{{0,4}}\s?[:=]",
    re.IGNORECASE | re.MULTILINE,
)
_NO_PARAGRAPH = frozenset(["html", "mhtml", "latex", "code", "yaml", "json", "jsonl"])
"""Formats of code, markup and data, of which only front matter states a level."""
_UNREAD = f"its {LEVEL} cannot be read: only who may see everything finds it"


def label(document: ParsedDocument, top: str = "") -> ParsedDocument:
    """Return the document with the level of confidentiality that it states, in whatever form.

    The level is ``unreadable`` if it is misnamed, nested, stated twice, or claimed at the top of
    the document without being read. ``top`` is the beginning of its file, for what its reader does
    not show. No field or sidecar replaces the level.
    """
    metadata = settle_level(document.metadata)
    form = _TEXT_FORMATS.get(document.file_type, "plain")
    levels = [metadata.get(LEVEL)]
    if document.file_type not in _BINARY_EXTENSIONS:
        text = document.text[document.body_start : document.body_start + _TOP]
        if document.source_type == "mail":  # whose first paragraph is its subject and people
            text = text.partition("\n\n")[2]
        is_text = levels[0] is None and form not in _NO_PARAGRAPH
        if document.body_start:  # its front matter was read, or could not be
            top = "" if levels[0] is not None else document.text[: document.body_start]
        at_top = _level_at_top(top, in_paragraph=False)
        levels += [at_top or _level_at_top(text, in_paragraph=is_text)]
    level = one_level(*levels)
    if not level:
        return document
    remarks = (_UNREAD,) if level[LEVEL] == UNREADABLE else ()
    return replace(
        document,
        metadata={**metadata, **level},
        written=document.written | level.keys() if levels[1:] or remarks else document.written,
        remarks=(*document.remarks, *remarks),
    )


def _level_at_top(text: str, *, in_paragraph: bool) -> MetadataValue | None:
    """Return the level in front matter, ``unreadable`` if another text at the top claims one."""
    text = text.lstrip("\ufeff \t\r\n")
    if text[:3] not in ("---", "+++") and LEVEL not in text.casefold():
        return None
    front = read_front_matter(text)
    level = normalise(front.fields).get(LEVEL)
    block = text[: end_of_front_matter(text)]
    is_lost = front.problem and level is None and LEVEL in block.casefold()
    text = re.sub(r"\r\n?", "\n", text[len(block) if front.fields else front.body_start :])
    end = cast("re.Match[str]", _HEAD.match(text)).end()
    if in_paragraph and level is None:
        end = cast("re.Match[str]", _PARAGRAPH.match(text, end)).end()
    return UNREADABLE if is_lost or _CLAIM.search(text[:end]) else level


def load_reader(name: str) -> Reader:
    """Import and make the reader of the format called ``name``, to run in this process."""
    if name not in _BY_NAME:
        return cast(Callable[[], Reader], find(_ADDED, name.removeprefix(_ADDED)))()
    module, _, class_name = _BY_NAME[name].reader.rpartition(".")
    reader = getattr(import_module(f"catalog.ingest.readers.{module}"), class_name)
    return cast(Reader, reader())


def sniff(path: str, head: bytes, tail: bytes) -> tuple[str, str | None]:
    """Return the name of a file's format and, if its extension is wrong, its true file type.

    Raises ``ReadError`` for binary content that no reader reads. The name decides only among texts;
    even there, web pages, subtitles and notebooks under another name are recognised by content. The
    name also decides if another package reads the extension and none of ours does.
    """
    extension = file_type(path)
    if not head and extension in DOCUMENT_EXTENSIONS:
        raise ReadError(f"broken: 0 bytes, which is no {extension} file")
    if extension not in EXTENSIONS and extension in list_added(_ADDED):
        return f"{_ADDED}{extension}", None
    if head.lstrip(b"\xef\xbb\xbf \t\r\n\x00").startswith(b"%PDF-") or (
        extension == "pdf" and b"%PDF-" in head
    ):
        return "pdf", None if extension == "pdf" else "pdf"
    binary = binary_kind(head)
    if binary == "zip":
        return "archive", None
    if binary == "ole" and extension == "msg":
        return "msg", None
    if binary == "rtf":
        return "rtf", None if extension in ("rtf", "doc") else "rtf"
    if binary == "ole" and extension in ("xls", "xlt"):
        return "workbook", None
    if binary is not None:
        by_name = _OLE.get(extension) if binary == "ole" else None
        raise ReadError(by_name or _NOT_READ.get(binary, f"binary ({binary})"))
    if extension == "json" and _NOTEBOOK.search(tail):
        return "notebook", "ipynb"
    if extension in ("xls", "xml") and _SPREADSHEET_ML.search(head):
        raise ReadError("an Excel workbook of 2003 as XML: save it as .xlsx")
    named = _TEXT_FORMATS.get(extension, "plain")
    if named not in ("plain", "csv"):
        return named, None
    if head.startswith(b"// <!-- <mdb:mork"):
        raise ReadError("Thunderbird's index of a mailbox: its mails are in the file beside it")
    if _HTML.match(head):
        return "html", "html"
    if _MANUAL.match(head):
        return "manual", None
    if (mail := _MAIL.match(head)) is not None:
        return ("mbox" if mail[1] else "mail"), None
    is_cut = len(head) == _HEAD_BYTES  # within the first headers
    if is_cut and _IN_MAILDIR.search(path) and _HEADERS.fullmatch(head):
        return "mail", None
    from catalog.ingest.readers.timed.subtitles import looks_like_subtitles

    if looks_like_subtitles(decode(head)):
        return "subtitles", None
    return named, "txt" if extension in DOCUMENT_EXTENSIONS else None


def _read_ends(handle: BinaryIO) -> tuple[bytes, bytes, int]:
    """Return the beginning, the end and the size of a file."""
    head = handle.read(_HEAD_BYTES)
    size = handle.seek(0, 2)
    handle.seek(max(0, size - _TAIL_BYTES))
    tail = handle.read(_TAIL_BYTES)
    handle.seek(0)
    return head, tail, size
