"""Plain text: the file is the document, and its name the title."""

from __future__ import annotations

from catalog.core.models import ParsedDocument
from catalog.ingest.readers.base import WholeFileReader, file_type, title_or_stem


class PlainTextReader(WholeFileReader):
    """Text without structure that could be relied on."""

    def parse(self, text: str, path: str) -> ParsedDocument:
        """The document as it is."""
        return ParsedDocument(
            path=path, text=text, title=title_or_stem(None, path), file_type=file_type(path)
        )
