"""Office documents and e-books: what a ZIP archive holds says which it is, not its name."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import BinaryIO, cast

from catalog.core.documents import ParsedDocument
from catalog.core.errors import ReadError
from catalog.ingest.readers.base import Reader, ReadFailure, ReadLimits
from catalog.ingest.readers.containers.archive import Archive, open_archive

_BY_PART = {
    "word/document.xml": ("docx", "DocxReader"),
    "ppt/presentation.xml": ("pptx", "PptxReader"),
    "META-INF/container.xml": ("epub", "EpubReader"),
}
_NOT_READ = {
    "xl/workbook.xml": "an Excel workbook: export its sheets as .csv",
    "content.xml": "an OpenDocument file: save it as .docx or .pptx",
}


class ContainerReader:
    """Reads any ZIP archive that is a document of a known kind."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """The one document; raises ``ReadError`` for any other archive."""
        reader = _reader(open_archive(handle, limits))
        handle.seek(0)
        yield from reader.read(handle, path, limits=limits)


def _reader(archive: Archive) -> Reader:
    for part, (module, name) in _BY_PART.items():
        if part in archive:
            found = import_module(f"catalog.ingest.readers.containers.{module}")
            return cast(Reader, getattr(found, name)())
    for part, reason in _NOT_READ.items():
        if part in archive:
            raise ReadError(reason)
    raise ReadError("binary (zip)")
