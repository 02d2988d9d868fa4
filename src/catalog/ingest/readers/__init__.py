"""Reads files into documents: one module per format, chosen by the name's extension."""

from __future__ import annotations

from catalog.ingest.readers.base import Reader, ReadFailure
from catalog.ingest.readers.factory import DEFAULT_MAX_BYTES, get_reader, read_file

__all__ = ["DEFAULT_MAX_BYTES", "ReadFailure", "Reader", "get_reader", "read_file"]
