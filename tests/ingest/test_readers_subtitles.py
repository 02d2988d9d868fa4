"""Subtitles: SRT, WebVTT, SBV; speakers, captions that roll up, and files that are broken."""

from __future__ import annotations

import contextlib
import io
import time

import pytest
from hypothesis import given
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


def test_the_only_name_in_capitals_said_once_is_of_its_own_cue() -> None:
    doc = parse(srt("CPU: the part that counts.", "It is hot.", "PNG_ALPHA: a flag."))
    assert [speaker for _, speaker in said(doc)] == ["CPU", None, None]
    doc = parse(srt("ANNA: Hello.", "I am here.", "ANNA: Still.", "And now."))
    assert [speaker for _, speaker in said(doc)] == ["ANNA"] * 4


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


def test_sbv_is_read() -> None:
    doc = parse("0:00:01.000,0:00:02.500\nHello\nthere\n\n0:00:02.500,0:00:03.000\nBye\n", "a.sbv")
    assert cues(doc) == [("Hello there", 1.0, 2.5), ("Bye", 2.5, 3.0)]


def test_a_reversed_end_is_the_start_of_the_next_cue_or_its_own() -> None:
    doc = parse("00:00:05,000 --> 00:00:01,000\na\n\n00:00:09,000 --> 00:00:02,000\nb\n", "a.srt")
    assert cues(doc) == [("a", 5.0, 9.0), ("b", 9.0, 9.0)]


def test_unreadable_times_are_shared_out_between_the_neighbours() -> None:
    # 2.0 to 8.0 between the neighbours, three cues: two seconds each.
    doc = parse(
        "1\n00:00:01,000 --> 00:00:02,000\na\n\n2\n-00:00:04,000 --> x\nb\n\n"
        "3\n9999:00:00,000 --> 9999:00:01,000\nc\n\nd\n\n5\n00:00:08,000 --> 00:00:09,000\ne\n"
    )
    assert cues(doc) == [
        ("a", 1.0, 2.0), ("b", 2.0, 4.0), ("c", 4.0, 6.0), ("d", 6.0, 8.0), ("e", 8.0, 9.0),
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
        ("part.one.srt", {"media": "part.one"}, "video"),
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
        ("0:00:01.000,0:00:02.000\nx", True),
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


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        doc, *_ = SubtitleReader().read(io.BytesIO(data), "a.srt", limits=DEFAULT_LIMITS)
    except ReadError:
        return
    assert isinstance(doc, ParsedDocument)
    assert_sound(doc)


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


def test_the_table_of_whisper_is_a_cue_for_each_row() -> None:
    table = "start\tend\ttext\n0\t2500\tHello.\n2500\t2500\t \n2500\t4000\tThe layers.\n"
    assert looks_like_subtitles(table)
    doc = parse(table, "talks/lecture.tsv")
    assert cues(doc) == [("Hello.", 0.0, 2.5), ("The layers.", 2.5, 4.0)]
    assert (doc.metadata["media"], doc.file_type) == ("talks/lecture", "video")


def test_a_row_of_the_table_that_is_broken_keeps_its_words() -> None:
    doc = parse("start\tend\ttext\n0\t1000\tHello.\n?\t?\tThere.\n3000\t4000\tBye.\n")
    assert doc.text.split("\n") == ["Hello.", "? ? There.", "Bye."]


def test_another_table_is_no_subtitles() -> None:
    assert not looks_like_subtitles("start\tend\ttext\tlabel\n0\t5\tParis\tplace\n")
    table = "start\tend\ttext\nMonday\tTuesday\tclosed\n"
    assert parse(table, "week.tsv").text == table


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
    ["0:0:3.540 --> 0:0:5.1", "00:00:03,540 --> 0:0:5,100", "0:0:3.540,0:0:5.100"],
)
def test_times_without_padding_are_read(times: str) -> None:
    assert cues(parse(f"{times}\nThe tide turns.\n")) == [("The tide turns.", 3.54, 5.1)]


ASS = r"""[Script Info]
Title: Harbour
[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Comment: 0,0:00:00.00,0:00:01.00,Default,,0,0,0,,a note
Dialogue: 0,0:00:00.50,0:00:01.00,Default,,0,0,0,,{\p1}m 0 0 l 9 9{\p0}
Dialogue: 0,0:00:01.00,0:00:03.50,Default,,0,0,0,,{\i1}The tide{\i0} is turning\Nat last.
Dialogue: 0,0:00:04.00,0:00:06.00,Default,Skipper,0,0,0,,Cast off, then, the line.
"""


@pytest.mark.parametrize("path", ["a.ass", "a.txt"])
def test_a_substation_file_has_times_names_and_no_drawings(path: str) -> None:
    assert looks_like_subtitles(ASS)
    doc = parse(ASS, path)
    assert cues(doc) == [
        ("The tide is turning at last.", 1.0, 3.5),
        ("Skipper: Cast off, then, the line.", 4.0, 6.0),
    ]
    assert [each.speaker for each in doc.segments] == [None, "Skipper"]
    assert doc.places.numbers == (7, 8)


def ttml(body: str, attributes: str = "", head: str = "") -> str:
    return (
        f'<?xml version="1.0"?>\n<tt xmlns="http://www.w3.org/ns/ttml" {attributes}>'
        f"<head>{head}</head><body><div>\n{body}\n</div></body></tt>"
    )


def test_a_ttml_file_has_times_lines_and_names() -> None:
    head = '<ttm:agent xml:id="s1"><ttm:name type="full">Lena</ttm:name></ttm:agent>'
    spoken = (
        '<p begin="00:00:01.000" end="00:00:03.000">The tide<br/>is <span>turning</span>.</p>\n'
        '<p begin="4s" dur="2s" ttm:agent="s1">\n  Cast &amp; off.\n</p>\n'
        '<p><span begin="70t" end="80t">So.</span></p>'
    )
    doc = parse(ttml(spoken, 'xml:lang="en" ttp:tickRate="10"', head), "a.ttml")
    assert cues(doc) == [
        ("The tide is turning.", 1.0, 3.0),
        ("Lena: Cast & off.", 4.0, 6.0),
        ("So.", 7.0, 8.0),
    ]
    assert doc.metadata["language"] == "en"
    assert doc.places.numbers[0] == 3
    assert 5 in doc.places.numbers


@pytest.mark.parametrize(
    "text",
    [
        ttml('<p begin="1s">Half').removesuffix("</div></body></tt>"),
        ttml("<p>No time.</p>"),
        '<!DOCTYPE tt [<!ENTITY a "aa">]>' + ttml('<p begin="1s">&a;</p>').partition("\n")[2],
    ],
)
def test_a_ttml_file_without_times_or_broken_is_text(text: str) -> None:
    doc = parse(text, "a.ttml")
    assert (doc.text, doc.segments) == (text, ())
    assert doc.untimed is not None


def test_lyrics_have_their_title_and_every_repetition() -> None:
    lyrics = (
        "[ti:Harbour song]\n[ar:The Cranes]\n[00:01.00]Down by <00:02.00>the quay\n"
        "[00:05.50]the cranes sing\n[00:09.00][00:20.00]Heave away\n[00:11.00]\n"
    )
    doc = parse(lyrics, "song.lrc")
    assert (doc.title, doc.file_type) == ("Harbour song", "audio")
    assert cues(doc) == [
        ("Down by the quay", 1.0, 5.5),
        ("the cranes sing", 5.5, 9.0),
        ("Heave away", 9.0, 11.0),
        ("Heave away", 20.0, 20.0),
    ]
    assert doc.places.numbers == (3, 4, 5)


@pytest.mark.parametrize("name", ["thumbs/t0.jpg#xywh=0,0,160,90", "https://a.example/s.webp?x=1"])
def test_a_track_of_thumbnails_is_no_speech(name: str) -> None:
    with pytest.raises(EmptyDocumentError, match="pictures"):
        parse(f"WEBVTT\n\n{in_cues(name, name)}", "thumbs.vtt")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.lrc", "[00:01.00]" * 500_000),
        ("a.lrc", "".join(f"[{at}:01.00]" for at in range(900)) * 200 + "x" * 5_000_000),
        ("a.ass", "[Script Info]\nDialogue: " + ",{\\" * 1_500_000),
        ("a.ttml", ttml('<p begin="1s">' + "<br/>a" * 500_000 + "</p>")),
        ("a.ttml", ttml("<p>" * 100_000)),
    ],
)
def test_hostile_files_of_these_formats_take_little_time(path: str, text: str) -> None:
    started = time.process_time()
    with contextlib.suppress(EmptyDocumentError):
        parse(text, path)
    assert time.process_time() - started < 8
