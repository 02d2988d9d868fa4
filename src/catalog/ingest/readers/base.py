"""What every reader answers, and what readers of whole files share."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import BinaryIO, ClassVar, Protocol

from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.core.models import ParsedDocument
from catalog.core.text import storable
from catalog.ingest.readers.binary import binary_kind
from catalog.ingest.readers.decoding import decode
from catalog.ingest.readers.limits import ReadLimits

MAX_TITLE = 300
"""Characters of a title at most."""
_MOST_FAILURES = 20
"""Parts of one file that are reported one by one."""

_EXTENSION = re.compile(r"[a-z][a-z0-9_+-]{0,15}")


@dataclass(frozen=True, slots=True)
class ReadFailure:
    """A part of a file that cannot be read (``corpus.jsonl:17``); the other parts can."""

    path: str
    reason: str


def first_of(failures: Sequence[ReadFailure]) -> Iterator[ReadFailure]:
    """The first 20 failures of a file and, of more, one that says how many follow."""
    yield from failures[:_MOST_FAILURES]
    rest = failures[_MOST_FAILURES:]
    if rest:
        others = f", and {len(rest) - 1:,} after it" if len(rest) > 1 else ""
        yield ReadFailure(rest[0].path, rest[0].reason + others)


class Reader(Protocol):
    """Reads one format."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """The documents of one open file, and what of it could not be read.

        Raises ``ReadError`` with the reason when the file as a whole is unusable or over a limit.
        """
        ...


class WholeFileReader(ABC):
    """A format in which one file is one document."""

    declares_encoding: ClassVar[bool] = False
    """Whether files of the format may name their encoding near the top."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """The one document of the file; raises ``ReadError`` if binary, empty or too large."""
        data = handle.read(limits.text_bytes + 1)
        if len(data) > limits.text_bytes:
            raise ReadError(f"too large: over {limits.text_bytes:,} bytes")
        kind = binary_kind(data)
        if kind is not None:
            raise ReadError(f"binary ({kind})")
        text = decode(data, declared=self.declares_encoding)
        if not text or text.isspace():
            raise EmptyDocumentError("empty")
        yield self.parse(text, path)

    @abstractmethod
    def parse(self, text: str, path: str) -> ParsedDocument:
        """The document that ``text`` (canonical, not blank) is."""


def file_type(path: str) -> str:
    """The extension in lower case without its dot; ``txt`` where there is none to speak of."""
    suffix = PurePosixPath(path).suffix[1:].lower()
    return suffix if _EXTENSION.fullmatch(suffix) else "txt"


def title_or_stem(title: object, path: str) -> str:
    """``title`` on one line and cut to 300 characters, or the file's stem if it is blank."""
    text = one_line(title) if isinstance(title, str | int | float) else ""
    return text or one_line(PurePosixPath(path).stem) or path


def one_line(value: object) -> str:
    """Storable text with white space collapsed, cut to the length of a title."""
    return storable(" ".join(str(value).split())[:MAX_TITLE].rstrip())
