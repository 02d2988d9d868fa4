"""Reads files into documents: one reader for each format, listed in ``registry.py``."""

from __future__ import annotations

from catalog.ingest.readers.base import Reader, ReadFailure, ReadLimits
from catalog.ingest.readers.registry import get_reader, read_file

__all__ = ["ReadFailure", "ReadLimits", "Reader", "get_reader", "read_file"]
