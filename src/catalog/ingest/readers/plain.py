"""Text, source code and JSON that is read as it stands, unless its form is that of a transcript."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import ClassVar

from catalog.core.documents import ParsedDocument
from catalog.ingest.readers.base import LevelPlace, WholeFileReader, choose_title, file_type
from catalog.ingest.readers.timed.source_media import describe_source, is_called_transcript
from catalog.ingest.readers.timed.timed_markdown import add_segments
from catalog.ingest.readers.timed.transcript_json import read_transcript_json


class PlainTextReader(WholeFileReader):
    """Reads text as it stands, except where its lines open with times."""

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document as it is, or the transcript that it is; a ``.log`` stays a log."""
        document = _as_it_stands(text, path)
        if ".log" in PurePosixPath(path.lower()).suffixes:
            return document
        return add_segments(document, describe_source(path, {}, has_header=False))


class CodeReader(WholeFileReader):
    """Reads text that may name its encoding: ``# -*- coding: latin-1 -*-``, ``<?xml …?>``."""

    declares_encoding = True
    level_in: ClassVar[LevelPlace] = "front matter"

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document as it is."""
        return _as_it_stands(text, path)


class YamlReader(CodeReader):
    """Reads YAML, which is data also between ``---``."""

    level_in = "own fields"


class JsonReader(CodeReader):
    """Reads the transcripts of YouTube, whisper and the like; any other JSON is plain text."""

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the timed transcript, or the text with its line structure."""
        transcript = read_transcript_json(text, path)
        if transcript is not None:
            return transcript
        document = super().parse(text, path)
        if is_called_transcript(path) or path.lower().endswith(".json3"):
            return replace(document, untimed=_NO_CUES)
        return document


_NO_CUES = "as text, not as a transcript: it has no list of items with a text and a start"


def _as_it_stands(text: str, path: str) -> ParsedDocument:
    return ParsedDocument(path=path, text=text, title=choose_title(path), file_type=file_type(path))
