"""ZIP archives of Office files and e-books made to swell, mislead or crash their reader."""

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
P = "http://schemas.openxmlformats.org/presentationml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
_KIND = "application/vnd.openxmlformats-officedocument.presentationml."
_CENTRAL = b"PK\x01\x02"


def packed(parts: Mapping[str, str | bytes], *, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An archive of those parts."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def relationships(*links: tuple[str, str, str], external: bool = False) -> str:
    """A part of relationships of (id, last word of the kind, target)."""
    mode = ' TargetMode="External"' if external else ""
    inner = "".join(
        f'<Relationship Id="{name}" Type="{R}/{kind}" Target="{target}"{mode}/>'
        for name, kind, target in links
    )
    return f'<Relationships xmlns="{RELATIONS}">{inner}</Relationships>'


def word_parts(body: str, head: str = "") -> dict[str, str]:
    """The parts of a Word file with ``body`` as its text."""
    spaces = f'xmlns:w="{W}" xmlns:r="{R}"'
    return {
        "_rels/.rels": relationships(("r1", "officeDocument", "word/document.xml")),
        "word/document.xml": f"{head}<w:document {spaces}><w:body>{body}</w:body></w:document>",
    }


def word(body: str, *, head: str = "", **parts: str | bytes) -> bytes:
    """A Word file; other parts are named with ``__`` for a slash."""
    others = {name.replace("__", "/"): content for name, content in parts.items()}
    return packed({**word_parts(body, head), **others})


def paragraph(text: str) -> str:
    """A paragraph of Word."""
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def deck(slides: Iterable[str], **parts: str) -> dict[str, str]:
    """The parts of a presentation whose slides hold these shapes."""
    shown = list(slides)
    names = [f"slide{number}.xml" for number in range(1, len(shown) + 1)]
    kinds = "".join(
        f'<Override PartName="/ppt/slides/{name}" ContentType="{_KIND}slide+xml"/>'
        for name in names
    )
    listed = "".join(
        f'<p:sldId id="{256 + number}" r:id="s{number}"/>' for number in range(len(names))
    )
    spaces = f'xmlns:p="{P}" xmlns:a="{A}" xmlns:r="{R}"'
    entries = {
        "[Content_Types].xml": f'<Types xmlns="{TYPES}"><Default Extension="rels" ContentType='
        '"application/vnd.openxmlformats-package.relationships+xml"/><Override PartName='
        f'"/ppt/presentation.xml" ContentType="{_KIND}presentation.main+xml"/>{kinds}</Types>',
        "_rels/.rels": relationships(("r1", "officeDocument", "ppt/presentation.xml")),
        "ppt/presentation.xml": f"<p:presentation {spaces}><p:sldIdLst>{listed}</p:sldIdLst>"
        "</p:presentation>",
        "ppt/_rels/presentation.xml.rels": relationships(
            *((f"s{number}", "slide", f"slides/{name}") for number, name in enumerate(names))
        ),
    }
    for name, shapes in zip(names, shown, strict=True):
        entries[f"ppt/slides/{name}"] = (
            f"<p:sld {spaces}><p:cSld><p:spTree><p:nvGrpSpPr><p:cNvPr id='1' name=''/>"
            f"<p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr><p:grpSpPr/>{shapes}</p:spTree></p:cSld></p:sld>"
        )
    return entries | parts


def shape(text: str) -> str:
    """A text box of a slide."""
    return (
        "<p:sp><p:nvSpPr><p:cNvPr id='2' name='t'/><p:cNvSpPr/><p:nvPr/></p:nvSpPr><p:spPr/>"
        f"<p:txBody><a:bodyPr/><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"
    )


def book(chapters: Mapping[str, str], *, spine: Iterable[str] | None = None) -> dict[str, str]:
    """The parts of an e-book; ``spine`` are the chapters in order, all of them by default."""
    order = list(chapters) if spine is None else list(spine)
    items = "".join(
        f'<item id="c{number}" href="{href}" media-type="application/xhtml+xml"/>'
        for number, href in enumerate(dict.fromkeys(order))
    )
    numbers = {href: number for number, href in enumerate(dict.fromkeys(order))}
    listed = "".join(f'<itemref idref="c{numbers[href]}"/>' for href in order)
    return {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:'
        'container"><rootfiles><rootfile full-path="OPS/book.opf" '
        'media-type="application/oebps-package+xml"/></rootfiles></container>',
        "OPS/book.opf": '<package xmlns="http://www.idpf.org/2007/opf"><metadata/>'
        f"<manifest>{items}</manifest><spine>{listed}</spine></package>",
        **{f"OPS/{href}": content for href, content in chapters.items()},
    }


def xhtml(body: str, head: str = "") -> str:
    """A chapter."""
    return f'{head}<html xmlns="http://www.w3.org/1999/xhtml"><body>{body}</body></html>'


def blanks(size: int) -> bytes:
    """A Word file that is a small archive and unpacks to ``size`` bytes."""
    start = f'<w:document xmlns:w="{W}"><w:body>{paragraph("In the bomb.")}'.encode()
    end = b"</w:body></w:document>"
    return packed({"word/document.xml": start + b" " * size + end})


def headers_changed(data: bytes, change: Callable[[bytearray, int], None]) -> bytes:
    """The archive with ``change`` applied at every header of its central directory."""
    edited = bytearray(data)
    at = edited.find(_CENTRAL)
    while at >= 0:
        change(edited, at)
        at = edited.find(_CENTRAL, at + 4)
    return bytes(edited)


def lying(data: bytes, size: int) -> bytes:
    """The archive whose directory says of every entry that it unpacks to ``size`` bytes."""

    def lie(edited: bytearray, at: int) -> None:
        edited[at + 24 : at + 28] = struct.pack("<L", size)

    return headers_changed(data, lie)


def encrypted(data: bytes) -> bytes:
    """The archive whose directory says of every entry that it needs a password."""

    def lock(edited: bytearray, at: int) -> None:
        edited[at + 8] |= 1

    return headers_changed(data, lock)


def overlapping(count: int, size: int) -> bytes:
    """Entries that are all the same bytes (the simplest of the bombs of Fifield, 2019)."""
    content = zlib.compress(b"<p>" + b" " * size + b"</p>", 9)[2:-4]
    checksum = zlib.crc32(b"<p>" + b" " * size + b"</p>")
    sizes = struct.pack("<LLL", checksum, len(content), size + 7)
    out = b"PK\x03\x04" + struct.pack("<HHHHH", 20, 0, 8, 0, 33) + sizes
    out += struct.pack("<HH", 17, 0) + b"word/document.xml" + content
    directory = b""
    for number in range(count):
        name = b"word/document.xml" if not number else b"word/more%d.xml" % number
        directory += _CENTRAL + struct.pack("<HHHHHH", 20, 20, 0, 8, 0, 33) + sizes
        directory += struct.pack("<HHHHHLL", len(name), 0, 0, 0, 0, 0, 0) + name
    end = struct.pack("<HHHHLLH", 0, 0, count, count, len(directory), len(out), 0)
    return out + directory + b"PK\x05\x06" + end


def billion_laughs(root: str) -> str:
    """A document type in which ``&l9;`` is a billion laughs."""
    lines = ['<!ENTITY l0 "laugh">']
    lines += [f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10)]
    return f"<!DOCTYPE {root} [{''.join(lines)}]>"


def quadratic(root: str, size: int) -> tuple[str, str]:
    """A document type with one long entity, and a text that names it ``size`` times."""
    return f'<!DOCTYPE {root} [<!ENTITY a "{"a" * size}">]>', "&a;" * size


def external(root: str, address: str) -> str:
    """A document type in which ``&x;`` is what lies at the address."""
    return f'<!DOCTYPE {root} [<!ENTITY x SYSTEM "{address}">]>'
