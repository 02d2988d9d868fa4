"""Text, source code and JSON that is read as it stands, unless its form is that of a transcript."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import ClassVar

from catalog.core.documents import ParsedDocument
from catalog.ingest.readers.base import WholeFileReader, file_type, title_or_stem
from catalog.ingest.readers.timed.source_media import made_of
from catalog.ingest.readers.timed.timed_markdown import timed
from catalog.ingest.readers.timed.transcript_json import read_transcript_json


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


class CodeReader(WholeFileReader):
    """Text that may name its encoding: ``# -*- coding: latin-1 -*-``, ``<?xml …?>``."""

    declares_encoding: ClassVar[bool] = True

    def parse(self, text: str, path: str) -> ParsedDocument:
        """The document as it is."""
        return plain_document(text, path)


class JsonReader(CodeReader):
    """The transcripts of YouTube, whisper and their kin; any other JSON is plain text."""

    def parse(self, text: str, path: str) -> ParsedDocument:
        """The timed transcript, or the text with its line structure."""
        return read_transcript_json(text, path) or super().parse(text, path)
