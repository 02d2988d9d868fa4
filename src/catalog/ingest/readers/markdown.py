"""Markdown: front matter, headings, code fences and tables; transcripts and captions in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.core.documents import MetadataValue, ParsedDocument
from catalog.ingest.readers.base import WholeFileReader, file_type, one_line, title_or_stem
from catalog.ingest.readers.markdown_scan import scan
from catalog.ingest.readers.metadata import front_matter, normalise, take_title
from catalog.ingest.readers.timed.source_media import made_of, recording_fields
from catalog.ingest.readers.timed.timed_markdown import converter_header, timed


class MarkdownReader(WholeFileReader):
    """The text stays as written; front matter becomes metadata and is no part of the body.

    What a converter made of a recording or an image loses the timecodes before its cues and
    the facts that the converter put under the title, which become metadata; never a line.
    """

    def parse(self, text: str, path: str) -> ParsedDocument:
        """The document; its title is the front matter's, else the first heading, else the stem."""
        front = front_matter(text)
        metadata = normalise(front.fields)
        header = converter_header(text, front.body_start)
        told: Mapping[Any, object] = front.fields
        known: dict[str, MetadataValue] = {}
        if header is not None:
            text = header.text
            told = {**header.fields, **front.fields}
            known = recording_fields(header.fields)
        outline = scan(text, front.body_start)
        first = outline.headings[0].title if outline.headings else None
        title = take_title(metadata)
        document = ParsedDocument(
            path=path,
            text=text,
            title=one_line(title or "") or title_or_stem(first, path),
            file_type=file_type(path),
            metadata={**known, **metadata},
            headings=outline.headings,
            atomic=outline.atomic,
            body_start=front.body_start,
        )
        return timed(document, made_of(path, told, has_header=header is not None))
