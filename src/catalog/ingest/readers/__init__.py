"""Read files into documents: one reader for each format, listed in ``formats.toml``."""

from catalog.ingest.readers.base import Reader, ReadFailure, ReadLimits
from catalog.ingest.readers.registry import read_file

__all__ = ["ReadFailure", "ReadLimits", "Reader", "read_file"]
