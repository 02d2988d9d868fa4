"""Subtitles: SRT, WebVTT, SBV and whisper's TSV, told apart by their content."""

from __future__ import annotations

from catalog.core.errors import EmptyDocumentError
from catalog.core.models import ParsedDocument
from catalog.ingest.readers.base import WholeFileReader
from catalog.ingest.readers.plain import PlainTextReader
from catalog.ingest.readers.timed.cues import transcript
from catalog.ingest.readers.timed.media import medium_of
from catalog.ingest.readers.timed.subtitle_scan import kind_of, scan


def looks_like_subtitles(text: str) -> bool:
    """Whether the text opens as WebVTT, SRT, SBV or whisper's TSV does."""
    return kind_of(text) is not None


class SubtitleReader(WholeFileReader):
    """One line and one segment for each cue, in the order of time, without markup.

    A file in which no cue has a readable time is plain text as it stands.
    """

    def parse(self, text: str, path: str) -> ParsedDocument:
        """The transcript; raises ``EmptyDocumentError`` if no cue says anything."""
        found = scan(text)
        if not found.cues and not found.has_notes:
            raise EmptyDocumentError("no text in its cues")
        if all(cue.start is None for cue in found.cues):
            return PlainTextReader().parse(text, path)
        medium = medium_of(path)
        spoken = transcript(found.cues, medium.transcript_modality)
        language = {} if found.language is None else {"language": found.language}
        return ParsedDocument(
            path=path,
            text=spoken.text,
            title=medium.title,
            file_type=medium.file_type or "video",
            source_type="subtitles",
            metadata={**medium.metadata(), **language},
            segments=spoken.segments,
        )
