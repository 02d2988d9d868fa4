"""Cuts documents into passages with exact offsets: one chunker per kind of stream."""

from __future__ import annotations

from catalog.ingest.chunking.base import Chunker, Cut
from catalog.ingest.chunking.lines import LineIndex
from catalog.ingest.chunking.sentences import sentence_spans
from catalog.ingest.chunking.text import TextChunker

__all__ = ["Chunker", "Cut", "LineIndex", "TextChunker", "sentence_spans"]
