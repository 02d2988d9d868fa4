"""Cuts documents into passages with exact offsets: text by size, what has times by time."""

from __future__ import annotations

from catalog.ingest.chunking.base import Chunker, Cut
from catalog.ingest.chunking.document import DocumentChunker
from catalog.ingest.chunking.lines import LineIndex
from catalog.ingest.chunking.sentences import sentence_spans

__all__ = ["Chunker", "Cut", "DocumentChunker", "LineIndex", "sentence_spans"]
