"""JSON: a transcript if its shape says so, otherwise read as it stands."""

from __future__ import annotations

from catalog.core.models import ParsedDocument
from catalog.ingest.readers.code import CodeReader
from catalog.ingest.readers.timed.transcript_json import read_transcript_json


class JsonReader(CodeReader):
    """The transcripts of YouTube, whisper and their kin; any other JSON is plain text."""

    def parse(self, text: str, path: str) -> ParsedDocument:
        """The timed transcript, or the text with its line structure."""
        return read_transcript_json(text, path) or super().parse(text, path)
