"""Subtitles: SRT, WebVTT; speakers, captions that roll up, and files that are broken."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.core.documents import ParsedDocument
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.core.text import format_timecode
from catalog.ingest.readers.base import DEFAULT_LIMITS
from catalog.ingest.readers.timed.subtitles import SubtitleReader, looks_like_subtitles

Spoken = list[tuple[str, float | None, float | None]]


def parse(text: str, path: str = "talks/lecture.srt") -> ParsedDocument:
    return SubtitleReader().parse(text, path)


def cues(doc: ParsedDocument) -> Spoken:
    return [
        (doc.text[each.start : each.end], each.time_start, each.time_end) for each in doc.segments
    ]


def said(doc: ParsedDocument) -> list[tuple[str, str | None]]:
    return [(doc.text[each.start : each.end], each.speaker) for each in doc.segments]


SRT = """1
00:01:05,000 --> 00:01:08,500
We then apply
batch normalisation.

2
00:01:08,500 --> 00:01:12,000
And <i>train</i> it.
"""


def test_an_srt_file_is_a_line_and_a_segment_for_each_cue() -> None:
    doc = parse(SRT)
    assert doc.text == "We then apply batch normalisation.\nAnd train it."
    assert cues(doc) == [
        ("We then apply batch normalisation.", 65.0, 68.5),
        ("And train it.", 68.5, 72.0),
    ]
    assert {each.modality for each in doc.segments} == {"video_transcript"}
    assert (doc.title, doc.file_type, doc.source_type) == ("lecture", "video", "subtitles")
    assert doc.metadata == {"media": "talks/lecture"}


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_line_ends_and_a_byte_order_mark_change_nothing(newline: str) -> None:
    data = b"\xef\xbb\xbf" + SRT.replace("\n", newline).encode()
    (doc,) = SubtitleReader().read(io.BytesIO(data), "talks/lecture.srt", limits=DEFAULT_LIMITS)
    assert doc == parse(SRT)


def test_webvtt_has_headers_notes_identifiers_settings_tags_and_entities() -> None:
    doc = parse(
        "WEBVTT - a talk\nKind: captions\nLanguage: de\n\n"
        "STYLE\n::cue { color: red }\n\nREGION\nid:x\n\nNOTE not said\nnor this\n\n"
        "intro\n00:01.000 --> 00:02.000 align:start position:0%\n"
        "<c.yellow>Tom &amp; <b>Jerry</b></c> <00:00:01.500>run\n\n"
        "00:02.000 --> 00:03.000\n1 < 2 &lt; 3\n",
        "lecture.vtt",
    )
    assert cues(doc) == [("Tom & Jerry run", 1.0, 2.0), ("1 < 2 < 3", 2.0, 3.0)]
    assert doc.metadata["language"] == "de"


def test_a_voice_is_named_where_it_begins_to_speak() -> None:
    doc = parse(
        "WEBVTT\n\n00:01.000 --> 00:02.000\n<v Anna Meier>Hello.\n\n"
        "00:02.000 --> 00:03.000\n<v Anna Meier>I am here.</v>\n\n"
        "00:03.000 --> 00:04.000\n<v.loud Bob>Good.</v> <v Anna Meier>Bye.</v>\n\n"
        "00:04.000 --> 00:05.000\nMusic\n"
    )
    assert said(doc) == [
        ("Anna Meier: Hello.", "Anna Meier"),
        ("I am here.", "Anna Meier"),
        ("Bob: Good.", "Bob"),
        ("Anna Meier: Bye.", "Anna Meier"),
        ("Music", None),
    ]


def srt(*texts: str) -> str:
    return "\n".join(
        f"{at + 1}\n{format_timecode(at)},000 --> {format_timecode(at)},900\n{text}\n"
        for at, text in enumerate(texts)
    )


def test_names_in_capitals_or_named_twice_are_speakers_until_a_change() -> None:
    doc = parse(srt("ANNA: Hello.", "I am here.", ">> Who?", "Bob: Me.", "- Yes.", "Bob: No."))
    assert [speaker for _, speaker in said(doc)] == ["ANNA", "ANNA", None, "Bob", None, "Bob"]
    assert doc.text.splitlines()[0] == "ANNA: Hello."


def test_a_word_before_a_colon_that_occurs_once_is_not_a_speaker() -> None:
    doc = parse(srt("Look: a bird.", "NOTE: it flies.", "Then: gone."))
    assert [speaker for _, speaker in said(doc)] == [None, None, None]


def test_captions_that_roll_up_are_told_once() -> None:
    doc = parse(
        "WEBVTT\n\n00:00.000 --> 00:02.000\n \nhello<00:00:01.000><c> world</c>\n\n"
        "00:02.000 --> 00:02.010\nhello world\n \n\n"
        "00:02.010 --> 00:04.000\nhello world\nthis<00:00:03.000><c> is next</c>\n\n"
        "00:04.000 --> 00:04.010\nthis is next\n \n\n"
        "00:09.000 --> 00:10.000\nthis is next\n",
    )
    assert cues(doc) == [
        ("hello world", 0.0, 2.01),
        ("this is next", 2.01, 4.01),
        ("this is next", 9.0, 10.0),
    ]


def test_a_reversed_end_is_the_start_of_the_next_cue_or_its_own() -> None:
    doc = parse("00:00:05,000 --> 00:00:01,000\na\n\n00:00:09,000 --> 00:00:02,000\nb\n", "a.srt")
    assert cues(doc) == [("a", 5.0, 9.0), ("b", 9.0, 9.0)]


def test_a_cue_with_unreadable_times_begins_where_the_one_before_it_ends() -> None:
    doc = parse(
        "1\n00:00:01,000 --> 00:00:02,000\na\n\n2\n-00:00:04,000 --> x\nb\n\n"
        "3\n9999:00:00,000 --> 9999:00:01,000\nc\n\nd\n\n5\n00:00:08,000 --> 00:00:09,000\ne\n"
    )
    assert cues(doc) == [
        ("a", 1.0, 2.0), ("b", 2.0, 2.0), ("c", 2.0, 2.0), ("d", 2.0, 8.0), ("e", 8.0, 9.0),
    ]  # fmt: skip


def test_cues_out_of_order_are_sorted_and_overlapping_ones_stay() -> None:
    doc = parse(
        "1\n00:00:05,000 --> 00:00:09,000\nb\n\n2\n00:00:01,000 --> 00:00:06,000\na\n\n"
        "3\n00:00:05,000 --> 00:00:06,000\nc\n"
    )
    assert cues(doc) == [("a", 1.0, 6.0), ("b", 5.0, 9.0), ("c", 5.0, 6.0)]


def test_missing_blank_lines_and_numbers_lose_no_text() -> None:
    doc = parse(
        "1\n00:00:01,000 --> 00:00:02,000\na\n2\n00:00:02,000 --> 00:00:03,000\n42\n\n"
        "00:00:03,000 --> 00:00:04,000\nb\n"
    )
    assert cues(doc) == [("a", 1.0, 2.0), ("42", 2.0, 3.0), ("b", 3.0, 4.0)]


def test_without_a_readable_time_the_file_is_plain_text() -> None:
    text = "1\nxx --> yy\nHello there\n\nBye\n"
    doc = parse(text)
    assert (doc.text, doc.segments, doc.source_type) == (text, (), "file")


def test_a_file_of_empty_cues_is_reported_as_empty() -> None:
    with pytest.raises(EmptyDocumentError):
        parse("WEBVTT\n\n00:01.000 --> 00:02.000\n\n00:02.000 --> 00:03.000\n<c></c>\n")


@pytest.mark.parametrize(
    ("path", "metadata", "file_type"),
    [
        ("talks/lecture.en.srt", {"media": "talks/lecture", "language": "en"}, "video"),
        ("lecture.en-US.vtt", {"media": "lecture", "language": "en-US"}, "video"),
        ("lecture.de.auto.vtt", {"media": "lecture", "language": "de"}, "video"),
        ("lecture.v2.srt", {"media": "lecture.v2"}, "video"),
        ("part.one.srt", {"media": "part", "language": "one"}, "video"),
        ("lecture.part2.srt", {"media": "lecture.part2"}, "video"),
        (".converted/a/b.srt", {"media": "a/b"}, "video"),
        ("a/b.mp4.srt", {"media": "a/b", "media_file": "a/b.mp4"}, "video"),
        ("b.mp3.en.srt", {"media": "b", "media_file": "b.mp3", "language": "en"}, "audio"),
    ],
)
def test_the_name_tells_the_medium_and_the_language(
    path: str, metadata: dict[str, str], file_type: str
) -> None:
    doc = parse(SRT, path)
    assert (doc.metadata, doc.file_type) == (metadata, file_type)
    expected = "audio_transcript" if file_type == "audio" else "video_transcript"
    assert doc.segments[0].modality == expected


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("WEBVTT\n", True),
        ("\ufeffWEBVTT - x\n\n", True),
        (SRT, True),
        ("\n\n00:01.000 --> 00:02.000\nx", True),
        ("WEBVTTs are nice", False),
        ("1\nfoo --> bar\n", False),
        ("a --> b", False),
        ("Hello\n00:01.000 --> 00:02.000\n", False),
        ("", False),
    ],
)
def test_subtitles_are_known_by_how_they_open(text: str, is_one: bool) -> None:
    assert looks_like_subtitles(text) is is_one


def assert_sound(doc: ParsedDocument) -> None:
    at = 0
    for each in doc.segments:
        assert at <= each.start < each.end <= len(doc.text)
        assert not doc.text[each.start : each.end].isspace()
        at = each.end
        if each.time_start is not None:
            assert each.time_end is not None
            assert 0 <= each.time_start <= each.time_end
    doc.text.encode()
    assert "\x00" not in doc.text


_PIECES = st.sampled_from(
    ["1", "2", "\n", "\r\n", "\n\n", " ", "00:00:01,000", "00:02.000", " --> ", "-->", "WEBVTT\n",
     "NOTE ", "STYLE\n", "<v Anna>", "</v>", "<c>", "<00:00:01.000>", "&#0;", "&amp;", ">> ",
     "ANNA: ", "Hello", "0:00:01.000,0:00:02.000", "-00:00:01,000", "\x00", "{\\an8}", "\u2028"]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=60).map("".join) | st.text(max_size=200))
def test_any_text_is_read_as_sound_segments_or_refused(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    try:
        doc, *_ = SubtitleReader().read(io.BytesIO(data), "a.vtt", limits=DEFAULT_LIMITS)
    except ReadError:
        return
    assert isinstance(doc, ParsedDocument)
    assert_sound(doc)
    starts = [each.time_start or 0.0 for each in doc.segments]
    assert starts == sorted(starts)


@settings(deadline=None)  # the first call loads the tables of encodings
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        doc, *_ = SubtitleReader().read(io.BytesIO(data), "a.srt", limits=DEFAULT_LIMITS)
    except ReadError:
        return
    assert isinstance(doc, ParsedDocument)
    assert_sound(doc)


@pytest.mark.slow
def test_fifty_thousand_cues_are_read() -> None:
    text = "".join(
        f"{at}\n{format_timecode(at)},000 --> {format_timecode(at)},900\nline {at}\n\n"
        for at in range(50_000)
    )
    doc = parse(text)
    assert len(doc.segments) == 50_000
    assert cues(doc)[-1] == ("line 49999", 49999.0, 49999.9)


@pytest.mark.parametrize("part", ["x", "<", "<v a", "-->", "<c>", "&", " :", "{\\"])
def test_a_line_of_megabytes_is_at_most_one_cue(part: str) -> None:
    line = part * (1_000_000 // len(part))
    first, last = "00:00:01,000 --> 00:00:02,000", "00:00:03,000 --> 00:00:04,000"
    doc = parse(f"1\n{first}\n{line}\n\n2\n{last}\nz\n")
    assert cues(doc)[-1] == ("z", 3.0, 4.0)
    assert len(doc.segments) <= 2


def test_less_than_is_no_tag() -> None:
    doc = parse("WEBVTT\n\n00:01.000 --> 00:02.000\nif a < b and c > d <i>then</i> stop\n")
    assert doc.text == "if a < b and c > d then stop"


def in_cues(*lines: str) -> str:
    times = (f"00:00:{at:02},000 --> 00:00:{at + 1:02},000" for at in range(len(lines)))
    return "\n\n".join(f"{time}\n{line}" for time, line in zip(times, lines, strict=True))


def test_a_speaker_named_once_among_named_ones_is_a_speaker() -> None:
    doc = parse(in_cues("Kwame Osei: It arrived.", "Lena: And the valve?", "Kwame Osei: At sea."))
    assert [who for _, who in said(doc)] == ["Kwame Osei", "Lena", "Kwame Osei"]


def test_after_what_may_be_a_name_the_speaker_is_unknown() -> None:
    lines = ["Ann: One.", "Two.", "Three.", "Guest: Four.", "Five.", "Ann: Six.", "Seven."]
    doc = parse(in_cues(*lines))
    assert [who for _, who in said(doc)] == ["Ann", "Ann", "Ann", None, None, "Ann", "Ann"]


def test_a_full_width_colon_ends_a_name() -> None:
    doc = parse(in_cues("田中：船は港にある。", "佐藤：いつ出ますか。", "田中：明日です。"))
    assert [who for _, who in said(doc)] == ["田中", "佐藤", "田中"]
    doc = parse(in_cues("Anna：Where?", "There.", "Anna：Here."))
    assert [who for _, who in said(doc)] == ["Anna"] * 3


@pytest.mark.parametrize(
    "times",
    ["0:0:3.540 --> 0:0:5.1", "00:00:03,540 --> 0:0:5,100"],
)
def test_times_without_padding_are_read(times: str) -> None:
    assert cues(parse(f"{times}\nThe tide turns.\n")) == [("The tide turns.", 3.54, 5.1)]


@pytest.mark.parametrize("name", ["thumbs/t0.jpg#xywh=0,0,160,90", "https://a.example/s.webp?x=1"])
def test_a_track_of_thumbnails_is_no_speech(name: str) -> None:
    with pytest.raises(EmptyDocumentError, match="pictures"):
        parse(f"WEBVTT\n\n{in_cues(name, name)}", "thumbs.vtt")


ASS = "[Script Info]\n[Events]\nDialogue: 0,0:00:01.00,0:00:03.50,Default,,0,0,0,,The tide turns.\n"
TTML = '<tt xmlns="http://www.w3.org/ns/ttml"><p begin="1s" end="3s">The tide turns.</p></tt>'
SAMI = "<SAMI>\n<BODY>\n<SYNC Start=1000><P>The tide turns.\n</BODY>\n</SAMI>\n"
SBV = "0:00:01.000,0:00:02.500\nThe tide turns.\n"


@pytest.mark.parametrize(
    ("text", "path"), [(ASS, "a.ass"), (TTML, "a.ttml"), (SAMI, "a.smi"), (SBV, "a.sbv")]
)
def test_other_subtitles_are_text_with_the_advice_to_convert_them(text: str, path: str) -> None:
    doc = parse(text, path)
    assert (doc.text, doc.segments) == (text, ())
    assert doc.untimed is not None
    assert "convert it to .srt or .vtt" in doc.untimed
    assert looks_like_subtitles(SAMI)


def test_lyrics_with_times_in_brackets_are_a_transcript() -> None:
    doc = parse(
        "[ti:Harbour song]\n[00:01.00]Down by the quay\n[00:05.50]the cranes sing\n", "a.lrc"
    )
    assert cues(doc) == [("Down by the quay", 1.0, 5.5), ("the cranes sing", 5.5, 10.5)]
