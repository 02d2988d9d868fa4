"""reStructuredText: titles, literal blocks, and the field list at the top."""

from __future__ import annotations

from catalog.core.models import ParsedDocument
from catalog.ingest.readers.base import WholeFileReader, file_type, one_line, title_or_stem
from catalog.ingest.readers.metadata import normalise, take_title
from catalog.ingest.readers.rst_scan import scan


class RstReader(WholeFileReader):
    """The text stays as written; the field list (``:Author: …``) is metadata as well as text."""

    def parse(self, text: str, path: str) -> ParsedDocument:
        """The document; its title is the first heading, else a ``title`` field, else the stem."""
        outline = scan(text)
        metadata = normalise(outline.fields)
        named = take_title(metadata) if "title" in outline.fields else None
        first = outline.headings[0].title if outline.headings else None
        return ParsedDocument(
            path=path,
            text=text,
            title=one_line(first or "") or title_or_stem(named, path),
            file_type=file_type(path),
            metadata=metadata,
            headings=outline.headings,
            atomic=outline.atomic,
        )
