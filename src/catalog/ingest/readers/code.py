"""Source code, configuration and markup that is read as it stands."""

from __future__ import annotations

from typing import ClassVar

from catalog.core.models import ParsedDocument
from catalog.ingest.readers.base import WholeFileReader
from catalog.ingest.readers.plain import plain_document


class CodeReader(WholeFileReader):
    """Text that may name its encoding: ``# -*- coding: latin-1 -*-``, ``<?xml …?>``."""

    declares_encoding: ClassVar[bool] = True

    def parse(self, text: str, path: str) -> ParsedDocument:
        """The document as it is."""
        return plain_document(text, path)
