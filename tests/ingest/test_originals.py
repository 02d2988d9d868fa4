"""An original and what was made of it answer once, under the original's name and type."""

import json

import pytest
from pypdf import PdfWriter
from reportlab.pdfgen.canvas import Canvas

from catalog.core.errors import DocumentNotFoundError
from catalog.library.browse import DocumentCatalog
from catalog.library.get import find_document, find_parts
from catalog.library.health import dataset_stats
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from catalog.store.chunks import find_by_path
from fakes import open_library, write
from ingest.made_files import BLANK_PDF
from tables import read_cases, table

SUBTITLES = "1\n00:00:10,000 --> 00:00:14,000\nA walrus speaks of normalisation.\n"
PNG = "\x89PNG\r\n\x1a\n\0\0"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "documents"


@pytest.fixture
def library(tmp_path):
    with open_library(tmp_path / "home") as opened:
        yield opened


def build(library, folder):
    return Indexer(library).build(folder, "d")


def hits(library, **narrowed):
    return SearchServiceV2(library).search("walrus", dataset="d", top_k=20, **narrowed)


def listed(library, **narrowed):
    page = DocumentCatalog(library).query(dataset="d", **narrowed)
    return [(entry.path, entry.file_type) for entry in page.entries]


def levels(library):
    with library.database.read() as connection:
        found = [find_by_path(connection, "d", hit.path) for hit in hits(library)]
    return {one.metadata.get("confidentiality") for one in found}


def write_pdf(path, text, level=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = PdfWriter()
    writer.add_blank_page(300, 300)
    if text:
        canvas = Canvas(str(path))
        canvas.drawString(72, 700, text)
        canvas.save()
        writer = PdfWriter(clone_from=path)
    writer.add_metadata({"/Confidentiality": level} if level else {})
    writer.write(path)


@table("original, conversion, file_type")
def test_what_a_converter_made_answers_for_the_file_it_was_made_of(
    library, folder, original, conversion, file_type
):
    held = BLANK_PDF if original.endswith("pdf") else "<p>A page."
    write(folder, **{original.replace(".", "_dot_"): held, "note_dot_md": "Another walrus."})
    write(folder, **{conversion.replace(".", "_dot_"): "# Title\n\nA walrus was here.\n"})
    report = build(library, folder)
    assert report.failed == ()
    (hit,) = hits(library, file_type=file_type)
    assert (hit.path, hit.original) == (conversion, original)
    assert (original, file_type) in listed(library)
    assert len(listed(library)) == report.documents == 2
    assert dataset_stats(library, "d").files.coverage == 1.0
    assert dataset_stats(library, "d").files.reasons == {}


def test_a_listing_by_name_goes_by_the_names_it_shows(library, folder):
    write(
        folder,
        _dot_converted__z_dot_md="A walrus.",
        z_dot_pdf="\0",
        b_dot_md="B",
        c_dot_srt=SUBTITLES,
    )
    write(folder, c_dot_mp4="\0", _dot_converted__a_dot_md="A", a_dot_pdf="\0")
    build(library, folder)
    shown = ["a.pdf", "b.md", "c.mp4", "z.pdf"]
    assert [path for path, _ in listed(library)] == shown
    assert [
        path for offset in range(4) for path, _ in listed(library, limit=1, offset=offset)
    ] == shown
    assert {path for path, _ in listed(library, sort="size")} == {*shown}


@pytest.mark.parametrize("text", ["", "A walrus."])
@pytest.mark.parametrize(("own", "level"), [("", "secret"), ("public", "unreadable")])
def test_the_level_of_an_original_is_that_of_its_conversion(library, folder, text, own, level):
    """A scan states it in its properties, and has no text of its own."""
    front = f"---\nconfidentiality: {own}\n---\n" if own else ""
    write(folder, scan_dot_pdf_dot_md=f"{front}# Scan\n\nThe walrus.\n", note_dot_md="A walrus.")
    write_pdf(folder / "scan.pdf", text, "")
    build(library, folder)
    assert "secret" not in levels(library)
    write_pdf(folder / "scan.pdf", text, "secret")
    Indexer(library).update("d")
    assert levels(library) == {None, level}


@pytest.mark.parametrize("name", ["scan.pdf", "Scan.PDF"])
def test_an_original_that_cannot_be_read_closes_its_conversion(library, folder, name):
    write(folder, scan_dot_pdf_dot_md="# Scan\n\nThe walrus.\n")
    write_pdf(folder / name, "", "secret")
    build(library, folder)
    assert levels(library) == {"secret"}
    (folder / name).write_bytes(b"%PDF-1.4")
    Indexer(library).update("d")
    assert levels(library) == {"unreadable"}


def test_a_converted_picture_is_a_caption(library, folder):
    write(folder, photo_dot_png=PNG, _dot_converted__photo_dot_md="# Photo\n\nA walrus.\n")
    build(library, folder)
    assert [hit.modality for hit in hits(library)] == ["image_caption"]


def test_the_conversion_answers_while_there_is_one_and_then_the_original(library, folder):
    write_pdf(folder / "paper.pdf", "The walrus of the paper.")
    assert build(library, folder).documents == 1
    assert [hit.path for hit in hits(library)] == ["paper.pdf"]
    write(folder, _dot_converted__paper_dot_md="# Paper\n\nThe walrus as converted.\n")
    report = Indexer(library).update("d")
    assert (report.added, report.removed, report.failed) == (1, 1, ())
    assert [hit.path for hit in hits(library)] == [".converted/paper.md"]
    again = Indexer(library).update("d")
    assert (again.added, again.updated, again.removed) == (0, 0, 0)
    (folder / ".converted/paper.md").unlink()
    Indexer(library).update("d", allow_deletions=True)
    assert [hit.path for hit in hits(library)] == ["paper.pdf"]


def test_the_report_says_what_became_of_a_file(library, folder):
    write_pdf(folder / "kept.pdf", "The walrus of the paper.")
    write(folder, part_dot_jsonl='{"text": "A walrus."}\nnone\n', empty_dot_md="\n")
    outcomes = {one.path: one.outcome for one in build(library, folder).failed}
    assert outcomes == {"part.jsonl": "indexed", "empty.md": "not indexed"}
    write(folder, kept_dot_pdf="%PDF-1.4")
    outcomes = {one.path: one.outcome for one in Indexer(library).update("d").failed}
    assert outcomes["kept.pdf"] == "kept as it was"


def test_a_conversion_without_text_does_not_silence_its_original(library, folder):
    write_pdf(folder / "paper.pdf", "The walrus of the paper.")
    write(folder, _dot_converted__paper_dot_md="\n")
    build(library, folder)
    assert [hit.path for hit in hits(library)] == ["paper.pdf"]


def test_a_file_of_the_same_name_that_is_no_conversion_is_a_document_of_its_own(library, folder):
    write_pdf(folder / "paper.pdf", "The walrus of the paper.")
    write(
        folder,
        paper_dot_md="# My notes\n\nA walrus I noted.\n",
        a_dot_md="---\nmedia: x\n---\nA walrus",
    )
    write(folder, b_dot_md="---\nmedia: x\n---\nAnother walrus")
    build(library, folder)
    assert len(listed(library)) == 4
    assert {hit.path for hit in hits(library)} == {"paper.pdf", "paper.md", "a.md", "b.md"}
    assert [hit.original for hit in hits(library)] == [None] * 4


def test_subtitles_have_the_modality_of_the_recording_next_to_them(library, folder):
    write(folder, podcast_dot_srt=SUBTITLES, podcast_dot_mp3="ID3\0")
    write(folder, film_dot_srt=SUBTITLES, film_dot_mp4="\0", film_dot_mp3="ID3\0")
    write(folder, alone_dot_srt=SUBTITLES)
    build(library, folder)
    modality = {hit.path: (hit.modality, hit.original) for hit in hits(library)}
    assert modality == {
        "podcast.srt": ("audio_transcript", "podcast.mp3"),
        "film.srt": ("video_transcript", "film.mp4"),
        "alone.srt": ("video_transcript", None),
    }
    assert [hit.path for hit in hits(library, file_type="audio")] == ["podcast.srt"]


CALL = "Speaker 1 00:12\nThis is the walrus.\n\nSpeaker 2 00:18\nHello, walrus.\n"


def test_a_transcript_in_a_text_file_is_of_sound_unless_a_video_is_known(library, folder):
    write(folder, call_dot_txt=CALL, talk_dot_txt=CALL, talk_dot_mp4="\0")
    (folder / "film.mp4.txt").write_text(CALL)
    build(library, folder)
    found = dict(listed(library))
    assert found == {"call.txt": "audio", "talk.mp4": "video", "film.mp4": "video"}
    modality = {hit.path: hit.modality for hit in hits(library, file_type="audio")}
    assert modality == {"call.txt": "audio_transcript"}
    seen = {(hit.modality, hit.moment) for hit in hits(library, file_type="video")}
    assert seen == {("video_transcript", 12.0)}


def test_a_recording_that_comes_or_goes_changes_what_its_transcript_is(library, folder):
    write(folder, podcast_dot_srt=SUBTITLES)
    build(library, folder)
    write(folder, podcast_dot_mp3="ID3\0")
    assert Indexer(library).update("d").updated == 1
    assert [hit.modality for hit in hits(library)] == ["audio_transcript"]
    (folder / "podcast.mp3").unlink()
    assert Indexer(library).update("d").updated == 1
    assert [hit.modality for hit in hits(library)] == ["video_transcript"]


def test_a_recording_too_large_to_be_read_is_known_all_the_same(tmp_path, folder):
    write(folder, podcast_dot_srt=SUBTITLES, podcast_dot_mp3="ID3\0" + " " * 100)
    with open_library(tmp_path / "small", ingest={"max_file_bytes": 90}) as library:
        assert build(library, folder).failed == ()
        (hit,) = hits(library)
        assert (hit.modality, hit.original) == ("audio_transcript", "podcast.mp3")


FALSE_FILES = dict(read_cases(__file__)["false_files"])


@pytest.mark.parametrize("name", FALSE_FILES)
def test_no_document_takes_the_identity_of_a_recording_elsewhere(library, folder, name):
    for path, text in {
        f"other/{name}": FALSE_FILES[name],
        "other/lecture.mp4": "\0",
        "talks/lecture.srt": SUBTITLES,
        "talks/lecture.mp4": "\0",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    report = build(library, folder)
    (spoken,) = hits(library, docs=["talks/lecture.mp4"])
    assert spoken.path == "talks/lecture.srt"
    (other,) = [hit for hit in hits(library) if hit.path != "talks/lecture.srt"]
    assert other.original in (None, "other/lecture.mp4")
    assert [hit.path for hit in hits(library, docs=[other.path])] == [other.path]
    refused = "; ".join(failure.reason for failure in report.failed)
    if name.startswith(("note", "memo", "video")):
        assert "media is set only from names and content" in refused


def test_records_that_name_a_recording_leave_it_its_place(library, folder):
    claims = {"media": "talks/lecture", "media_file": "javascript:alert(1)"}
    records = [
        json.dumps({"_id": f"r{n}", "text": "walrus " * (n + 3), "metadata": claims})
        for n in range(8)
    ]
    (folder / "talks").mkdir(parents=True)
    (folder / "a.jsonl").write_text("\n".join(records))
    (folder / "talks" / "lecture.srt").write_text(SUBTITLES)
    (folder / "talks" / "lecture.mp4").write_text("\0")
    build(library, folder)
    found = hits(library)
    assert len(found) == 9
    assert {hit.original for hit in found} == {None, "talks/lecture.mp4"}


def test_front_matter_still_names_the_recording_next_to_it(library, folder):
    said = "---\nmedia: talk.mp4\n---\n[00:10] A walrus speaks.\n\n[00:20] Of walruses.\n"
    write(folder, spoken_dot_md=said, talk_dot_mp4="\0")
    assert "is set only from" not in str(build(library, folder).failed)
    assert {hit.original for hit in hits(library, filters={"media": "talk"})} == {"talk.mp4"}


def test_the_whole_path_of_an_original_goes_before_the_end_of_another(library, folder):
    converted = "---\nsource_file: ../scan.pdf\n---\nAnother walrus.\n"
    write(folder, scan_dot_pdf="\0", scan_dot_pdf_dot_md="A walrus.", other__scan_dot_md=converted)
    build(library, folder)
    assert {hit.original for hit in hits(library)} == {"scan.pdf", "other/scan.pdf"}
    for narrowed in (
        {"docs": ["scan.pdf"]},
        {"docs": ["d:scan.pdf"]},
        {"filters": {"path": "scan.pdf"}},
    ):
        assert [hit.original for hit in hits(library, **narrowed)] == ["scan.pdf"]
    assert find_document(library.database, "scan.pdf", dataset="d").text == "A walrus."
    assert len(hits(library, docs=["scan.*"])) == 2


def test_names_that_are_no_text_or_look_like_another_are_looked_up(library, folder):
    write(folder, a_dot_jsonl=json.dumps({"_id": "#abcd", "text": "A walrus."}))
    build(library, folder)
    assert find_document(library.database, "#abcd", dataset="d").text == "A walrus."
    with pytest.raises(DocumentNotFoundError):
        find_document(library.database, "\ud800", dataset="d")
    found, missing = find_parts(library.database, "d", ["\ud800", "#abcd"])
    assert ([one.path for one in found], len(missing)) == (["#abcd"], 1)


@pytest.mark.parametrize("name", ["API.PDF", "photo.png"])
def test_a_text_is_shown_under_the_name_of_an_original_that_is_there(library, folder, name):
    write(folder, **{f"{name}.md".replace(".", "_dot_"): "# About\n\nThe walrus format.\n"})
    build(library, folder)
    assert listed(library) == [(f"{name}.md", "md")]
    (folder / name).write_bytes(b"\0")
    build(library, folder)
    assert [path for path, _ in listed(library)] == [name]
