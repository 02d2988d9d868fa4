"""Files of binary formats for the cases of test_readers, each made by ``MAKERS[case["made"]]``."""

import io
import re
import zipfile
from collections.abc import Mapping
from typing import Any

from pypdf import PdfReader, PdfWriter
from pypdf.generic import BooleanObject, NameObject, NumberObject, TextStringObject
from reportlab.pdfgen.canvas import Canvas

from workbooks import sheet_xml, workbook

BLANK_PDF = """%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>endobj
trailer<</Root 1 0 R>>
"""
W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
KINDS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
WORD = (
    f'xmlns:w="{W}" xmlns:r="{KINDS}" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
    'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" '
    'xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape" '
    'xmlns:v="urn:schemas-microsoft-com:vml"'
)
CONTAINER = '<container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
OPEN = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{full}:1.0"'
    for name, full in {
        **{it: it for it in ("office", "text", "table", "meta", "presentation", "manifest")},
        "draw": "drawing",
    }.items()
)
OPEN += ' xmlns:dc="http://purl.org/dc/elements/1.1/"'


def packed(parts: Mapping[str, str | bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return data.getvalue()


def word(body: str, case: Mapping[str, Any]) -> bytes:
    """A Word file with this inside ``w:body``, and the ``parts`` and ``files`` of the case.

    In it ``[p text]``, ``[p style: text]`` and ``[r text]`` stand for paragraphs and runs.
    """

    def spaced(xml: str) -> str:
        xml = re.sub(
            r"\[p (?:(\w+): )?([^\[\]]*)\]",
            lambda it: (
                "<w:p>"
                + (f'<w:pPr><w:pStyle w:val="{it[1]}"/></w:pPr>' if it[1] else "")
                + f'<w:r><w:t xml:space="preserve">{it[2]}</w:t></w:r></w:p>'
            ),
            xml,
        )
        xml = re.sub(r"\[r ([^\[\]]*)\]", r'<w:r><w:t xml:space="preserve">\1</w:t></w:r>', xml)
        return re.sub(r"\A<(w:\w+)>", rf"<\1 {WORD}>", xml)

    links = {f"x{name}": (name, f"{name}.xml") for name in case.get("parts", {})}
    links |= case.get("links", {})
    related = "".join(
        f'<Relationship Id="{name}" Type="{KINDS}/{kind}" Target="{target}"/>'
        for name, (kind, target) in links.items()
    )
    main = "<Relationship Id='d' Type='{}/officeDocument' Target='word/document.xml'/>"
    parts = {
        "_rels/.rels": f"<Relationships>{main.format(KINDS)}</Relationships>",
        "word/document.xml": f"<w:document {WORD}><w:body>{spaced(body)}</w:body></w:document>",
        "word/_rels/document.xml.rels": f"<Relationships>{related}</Relationships>",
    }
    parts |= {f"word/{name}.xml": spaced(xml) for name, xml in case.get("parts", {}).items()}
    return packed(parts | {f"word/{name}": it for name, it in case.get("files", {}).items()})


def book(_: str, case: Mapping[str, Any]) -> bytes:
    """An e-book of the ``files`` in ``OEBPS/text``, in the order of ``spine`` or as they come."""
    files, kind = case.get("files", {}), 'media-type="application/xhtml+xml"'
    hrefs = {name: f"text/{name}.xhtml" for name in files} | case.get("hrefs", {})
    items = "".join(
        f'<item id="{name}" href="{href}" {kind} {case.get("properties", {}).get(name, "")}/>'
        for name, href in hrefs.items()
    )
    spine = "".join(f'<itemref idref="{name}"/>' for name in case.get("spine", list(files)))
    package = (
        f'<package xmlns="http://www.idpf.org/2007/opf"><metadata '
        f'xmlns:dc="http://purl.org/dc/elements/1.1/">{case.get("metadata_of_book", "")}</metadata>'
        f"<manifest>{items}</manifest><spine>{spine}</spine>"
        f"<guide>{case.get('guide', '')}</guide></package>"
    )
    parts = {
        "META-INF/container.xml": case.get("container", CONTAINER),
        "OEBPS/book.opf": case.get("declared", "") + case.get("package", package),
        **case.get("parts", {}),
    }
    for name, body in files.items():
        head = '<html xmlns="http://www.w3.org/1999/xhtml"><head><title/><script src="x"/></head>'
        parts[f"OEBPS/text/{name}.xhtml"] = f"{head}<body>{body}</body></html>"
    return packed(parts)


def opened(content: str, case: Mapping[str, Any]) -> bytes:
    """An OpenDocument file; the case may say its ``kind``, ``styles`` and other ``parts``."""
    kind = case.get("kind", "text")
    body = f"<office:body><office:{kind}>{content}</office:{kind}></office:body>"
    styles = case.get("styles", "")
    tree = f"<office:document-content {OPEN}>{styles}{body}</office:document-content>"
    parts = {
        "mimetype": f"application/vnd.oasis.opendocument.{kind}",
        "META-INF/manifest.xml": "<manifest/>",
        "content.xml": tree,
    }
    if "meta" in case:
        meta = f"<office:meta>{case['meta']}</office:meta>"
        parts["meta.xml"] = f"<office:document-meta {OPEN}>{meta}</office:document-meta>"
    return packed(parts | case.get("parts", {}))


def excel(_: str, case: Mapping[str, Any]) -> bytes:
    """A workbook of the ``sheets`` of the case: rows, their XML, or rows with merged cells."""

    def xml(sheet: Any) -> str:
        if isinstance(sheet, str):
            return sheet
        rows, merged = (sheet["rows"], sheet["merged"]) if isinstance(sheet, dict) else (sheet, ())
        return sheet_xml([[None if cell == "" else cell for cell in row] for row in rows], merged)

    sheets = {name: xml(sheet) for name, sheet in case["sheets"].items()}
    return workbook(sheets, case.get("hidden", ()), **case.get("parts", {}))


def drawn(_: str, case: Mapping[str, Any]) -> bytes:
    """A PDF of the ``pages_drawn``, with ``info`` and files ``attached``.

    A line is below the one before it, or says where it is: ``x y|``, ``x y size font|``.
    """
    data = io.BytesIO()
    canvas = Canvas(data, pagesize=(600, 800), invariant=1)
    canvas.setTitle("untitled")
    for page in case["pages_drawn"]:
        x, y = 60.0, 612.0
        for line in filter(None, page.split("\n")):
            place, _, text = line.rpartition("| ")
            at, y = place.split(), y - 12
            x, y = (float(at[0]), float(at[1])) if at else (x, y)
            size, font = (float(at[2]), at[3]) if len(at) > 3 else (10.0, "Times-Roman")
            canvas.setFont(font, size)
            canvas.rect(60, 60, 300, 300, fill=1) if text == "PICTURE" else None
            canvas.drawString(x, y, text if text != "PICTURE" else "")
        canvas.showPage()
    canvas.save()
    if not case.keys() & {"info", "attached"}:
        return data.getvalue()
    writer, changed = PdfWriter(clone_from=PdfReader(data)), io.BytesIO()
    kinds = {bool: BooleanObject, int: NumberObject, str: TextStringObject}
    for name in ("/Author", "/Subject"):
        writer._info.pop(name, None)
    for name, value in case.get("info", {}).items():
        writer._info[NameObject(name)] = kinds[type(value)](value)
    for name, content in case.get("attached", {}).items():
        writer.add_attachment(name, content.encode())
    writer.write(changed)
    return changed.getvalue()


MAKERS = {"word": word, "book": book, "open": opened, "excel": excel, "pdf": drawn}
