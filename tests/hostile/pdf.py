"""PDF files made to hang, crash, mislead or swell their reader."""

import io
import zlib
from collections.abc import Iterable

from pypdf import PdfReader, PdfWriter
from reportlab.pdfgen.canvas import Canvas

FONT = b"<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>"
BOX = b"[0 0 600 800]"
CATALOG = b"<</Type/Catalog/Pages 2 0 R>>"
ONE_PAGE = b"<</Type/Pages/Kids[3 0 R]/Count 1>>"


def raw_pdf(objects: Iterable[bytes]) -> bytes:
    """A file of these objects, numbered from 1, the first being the catalog."""
    out = io.BytesIO(b"%PDF-1.7\n")
    offsets = []
    out.seek(0, io.SEEK_END)
    for number, body in enumerate(objects, 1):
        offsets.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(offsets) + 1))
    out.write(b"".join(b"%010d 00000 n \n" % offset for offset in offsets))
    out.write(b"trailer<</Size %d/Root 1 0 R>>\n" % (len(offsets) + 1))
    out.write(b"startxref\n%d\n%%%%EOF" % start)
    return out.getvalue()


def stream(content: bytes, entries: bytes = b"") -> bytes:
    """A stream object with its length."""
    return b"<</Length %d%s>>stream\n%s\nendstream" % (len(content), entries, content)


def shown(*lines: str) -> bytes:
    """The content of a page with these lines under one another."""
    text = b"".join(b"(%s) Tj 0 -12 Td " % line.encode("latin-1") for line in lines)
    return b"BT /F1 10 Tf 60 700 Td " + text + b"ET"


def page(contents: bytes = b"4 0 R", *, box: bytes = BOX, resources: bytes = FONT) -> bytes:
    """A page object, the third of its file."""
    return b"<</Type/Page/Parent 2 0 R/MediaBox%s/Contents %s/Resources%s>>" % (
        box,
        contents,
        resources,
    )


def one_page(content: bytes, *more: bytes, **options: bytes) -> bytes:
    """A file of one page with that content; objects from 5 on are ``more``."""
    return raw_pdf([CATALOG, ONE_PAGE, page(**options), stream(content), *more])


def plain(*lines: str) -> bytes:
    """A well-behaved file."""
    return one_page(shown(*lines))


def locked(user_password: str) -> bytes:
    """Encrypted; with an empty user password anyone may open it, the owner's is not needed."""
    writer = PdfWriter()
    writer.append(PdfReader(io.BytesIO(plain("The safe holds a walrus."))))
    writer.encrypt(user_password, "owner's own", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def many_pages(count: int) -> bytes:
    """As many pages, each with its number; their content is shared, so the file stays small."""
    kids = b" ".join(b"%d 0 R" % (number + 3) for number in range(count))
    content = count + 3
    objects = [CATALOG, b"<</Type/Pages/Kids[%s]/Count %d>>" % (kids, count)]
    objects += [page(b"%d 0 R" % content)] * count
    return raw_pdf([*objects, stream(shown("The walrus dives."))])


def tree_cycle() -> bytes:
    """A page tree whose branch holds its own root."""
    branch = b"<</Type/Pages/Parent 2 0 R/Kids[2 0 R 4 0 R]/Count 2>>"
    root = b"<</Type/Pages/Kids[3 0 R]/Count 2>>"
    leaf = b"<</Type/Page/Parent 3 0 R/MediaBox%s/Contents 5 0 R/Resources%s>>" % (BOX, FONT)
    return raw_pdf([CATALOG, root, branch, leaf, stream(shown("Found."))])


def deep_tree(depth: int) -> bytes:
    """A page at the bottom of a tree in which every branch has one child."""
    objects = [CATALOG]
    objects += [
        b"<</Type/Pages/Kids[%d 0 R]/Count 1/Parent %d 0 R>>" % (number + 1, number - 1)
        for number in range(2, depth + 2)
    ]
    leaf = page(b"%d 0 R" % (depth + 3)).replace(b"2 0 R", b"%d 0 R" % (depth + 1))
    return raw_pdf([*objects, leaf, stream(shown("Found."))])


def bomb(layers: int, size: int) -> bytes:
    """A content stream that unpacks to ``size`` blanks, packed as often as ``layers`` says."""
    packer = zlib.compressobj(9)
    piece = b" " * (1 << 20)
    packed = b"".join(packer.compress(piece) for _ in range(size >> 20)) + packer.flush()
    for _ in range(layers - 1):
        packed = zlib.compress(packed, 9)
    filters = b"/Filter[%s]" % (b"/FlateDecode " * layers)
    return raw_pdf([CATALOG, ONE_PAGE, page(), stream(packed, filters)])


def looping_object_streams() -> bytes:
    """Two object streams that extend each other, each said to lie in the other."""
    objects = [CATALOG, ONE_PAGE, page(), stream(shown("Found."))]
    inner = b"7 0 <</Type/Catalog/Pages 2 0 R>>"
    objects += [
        stream(inner, b"/Type/ObjStm/N 1/First 4/Extends %d 0 R" % other) for other in (6, 5)
    ]
    return raw_pdf(objects)


def looping_lengths() -> bytes:
    """A stream whose length is an object that is that stream."""
    content = b"<</Length 4 0 R>>stream\n%s\nendstream" % shown("Found.")
    return raw_pdf([CATALOG, ONE_PAGE, page(), content])


def looping_xref() -> bytes:
    """A cross-reference table that names itself as the one before it."""
    data = plain("Found.")
    start = data.rindex(b"xref\n0 ")
    return data.replace(b"/Root 1 0 R", b"/Root 1 0 R/Prev %d" % start)


def looping_forms() -> bytes:
    """A page that draws a form which draws itself, and another which draws it twice."""
    resources = b"<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>/XObject<<%s>>>>"
    names = b"/A 5 0 R/B 6 0 R"
    form = b"/Type/XObject/Subtype/Form/BBox[0 0 600 800]/Resources" + resources % names
    content = shown("Before.") + b" /A Do /B Do " + shown("After.")
    return one_page(
        content,
        stream(b"/B Do /B Do", form),
        stream(b"/A Do /A Do", form),
        resources=resources % names,
    )


def doubling_forms(depth: int) -> bytes:
    """Forms that each draw the next one twice: 2 to the power of ``depth`` texts."""
    held = b"<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>/XObject<</X %d 0 R>>>>"
    form = b"/Type/XObject/Subtype/Form/BBox[0 0 600 800]/Resources"
    forms = [stream(b"/X Do /X Do", form + held % (number + 6)) for number in range(depth)]
    last = stream(shown("x"), form + FONT)
    return one_page(b"/X Do", *forms, last, resources=held % 5)


def odd_font() -> bytes:
    """Letters a billion units wide, some of them negative, in a font of absurd size."""
    widths = b" ".join([b"-999999999", b"999999999", b"1e38", b"0"] * 24)
    font = b"<</Type/Font/Subtype/TrueType/BaseFont/A/FirstChar 32/LastChar 127/Widths[%s]>>"
    resources = b"<</Font<</F1 %s>>>>" % (font % widths)
    content = shown("Wide letters.") + b" BT /F1 99999999999 Tf 0 0 Td (Huge.) Tj ET"
    return one_page(content, resources=resources)


def with_actions() -> bytes:
    """A script, a launch, an address and an attached file, all to be run when it is opened."""
    script = b"<</S/JavaScript/JS(app.alert\\('scripted'\\); this.submitForm\\('http://127.0.0.1:9/'\\))>>"
    launch = b"<</S/Launch/F(/bin/touch)/Win<</F(cmd.exe)>>/Next %s>>" % script
    names = b"<</JavaScript<</Names[(go) %s]>>/EmbeddedFiles<</Names[(evil.txt) 6 0 R]>>>>" % script
    catalog = b"<</Type/Catalog/Pages 2 0 R/OpenAction %s/AA<</WC %s>>/Names %s>>"
    link = b"<</Type/Annot/Subtype/Link/Rect[0 0 600 800]/A<</S/URI/URI(http://127.0.0.1:9/)>>>>"
    actor = page()[:-2] + b"/AA<</O %s>>/Annots[%s]>>" % (launch, link)
    return raw_pdf(
        [
            catalog % (launch, script, names),
            ONE_PAGE,
            actor,
            stream(shown("Only this is text.")),
            stream(b"attached words", b"/Type/EmbeddedFile"),
            b"<</Type/Filespec/F(evil.txt)/EF<</F 5 0 R>>>>",
        ]
    )


def long_page(characters: int) -> bytes:
    """One page, tall enough for that many characters in lines of 100."""
    line = "walrus dives deep " * 5 + "and sleeps"
    lines = characters // len(line)
    content = (
        b"BT /F1 10 Tf 60 %d Td " % (12 * lines) + b"(%s) Tj 0 -12 Td " % line.encode() * lines
    )
    return one_page(content + b"ET", box=b"[0 0 600 %d]" % (12 * lines + 20))


def many_bookmarks(count: int, lines: int) -> bytes:
    """An outline of as many entries, all of one page of as many lines that none of them names."""
    first, last = 6, 5 + count
    outline = b"<</Type/Outlines/First %d 0 R/Last %d 0 R/Count %d>>" % (first, last, count)
    marks = []
    for number in range(first, last + 1):
        following = b"/Next %d 0 R" % (number + 1) if number < last else b""
        marks.append(
            b"<</Title(Chapter %d of none)/Parent 5 0 R/Dest[3 0 R/XYZ 0 700 0]%s>>"
            % (number, following)
        )
    catalog = b"<</Type/Catalog/Pages 2 0 R/Outlines 5 0 R>>"
    content = stream(shown(*(f"line number {number}" for number in range(lines))))
    return raw_pdf([catalog, ONE_PAGE, page(), content, outline, *marks])


def scattered_letters(count: int) -> bytes:
    """A page on which every letter is drawn alone, at a place of its own."""
    return one_page(
        b"BT /F1 4 Tf "
        + b"".join(
            b"1 0 0 1 %d %d Tm (%c) Tj "
            % (number * 7919 % 590, number * 104729 % 790, 97 + number % 26)
            for number in range(count)
        )
        + b"ET"
    )


def drawn(*lines: str) -> bytes:
    """A file as a program makes it, for damage to be done to."""
    out = io.BytesIO()
    canvas = Canvas(out, pageCompression=0, invariant=1)
    for _ in range(3):
        for number, line in enumerate(lines):
            canvas.drawString(60, 700 - 14 * number, line)
        canvas.showPage()
    canvas.save()
    return out.getvalue()
