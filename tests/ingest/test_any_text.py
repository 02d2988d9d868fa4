"""Whatever is in a text file: it is read soundly or refused, and its size alone costs time."""

import io
import json
import os
import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.core.documents import ParsedDocument
from catalog.core.errors import ReadError
from catalog.core.text import format_timecode
from catalog.ingest.readers.base import DEFAULT_LIMITS
from catalog.ingest.readers.decoding import decode
from catalog.ingest.readers.registry import read_open
from hostile.reading import check_document

PIECES = st.sampled_from(
    ["1", "\n", "\r\n", "\n\n", " ", "00:00:01,000", "00:02.000", " --> ", "WEBVTT\n", "NOTE ",
     "STYLE\n", "<v Anna>", "</v>", "<c>", "<00:00:01.000>", "&#0;", "&amp;", ">> ", "ANNA: ",
     "-00:00:01,000", "\x00", "{\\an8}", "\u2028", "# Transcript\n", "## Frame at 00:10\n",
     "---\n", "[00:10] a\n", "[00:10 - 00:05] b\n", "0:05\n", "```\n", "| a | b |\n", "|---|---|\n",
     "**Anna** (00:03): hi\n", "- 00:20 y\n", "video_source: `a.mp4`\n", "## OCR\n", "===\n",
     "*Original file: `a.png`*\n", "<!--", "duration: 10\n", "<p>", "</p\n>", "<i>", "é &lt; "]
)  # fmt: skip
PATHS = st.sampled_from(
    ["a.md", "a.mp4.md", "a.png.md", ".converted/a_frames/frame_1.md", "a.rst", "a.html", "a.txt",
     "a.py", "a.srt", "a.vtt", "a.csv", "a.json"]
)  # fmt: skip
KEYS = st.sampled_from(
    ["text", "start", "end", "duration", "segments", "transcript", "utterances", "speaker", "title",
     "video_id", "language", "results", "upload_date", "audio_duration", "snippets", "messages"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)
ITEMS = st.lists(
    st.fixed_dictionaries(
        {"text": st.text(max_size=9), "start": st.floats() | st.integers()},
        optional={"duration": st.floats(), "end": st.integers(), "speaker": st.text(max_size=4)},
    ),
    max_size=5,
)


def read(data: bytes, path: str) -> list[ParsedDocument]:
    """Return the documents of a file, each a sound one; none of what is refused."""
    try:
        _, *items = read_open(io.BytesIO(data), path, limits=DEFAULT_LIMITS)
    except ReadError:
        return []
    documents = [item for item in items if isinstance(item, ParsedDocument)]
    for document in documents:
        check_document(document)
        numbers = document.places.numbers if document.file_type == "html" else ()
        assert list(numbers) == sorted(numbers)
        breaks = data.count(b"\n") + data.count(b"\r")  # a lone CR ends a line, too
        assert all(1 <= number <= breaks + 1 for number in numbers)
    return documents


# The same texts every day, and others with each `make chaos`. The first of a format imports it.
EVERYDAY = settings(deadline=None, derandomize="IDX_TEST_CHAOS_SECONDS" not in os.environ)


@settings(EVERYDAY, max_examples=100)
@given(st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=300), PATHS)
def test_any_text_is_read_soundly_or_refused(text: str, path: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    documents = read(data, path)
    if path.endswith(".md") and "\0" not in text and documents:
        assert documents[0].text.count("\r\n") == text.count("\r\n")  # no line is lost


@EVERYDAY
@given(st.binary(max_size=300), PATHS)
def test_any_bytes_are_read_soundly_or_refused(data: bytes, path: str) -> None:
    read(data, path)
    text = decode(data, declared=path == "a.html")
    assert "\x00" not in text
    text.encode("utf-8")


@EVERYDAY
@given(VALUES | ITEMS | st.builds(lambda items: {"utterances": items}, ITEMS))
def test_any_json_is_read_soundly(value: object) -> None:
    for document in read(json.dumps(value).encode(), "a.json"):
        starts = [one.time_start or 0.0 for one in document.segments]
        assert starts == sorted(starts)


@pytest.mark.parametrize(
    "data",
    [
        b"\x01\x00\x02\x00\x03\x00\x04\x00" * 50,
        random.Random(7).randbytes(4000),
        struct.pack("<200h", *range(200)),
        "words\x00words".encode("utf-16-le"),
    ],
)
def test_numbers_are_not_taken_for_utf_16(data: bytes) -> None:
    with pytest.raises(ReadError, match="binary"):
        list(read_open(io.BytesIO(data), "a.txt", limits=DEFAULT_LIMITS))


def test_a_long_legacy_file_is_read_to_its_end() -> None:
    text = "x" * 1001 + "找不到文件，请检查文件名，然后再试一次。" * 2000
    assert decode(text.encode("gb18030")) == text
    text = "La città è più bella di così: perché no?\n" * 1500 + "“La città”\n"
    assert decode(text.encode("cp1252")) == text


def test_one_damaged_byte_does_not_spoil_the_rest_of_a_utf8_file() -> None:
    text = "Grüße aus Köln, schöne Straße. "
    assert decode(text.encode() + b"\xff") == f"{text}\ufffd"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.ipynb", "[" * 200_000),
        ("a.ipynb", '{"nbformat":4,"cells":[' + '{"a":' * 100_000),
        ("a.json", '[{"text": "a", "start": ' + "9" * 5000 + "}]"),
        ("a.json", "[" * 100_000),
    ],
)
def test_json_without_end_is_text_or_refused(path: str, text: str) -> None:
    assert [document.text for document in read(text.encode(), path)] in ([], [text])


@pytest.mark.parametrize("tag", ["div", "pre", "table><tr><td", "h1", "a href=x"])
def test_html_nested_ten_thousand_deep_is_read(tag: str) -> None:
    (document,) = read((f"<{tag}>x" * 10_000).encode(), "deep.html")
    assert document.text.count("x") == 10_000


@pytest.mark.slow
def test_many_cues_and_frames_are_read() -> None:
    clocks = [format_timecode(at) for at in range(4_000)]
    frames = "".join(f"## Frame at {clock}\n\nslide\n\n" for clock in clocks)
    cues = "".join(f"{clock},000 --> {clock},900\nline {clock}\n\n" for clock in clocks)
    lines = "".join(f"[{clock}] line {clock}\n" for clock in clocks)
    for path, text in (("a.md", f"# Talk\n\n{frames}"), ("a.srt", cues), ("a.mp4.md", lines)):
        (document,) = read(text.encode(), path)
        assert [one.time_start for one in document.segments] == list(range(4_000))


@pytest.mark.parametrize("part", ["x", "<", "<v a", "-->", "<c>", "&", " :", "{\\"])
def test_a_line_without_end_is_at_most_one_cue(part: str) -> None:
    line = part * (100_000 // len(part))
    first, last = "00:00:01,000 --> 00:00:02,000", "00:00:03,000 --> 00:00:04,000"
    (document,) = read(f"1\n{first}\n{line}\n\n2\n{last}\nz\n".encode(), "a.srt")
    assert document.text.endswith("z")
    assert document.segments[-1].time_start == 3.0
    assert len(document.segments) <= 2
