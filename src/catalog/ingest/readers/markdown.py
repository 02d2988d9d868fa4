"""Markdown: front matter, headings, code fences and tables."""

from __future__ import annotations

from catalog.core.models import ParsedDocument
from catalog.ingest.readers.base import WholeFileReader, file_type, one_line, title_or_stem
from catalog.ingest.readers.frontmatter import front_matter
from catalog.ingest.readers.markdown_scan import scan
from catalog.ingest.readers.metadata import normalise, take_title


class MarkdownReader(WholeFileReader):
    """The text stays as written; front matter becomes metadata and is no part of the body."""

    def parse(self, text: str, path: str) -> ParsedDocument:
        """The document; its title is the front matter's, else the first heading, else the stem."""
        front = front_matter(text)
        metadata = normalise(front.fields)
        outline = scan(text, front.body_start)
        first = outline.headings[0].title if outline.headings else None
        title = take_title(metadata)
        return ParsedDocument(
            path=path,
            text=text,
            title=one_line(title or "") or title_or_stem(first, path),
            file_type=file_type(path),
            metadata=metadata,
            headings=outline.headings,
            atomic=outline.atomic,
            body_start=front.body_start,
        )
