"""Shared by all readers: limits, failures, titles, decoding, and the joining of blocks."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, ClassVar, Protocol

from catalog.core.documents import Heading, MetadataValue, ParsedDocument, Table
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.core.places import Places, PlacesBuilder, Unit
from catalog.core.text import storable
from catalog.ingest.readers.decoding import binary_kind, decode_with_remark, leave_out_base64
from catalog.ingest.readers.metadata import take_title

if TYPE_CHECKING:
    from catalog.core.settings import IngestSettings


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits for reading one file; to exceed one raises a ``ReadError`` that names it.

    ``text_bytes`` bounds a text file, or one record of a JSON Lines file; ``document_bytes`` a PDF,
    Word, PowerPoint, e-book or notebook file on disk, and ``unpacked_bytes`` all that it holds when
    unpacked. ``pages`` counts pages, slides or chapters, ``characters`` what comes out. ``seconds``
    and ``memory_bytes`` bound the process that reads such a file. With
    ``labels_only`` a document may lack its text. ``fatal`` are the hashes of attached files that
    ended the process; ``starting`` is told the hash of each before it is read, and "" after it.
    """

    text_bytes: int = 20_000_000
    document_bytes: int = 200_000_000
    unpacked_bytes: int = 500_000_000
    pages: int = 20_000
    characters: int = 50_000_000
    seconds: float = 600.0
    memory_bytes: int = 2_000_000_000
    labels_only: bool = False
    fatal: tuple[str, ...] = ()
    starting: Callable[[str], object] = bool

    @classmethod
    def of(cls, settings: IngestSettings) -> ReadLimits:
        """Return the limits of the settings."""
        return cls(
            text_bytes=settings.max_file_bytes,
            document_bytes=settings.max_document_bytes,
            unpacked_bytes=settings.max_unpacked_bytes,
            pages=settings.max_pages,
            seconds=settings.read_seconds,
            memory_bytes=settings.read_memory_bytes,
        )


DEFAULT_LIMITS = ReadLimits()


@dataclass(frozen=True, slots=True)
class ReadFailure:
    """A part of a file that cannot be read (``corpus.jsonl:17``), although other parts can.

    ``document`` is the path of the document that the part would be, if known; its earlier text is
    kept, and that of the documents within it.
    """

    path: str
    reason: str
    document: str | None = None


Items = Iterator[ParsedDocument | ReadFailure]
"""What a reader yields."""


class Reader(Protocol):
    """Reads one format."""

    def read(self, handle: BinaryIO, path: str, *, limits: ReadLimits) -> Items:
        """Yield the documents of one open file, and failures for its unreadable parts.

        Raises ``ReadError`` with the reason if the whole file is unusable or over a limit.
        """
        ...


class WholeFileReader(ABC):
    """A reader for a format in which one text file is one document."""

    declares_encoding: ClassVar[bool] = False
    """Whether files of the format may name their encoding near the top."""

    def read(self, handle: BinaryIO, path: str, *, limits: ReadLimits) -> Items:
        """Yield the document of the file, and remarks: a guessed encoding, base64, missing times.

        Raises ``ReadError`` if the file is binary, empty or too large.
        """
        data = read_bytes(handle, limits.text_bytes)
        if (kind := binary_kind(data)) is not None:
            raise ReadError(f"binary ({kind})")
        text, guess = decode_with_remark(data, declared=self.declares_encoding)
        if not text or text.isspace():
            raise EmptyDocumentError("empty")
        text, left_out = leave_out_base64(text)
        document = self.parse(text, path)
        yield document
        left = left_out if left_out is not None and "…" in document.text else None
        for remark in filter(None, (guess, document.untimed, left)):
            yield ReadFailure(path, remark)

    @abstractmethod
    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document for ``text`` (canonical, not blank)."""


def read_bytes(handle: BinaryIO, limit: int) -> bytes:
    """Read a whole file; raise ``ReadError`` if it is over ``limit`` bytes."""
    data = handle.read(limit + 1)
    if len(data) > limit:
        raise ReadError(f"too large: over {limit:,} bytes")
    return data


def cap_failures(failures: Sequence[ReadFailure]) -> Iterator[ReadFailure]:
    """Yield the first 20 failures of a file; if there are more, one that says how many."""
    yield from failures[:20]
    if rest := failures[20:]:
        others = f", and {len(rest) - 1:,} after it" if len(rest) > 1 else ""
        yield ReadFailure(rest[0].path, rest[0].reason + others)


MAX_TITLE = 300  # characters
_EXTENSION = re.compile(r"[a-z][a-z0-9_+-]{0,15}")


def file_type(path: str) -> str:
    """Return the extension in lower case without its dot, or ``txt`` without a usable one."""
    stem, _, extension = path.rpartition("/")[2].rpartition(".")  # a Path takes ten times as long
    extension = extension.lower() if stem else ""
    return extension if _EXTENSION.fullmatch(extension) else "txt"


def choose_title(path: str, *candidates: object) -> str:
    """Return the first candidate that is not blank, on one line; else the file's stem."""
    titles = (one_line(one) for one in candidates if isinstance(one, str | int | float))
    return next(filter(None, titles), "") or one_line(PurePosixPath(path).stem) or path


def one_line(value: object) -> str:
    """Return storable text with white space collapsed, cut to the length of a title."""
    return storable(" ".join(str(value).split())[:MAX_TITLE].rstrip())


@dataclass(slots=True)
class JoinedText:
    """Blocks separated by blank lines; a block's offsets become offsets of the whole."""

    limits: ReadLimits
    unit: Unit
    headings: list[Heading] = field(default_factory=list)
    atomic: list[tuple[int, int]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    _blocks: list[str] = field(default_factory=list)
    _length: int = 0
    _places: PlacesBuilder = field(init=False)

    def __post_init__(self) -> None:
        self._places = PlacesBuilder(self.unit)

    @property
    def following(self) -> int:
        """Return the offset at which the next block will begin."""
        return self._length + 2 if self._blocks else 0

    def add(
        self,
        block: str,
        headings: Iterable[Heading] = (),
        atomic: Iterable[tuple[int, int]] = (),
        *,
        places: Places | None = None,
        tables: Iterable[Table] = (),
    ) -> None:
        """Append a block unless it is blank, without white space at its end.

        Raises ``ReadError`` if the whole becomes longer than ``limits.characters``.
        """
        block = storable(block).rstrip()
        if not block:
            return
        start = self.following
        self._length = start + len(block)
        if self._length > self.limits.characters:
            raise ReadError(f"too long: over {self.limits.characters:,} characters")
        self._blocks.append(block)
        self.headings += [
            Heading(start + heading.start, start + heading.end, heading.level, heading.title)
            for heading in headings
        ]
        if places is not None and places.unit == self.unit:
            self._places.add_all(places, start)
        self.atomic += [(start + first, start + min(last, len(block))) for first, last in atomic]
        self.tables += [Table(start + first, start + last, names) for first, last, names in tables]

    def document(
        self,
        path: str,
        *,
        title: object = None,
        file_type: str,
        metadata: Mapping[str, MetadataValue],
        pages: Sequence[int] = (),
    ) -> ParsedDocument:
        """Return the document of all blocks; raise ``EmptyDocumentError`` without any.

        Its title is ``title``, that of ``metadata``, the first heading or the file's stem.
        """
        fields, first = dict(metadata), [heading.title for heading in self.headings[:1]]
        text = "\n\n".join(self._blocks)
        if not text and not self.limits.labels_only:
            raise EmptyDocumentError("empty: no text")
        named = choose_title(path, title or take_title(fields), *first)
        parts = tuple(self.headings), tuple(self.atomic), tuple(self.tables)
        document = ParsedDocument(path, text, named, file_type, "file", fields, *parts)
        starts = tuple(min(page, len(text)) for page in pages)
        return replace(document, pages=starts, places=self._places.places())
