"""Cuts documents into passages with exact offsets: text by size, what has times by time."""

from __future__ import annotations

from catalog.ingest.chunking.boundaries import LineIndex, sentence_spans
from catalog.ingest.chunking.chunker import Chunker, Cut, DocumentChunker

__all__ = ["Chunker", "Cut", "DocumentChunker", "LineIndex", "sentence_spans"]
