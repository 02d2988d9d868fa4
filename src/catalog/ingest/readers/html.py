"""HTML: what a reader sees, block by block, with its headings."""

from __future__ import annotations

from catalog.core.errors import EmptyDocumentError
from catalog.core.models import ParsedDocument
from catalog.core.text import storable
from catalog.ingest.readers.base import WholeFileReader, file_type, one_line, title_or_stem
from catalog.ingest.readers.html_extract import HtmlPage, extract
from catalog.ingest.readers.metadata import normalise

_CREATED = ("article:published_time", "datepublished", "dcterms.created", "dc.date", "dcterms.date")
_MODIFIED = ("article:modified_time", "datemodified", "dcterms.modified", "last-modified")
_KEPT = ("description", "author", "keywords", "date", "language")


class HtmlReader(WholeFileReader):
    """The document's text is the visible text; offsets and lines refer to it, not to the source.

    Scripts, styles, navigation and form controls are left out, unless nothing else is there.
    """

    declares_encoding = True

    def parse(self, text: str, path: str) -> ParsedDocument:
        """The document; its title is ``<title>``, else the first heading, else the stem.

        Raises ``ReadError`` when there is no visible text at all.
        """
        page = extract(text, keep_navigation=False)
        if not page.text:
            page = extract(text, keep_navigation=True)
        if not page.text:
            raise EmptyDocumentError("empty: no visible text")
        first = page.headings[0].title if page.headings else None
        return ParsedDocument(
            path=path,
            text=storable(page.text),
            title=one_line(page.title) or title_or_stem(first, path),
            file_type=file_type(path),
            metadata=normalise(_fields(page)),
            headings=page.headings,
            atomic=page.atomic,
        )


def _fields(page: HtmlPage) -> dict[str, object]:
    fields: dict[str, object] = {name: page.meta.get(name) for name in _KEPT}
    for field, names in (("created", _CREATED), ("modified", _MODIFIED)):
        fields[field] = next((page.meta[name] for name in names if name in page.meta), None)
    fields["source_url"] = page.canonical or page.meta.get("og:url")
    return fields
