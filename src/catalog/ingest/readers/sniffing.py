"""Tells what a file is by its first and last bytes, and by its name where those leave it open."""

from __future__ import annotations

import re
from dataclasses import dataclass

from catalog.core.errors import ReadError
from catalog.ingest.readers.base import file_type
from catalog.ingest.readers.binary import binary_kind
from catalog.ingest.readers.decoding import decode

HEAD = 8192
TAIL = 2048
"""Bytes looked at."""

_BY_READER = {
    "markdown": "md markdown mdown mkd mdx",
    "rst": "rst rest",
    "html": "html htm xhtml",
    "jsonl": "jsonl ndjson",
    "json": "json json3",
    "notebook": "ipynb",
    "subtitles": "srt vtt sbv",
    "code": (
        "bash bat c cc cfg clj conf cpp cs css cxx dart el erl ex exs go gradle h hpp hs ini java "
        "jl js jsx kt less lisp lua mjs ml php pl proto ps1 py pyi r rb rs scala scss sh sql "
        "svelte svg swift tex toml ts tsx vb vue xml xsd xsl yaml yml zig"
    ),
}
_BY_EXTENSION = {
    extension: reader
    for reader, extensions in _BY_READER.items()
    for extension in extensions.split()
}
DOCUMENTS = frozenset(
    ["pdf", "docx", "docm", "dotx", "dotm", "pptx", "pptm", "potx", "ppsx", "epub", "ipynb"]
)
"""Extensions of formats that are read in a process of their own, and may be larger than text."""

_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:\s++|<\?xml[^>]*+>|<!--(?:(?!-->).)*+-->)*+(?:<!doctype\s+html|<html[\s>])",
    re.IGNORECASE | re.DOTALL,
)
_NOTEBOOK = re.compile(rb'"nbformat"\s*:')
_NOT_READ = {
    "ole": "an old Office file, or one with a password: save it as .docx or .pptx without",
    "rtf": "rich text: save it as .docx",
    "postscript": "PostScript: convert it to PDF",
    "mp4": "a recording (mp4): its transcript can be indexed (.srt, .vtt, .json)",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """The reader's name; and what the file is called a file of, where its extension is wrong."""

    reader: str
    file_type: str | None = None


def sniff(path: str, head: bytes, tail: bytes) -> Kind:
    """What reads a file of that name with these ends.

    Raises ``ReadError`` for binary content that nothing reads. A name decides only among texts,
    and there, too, web pages, subtitles and notebooks under another name are told by content.
    """
    extension = file_type(path)
    if head.lstrip(b"\xef\xbb\xbf \t\r\n\x00").startswith(b"%PDF-") or (
        extension == "pdf" and b"%PDF-" in head
    ):
        return Kind("pdf", None if extension == "pdf" else "pdf")
    binary = binary_kind(head)
    if binary == "zip":
        return Kind("archive")
    if binary is not None:
        raise ReadError(_NOT_READ.get(binary, f"binary ({binary})"))
    return _text(extension, head, tail)


def _text(extension: str, head: bytes, tail: bytes) -> Kind:
    from catalog.ingest.readers.timed.subtitles import looks_like_subtitles

    named = _BY_EXTENSION.get(extension)
    if extension == "json" and _NOTEBOOK.search(tail):
        return Kind("notebook", "ipynb")
    if named is not None:
        return Kind(named)
    is_foreign = extension in DOCUMENTS
    if _HTML.match(head):
        return Kind("html", "html")
    if looks_like_subtitles(decode(head)):
        return Kind("subtitles")
    return Kind("plain", "txt" if is_foreign else None)
