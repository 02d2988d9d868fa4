"""Parses XML that nobody vouches for: nothing is expanded or fetched, and depth is bounded."""

from __future__ import annotations

from typing import Any

from lxml import etree

from catalog.core.errors import ReadError

Element = Any
"""An ``lxml.etree._Element``; lxml has no types."""


def parse_xml(data: bytes, *, is_lenient: bool = False) -> Element:
    """The root element, without comments and processing instructions.

    ``is_lenient`` mends what is not well-formed and passes over a document type; else both are
    refused. Raises ``ReadError`` for those, and for what is nested over 256 deep.
    """
    parser = etree.XMLParser(
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
        recover=is_lenient,
    )
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        deep = "depth" in str(error)
        raise ReadError("nested too deeply" if deep else "its XML is broken") from error
    if root is None:
        raise ReadError("its XML is broken")
    document = root.getroottree().docinfo
    if not is_lenient and (document.doctype or document.internalDTD is not None):
        raise ReadError("its XML declares entities")
    return root


def local_name(element: Element) -> str:
    """The name of an element without its namespace."""
    return str(etree.QName(element).localname) if isinstance(element.tag, str) else ""


def named(root: Element, *names: str) -> list[Element]:
    """The elements of those local names in ``root``, whatever their namespace, in order."""
    return list(root.iter(*(f"{{*}}{name}" for name in names)))


def text_of(element: Element) -> str:
    """All text of an element on one line."""
    return " ".join("".join(element.itertext()).split())
