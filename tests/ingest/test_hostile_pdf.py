"""PDF files made to harm: each is skipped with a reason or read correctly, at a bounded cost."""

import pytest

from catalog.core.documents import ParsedDocument
from catalog.ingest.readers import ReadFailure
from hostile import archives, pdf, texts
from hostile.reading import document, read, refused


def test_a_password_is_reported_and_one_of_the_owner_alone_does_not_matter(tmp_path):
    assert refused(tmp_path, "a.pdf", pdf.locked("secret")) == "protected by a password"
    assert document(tmp_path, "a.pdf", pdf.locked("")).text == "The safe holds a walrus."


def test_a_broken_table_of_references_is_mended(tmp_path):
    data = pdf.drawn("The walrus dives.")
    table = data.rindex(b"xref", 0, data.rindex(b"startxref"))
    broken = data[:table] + b"xref\n0 9999999\nno number\n" + data[data.rindex(b"trailer") :]
    assert document(tmp_path, "a.pdf", broken).text == "\n\n".join(["The walrus dives."] * 3)


@pytest.mark.parametrize("part", [0.02, 0.5, 0.9])
def test_a_truncated_file_is_skipped(tmp_path, part):
    data = pdf.drawn("The walrus dives.")
    assert refused(tmp_path, "a.pdf", data[: int(part * len(data))]).startswith("broken PDF: ")


def test_a_file_that_lacks_only_its_end_is_read(tmp_path):
    data = pdf.drawn("The walrus dives.")
    cut = data[: data.rindex(b"startxref")]
    assert document(tmp_path, "a.pdf", cut).text == "\n\n".join(["The walrus dives."] * 3)


@pytest.mark.slow
def test_very_many_pages_are_read(tmp_path):
    parsed = document(tmp_path, "a.pdf", pdf.many_pages(1_000))
    assert parsed.text == "\n\n".join(["The walrus dives."] * 1_000)
    assert parsed.pages == tuple(range(0, 19_000, 19))


def test_a_cycle_in_the_page_tree_ends(tmp_path):
    assert refused(tmp_path, "a.pdf", pdf.tree_cycle()).startswith("broken PDF: ")


def test_a_page_tree_of_any_depth_ends(tmp_path):
    assert document(tmp_path, "a.pdf", pdf.deep_tree(500)).text == "Found."
    assert refused(tmp_path, "a.pdf", pdf.deep_tree(50_000)).startswith("broken PDF: ")


@pytest.mark.slow
def test_a_page_that_unpacks_to_far_more_than_the_memory_allowed_is_skipped(tmp_path):
    bomb = pdf.bomb(3, 1 << 29)
    assert len(bomb) < 10_000
    refused(tmp_path, "a.pdf", bomb, memory_bytes=50_000_000)


@pytest.mark.parametrize(
    "make", [pdf.looping_object_streams, pdf.looping_lengths, pdf.looping_xref]
)
def test_structures_that_name_themselves_are_read_once(tmp_path, make):
    assert document(tmp_path, "a.pdf", make()).text == "Found."


@pytest.mark.slow
@pytest.mark.parametrize(
    "data", [pdf.looping_forms(), pdf.doubling_forms(40)], ids=["looping", "doubling"]
)
def test_forms_that_draw_one_another_without_end_are_skipped_and_the_next_file_is_read(
    tmp_path, data
):
    refused(tmp_path, "a.pdf", data)
    assert document(tmp_path, "b.pdf", pdf.plain("The walrus dives.")).text == "The walrus dives."


def test_absurd_letters_stop_nothing(tmp_path):
    assert "Wide" in document(tmp_path, "a.pdf", pdf.odd_font()).text


@pytest.mark.parametrize(
    "box",
    [
        b" [600 800 0 0]", b" [0 0 0 0]", b" [-1e30 -1e30 1e30 1e30]",
        b" [0 0 99999999999999 99999999999999]", b" [/A /B /C /D]", b" null",
    ],
)  # fmt: skip
def test_a_page_of_absurd_size_is_read(tmp_path, box):
    assert document(tmp_path, "a.pdf", pdf.one_page(pdf.shown("Found."), box=box)).text == "Found."


def test_scripts_and_addresses_are_no_text_and_do_nothing(tmp_path):
    parsed, attached = read(tmp_path, "a.pdf", pdf.with_actions())
    assert (attached.path, attached.text) == ("a.pdf › evil.txt", "attached words")
    assert parsed.text == "Only this is text."
    assert dict(parsed.metadata) == {}
    assert [path.name for path in tmp_path.iterdir()] == ["a.pdf"]


def test_no_pages_are_a_broken_file(tmp_path):
    empty = pdf.raw_pdf([pdf.CATALOG, b"<</Type/Pages/Kids[]/Count 0>>"])
    assert refused(tmp_path, "a.pdf", empty).startswith("broken PDF: ")


@pytest.mark.parametrize("count", [-5, 0, 2_000_000_000])
def test_a_lie_about_the_number_of_pages_is_seen_through(tmp_path, count):
    tree = b"<</Type/Pages/Kids[3 0 R]/Count %d>>" % count
    data = pdf.raw_pdf([pdf.CATALOG, tree, pdf.page(), pdf.stream(pdf.shown("Found."))])
    assert document(tmp_path, "a.pdf", data).text == "Found."


def test_pages_that_are_not_there_are_reported_in_few_words(tmp_path):
    tree = b"<</Type/Pages/Kids[3 0 R]/Count 15000>>"
    data = pdf.raw_pdf([pdf.CATALOG, tree, pdf.page(), pdf.stream(pdf.shown("Found."))])
    parsed, *failures = read(tmp_path, "a.pdf", data)
    assert isinstance(parsed, ParsedDocument)
    assert parsed.text == "Found."
    assert failures[0] == ReadFailure("a.pdf#page=2", "broken page")
    assert failures[-1] == ReadFailure("a.pdf#page=22", "broken page, and 14,978 after it")
    assert len(failures) == 21


def test_very_many_characters_on_one_page_are_read(tmp_path):
    parsed = document(tmp_path, "a.pdf", pdf.long_page(100_000))
    assert parsed.text.split() == ("walrus dives deep " * 5 + "and sleeps ").split() * 1_000


@pytest.mark.slow
def test_a_page_of_lone_letters_costs_no_more_than_their_number(tmp_path):
    parsed = document(tmp_path, "a.pdf", pdf.scattered_letters(8_000))
    assert len("".join(parsed.text.split())) > 7_800


def test_bookmarks_that_lead_nowhere_cost_little(tmp_path):
    parsed = document(tmp_path, "a.pdf", pdf.many_bookmarks(4_000, 600))
    assert parsed.headings == ()
    assert parsed.text.startswith("line number 0\nline number 1\n")


def test_junk_before_a_pdf_is_passed_over_or_the_file_is_skipped(tmp_path):
    data = pdf.plain("After junk.")
    assert document(tmp_path, "a.pdf", b"junk " * 100 + data).text == "After junk."
    assert refused(tmp_path, "a.pdf", b"junk " * 400 + data).startswith("broken PDF: ")


def test_what_is_called_pdf_and_is_not_is_read_as_what_it_is(tmp_path):
    word = archives.word(archives.paragraph("I am Word."))
    page = b"<!DOCTYPE html><html><body><h1>Hi</h1><p>A page.</p></body></html>"
    subtitles = texts.many_cues(2)
    plain, remark = read(tmp_path, "a.pdf", b"Just text.")
    assert "its content is plain text" in remark.reason
    parsed = [*(read(tmp_path, "a.pdf", data)[0] for data in (word, page, subtitles)), plain]
    assert [each.text for each in parsed] == [
        "I am Word.", "Hi\n\nA page.", "words 0\nwords 1", "Just text.",
    ]  # fmt: skip
    assert [each.file_type for each in parsed] == ["docx", "html", "video", "txt"]
    assert (
        refused(tmp_path, "a.pdf", archives.packed({"a.txt": "hello"}))
        == "a ZIP archive: unpack it"
    )
    assert refused(tmp_path, "a.pdf", b"") == "broken: 0 bytes, which is no pdf file"


@pytest.mark.parametrize("name", ["a.txt", "a.docx", "a.md", "a.html", "a.srt", "a"])
def test_a_pdf_under_any_name_is_read_as_pdf(tmp_path, name):
    parsed = document(tmp_path, name, pdf.plain("The walrus dives."))
    assert (parsed.text, parsed.file_type) == ("The walrus dives.", "pdf")
