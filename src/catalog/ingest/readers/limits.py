"""How much one file may cost to read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Bounds of reading one file; what is over one is a ``ReadError`` that names it.

    ``text_bytes`` bounds a text file, or one record of a JSON Lines file; ``document_bytes`` a
    PDF, Office, e-book or notebook file as it lies on disk, and ``unpacked_bytes`` all that it
    holds when unpacked. ``pages`` counts pages, slides or chapters, ``characters`` what comes out.
    ``seconds`` and ``memory_bytes`` bound the process that reads such a file.
    """

    text_bytes: int = 20_000_000
    document_bytes: int = 200_000_000
    unpacked_bytes: int = 500_000_000
    pages: int = 20_000
    characters: int = 50_000_000
    seconds: float = 600.0
    memory_bytes: int = 2_000_000_000


DEFAULT_LIMITS = ReadLimits()
