"""Word documents: cleaned, converted by mammoth, and read as HTML is."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from typing import BinaryIO

from lxml import etree

from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.core.models import ParsedDocument
from catalog.core.text import storable
from catalog.ingest.readers.base import ReadFailure, one_line, title_or_stem
from catalog.ingest.readers.containers.archive import Archive, open_archive
from catalog.ingest.readers.containers.docx_clean import Notes, W, clean
from catalog.ingest.readers.containers.ooxml import (
    Relation,
    graphic_texts,
    properties,
    read_part,
    related,
    relations,
)
from catalog.ingest.readers.containers.safe_xml import Element, local_name, named
from catalog.ingest.readers.html_extract import extract
from catalog.ingest.readers.limits import ReadLimits
from catalog.ingest.readers.metadata import normalise, take_title

_SEPARATORS = ("separator", "continuationSeparator", "continuationNotice")


class DocxReader:
    """The text of a document with headings, lists and tables; notes stand at its end.

    Pictures, comments, headers and footers are left out, and tracked deletions; insertions are
    text. Nothing but the document's own parts is looked at.
    """

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """The one document of the file.

        Raises ``ReadError`` if it is broken, protected or over a limit, or holds no text.
        """
        archive = open_archive(handle, limits)
        metadata = normalise(properties(archive))
        title = take_title(metadata)
        page = extract(_html(archive), keep_navigation=True)
        if len(page.text) > limits.characters:
            raise ReadError(f"too long: over {limits.characters:,} characters")
        if not page.text:
            raise EmptyDocumentError("empty: no text")
        first = page.headings[0].title if page.headings else None
        yield ParsedDocument(
            path=path,
            text=storable(page.text),
            title=one_line(title or "") or title_or_stem(first, path),
            file_type="docx",
            metadata=metadata,
            headings=page.headings,
            atomic=page.atomic,
        )


def _html(archive: Archive) -> str:
    main = related(relations(archive, ""), "officeDocument") or "word/document.xml"
    document = read_part(archive, main)
    if local_name(document) != "document" or not named(document, "body"):
        raise ReadError("not a Word document")
    links = relations(archive, main)
    styles, numbering = (
        None if (name := related(links, kind)) is None else read_part(archive, name)
        for kind in ("styles", "numbering")
    )

    def graphic(identifier: str) -> Iterator[str]:
        link = links.get(identifier)
        return iter(()) if link is None else graphic_texts(read_part(archive, link.target))

    clean(document, styles=styles, notes=Notes(_notes(archive, links)), graphic=graphic)
    return _converted(document, styles, numbering)


def _notes(archive: Archive, links: Mapping[str, Relation]) -> dict[tuple[str, str], Element]:
    bodies = {}
    for kind in ("footnote", "endnote"):
        part = related(links, f"{kind}s")
        for note in [] if part is None else named(read_part(archive, part), kind):
            if note.get(f"{{{W}}}type") not in _SEPARATORS:
                bodies[kind, note.get(f"{{{W}}}id", "")] = note
    return bodies


def _converted(document: Element, styles: Element | None, numbering: Element | None) -> str:
    """Once more without styles and lists if those are what cannot be converted."""
    try:
        return _by_mammoth({"document": document, "styles": styles, "numbering": numbering})
    except RecursionError as error:
        raise ReadError("nested too deeply") from error
    except (ValueError, LookupError, AttributeError, TypeError):
        pass
    try:
        return _by_mammoth({"document": document})
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise ReadError("a broken document") from error


def _by_mammoth(parts: Mapping[str, Element | None]) -> str:
    """HTML of these parts and no others: there is nothing it could follow or embed."""
    import mammoth

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, root in parts.items():
            if root is not None:
                archive.writestr(f"word/{name}.xml", etree.tostring(root, encoding="utf-8"))
    result = mammoth.convert_to_html(packed, convert_image=lambda _: [], external_file_access=False)
    return str(result.value)
