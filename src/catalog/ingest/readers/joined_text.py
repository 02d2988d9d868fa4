"""Builds one text of many blocks and tracks where their headings and tables come to stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from catalog.core.documents import Heading, MetadataValue, ParsedDocument
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.core.places import Places, PlacesBuilder, Unit
from catalog.core.text import storable
from catalog.ingest.readers.base import ReadLimits, choose_title

_GAP = "\n\n"


@dataclass(slots=True)
class JoinedText:
    """Blocks parted by blank lines; offsets given with a block become offsets of the whole."""

    limits: ReadLimits
    unit: Unit
    headings: list[Heading] = field(default_factory=list)
    atomic: list[tuple[int, int]] = field(default_factory=list)
    _blocks: list[str] = field(default_factory=list)
    _length: int = 0
    _places: PlacesBuilder = field(init=False)

    def __post_init__(self) -> None:
        self._places = PlacesBuilder(self.unit)

    @property
    def following(self) -> int:
        """Return the offset at which the next block will begin."""
        return self._length + len(_GAP) if self._blocks else 0

    def add(
        self,
        block: str,
        headings: Iterable[Heading] = (),
        atomic: Iterable[tuple[int, int]] = (),
        *,
        places: Places | None = None,
    ) -> None:
        """Append a block unless it is blank; white space at its end is left out.

        Raises ``ReadError`` once the whole is longer than ``limits.characters``.
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
        if places is not None:
            self._places.add_all(places, start)
        self.atomic += [(start + first, start + min(last, len(block))) for first, last in atomic]

    def document(
        self,
        path: str,
        *,
        title: object,
        file_type: str,
        metadata: Mapping[str, MetadataValue],
        pages: Sequence[int] = (),
    ) -> ParsedDocument:
        """Return the document of all blocks, named ``title``, else by its first heading or file.

        Raises ``EmptyDocumentError`` if there are none.
        """
        text = _GAP.join(self._blocks)
        if not text:
            raise EmptyDocumentError("empty: no text")
        return ParsedDocument(
            path=path,
            text=text,
            title=choose_title(path, title, self.headings[0].title if self.headings else None),
            file_type=file_type,
            metadata=metadata,
            headings=tuple(self.headings),
            atomic=tuple(self.atomic),
            pages=tuple(min(page, len(text)) for page in pages),
            places=self._places.places(),
        )
