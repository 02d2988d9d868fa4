"""Kinds of files and parts of names, as people say them."""

from __future__ import annotations

import pytest

from catalog.core.errors import FilterError
from catalog.core.filters import file_type_filter, matches, name_filter


def holds(tree, **values):
    return matches(tree, lambda field: (values[field],) if field in values else ())


@pytest.mark.parametrize(
    ("said", "file_type"),
    [
        ("pdf", "pdf"),
        (".PDF", "pdf"),
        ("*.pdf", "pdf"),
        ("PDF files", "pdf"),
        ("markdown", "md"),
        ("Markdown", "markdown"),
        ("word", "docx"),
        ("Word", "doc"),
        ("powerpoint", "pptx"),
        ("slides", "pptx"),
        ("notebooks", "ipynb"),
        ("web", "html"),
        ("web page", "htm"),
        ("html", "htm"),
        ("text", "txt"),
        ("video", "video"),
        ("videos", "mp4"),
        ("audio", "audio"),
        ("images", "png"),
        ("jpg", "jpeg"),
        ("weird", "weird"),
        ("PDFs", "pdf"),
        ("epubs", "epub"),
        ("csvs", "csv"),
        ("mds", "md"),
        ("css", "css"),
        ("srt", "srt"),
        ("captions", "vtt"),
        ("workbooks", "xlsx"),
        ("spreadsheet", "ods"),
        ("OpenDocument", "odt"),
    ],
)
def test_a_kind_of_file_goes_by_the_names_people_have_for_it(said, file_type):
    assert holds(file_type_filter(said), file_type=file_type)


@pytest.mark.parametrize(
    ("said", "file_type"),
    [
        ("pdf", "epub"),
        ("word", "pptx"),
        ("d", "pdf"),
        ("%", "md"),
        ("css", "cs"),
        ("cs", "c"),
        ("kts", "kt"),
    ],
)
def test_no_other_kind_is_let_through(said, file_type):
    assert not holds(file_type_filter(said), file_type=file_type)


@pytest.mark.parametrize("said", ["srt", ".SRT", "subtitles", "subtitle files"])
def test_subtitles_of_a_recording_are_told_by_their_path(said):
    assert holds(file_type_filter(said), file_type="video", path="talks/One.SRT")
    assert holds(file_type_filter(said), file_type="audio", path="one.srt")
    assert not holds(file_type_filter(said), file_type="md", path="one.srt.md")
    assert not holds(file_type_filter(said), file_type="video", path="one.mp4")


def test_one_kind_of_subtitles_is_not_the_others():
    assert not holds(file_type_filter("srt"), file_type="video", path="one.vtt")
    assert holds(file_type_filter("captions"), file_type="video", path="one.vtt")


@pytest.mark.parametrize("field", ["path", "title", "media"])
def test_a_part_of_the_path_the_title_or_the_recording_is_enough_in_any_case(field):
    assert holds(name_filter("Lecture 3"), **{field: "my LECTURE 3.mp4"})
    assert not holds(name_filter("Lecture 3"), **{field: "lecture 4"})


@pytest.mark.parametrize("signs", ["%", "_", "*", ".", "[a-z]", "a|b", "'", '"'])
def test_signs_that_mean_something_elsewhere_are_signs_here(signs):
    assert holds(name_filter(signs), path=f"x{signs}y")
    assert not holds(name_filter(signs), path="abc")


@pytest.mark.parametrize("narrow", [file_type_filter, name_filter])
@pytest.mark.parametrize("blank", ["", "  ", "\t\n", None, 3])
def test_blank_text_narrows_to_nothing_and_is_an_error(narrow, blank):
    with pytest.raises(FilterError):
        narrow(blank)
