"""Reads files into documents: one module per format, chosen by the name's extension."""

from __future__ import annotations

from catalog.ingest.readers.base import Reader, ReadFailure
from catalog.ingest.readers.factory import get_reader, read_file
from catalog.ingest.readers.limits import ReadLimits

__all__ = ["ReadFailure", "ReadLimits", "Reader", "get_reader", "read_file"]
