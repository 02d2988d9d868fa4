"""HTML, reStructuredText, plain text and source code."""

from __future__ import annotations

import contextlib
import io
from email.message import EmailMessage
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.documents import ParsedDocument
from catalog.core.errors import ReadError
from catalog.ingest.readers import html
from catalog.ingest.readers.base import DEFAULT_LIMITS, WholeFileReader
from catalog.ingest.readers.registry import label, load_reader, read_file, sniff
from growth import assert_linear

PAGE = """<!doctype html><html><head><title>Keys &amp; locks</title>
<meta name="keywords" content="ops, keys"><meta name="description" content="About keys.">
<meta property="article:published_time" content="2024-01-05">
<link rel="canonical" href="https://example.org/keys"></head>
<body><nav>Menu</nav><script>var x = "hidden";</script><style>p{}</style>
<h1>Rotate <em>keys</em><a class="headerlink" href="#r">¶</a></h1>
<p>First
   line<br>second <b>bo</b>ld.</p><ul><li>one<li>two</ul>
<table><tr><th>a<th>b</tr><tr><td>1<td>2</tr></table>
<h2>Code</h2><pre>
if x:
    y
</pre></body></html>"""


def parse(text: str, path: str) -> ParsedDocument:
    reader = load_reader(sniff(path, b"", b"")[0])
    assert isinstance(reader, WholeFileReader)
    return reader.parse(text, path)


def test_html_becomes_its_visible_text_block_by_block() -> None:
    doc = parse(PAGE, "keys.html")
    assert doc.text == (
        "Rotate keys\n\nFirst line\nsecond bold.\n\none\ntwo\n\na | b\n1 | 2\n\n"
        "Code\n\nif x:\n    y"
    )
    assert [doc.text[start:end] for start, end in doc.atomic] == ["a | b\n1 | 2", "if x:\n    y"]


def test_html_navigation_is_left_out_also_where_only_its_role_tells() -> None:
    menu = '<div role="navigation"><h3>Menu</h3><p>Home</p></div>'
    assert parse(f"{menu}<h1>Keys</h1><p>Text.</p>{menu}", "keys.html").text == "Keys\n\nText."
    assert parse(menu, "keys.html").text == "Menu\n\nHome"


def test_html_headings_point_into_the_extracted_text() -> None:
    doc = parse(PAGE, "keys.html")
    headings = [(h.level, h.title, doc.text[h.start : h.end]) for h in doc.headings]
    assert headings == [(1, "Rotate keys", "Rotate keys"), (2, "Code", "Code")]


def test_html_head_gives_title_and_metadata() -> None:
    doc = parse(PAGE, "keys.html")
    assert doc.title == "Keys & locks"
    assert dict(doc.metadata) == {
        "description": "About keys.",
        "tags": ("ops", "keys"),
        "created": "2024-01-05",
        "source_url": "https://example.org/keys",
    }


def test_html_without_visible_text_is_reported_as_empty() -> None:
    with pytest.raises(ReadError, match="empty"):
        parse("<html><script>x</script></html>", "a.html")


def test_html_that_is_all_navigation_is_not_lost() -> None:
    assert parse("<nav><a href=x>Only link</a></nav>", "a.html").text == "Only link"


@pytest.mark.parametrize("tag", ["div", "pre", "table><tr><td", "h1", "a href=x"])
def test_html_nested_twenty_thousand_deep_is_read(tag: str) -> None:
    assert parse(f"<{tag}>x" * 20_000, "deep.html").text.replace("x", "").strip("\n |") in (
        "",
        " ",
    )


@pytest.mark.parametrize(
    ("source", "text"),
    [
        # Buttons are left out, but for those in a heading; what they open stays.
        ("<button>Copy</button><h3><button>May <b>I</b> swim?</button></h3><p>Yes.</p>",
         "May I swim?\n\nYes."),
        ("<button aria-controls='p1'>Where?</button><div id=p1 hidden>Norway.</div>", "Norway."),
        ("<p>a</p><p hidden='until-found'>b</p><p hidden>c</p>", "a\n\nb"),
        ("<p>Dome.</p><dialog>x</dialog><dialog open>Now.</dialog>", "Dome.\n\nNow."),
        # Hidden text that a script shows is the page.
        ("<p>Gazette</p><div style='display: none'><h1>Storm</h1><p>A ferry broke loose.</div>",
         "Gazette\n\nStorm\n\nA ferry broke loose."),
        # What a site shows on each of its pages.
        ("<div id=cookie-notice>We use cookies.</div><p class=site-title>Blog</p><p>Skua."
         "<div class='sharedaddy x'>Share</div><p>A remark.</p><footer id=colophon>Proud</footer>",
         "Skua.\n\nA remark."),
        # References, also to what is no letter, and text that XML protects.
        ("<p>Don&#039;t caf&#x00E9; &#0;|&#xd800;|</p>", "Don't café \ufffd|\ufffd|"),
        ("<p>Run <![CDATA[a --x <y> && b]]></p>", "Run a --x <y> && b"),
        ("<ac:parameter>bash</ac:parameter><ac:plain-text-body><![CDATA[gatectl]]>"
         "</ac:plain-text-body>", "bash\n\ngatectl"),
        # Raised and lowered text.
        ("<p>catechu<sup>18</sup>, 240 m<sup>2</sup>, 10<sup>6</sup>, H<sub>2</sub>O",
         "catechu [18], 240 m^2, 10^6, H_2O"),
        ("<p>Rope<sup><a href=x>3</a></sup> <b>x</b><sup>2</sup><p><sup>3</sup>Of hemp.",
         "Rope [3] x^2\n\n3 Of hemp."),
        # What a browser shows without a plug-in.
        ("<object data=x><p>A map of the piers.</p></object>", "A map of the piers."),
        # Formulas.
        ("<p>So <math><mi>m</mi> <msup><mi>c</mi><mn>2</mn></msup></math>.</p>", "So mc^2."),
        (
            "<math><mfrac><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow>"
            "<msqrt><mn>2</mn></msqrt></mfrac></math>",
            "(a+b)/√2",
        ),
        ("<p>a<math><m:mi>x</m:mi><mi\x01>y</mi></math> <i class=katex-html>xy</i>b", "axy b"),
        (
            "<math><msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup>"
            "<annotation>x_i^2</annotation></math>",
            "x_i^2",
        ),
        ("<math><mroot><mi>x</mi><mn>3</mn></mroot></math>", "x^(1/3)"),
        (
            "<math><mroot><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><mi>n</mi></mroot></math>",
            "(a+b)^(1/n)",
        ),
        ("<b class='mwe-math-mathml' style='display: none'><math><mi>k</mi></math></b>", "k"),
        # Readings above a word, and signs that only break lines.
        ("<p><ruby>縄<rp>(</rp><rt>なわ</rt><rp>)</rp></ruby>を引く</p>", "縄を引く"),
        ("<p>s&shy;pli\u00adce a&#8203;b &amp;shy;</p>", "splice ab &shy;"),
        ("<pre><b>def</b> <i>get</i>(self):\n    <b>if</b> x:\n\n        y</pre>",
         "def get(self):\n    if x:\n\n        y"),
        ("<pre>\n<i>... </i>    <b>if</b> x:\n<i>... </i>        y\n</pre>",
         "...     if x:\n...         y"),
    ],
)  # fmt: skip
def test_html_keeps_what_a_reader_sees(source: str, text: str) -> None:
    assert html.extract(source).text == text
    assert html.extract(source, unit="line").text == text


def test_lines_are_those_of_the_source() -> None:
    source = (
        "<!doctype html [\n<!ENTITY a 'b'>\n]>\n<p\n class='x > y'\n>one\r\ntwo &amp;\rthree</p\n>"
        "four <!-- \n --> five <script>\nif (a<b) {}\n</script> six"
        "<pre>\n\nseven\n  <b>eight</b></pre>"
    )
    page = html.extract(source, unit="line")
    at = {word: page.places.number_at(page.text.index(word)) for word in page.text.split()}
    assert list(at.items()) == [
        ("one", 6), ("two", 7), ("&", 7), ("three", 8), ("four", 9), ("five", 10), ("six", 12),
        ("seven", 14), ("eight", 15),
    ]  # fmt: skip


@given(st.lists(st.sampled_from(["<p>", "</p\n>", "\n", "word ", "w\nx ", "<i>", "é &lt; "])))
def test_lines_never_run_backwards_or_past_the_end(parts: list[str]) -> None:
    source = "".join(parts)
    numbers = html.extract(f"<html>{source}", unit="line").places.numbers
    assert list(numbers) == sorted(numbers)
    assert all(1 <= number <= source.count("\n") + 1 for number in numbers)


@pytest.mark.parametrize(
    "piece",
    ["<table><tr><td rowspan=9>x", "<table><tr><th>a<td>b", "<math><mi>x</mi></math>", "<h1>a",
     "<sup>1", "<math><mi>", "<pre>\n", "<p hidden>x",
     "<nav>", "<![CDATA[", "<!--", "<a b='", "<dl><dt>", "&#39;", "<td>", "<title>", "x\n",
     "<button id=a>"],
)  # fmt: skip
def test_pages_that_repeat_and_nest_take_linear_time(piece: str) -> None:
    for unit in ("line", "paragraph"):
        assert_linear(
            lambda size: html.extract(piece * size, unit=unit),  # type: ignore[arg-type] # noqa: B023
            100_000 // len(piece),
        )


def test_a_tag_of_many_attributes_takes_linear_time() -> None:
    assert_linear(
        lambda size: html.extract("<p " + " ".join(f"x{at}=1" for at in range(size))), 60_000
    )


def test_a_web_archive_is_read_as_its_page(tmp_path: Path) -> None:
    message = EmailMessage()
    message["Subject"] = "Pumps"
    message["Snapshot-Content-Location"] = "https://example.org/pumps"
    page = "<title>Pumps</title><h1>Pumps</h1><p>Une pompe coûte 30\xa0€. " + "Long. " * 40
    message.set_content(page, subtype="html", cte="quoted-printable")
    message.add_related(b"\x89PNG", "image", "png", cid="<a>")
    (tmp_path / "a.mhtml").write_bytes(bytes(message))
    (document,) = read_file(tmp_path / "a.mhtml", "a.mhtml")
    assert isinstance(document, ParsedDocument)
    assert document.text.startswith("Pumps\n\nUne pompe coûte 30 €. Long. Long.")
    assert (document.title, document.places.unit) == ("Pumps", "paragraph")
    assert dict(document.metadata) == {"source_url": "https://example.org/pumps"}
    (tmp_path / "b.mht").write_text("Subject: no page\n\nJust text.\n")
    with pytest.raises(ReadError, match="without a page"):
        list(read_file(tmp_path / "b.mht", "b.mht"))


@pytest.mark.parametrize(
    ("begin", "piece", "size"),
    [
        ("Content-Location: =?utf-8?B?" + "QUFB" * 12, "?=\r\n ", 4_000),
        ("Content-Type: text/html", ";\r\n p{at}=x", 70_000),
        ("Content-Type: multipart/related", ';\r\n boundary*{at}="x"', 10_000),
        ("Content-Type: multipart/related; boundary=-\r\n\r\n", "-", 1_000_000),
        ("", "Content-Type: multipart/related; boundary=a\r\n\r\n--a\r\n", 20_000),
    ],
)
def test_web_archives_that_repeat_take_linear_time(begin: str, piece: str, size: int) -> None:
    def read(size: int) -> None:
        head = begin + "".join(piece.format(at=at) for at in range(size))
        source = io.BytesIO(f"{head}\r\nMIME-Version: 1.0\r\n\r\n<p>A page.</p>".encode())
        with contextlib.suppress(ReadError):
            list(load_reader("mhtml").read(source, "a.mhtml", limits=DEFAULT_LIMITS))

    assert_linear(read, size)


def test_a_table_around_other_tables_arranges_a_page() -> None:
    inner = (
        "<table><tr><th>Reign</th><th>Name</th></tr><tr><td>970</td><td>Haraldr</td></tr></table>"
    )
    page = html.extract(f"<table><tr><th>Menu</th><td>{inner}</td></tr></table>")
    assert [page.text[start:end] for start, end in page.atomic] == ["Reign | Name\n970 | Haraldr"]
    assert [table.columns for table in page.tables] == ["| Reign | Name |"]


def test_rst_levels_follow_the_order_in_which_styles_appear() -> None:
    text = "====\nBook\n====\n\nPart ``x``\n------\n\nSub\n~~~\n\ntext\n\nNext\n----\n\nend\n"
    doc = parse(text, "book.rst")
    assert [(heading.level, heading.title) for heading in doc.headings] == [
        (1, "Book"), (2, "Part x"), (3, "Sub"), (2, "Next"),
    ]  # fmt: skip
    assert doc.text == text
    assert [doc.text[h.start : h.end] for h in doc.headings][1] == "Part ``x``\n------"
    assert doc.title == "Book"


def test_rst_literal_blocks_are_kept_whole_and_hold_no_titles() -> None:
    doc = parse("Look::\n\n    Not\n    ===\n\n.. code-block:: py\n\n   a = 1\n\nend\n", "a.rst")
    whole = [doc.text[start:end] for start, end in doc.atomic]
    assert whole == ["    Not\n    ===", ".. code-block:: py\n\n   a = 1"]
    assert (doc.headings, doc.title) == ((), "a")


def test_rst_transitions_and_wrapped_paragraphs_make_no_titles() -> None:
    assert parse("one\ntwo\n-----\n\ntext\n\n--------\n\nmore\n", "a.rst").headings == ()


def test_rst_field_list_at_the_top_is_metadata() -> None:
    doc = parse("Title\n=====\n\n:Author: Ann\n:Date: 2024-01-05\n\ntext\n\n:Not: this\n", "a.rst")
    assert dict(doc.metadata) == {"author": "Ann", "created": "2024-01-05"}


@pytest.mark.parametrize(
    ("path", "file_type", "title"),
    [
        ("src/app.py", "py", "app"),
        ("Makefile", "txt", "Makefile"),
        ("a/NOTES.TXT", "txt", "NOTES"),
        ("conf.toml", "toml", "conf"),
        ("CHANGES.2024", "txt", "CHANGES"),
    ],
)
def test_text_and_source_code_are_read_as_they_stand(path: str, file_type: str, title: str) -> None:
    text = "# comment\r\n\r\nvalue = 1\n"
    doc = parse(text, path)
    assert (doc.text, doc.file_type, doc.title) == (text, file_type, title)
    assert doc.headings == ()


@pytest.mark.parametrize("name", ["app.log", "app.log.1", "irc.LOG"])
def test_the_hours_of_a_log_stay_in_its_text(name: str) -> None:
    log = "[00:00:01] INFO started\n[00:00:02] WARN late\n[00:01:07] INFO done\n"
    doc = parse(log, f"logs/{name}")
    assert (doc.text, doc.segments, doc.source_type) == (log, (), "file")


def test_html_meta_says_who_may_see_a_page() -> None:
    page = (
        '<meta name="Confidentiality" content="secret"><meta name="source-type" content="memo">'
        '<meta name="agent_hint" content="lawyer"><p>A walrus.'
    )
    fields = dict(parse(page, "memo.html").metadata)
    assert fields == {
        "confidentiality": "secret", "source_type": "memo", "agent_hint": "lawyer",
    }  # fmt: skip


@pytest.mark.parametrize(
    "meta",
    [
        '<meta name="confidentiality" content="">',
        '<meta name="Confidentiality Level" content="secret">',
        '<meta name="title" property="confidentiality" content="">',
        '<meta name="confidentiality" content="public"><meta name="CONFIDENTIALITY" content="x">',
    ],
)
def test_html_whose_confidentiality_is_not_clear_is_unreadable(meta: str) -> None:
    document = parse(f"{meta}<p>A walrus.", "memo.html")
    assert document.metadata["confidentiality"] == "unreadable"


@pytest.mark.parametrize("name", ["a.txt", "a.html", "a.tex", "a.srt", "a.vtt", "a.json"])
def test_a_confidentiality_in_front_matter_counts_in_any_file(tmp_path: Path, name: str) -> None:
    front = "---\nconfidentiality: secret\ntags: [x]\n---\n"
    content = "1\n00:00:01,000 --> 00:00:03,000\nA walrus.\n"
    (tmp_path / name).write_text(front + content)
    doc = next(read_file(tmp_path / name, name))
    assert isinstance(doc, ParsedDocument)
    assert doc.metadata["confidentiality"] == "secret"
    assert "confidentiality" in doc.written
    assert "tags" not in doc.metadata


@pytest.mark.parametrize("name", ["a.yaml", "a.py", "a.json", "a.html"])
def test_what_is_data_or_markup_may_name_a_confidentiality(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("title: x\nconfidentiality: levels\nA walrus.\n")
    assert isinstance(next(read_file(tmp_path / name, name)), ParsedDocument)


@pytest.mark.parametrize("end", ["---\n", ""])
def test_front_matter_below_a_blank_line_does_not_lose_its_confidentiality(end: str) -> None:
    text = f"\n \n---\nconfidentiality: secret\n{end}\nA walrus.\n"
    level = label(parse(text, "memo.md")).metadata["confidentiality"]
    assert level == ("secret" if end else "unreadable")


ORG = """#+TITLE: Orchard log

* Pruning
:PROPERTIES:
:END:
Cut back.
** TODO Grafting [#A] :spring:
*** DONE [#B] Wax
#+BEGIN_SRC sh
* not a heading
#+end_src
*bold* text
* Last
"""
ADOC = """= Handbook of Locks
:toc:

== Warded locks

====
== An example
====

----
== no
----

=== Skeleton keys
"""
TEX = r"""\documentclass{article}
\title{On Eels}
\section{Introduction} % \section{Old}
%\section{Removed}
\subsection*{M\"uller \& {\em friends} in Gr\'{e}ce}
\begin{verbatim}
\section{no}
\end{verbatim}
\section[short]{The \textbf{last} one}
"""
MAN = r""".\" a comment
.TH FLENSE 1 2024-03-05
.SH NAME
flense
.SS "Two words"
.SH \fBSEE\fR ALSO
"""


@pytest.mark.parametrize(
    ("name", "text", "title", "headings"),
    [
        ("a.org", ORG, "Orchard log",
         [(1, "Pruning"), (2, "Grafting [#A]"), (3, "Wax"), (1, "Last")]),
        ("a.adoc", ADOC, "Handbook of Locks",
         [(1, "Handbook of Locks"), (2, "Warded locks"), (3, "Skeleton keys")]),
        ("a.tex", TEX, "On Eels",
         [(3, "Introduction"), (4, "Müller & friends in Gréce"), (3, "The last one")]),
        ("flense.1", MAN, "FLENSE", [(1, "NAME"), (2, "Two words"), (1, "SEE ALSO")]),
    ],
)  # fmt: skip
def test_headings_of_other_markup(
    name: str, text: str, title: str, headings: list[tuple[int, str]]
) -> None:
    reader = load_reader(sniff(name, text.encode(), b"")[0])
    (doc,) = reader.read(io.BytesIO(text.encode()), name, limits=DEFAULT_LIMITS)
    assert isinstance(doc, ParsedDocument)
    assert (doc.text, doc.title) == (text, title)
    assert [(each.level, each.title) for each in doc.headings] == headings
    assert all(text[each.start : each.end].strip() for each in doc.headings)


@pytest.mark.parametrize("name", ["a.org", "a.adoc", "a.tex"])
@pytest.mark.parametrize("piece", ["* ", "=", "\\section{", "\\begin{", "\n* a", "\n\\section{\\'"])
def test_hostile_markup_takes_linear_time(name: str, piece: str) -> None:
    reader = load_reader(sniff(name, piece.encode() * 1_000, b"")[0])
    assert_linear(
        lambda size: list(
            reader.read(io.BytesIO(piece.encode() * size), name, limits=DEFAULT_LIMITS)
        ),
        100_000 // len(piece),
    )


def test_a_calendar_is_unfolded_and_its_places_are_lines_of_the_file() -> None:
    text = (
        "BEGIN:VEVENT\r\nDTSTART;TZID=Europe/Vienna:20260514T090000\r\nDTEND;VALUE=DATE:20260515\r\n"
        "DESCRIPTION:Bring the thickness gau\r\n ge\\, please.\\nHats required.\r\nEND:VEVENT\r\n"
    )
    doc = parse(text, "a.ics")
    assert doc.text == (
        "BEGIN: VEVENT\nDTSTART;TZID=Europe/Vienna: 2026-05-14 09:00\n"
        "DTEND;VALUE=DATE: 2026-05-15\n"
        "DESCRIPTION: Bring the thickness gauge, please.\nHats required.\nEND: VEVENT"
    )
    assert doc.places.number_at(doc.text.index("Hats")) == 4
    assert doc.places.number_at(doc.text.index("END: ")) == 6


def test_quoted_printable_in_contacts_is_decoded() -> None:
    text = "NOTE;ENCODING=QUOTED-PRINTABLE;CHARSET=UTF-8:Spricht=\n D=C3=A4nisch\nFN:Ann\n"
    assert parse(text, "a.vcf").text == "NOTE: Spricht Dänisch\nFN: Ann"
    text = "NOTE;QUOTED-PRINTABLE:Spricht D=C3=A4=\nnisch\nFN:Ann\n"
    assert parse(text, "a.vcf").text == "NOTE: Spricht Dänisch\nFN: Ann"


def test_letters_and_braces_of_bibtex_are_plain_text() -> None:
    text = (
        "@book{m24,\n  author = {M{\\\"u}ller and Garc{\\'i}a and Ho{\\ss} and {\\v{S}}imek},\n"
        "  title={{The} {B}altic r{\\^o}le}\n}\n"
    )
    assert parse(text, "a.bib").text == (
        "@book{m24,\n  author = {Müller and García and Hoß and Šimek},\n"
        "  title={The Baltic rôle}\n}\n"
    )


def test_a_remark_with_delimiters_above_a_table_is_text() -> None:
    doc = parse("Account statement;;\nDate;Payee;Amount\n2026-01-01;Shop;0.50\n", "a.csv")
    assert [table.columns for table in doc.tables] == ["| Date | Payee | Amount |"]
