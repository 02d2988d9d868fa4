"""Files that describe frames of a video: when they are taken for such, and what is said if not."""

from __future__ import annotations

import pytest

from catalog.core.documents import ParsedDocument
from catalog.ingest.readers.markdown import MarkdownReader
from catalog.ingest.readers.records import JsonReader
from catalog.ingest.readers.text import PlainTextReader
from catalog.ingest.readers.timed.subtitles import SubtitleReader


def parse(text: str, path: str) -> ParsedDocument:
    reader = MarkdownReader() if path.endswith(".md") else PlainTextReader()
    return reader.parse(text, path)


def shown(doc: ParsedDocument) -> list[float | None]:
    return [each.time_start for each in doc.segments if each.modality == "video_frame"]


@pytest.mark.parametrize(
    "heading",
    ["# BatchNorm formula", "## Slide 4", "Just text.", "# Frame at noon", "# Frame 7",
     "# Meeting at 10:30"],
)  # fmt: skip
@pytest.mark.parametrize("extension", ["md", "txt"])
def test_the_time_in_the_name_of_a_frame_counts_under_any_heading(
    heading: str, extension: str
) -> None:
    text = f"{heading}\n\nThe formula.\n"
    doc = parse(text, f"talks/attention_frames/frame_01m12s.{extension}")
    assert shown(doc) == [72.0]
    assert doc.text == text
    assert (doc.file_type, doc.source_type, doc.untimed) == ("video", "converted", None)
    assert doc.metadata["media"] == "talks/attention"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("# A\n", "talks/frame_01m12s.md"),
        ("# A\n", "talks/lecture_frame_01m12s.md"),
        ("# A\n", "lecture_frames/00-01-12.md"),
        ("# A\n", "lecture_frames/frame_01m12s.jpg.md"),
        ("# A\n", "frames/72s.md"),
        ("---\ntimestamp: 72\n---\n# A\n", "lecture_frames/a.md"),
        ("---\nframe_file: frame_01m12s.jpg\n---\n# A\n", "a.md"),
        ("# A\n\n---\nvideo_source: `a.mp4`\ntimestamp: 01:12\n---\n\nB\n", "a.md"),
        ("# A\n\n**Timestamp:** 01:12\n\nB\n", "lecture_frames/a.md"),
        ("## [01:12] A\n\nB\n", "lecture_frames.md"),
        ("# Frame at 00:01:12:15\n", "a.md"),
    ],
)
def test_a_frame_tells_its_second_in_many_ways(text: str, path: str) -> None:
    assert shown(parse(text, path)) == [72.0]


def test_a_time_in_a_frames_text_takes_precedence_over_its_name() -> None:
    path = "lecture_frames/frame_00m10s.md"
    assert shown(parse("# Frame at 01:12\n", path)) == [72.0]
    assert shown(parse("---\ntimestamp: 01:12\n---\n# A\n", path)) == [72.0]
    assert shown(parse("# A\n\nTimestamp: 01:12\n", path)) == [72.0]
    assert shown(parse("# A\n\nTimestamp: soon\n", path)) == [10.0]


def test_a_frame_without_a_title_is_called_as_its_recording() -> None:
    assert parse("A formula.\n", "talks/lecture_frames/frame_01m12s.md").title == "lecture"
    assert parse("# Norms\n", "talks/lecture_frames/frame_01m12s.md").title == "Norms"


@pytest.mark.parametrize("name", ["frame_0001.md", "slide.md", "frame_0001.txt"])
def test_a_frame_that_tells_no_second_is_text_and_says_so(name: str) -> None:
    doc = parse("# A\n\nB\n", f"lecture_frames/{name}")
    assert doc.segments == ()
    assert doc.untimed is not None
    assert doc.untimed.startswith("read as text, not as a frame: ")


@pytest.mark.parametrize(
    "path",
    ["notes/a.md", "frame.md", "data-frame-1.5.md", "iframe_10s.md", "time-frame.md",
     "10s.md", "timeframe/72s.md"],
)  # fmt: skip
def test_a_note_that_only_has_such_a_word_in_its_name_is_a_note(path: str) -> None:
    doc = parse("# A\n\nTimestamp: 01:12\n", path)
    assert (doc.segments, doc.untimed) == ((), None)


@pytest.mark.parametrize(
    ("text", "path", "why"),
    [
        ("Hello.\nBye.\n", "talk_transcript.txt", "0 of 2 lines begin with a time"),
        ("[00:10] a\n" + "b\n" * 9, "talk.transcript.md", "1 of 10 lines begin with a time"),
        ("## Transcript\n\nAnna: hello.\n", "a.md", "0 of 1 lines begin with a time"),
        ("[09:20] a\n[09:10] b\n", "a.txt", "2 of 2 lines begin with a time"),
        ("10:30 meeting\n11:00 lunch\n", "a.md", "2 of 2 lines begin with a time"),
        ("[00:30] a\n[00:20] b\n[00:10] c\n", "a.md", "3 of 3 lines begin with a time"),
        ("1:10 And God called.\n1:11 And God said.\n", "a.md", "put 'transcript' in the file's"),
    ],
)
def test_a_file_that_only_looks_like_a_transcript_says_why(text: str, path: str, why: str) -> None:
    doc = parse(text, path)
    assert doc.segments == ()
    assert doc.untimed is not None
    assert doc.untimed.startswith("read as text, not as a transcript: ")
    assert why in doc.untimed


def test_subtitles_without_times_and_other_json_say_so() -> None:
    subtitles = SubtitleReader().parse("Hello.\n\nBye.\n", "talk.srt")
    assert subtitles.untimed is not None
    assert subtitles.untimed.startswith("read as text, not as subtitles: ")
    told = JsonReader().parse('{"a": 1}', "talk.transcript.json").untimed
    assert told is not None
    assert told.startswith("read as text, not as a transcript: ")
    assert JsonReader().parse('{"a": 1}', "talk.json").untimed is None
