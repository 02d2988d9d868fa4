"""Markdown made of recordings and images; and notes that only look like it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.documents import ParsedDocument
from catalog.core.text import format_timecode
from catalog.ingest.readers.markdown import MarkdownReader
from catalog.ingest.readers.text import PlainTextReader
from catalog.ingest.readers.timed.frames import media_file_name

FRAME = """# Visual Frame at 00:30

---
video_source: `lecture.mp4`
frame_file: `frame_00m30s.jpg`
timestamp: 00:30
---

## Description

Slide: BatchNorm formula
"""
TALK = """# my lecture

---
source_file: `lecture.mp4`
duration: 01:00:05
transcription_model: some-model
---

## Transcription

[01:05 - 01:08] We then apply batch normalisation.

[01:08 - 01:12] And train it.
For long.
"""


def parse(text: str, path: str = "notes/a.md") -> ParsedDocument:
    return MarkdownReader().parse(text, path)


def cues(doc: ParsedDocument) -> list[tuple[str, str, float | None, float | None]]:
    return [
        (doc.text[each.start : each.end], each.modality, each.time_start, each.time_end)
        for each in doc.segments
    ]


def spoken(doc: ParsedDocument) -> list[tuple[str, float | None, float | None]]:
    return [(text, start, end) for text, _, start, end in cues(doc)]


@pytest.mark.parametrize(
    "heading",
    ["# Visual Frame at 00:01:05", "## Frame at 00:01:05", "#### Frame at 01:05",
     "# Visual Frame at 01:05", "## Video Frame at 1:05 - a slide", "# frame 3 (01:05)",
     "Frame at 00:01:05\n---"],
)  # fmt: skip
def test_a_heading_of_a_frame_tells_its_time(heading: str) -> None:
    doc = parse(f"{heading}\n\nA slide.\n")
    assert cues(doc) == [(f"{heading}\n\nA slide.", "video_frame", 65.0, 65.0)]
    assert (doc.file_type, doc.source_type) == ("video", "converted")


def test_a_frame_ends_at_the_next_one_or_at_a_heading_that_is_not_below_it() -> None:
    doc = parse(
        "# Film\n\n## Frame at 00:00:10\nA\n\n### Text\nB\n\n### Frame at 00:00:20\nC\n\n"
        "## Frame at 00:00:30\nD\n\n## After\nE\n"
    )
    assert [(text[-1], start) for text, _, start, _ in cues(doc)] == [
        ("B", 10.0), ("C", 20.0), ("D", 30.0),
    ]  # fmt: skip
    assert [heading.title for heading in doc.headings][-1] == "After"


@pytest.mark.parametrize(
    "title", ["Frame at 00:99", "Time frame", "Frame at noon", "Frames 00:10x"]
)
def test_other_headings_are_no_frames(title: str) -> None:
    doc = parse(f"# {title}\n\ntext\n")
    assert (doc.segments, doc.source_type) == ((), "file")


@pytest.mark.parametrize(
    "path",
    [".converted/talks/lecture_frames/frame_00m30s.md", "talks/lecture_frames/frame_00m30s.md"],
)
def test_a_file_of_one_frame_belongs_to_its_video_and_its_facts_are_no_text(path: str) -> None:
    doc = parse(FRAME, path)
    (frame,) = cues(doc)
    assert frame[1:] == ("video_frame", 30.0, 30.0)
    assert "lecture.mp4" not in doc.text
    assert doc.text.count("\n") == FRAME.count("\n")
    assert doc.text.split("\n").index("Slide: BatchNorm formula") == 10
    assert [heading.title for heading in doc.headings] == ["Visual Frame at 00:30", "Description"]
    assert doc.metadata["media"] == "talks/lecture"
    assert doc.metadata["media_file"] == "talks/lecture.mp4"
    assert doc.metadata["frame_file"] == "frame_00m30s.jpg"


def test_a_frame_without_facts_belongs_to_the_folder_it_is_in() -> None:
    doc = parse("# Frame at 00:30\n\nA slide.\n", "talks/lecture_frames/00m30s.md")
    assert doc.metadata == {"media": "talks/lecture"}


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# Visual Frame at 00:30\n\nA slide.\n", "lecture"),
        ("---\ntitle: Week 3\n---\n# Frame at 00:30\n\nA slide.\n", "Week 3"),
        ("# Week 3\n\n## Frame at 00:30\n\nA slide.\n", "Week 3"),
    ],
)
def test_a_frame_is_called_as_its_recording_unless_it_has_a_title(text: str, title: str) -> None:
    assert parse(text, "talks/lecture_frames/00m30s.md").title == title


def test_a_transcript_loses_its_timecodes_but_no_line() -> None:
    doc = parse(TALK, ".converted/talks/lecture.md")
    assert cues(doc) == [
        ("We then apply batch normalisation.", "video_transcript", 65.0, 68.0),
        ("And train it.\nFor long.", "video_transcript", 68.0, 72.0),
    ]
    assert "01:0" not in doc.text
    assert doc.text.split("\n")[10] == "We then apply batch normalisation."
    assert TALK.split("\n")[10].endswith(doc.text.split("\n")[10])
    assert [doc.text[each.start : each.end] for each in doc.headings] == [
        "# my lecture", "## Transcription",
    ]  # fmt: skip
    assert (doc.file_type, doc.source_type) == ("video", "transcript")
    assert doc.metadata["media_file"] == "talks/lecture.mp4"
    assert doc.metadata["duration"] == 3605.0


def test_transcript_and_frames_of_one_video_share_its_key() -> None:
    talk = parse(TALK, ".converted/talks/lecture.md").metadata["media"]
    assert talk == parse(FRAME, ".converted/talks/lecture_frames/frame_00m30s.md").metadata["media"]


@pytest.mark.parametrize(
    ("form", "end"),
    [
        ("[{}] ", None), ("[{} - {}] ", 9.0), ("[{} --> {}] ", 9.0), ("[{} → {}] ", 9.0),
        ("[{} – {}] ", 9.0), ("({}) ", None), ("{} ", None), ("**[{} → {}]** ", 9.0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("hours", ["", "00:"])
def test_every_form_of_a_timecode_opens_a_cue(form: str, end: float | None, hours: str) -> None:
    def line(start: int, stop: int, text: str) -> str:
        return form.format(f"{hours}00:{start:02d}", f"{hours}00:{stop:02d}") + text

    doc = parse(f"# T\n\n{line(4, 9, 'one')}\n{line(10, 12, 'two')}\n")
    last = 12.0 if end else 15.0
    assert spoken(doc) == [("one", 4.0, end or 10.0), ("two", 10.0, last)]
    assert doc.text == "# T\n\none\ntwo\n"


def test_the_last_cue_without_an_end_lasts_to_the_end_that_is_told() -> None:
    doc = parse("---\nvideo: talk.mp4\nduration: 20\n---\n[00:04] one\n[00:10] two\n")
    assert spoken(doc) == [("one", 4.0, 10.0), ("two", 10.0, 20.0)]
    assert doc.metadata["media_file"] == "notes/talk.mp4"


def test_a_code_alone_on_its_line_times_the_lines_below() -> None:
    doc = parse("## Transcript\n\n0:00\nhello\nthere\n0:04\nbye\n")
    assert spoken(doc) == [("hello\nthere", 0.0, 4.0), ("bye", 4.0, 9.0)]


def test_speakers_before_or_after_the_time_are_known() -> None:
    doc = parse(
        "# T\n\n**Anna** (00:01): Hi.\n**Bob** (00:03): Ho.\n\n"
        "# U\n\n[00:01] ANNA: Hi.\n[00:03] So.\n"
    )
    assert [each.speaker for each in doc.segments] == ["Anna", "Bob", "ANNA", "ANNA"]
    assert doc.text.split("\n")[2] == "**Anna**: Hi."


@pytest.mark.parametrize(
    "note",
    [
        "# Day\n\n10:30 meeting\n11:00 lunch\n14:00 call\n",
        "# Log\n\n[12:30:01] started\n[12:30:02] stopped\n",
        "# Agenda\n\n- [09:00 - 10:00] Keynote\n- [10:00 - 11:30] Talks\n",
        "# Chat\n\n[14:02] <anna> hi\n[14:03] <bob> ho\n",
        "# Meeting\n\n00:10 was the time\n\nOther.\n",
        "# Few\n\n[00:10] a\n\nb\n\nc\n\nd\n\n[00:20] e\n\nf\n\ng\n",
        "# Falling\n\n[00:30] a\n[00:20] b\n[00:10] c\n",
        "# Code\n\n```\n[00:10] a\n[00:20] b\n```\n",
        "# T\n\n| t | x |\n|---|---|\n| 00:10 | a |\n| 00:20 | b |\n",
        "---\nimage: cover.png\nsource: paper.pdf\nduration: long\n---\n# Post\n\nText.\n",
        "# Title\n\n---\nNote: this is text\n---\n\nMore.\n",
        "# Transcription factors\n\n10:30 meeting\n",
        "# Genesis\n\n1:10 And God called the dry land Earth.\n1:11 And God said so.\n",
        "# Splits\n\n- **4:55** first\n- **5:01** second\n",
        "# Cleaning\n\n1:10 for floors\n1:20 for walls\n",
    ],
)
def test_an_ordinary_note_does_not_change(note: str) -> None:
    doc = parse(note)
    assert doc.text == note
    assert (doc.segments, doc.file_type, doc.source_type) == ((), "md", "file")
    assert "media" not in doc.metadata


def test_a_list_of_minutes_that_begins_at_none_is_a_recording() -> None:
    doc = parse("0:00 Hello.\n1:10 Now the layers.\n")
    assert spoken(doc) == [("Hello.", 0.0, 70.0), ("Now the layers.", 70.0, 75.0)]


def test_minutes_alone_on_their_lines_may_begin_anywhere() -> None:
    doc = parse("1:10\nNow the layers.\n1:15\nAnd the rest.\n")
    assert spoken(doc) == [("Now the layers.", 70.0, 75.0), ("And the rest.", 75.0, 80.0)]


def test_a_note_with_a_short_transcript_in_it_stays_a_note() -> None:
    doc = parse("# Notes\n\n" + "Much was said. " * 20 + "\n\n## Transcript\n\n10:30 hello\n")
    assert spoken(doc) == [("hello", 630.0, 635.0)]
    assert (doc.file_type, doc.source_type) == ("md", "file")


def test_sections_of_an_image_are_captions_or_ocr_text() -> None:
    text = (
        "# photo\n\n*Original file: `photo.png`*\n*Format: PNG*\n\n"
        "## Description\n\nA cat.\n\n## Extracted Text\n\nMEOW\n"
    )
    doc = parse(text, ".converted/pets/photo.md")
    assert [(part.split("\n")[-1], modality) for part, modality, _, _ in cues(doc)] == [
        ("A cat.", "image_caption"), ("MEOW", "ocr"),
    ]  # fmt: skip
    assert "photo.png" not in doc.text
    assert doc.text.count("\n") == text.count("\n")
    assert (doc.file_type, doc.source_type) == ("image", "converted")
    assert doc.metadata["media_file"] == "pets/photo.png"


@pytest.mark.parametrize(
    ("text", "path", "modality", "file_type"),
    [
        ("---\nmodality: ocr\n---\nMEOW\n", "pets/photo.md", "ocr", "md"),
        ("---\nsource_format: png\n---\nA cat.\n", "pets/photo.md", "image_caption", "image"),
        ("---\nsource_format: pdf\nocr: true\n---\nScanned.\n", "paper.md", "ocr", "pdf"),
        ("---\nmethod: mistral ocr\n---\nScanned.\n", "paper.pdf.md", "ocr", "pdf"),
    ],
)
def test_names_and_front_matter_tell_captions_and_ocr(
    text: str, path: str, modality: str, file_type: str
) -> None:
    doc = parse(text, path)
    assert [actual for _, actual, _, _ in cues(doc)] == [modality]
    assert (doc.file_type, doc.source_type) == (file_type, "converted")


def test_a_converted_document_is_text_of_its_source() -> None:
    doc = parse("# Paper\n\nText.\n", ".converted/papers/paper.pdf.md")
    assert (doc.file_type, doc.source_type, doc.segments) == ("pdf", "converted", ())
    assert doc.metadata == {"media": "papers/paper.pdf", "media_file": "papers/paper.pdf"}


def test_facts_of_a_video_site_become_metadata() -> None:
    doc = parse(
        "# T\n\n---\nsource_type: youtube\nsource_url: `https://youtu.be/abcdefghijk`\n"
        "video_id: `abcdefghijk`\nchannel: Anna\nduration: 10:00\nupload_date: 2024-01-02\n---\n\n"
        "## Transcript\n\n[00:00 - 00:05] Hi\n\n[00:05 - 00:09] Bye\n"
    )
    assert doc.metadata == {
        "source_url": "https://youtu.be/abcdefghijk",
        "video_id": "abcdefghijk",
        "author": "Anna",
        "created": "2024-01-02",
        "duration": 600.0,
        "media": "notes/a",
    }


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("lecture.mp4", "lecture.mp4"),
        ("../../etc/lecture.mp4", "lecture.mp4"),
        ("/srv/lecture.mp4", "lecture.mp4"),
        ("C:\\films\\lecture.MP4", "lecture.MP4"),
        ("`Lecture 1: intro.mkv`", "Lecture 1: intro.mkv"),
        ("https://example.org/lecture.mp4", None),
        ("javascript:lecture.mp4", None),
        ("..", None),
        (".mp4", None),
        ("lecture.exe", None),
        ("a\x00b.mp4", None),
        ("x" * 300 + ".mp4", None),
        (5, None),
    ],
)
def test_a_medium_named_in_a_file_is_a_name_in_its_folder_or_nothing(
    value: object, name: str | None
) -> None:
    assert media_file_name(value) == name


_LINES = st.sampled_from(
    ["# Transcript", "## Frame at 00:10", "# T", "---", "[00:10] a", "[00:10 - 00:05] b", "0:05",
     "x", "", "   ", "```", "| a | b |", "|---|---|", "**Anna** (00:03): hi", "- 00:20 y",
     "video_source: `a.mp4`", "[00:01]", "*Original file: `a.png`*", "## OCR", "===", "<!--",
     "duration: 10"]
)  # fmt: skip


@given(
    st.lists(_LINES, max_size=30),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(["a.md", "a.mp4.md", "a.png.md", ".converted/a_frames/frame_1.md"]),
)
def test_any_markdown_keeps_its_lines_and_has_sound_segments(
    lines: list[str], newline: str, path: str
) -> None:
    text = newline.join(lines)
    doc = parse(text, path)
    assert doc.text.count(newline) == text.count(newline)
    at = doc.body_start
    for each in doc.segments:
        assert at <= each.start < each.end <= len(doc.text)
        at = each.end
        if each.time_start is not None:
            assert each.time_end is not None
            assert 0 <= each.time_start <= each.time_end
    for heading in doc.headings:
        assert 0 <= heading.start < heading.end <= len(doc.text)
    for start, end in doc.atomic:
        assert 0 <= start <= end <= len(doc.text)


def test_many_cues_are_read() -> None:
    count = 30_000
    doc = parse(
        "# T\n\n" + "".join(f"[{format_timecode(at)}] line\n" for at in range(count)), "t.mp4.md"
    )
    assert len(doc.segments) == count
    assert doc.segments[-1].time_start == count - 1


def test_a_list_of_frames_is_no_speech() -> None:
    listed = "".join(
        f"- [00:{at}] [frame_00m{at}s.md](lecture_frames/frame_00m{at}s.md)\n"
        for at in (10, 20, 40)
    )
    doc = parse(f"{TALK}\n## Visual Frames\n\n{listed}", "lecture.md")
    assert [doc.text[each.start : each.end] for each in doc.segments] == [
        "We then apply batch normalisation.",
        "And train it.\nFor long.",
    ]
    assert listed in doc.text
    only = parse(TALK.partition("## Transcription")[0] + f"## Visual Frames\n\n{listed}")
    assert (only.segments, only.untimed) == ((), None)


@pytest.mark.parametrize(
    "lines",
    [
        [f"[00:0{at}] <nick{at}> the ferry ramp\n" for at in range(5)]
        + ["[23:59] <nick2> night\n"],
        [f"[00:00:0{at}] [Server thread/INFO]: step {at}\n" for at in range(5)],
        [f"[00:00:0{at}] -!- nick{at} has joined\n" for at in range(5)],
        [f"{hour:02}:00:05 the watch is relieved\n" for hour in range(24)],
    ],
)
def test_a_log_that_starts_at_midnight_is_text(lines: list[str]) -> None:
    text = "".join(lines)
    doc = PlainTextReader().parse(text, "2024-03-05.txt")
    assert (doc.text, doc.segments) == (text, ())


def test_times_with_full_width_colons_and_without_padding_are_read() -> None:
    doc = PlainTextReader().parse("[00：01] 船は港にある。\n[0:0:3.540] 明日。\n", "talk.txt")
    assert [(each.time_start, each.time_end) for each in doc.segments] == [
        (1.0, 3.54),
        (3.54, 8.54),
    ]
    assert doc.text == "船は港にある。\n明日。\n"


def test_a_header_above_the_speakers_does_not_hide_a_transcript() -> None:
    text = (
        "Fleet meeting\nWed, Mar 04, 2026 9:00AM • 2:10\n\nSUMMARY KEYWORDS\nrudder\n\nSPEAKERS\n"
        "Ilse Moor, Jory Penn\n\nIlse Moor  00:01\nThe rudder is bent.\n\n"
        "Jory Penn  01:22\nThen she stays on the slipway.\n"
    )
    doc = PlainTextReader().parse(text, "fleet.txt")
    assert [(each.time_start, each.speaker) for each in doc.segments] == [
        (1.0, "Ilse Moor"), (82.0, "Jory Penn"),
    ]  # fmt: skip
    assert doc.text.count("\n") == text.count("\n")


def test_a_saved_chat_of_zoom_names_who_wrote() -> None:
    text = (
        "00:03:12\t From  Ilse Moor : The wind is loud\n"
        "00:04:40\t From  Jory Penn  to  Ilse Moor(Direct Message) : sorry\n"
    )
    doc = PlainTextReader().parse(text, "chat.txt")
    assert [each.speaker for each in doc.segments] == ["Ilse Moor", "Jory Penn"]
    assert doc.text.startswith("From  Ilse Moor : The wind")
