"""PDF in Hebrew and Arabic: logical order, whatever order the letters are drawn in."""

import io
import random
from collections.abc import Iterable

import pytest
from bidi import get_display

from catalog.core.documents import ParsedDocument
from catalog.ingest.readers.base import DEFAULT_LIMITS
from catalog.ingest.readers.pdf.reader import PdfReader

SIZE, WIDTH = 12.0, 6.0
HEBREW = (
    "דוח רבעוני על ציוד תקשורת",
    "הספק מסר 25 מכשירים בחודש מרץ 2024 (ראו נספח)",
    "ללקוח חדש בחיפה, עם Windows 11 מותקן.",
    "האחריות נמשכת שלוש שנים מיום המסירה.",
)
ARABIC = (
    "تقرير ربع سنوي عن معدات الاتصالات",
    "سلم المورد 25 جهازا في شهر مارس 2024 (انظر الملحق)",
    "إلى عميل جديد، مع Windows 11 مثبت.",
)

Glyph = tuple[str, float, float, float]
"""Text, left edge, baseline, width (negative: drawn by a mirroring matrix)."""


def pdf_of(glyphs: Iterable[Glyph]) -> bytes:
    """Return a PDF that draws each glyph as one text object, in a font whose letters are boxes."""
    drawn: list[str] = []
    codes: dict[tuple[str, float], int] = {}
    for text, x, y, width in glyphs:
        code = codes.setdefault((text, abs(width)), len(codes) + 1)
        matrix = f"1 0 0 1 {x} {y}" if width > 0 else f"-1 0 0 1 {x - width} {y}"
        drawn.append(f"BT /F1 {SIZE} Tf {matrix} Tm <{code:02x}> Tj ET")
    content = "\n".join(drawn).encode()
    lines = "\n".join(
        f"<{code:02x}> <{text.encode('utf-16-be').hex()}>" for (text, _), code in codes.items()
    )
    unicode_map = (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap\n"
        "1 begincodespacerange <00> <ff> endcodespacerange\n"
        f"{len(codes)} beginbfchar\n{lines}\nendbfchar endcmap end end"
    ).encode()
    widths = " ".join(f"{width / SIZE * 1000:.0f}" for _, width in codes)
    names = " ".join(f"/g{code}" for code in codes.values())
    procedures = " ".join(f"/g{code} 7 0 R" for code in codes.values())
    box = b"500 0 0 0 500 700 d1 0 0 500 700 re f"
    bodies = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R"
        b"/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(content), content),
        f"<</Type/Font/Subtype/Type3/FontBBox[0 -200 1000 800]/FontMatrix[.001 0 0 .001 0 0]"
        f"/FirstChar 1/LastChar {len(codes)}/Widths[{widths}]/CharProcs<<{procedures}>>"
        f"/Encoding<</Type/Encoding/Differences[1 {names}]>>/ToUnicode 6 0 R>>".encode(),
        b"<</Length %d>>stream\n%s\nendstream" % (len(unicode_map), unicode_map),
        b"<</Length %d>>stream\n%s\nendstream" % (len(box), box),
    ]
    out = io.BytesIO()
    out.write(b"%PDF-1.7\n")
    starts = []
    for number, body in enumerate(bodies, 1):
        starts.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    table = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(bodies) + 1))
    out.writelines(b"%010d 00000 n \n" % start for start in starts)
    out.write(b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (len(bodies) + 1, table))
    return out.getvalue()


def placed(lines: Iterable[str], *, base: str = "R", right: float = 540, step: float = 14):
    """Return the glyphs of each line from left to right; those of spaces are left out."""
    rows = []
    for number, line in enumerate(lines):
        visual = get_display(line, base_dir=base)
        left = right - WIDTH * len(visual) if base == "R" else 60
        y = 700 - step * number
        row = [(letter, left + WIDTH * at, y, WIDTH) for at, letter in enumerate(visual)]
        rows.append([glyph for glyph in row if glyph[0] != " "])
    return rows


def read(glyphs: Iterable[Glyph]) -> ParsedDocument:
    (document,) = PdfReader().read(io.BytesIO(pdf_of(glyphs)), "a.pdf", limits=DEFAULT_LIMITS)
    assert isinstance(document, ParsedDocument)
    return document


@pytest.mark.parametrize("lines", [HEBREW, ARABIC])
@pytest.mark.parametrize("order", ["from left", "from right", "by chance", "words from right"])
def test_the_order_in_which_letters_are_drawn_does_not_matter(
    lines: tuple[str, ...], order: str
) -> None:
    rows = placed(lines)
    for number, row in enumerate(rows):
        if order == "from right":
            row.reverse()
        elif order == "by chance":
            random.Random(number).shuffle(row)
        elif order == "words from right":  # as Pango does it: letters from left, words from right
            row.sort(key=lambda glyph: (-int(glyph[1] // 60), glyph[1]))
    assert read(glyph for row in rows for glyph in row).text == "\n".join(lines)


def test_letters_drawn_by_a_mirroring_matrix_are_upright() -> None:
    # As Tesseract writes Hebrew under a scan: each word from the right, its numbers too.
    glyphs = []
    for number, line in enumerate(["האחריות נמשכת 25 שנים", "מיום המסירה"]):
        at = 540.0
        for letter in line:
            at -= WIDTH
            if letter != " ":
                glyphs.append((letter, at, 700 - 14 * number, -WIDTH))
    assert read(glyphs).text == "האחריות נמשכת 25 שנים\nמיום המסירה"


def test_hebrew_drawn_from_left_to_right_is_kept_in_that_order() -> None:
    # What a program draws that knows nothing of Hebrew is wrong to see, and right to read.
    glyphs = [
        (letter, 60 + WIDTH * at, 700 - 14 * number, WIDTH)
        for number, line in enumerate(HEBREW)
        for at, letter in enumerate(line)
        if letter != " "
    ]
    assert read(glyphs).text == "\n".join(HEBREW)


def test_ligatures_presentation_forms_and_stretched_words_become_letters() -> None:
    # From left to right: meem, the ligature of lam and alef as one glyph, seen, lam, alef.
    word = [("\ufee1", 500, 700, 6.0), ("\ufefc", 506, 700, 6.0), ("\ufeb4", 512, 700, 6.0)]
    word += [("\u0640", 518, 700, 6.0), ("\ufedf", 524, 700, 6.0), ("\ufe8d", 530, 700, 6.0)]
    assert read(word).text == "السلام"
    # The same ligature as a glyph of two letters.
    word[1] = ("\u0644\u0627", 506, 700, 6.0)
    assert read(word).text == "السلام"


def test_vowels_follow_their_letters() -> None:
    # Shin with its dot and qamats, then lamed and final mem with holam between them.
    glyphs = [("ש", 530, 700, 6.0), ("\u05c1", 534, 700, 0.5), ("\u05b8", 532, 700, 0.5)]
    glyphs += [("ל", 524, 700, 6.0), ("ו", 518, 700, 6.0), ("\u05b9", 520, 700, 0.5)]
    assert read([*glyphs, ("ם", 512, 700, 6.0)]).text == "שָׁלוֹם"


def test_hebrew_words_in_an_english_page() -> None:
    lines = [
        "The Hebrew word שלום (peace) is a greeting, and",
        "the phrase בוקר טוב means good morning.",
    ]
    glyphs = [glyph for row in placed(lines, base="L") for glyph in row]
    assert read(glyphs).text == "\n".join(lines)
