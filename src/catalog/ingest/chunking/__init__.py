"""Cut documents into passages with exact offsets: text by size, timed text by time."""

from catalog.ingest.chunking.chunker import Cut, DocumentChunker

__all__ = ["Cut", "DocumentChunker"]
