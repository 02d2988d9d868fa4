"""E-books: the chapters in reading order, each of them read as HTML is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from catalog.core.errors import ReadError
from catalog.core.models import ParsedDocument
from catalog.ingest.readers.base import ReadFailure, first_of
from catalog.ingest.readers.containers.archive import BrokenPartError, open_archive
from catalog.ingest.readers.containers.epub_package import read_package
from catalog.ingest.readers.containers.joined import JoinedText
from catalog.ingest.readers.decoding import decode
from catalog.ingest.readers.html_extract import extract
from catalog.ingest.readers.limits import ReadLimits
from catalog.ingest.readers.metadata import normalise, take_title


class EpubReader:
    """The whole book is one document; headings keep the levels they have in their chapters."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """The one document of the file, after a failure for each chapter that is missing.

        Raises ``ReadError`` if it is broken, protected or over a limit, or holds no text.
        """
        archive = open_archive(handle, limits)
        package = read_package(archive)
        if len(package.chapters) > limits.pages:
            raise ReadError(f"too many chapters: over {limits.pages:,}")
        metadata = normalise(package.metadata)
        title = take_title(metadata)
        joined, missing = JoinedText(limits), []
        for chapter in package.chapters:
            try:
                source = decode(archive.read(chapter), declared=True)
            except BrokenPartError as error:
                missing.append(ReadFailure(f"{path}:{chapter}", str(error)))
                continue
            if source.strip():
                page = extract(source, keep_navigation=False)
                joined.add(page.text, page.headings, page.atomic)
        yield from first_of(missing)
        yield joined.document(path, title=title, file_type="epub", metadata=metadata)
