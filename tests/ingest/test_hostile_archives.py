"""Office files and e-books made to harm: skipped with a reason or read correctly, boundedly."""

import zipfile

import pytest

from catalog.core.documents import ParsedDocument
from catalog.ingest.readers import ReadFailure
from hostile import archives as zips
from hostile import texts
from hostile.reading import document, read, refused

WORD = zips.word(zips.paragraph("walrus"))
DECK = zips.deck([zips.shape("walrus"), zips.shape("otter")])
BOOK = zips.book({"one.xhtml": zips.xhtml("<p>walrus</p>")})
OUTSIDE = ["../../../etc/passwd", "/etc/passwd", "file:///etc/passwd", "http://127.0.0.1:9/x"]
ENTITIES = {
    "laughs": (zips.billion_laughs("root"), "&l9;"),
    "quadratic": zips.quadratic("root", 50_000),
    "file": (zips.external("root", "file:///etc/passwd"), "&x;"),
    "address": (zips.external("root", "http://127.0.0.1:9/x"), "&x;"),
}


@pytest.mark.parametrize("name", ["a.docx", "a.pptx", "a.txt", "a"])
def test_a_book_under_another_name_is_read_as_a_book(tmp_path, name):
    parsed = document(tmp_path, name, zips.packed(BOOK))
    assert (parsed.text, parsed.file_type) == ("walrus", "epub")


@pytest.mark.slow
def test_an_archive_of_absurd_ratio_is_refused_before_it_is_unpacked(tmp_path):
    reason = refused(tmp_path, "a.docx", zips.blanks(60_000_000))
    assert reason == "over 200 times its size when unpacked"


def test_a_bomb_inside_an_archive_is_not_opened(tmp_path):
    data = zips.word(zips.paragraph("walrus"), word__embeddings__b=zips.blanks(30_000_000))
    assert document(tmp_path, "a.docx", data, unpacked_bytes=1_000_000).text == "walrus"


def test_entries_that_share_their_bytes_are_refused(tmp_path):
    reason = refused(tmp_path, "a.docx", zips.overlapping(100, 10_000))
    assert reason == "broken archive: its parts overlap"


def test_sizes_that_lie_are_not_believed(tmp_path):
    small = zips.lying(zips.blanks(30_000_000), 10)
    assert refused(tmp_path, "a.docx", small).startswith("broken archive: ")
    large = zips.lying(WORD, 4_000_000_000)
    assert refused(tmp_path, "a.docx", large).startswith("too large: over ")


def test_names_that_point_elsewhere_are_only_names(tmp_path):
    parts = zips.word_parts(zips.paragraph("walrus"))
    extra = {"../../etc/passwd": "no", "/etc/shadow": "no", "C:\\boot.ini": "no"}
    assert document(tmp_path, "a.docx", zips.packed(extra | parts)).text == "walrus"
    assert [path.name for path in tmp_path.iterdir()] == ["a.docx"]


def test_an_entry_without_a_name_is_passed_over(tmp_path):
    (tmp_path / "made.zip").write_bytes(WORD)
    with zipfile.ZipFile(tmp_path / "made.zip", "a") as made:
        made.writestr(zipfile.ZipInfo(""), "x")
    assert document(tmp_path, "a.docx", (tmp_path / "made.zip").read_bytes()).text == "walrus"


def test_a_file_that_needs_a_password_is_refused(tmp_path):
    assert refused(tmp_path, "a.docx", zips.encrypted(WORD)) == "protected by a password"


@pytest.mark.parametrize("cut", [1, 200])
def test_a_truncated_archive_is_refused(tmp_path, cut):
    assert refused(tmp_path, "a.docx", WORD[:-cut]).startswith("broken archive: ")


def test_junk_after_an_archive_is_passed_over(tmp_path):
    assert document(tmp_path, "a.docx", WORD + b"junk" * 1000).text == "walrus"


@pytest.mark.parametrize("address", OUTSIDE)
def test_references_out_of_a_word_file_lead_nowhere(tmp_path, address):
    body = zips.paragraph("walrus") + '<w:altChunk r:id="x1"/><w:p><w:hyperlink r:id="x2">'
    body += "<w:r><w:t>linked</w:t></w:r></w:hyperlink></w:p>"
    links = [("x1", "aFChunk", address), ("x2", "hyperlink", address), ("x3", "styles", address)]
    for external in (True, False):
        parts = zips.word_parts(body)
        parts["word/_rels/document.xml.rels"] = zips.relationships(*links, external=external)
        assert document(tmp_path, "a.docx", zips.packed(parts)).text == "walrus\n\nlinked"


@pytest.mark.parametrize("address", OUTSIDE)
def test_references_out_of_a_presentation_lead_nowhere(tmp_path, address):
    links = zips.relationships(("x1", "notesSlide", address), ("x2", "image", address))
    parts = {**DECK, "ppt/slides/_rels/slide1.xml.rels": links}
    assert document(tmp_path, "a.pptx", zips.packed(parts)).text == "walrus\n\notter"


@pytest.mark.parametrize("address", OUTSIDE)
def test_references_out_of_a_book_lead_nowhere(tmp_path, address):
    container = BOOK["META-INF/container.xml"].replace("OPS/book.opf", address)
    moved = {**BOOK, "META-INF/container.xml": container}
    assert document(tmp_path, "a.epub", zips.packed(moved)).text == "walrus"
    chapters = {"one.xhtml": zips.xhtml("<p>walrus</p>")}
    data = zips.packed(zips.book(chapters, spine=["one.xhtml", address]))
    *failures, parsed = read(tmp_path, "a.epub", data)
    assert isinstance(parsed, ParsedDocument)
    assert parsed.text == "walrus"
    assert all(isinstance(failure, ReadFailure) for failure in failures)


@pytest.mark.parametrize("kind", ENTITIES)
def test_entities_are_refused_in_office_files(tmp_path, kind):
    head, use = ENTITIES[kind]
    word = zips.word(zips.paragraph(use), head=head)
    slide = "ppt/slides/slide2.xml"
    deck = {**DECK, slide: head + DECK[slide].replace("otter", use)}
    for name, data in (("a.docx", word), ("a.pptx", zips.packed(deck))):
        assert refused(tmp_path, name, data) in ("its XML declares entities", "its XML is broken")


@pytest.mark.parametrize("kind", ENTITIES)
def test_entities_of_a_chapter_are_neither_expanded_nor_fetched(tmp_path, kind):
    head, use = ENTITIES[kind]
    chapter = zips.xhtml(f"<p>walrus</p><p>{use}</p>", head)
    parsed = document(tmp_path, "a.epub", zips.packed(zips.book({"one.xhtml": chapter})))
    assert parsed.text == f"walrus\n\n{use}"


@pytest.mark.parametrize("kind", ENTITIES)
def test_entities_of_a_package_are_neither_expanded_nor_fetched(tmp_path, kind):
    head, use = ENTITIES[kind]
    titled = f"<metadata><title>Sea {use[:100]}</title></metadata>"
    package = head + BOOK["OPS/book.opf"].replace("<metadata/>", titled)
    data = zips.packed({**BOOK, "OPS/book.opf": package})
    if kind in ("file", "address"):
        parsed = document(tmp_path, "a.epub", data)
        assert (parsed.text, parsed.title) == ("walrus", f"Sea {use}")
    else:
        refused(tmp_path, "a.epub", data)


def test_deep_nesting_is_refused(tmp_path):
    inner = texts.nested(
        "<w:sdt><w:sdtContent>", "</w:sdtContent></w:sdt>", 50_000, zips.paragraph("deep")
    )
    assert refused(tmp_path, "a.docx", zips.word(inner)) == "nested too deeply"
    group = texts.nested("<p:grpSp>", "</p:grpSp>", 50_000, zips.shape("deep"))
    assert refused(tmp_path, "a.pptx", zips.packed(zips.deck([group]))) == "nested too deeply"


def test_slides_that_refer_to_one_another_end(tmp_path):
    parts = dict(DECK)
    for number in (1, 2):
        parts[f"ppt/slides/_rels/slide{number}.xml.rels"] = zips.relationships(
            ("r1", "slide", f"slide{3 - number}.xml"), ("r2", "slideLayout", f"slide{number}.xml")
        )
    assert document(tmp_path, "a.pptx", zips.packed(parts)).text == "walrus\n\notter"


def test_a_slide_that_is_its_own_notes_is_read_once(tmp_path):
    links = zips.relationships(("r1", "notesSlide", "slide1.xml"))
    parts = {**DECK, "ppt/slides/_rels/slide1.xml.rels": links}
    assert document(tmp_path, "a.pptx", zips.packed(parts)).text == "walrus\n\notter"


def test_very_many_missing_chapters_are_reported_in_few_words(tmp_path):
    spine = ["one.xhtml", *(f"no{number}.xhtml" for number in range(5000))]
    chapters = {"one.xhtml": zips.xhtml("<p>walrus</p>")}
    *failures, parsed = read(tmp_path, "a.epub", zips.packed(zips.book(chapters, spine=spine)))
    assert isinstance(parsed, ParsedDocument)
    assert parsed.text == "walrus"
    missing = "broken archive: a part is missing"
    assert failures[0] == ReadFailure("a.epub:OPS/no0.xhtml", missing)
    assert failures[20:] == [ReadFailure("a.epub:OPS/no20.xhtml", f"{missing}, and 4,979 after it")]


def test_a_chapter_named_again_and_again_is_read_once(tmp_path):
    chapters = {"one.xhtml": zips.xhtml("<p>walrus</p>")}
    data = zips.packed(zips.book(chapters, spine=["one.xhtml"] * 5_000))
    assert document(tmp_path, "a.epub", data).text == "walrus"
