"""Raised and lowered text and formulas as plain text; the right values are worked by hand."""

import pytest
from lxml import etree

from catalog.ingest.readers.formulas import CLOSED, LOWERED, RAISED, formula_text, write_scripts
from growth import assert_linear

MARKS = str.maketrans({"<": RAISED, "_": LOWERED, ">": CLOSED})
HUGE = etree.XMLParser(huge_tree=True)
OMML = "http://schemas.openxmlformats.org/officeDocument/2006/math"


@pytest.mark.parametrize(
    ("marked", "text"),
    [
        ("10<6> stitches", "10^6 stitches"),
        ("2<5> per cent of 240 m<2>", "2^5 per cent of 240 m^2"),
        ("10<−3> and 10<1.5> and e<2x>", "10^−3 and 10^1.5 and e^2x"),
        ("x<n + 1>", "x^(n + 1)"),
        ("H_2>O and a_i,j>", "H_2O and a_(i,j)"),
        ("catechu<18>. Flax<19,20> at sea.<3>", "catechu [18]. Flax [19,20] at sea. [3]"),
        ("Bridport <4>, (see the annex)<5>", "Bridport [4], (see the annex) [5]"),
        ("(a + b)<2>", "(a + b)^2"),
        ("catechu<[18]>", "catechu [18]"),
        ("the 21<st> of May, le XIX<e>, 1<er>", "the 21st of May, le XIXe, 1er"),
        ("Acme<TM>, Acme<®>, Na<+>, word<*>", "AcmeTM, Acme®, Na+, word*"),
        ("<1>Of brass.\n<2> Of tin.", "1 Of brass.\n2 Of tin."),
        ("x_i><2>", "x_i^2"),
        ("e<x_i>>", "e^(x_i)"),
        ("a< >b <open", "ab open"),
    ],
)
def test_raised_and_lowered_text_stays_apart_from_what_it_is_set_on(marked, text):
    assert write_scripts(marked.translate(MARKS)) == text


@pytest.mark.parametrize("piece", ["<", ">", "<<1>", "a<1>", "<1", "word (word<2>", "_<>>"])
def test_many_marks_take_linear_time(piece):
    marked = piece.translate(MARKS)
    assert_linear(lambda size: write_scripts(marked * size), 200_000 // len(piece))


def omml(source):
    """Return a formula of Office; ``.`` stands before the names of its elements."""
    named = source.replace("</.", "</m:").replace("<.", "<m:").replace("@", "m:val")
    return etree.fromstring(f'<m:oMath xmlns:m="{OMML}">{named}</m:oMath>')


def run(text):
    return f"<.r><.rPr><.sty @='p'/></.rPr><.t>{text}</.t></.r>"


FRACTION = f"<.f><.num>{run('L')}</.num><.den>{run('g')}</.den></.f>"
FROM_ONE = f"<.sub>{run('i=1')}</.sub><.sup>{run('n')}</.sup>"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (run("T=2π") + f"<.rad><.deg/><.e>{FRACTION}</.e></.rad>", "T=2π√(L/g)"),
        (f"<.sSup><.e>{run('x')}</.e><.sup>{run('17')}</.sup></.sSup>{run('=0.0457')}",
         "x^17=0.0457"),
        (f"<.sSup><.e>{FRACTION}</.e><.sup>{run('2')}</.sup></.sSup>", "(L/g)^2"),
        (f"<.sSubSup><.e>{run('x')}</.e>{FROM_ONE}</.sSubSup>", "x_(i=1)^n"),
        (f"<.nary><.naryPr><.chr @='∑'/></.naryPr>{FROM_ONE}<.e>{run('i')}</.e></.nary>",
         "∑_(i=1)^n i"),
        (f"<.func><.fName>{run('sin')}</.fName><.e>{run('x')}</.e></.func>", "sin x"),
        (f"<.d><.dPr><.begChr @='['/><.endChr @=']'/></.dPr><.e>{run('a+b')}</.e></.d>", "[a+b]"),
        (f"<.d><.e><.m><.mr><.e>{run('1')}</.e><.e>{run('2')}</.e></.mr><.mr><.e>{run('3')}</.e>"
         f"<.e>{run('4')}</.e></.mr></.m></.e></.d>", "(1 2; 3 4)"),
        (f"<.limLow><.e>{run('lim')}</.e><.lim>{run('x→0')}</.lim></.limLow>", "lim_(x→0)"),
    ],
)  # fmt: skip
def test_formulas_of_office_are_written_on_one_line(source, text):
    assert formula_text(omml(source)) == text


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("<msup><mi>a</mi><mn>3</mn></msup>", "a^3"),
        ("<mi>m</mi> <msup><mi>c</mi><mn>2</mn></msup>", "mc^2"),
        ("<msup><mrow><mi>m</mi><mi>c</mi></mrow><mn>2</mn></msup>", "(mc)^2"),
        ("<mfrac><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><msqrt><mn>2</mn></msqrt></mfrac>",
         "(a+b)/√2"),
        ("<msqrt><mfrac><mi>L</mi><mi>g</mi></mfrac></msqrt>", "√(L/g)"),
        ("<mroot><mi>x</mi><mn>3</mn></mroot>", "x^(1/3)"),
        ("<munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover>",
         "∑_(i=1)^n"),
        ("<mi>f</mi><mo>\u2061</mo><mo>(</mo><mi>x</mi><mo>)</mo><mtext>if</mtext><mi>x</mi>",
         "f(x) if x"),
        ("<semantics><mi>k</mi><annotation>k_{tex}</annotation></semantics>", "k"),
        ("<mfenced><mi>a</mi><mi>b</mi></mfenced>", "(a,b)"),
    ],
)  # fmt: skip
def test_formulas_of_web_pages_are_written_on_one_line(source, text):
    assert formula_text(etree.fromstring(f"<math>{source}</math>")) == text
    namespace = 'xmlns="http://www.w3.org/1998/Math/MathML"'
    assert formula_text(etree.fromstring(f"<math {namespace}>{source}</math>")) == text


@pytest.mark.parametrize("tag", ["msup", "mfrac", "mroot", "mrow", "mfenced", "mtable"])
def test_deep_formulas_are_bounded(tag):
    deep = etree.fromstring(f"<{tag}>" * 1_000 + "x" + f"</{tag}>" * 1_000, HUGE)
    assert len(formula_text(deep)) < 500


@pytest.mark.parametrize("tag", ["msup", "mfrac", "mroot", "mrow", "mfenced", "mtable"])
def test_long_formulas_are_cut_and_take_linear_time(tag):
    def long(size):
        return etree.fromstring(f"<math>{f'<{tag}><mi>x</mi><mi>y</mi></{tag}>' * size}</math>")

    assert formula_text(long(10_000)).endswith("…")
    assert_linear(formula_text, 10_000, given=long)
