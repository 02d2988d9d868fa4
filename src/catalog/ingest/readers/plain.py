"""Plain text: the file is the document, and its name the title."""

from __future__ import annotations

from pathlib import PurePosixPath

from catalog.core.models import ParsedDocument
from catalog.ingest.readers.base import WholeFileReader, file_type, title_or_stem
from catalog.ingest.readers.timed.made_of import made_of
from catalog.ingest.readers.timed.timed_markdown import timed


class PlainTextReader(WholeFileReader):
    """Text without structure that could be relied on, except where its lines open with times."""

    def parse(self, text: str, path: str) -> ParsedDocument:
        """The document as it is, or the transcript that it is; a ``.log`` stays a log."""
        document = plain_document(text, path)
        if ".log" in PurePosixPath(path.lower()).suffixes:
            return document
        return timed(document, made_of(path, {}, has_header=False))


def plain_document(text: str, path: str) -> ParsedDocument:
    """Text without structure, named after its file."""
    title, kind = title_or_stem(None, path), file_type(path)
    return ParsedDocument(path=path, text=text, title=title, file_type=kind)
