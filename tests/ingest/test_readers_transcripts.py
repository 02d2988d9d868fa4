"""Transcripts as JSON, in the shapes in which YouTube, whisper and others write them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.documents import ParsedDocument
from catalog.ingest.readers.timed.transcripts import read_transcript_json


def read(data: object, path: str = "talks/lecture.json") -> ParsedDocument:
    doc = read_transcript_json(json.dumps(data), path)
    assert doc is not None
    return doc


def said(doc: ParsedDocument) -> list[tuple[str, float | None, float | None, str | None]]:
    return [
        (doc.text[each.start : each.end], each.time_start, each.time_end, each.speaker)
        for each in doc.segments
    ]


SNIPPETS = [
    {"text": "Hello\nall", "start": 0.5, "duration": 1.5},
    {"text": "Bye", "start": 2.0, "duration": 1.25},
]
CUES = [("Hello all", 0.5, 2.0, None), ("Bye", 2.0, 3.25, None)]


@pytest.mark.parametrize("data", [SNIPPETS, {"transcript": SNIPPETS}, {"snippets": SNIPPETS}])
def test_a_youtube_transcript_is_a_line_for_each_snippet(data: object) -> None:
    doc = read(data)
    assert doc.text == "Hello all\nBye"
    assert said(doc) == CUES
    assert (doc.file_type, doc.source_type, doc.title) == ("video", "transcript", "lecture")
    assert doc.metadata == {"media": "talks/lecture"}


def test_what_is_told_of_the_video_becomes_metadata() -> None:
    doc = read(
        {
            "video_id": "dQw4w9WgXcQ",
            "language": "English (auto-generated)",
            "language_code": "en",
            "title": "A  talk",
            "channel": "Anna",
            "upload_date": "20240131",
            "duration": 3605,
            "snippets": SNIPPETS,
        }
    )
    assert doc.title == "A talk"
    assert doc.metadata == {
        "media": "talks/lecture",
        "source_url": "https://www.youtube.com/watch?v=dQw4w9WgXcQ",
        "author": "Anna",
        "created": "2024-01-31",
        "duration": 3605.0,
        "language": "en",
    }


@pytest.mark.parametrize("name", ["../../x", "javascript:1", "dQw4w9WgXcQ&x=1", 12345678901])
def test_an_invalid_id_makes_no_address(name: object) -> None:
    doc = read({"video_id": name, "source_url": "javascript:alert(1)", "snippets": SNIPPETS})
    assert "source_url" not in doc.metadata


def test_whisper_segments_keep_their_speakers_and_their_language() -> None:
    doc = read(
        {
            "text": "Hello all Bye",
            "language": "en",
            "segments": [
                {"id": 0, "start": 0.5, "end": 2.0, "text": " Hello all", "speaker": "SPEAKER_00"},
                {"id": 1, "start": 2.0, "end": 3.25, "text": " Bye", "speaker": "SPEAKER_01"},
            ],
        },
        "talk.mp3.json",
    )
    assert said(doc) == [
        ("SPEAKER_00: Hello all", 0.5, 2.0, "SPEAKER_00"),
        ("SPEAKER_01: Bye", 2.0, 3.25, "SPEAKER_01"),
    ]
    assert doc.file_type == "audio"
    assert doc.segments[0].modality == "audio_transcript"
    assert doc.metadata == {"media": "talk", "media_file": "talk.mp3", "language": "en"}


def test_deepgram_utterances_are_in_seconds_and_numbered_speakers_named() -> None:
    items = [{"start": 0.5, "end": 2.0, "transcript": "Hello all", "speaker": 0}]
    assert said(read({"results": {"utterances": items}})) == [
        ("Speaker 0: Hello all", 0.5, 2.0, "Speaker 0")
    ]


@pytest.mark.parametrize(("scale", "length"), [(1, {"audio_duration": 4}), (100, {})])
def test_utterances_in_milliseconds_are_told_by_the_length_or_by_half_a_day(
    scale: int, length: dict[str, int]
) -> None:
    items = [{"start": 500, "end": 2000 * scale, "text": "Hello all", "speaker": "A"}]
    assert said(read({"utterances": items, **length})) == [
        ("Speaker A: Hello all", 0.5, 2.0 * scale, "Speaker A")
    ]


def test_whole_seconds_at_a_usual_pace_stay_seconds() -> None:
    items = [{"start": 10, "end": 12, "text": "Hello all, how are you", "speaker": "Anna"}]
    (cue,) = said(read({"utterances": items}))
    assert cue[1:3] == (10.0, 12.0)


def test_a_missing_or_absurd_time_is_taken_from_the_neighbours() -> None:
    items = [
        {"text": "a is", "start": 0, "duration": 1},
        {"text": "b", "start": -5, "duration": 1},
        {"text": "c", "start": 3.0},
        {"text": "d", "start": "4.5", "duration": "x"},
    ]
    assert said(read(items)) == [
        ("a is", 0.0, 1.0, None), ("b", 1.0, 3.0, None),
        ("c", 3.0, 4.5, None), ("d", 4.5, 4.5, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["", "{", "1", "[]", "{}", '"text"', '[{"text": "a"}]', '{"segments": [{"id": 1}]}',
     '[{"text": "a", "start": 0}, {"name": "b"}, {"name": "c"}]', '{"transcript": "Hello"}',
     '[{"text": 1, "start": 0}]', '{"events": [{"name": "x"}]}', '[{"text": " ", "start": 0}]',
     '{"events": [{"segs": 5, "tStartMs": 1}]}'],
)  # fmt: skip
def test_other_json_is_no_transcript(text: str) -> None:
    assert read_transcript_json(text, "a.json") is None


def test_depth_and_digits_without_end_are_no_transcript() -> None:
    for text in ("[" * 100_000, '[{"text": "a", "start": ' + "9" * 5000 + "}]"):
        assert read_transcript_json(text, "a.json") is None


_KEYS = st.sampled_from(
    ["text", "start", "end", "duration", "segments", "transcript", "utterances", "events", "segs",
     "utf8", "tStartMs", "speaker", "offsets", "from", "title", "video_id", "language", "results",
     "upload_date", "channel", "audio_duration", "snippets"]
)  # fmt: skip
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=6),
    max_leaves=25,
)
_ITEMS = st.lists(
    st.fixed_dictionaries(
        {"text": st.text(max_size=9), "start": st.floats() | st.integers()},
        optional={"duration": st.floats(), "end": st.integers(), "speaker": st.text(max_size=4)},
    ),
    max_size=8,
)


@given(_VALUES | _ITEMS | st.builds(lambda items: {"utterances": items}, _ITEMS))
def test_any_json_is_read_soundly_or_left_alone(data: object) -> None:
    doc = read_transcript_json(json.dumps(data), "a.json")
    if doc is None:
        return
    at, before = 0, 0.0
    for each in doc.segments:
        assert at <= each.start < each.end <= len(doc.text)
        assert each.time_start is not None
        assert each.time_end is not None
        assert 0 <= before <= each.time_start <= each.time_end
        at, before = each.end, each.time_start
    doc.text.encode()


CHUNKS = [
    {"timestamp": [0.0, 3.2], "text": " The ketch sailed."},
    {"timestamp": [3.2, None], "text": " It returned at dusk."},
]


@pytest.mark.parametrize("data", [{"text": " The ketch.", "chunks": CHUNKS}, {"chunks": CHUNKS}])
def test_chunks_with_pairs_of_times_are_cues(data: object) -> None:
    assert said(read(data)) == [
        ("The ketch sailed.", 0.0, 3.2, None),
        ("It returned at dusk.", 3.2, 3.2, None),
    ]


def test_chunks_of_single_words_are_joined_to_sentences() -> None:
    words = ["The", "ketch", "sailed.", "It", "returned", "at", "dusk"]
    chunks = [{"timestamp": [at, at + 0.5], "text": f" {word}"} for at, word in enumerate(words)]
    assert said(read({"chunks": chunks})) == [
        ("The ketch sailed.", 0.0, 2.5, None),
        ("It returned at dusk", 3.0, 6.5, None),
    ]


def test_chunks_that_are_not_speech_are_other_json() -> None:
    chunks = [{"id": 1, "text": "One."}, {"id": 2, "text": "Two.", "timestamp": "2024-03-05"}]
    assert read_transcript_json(json.dumps({"chunks": chunks}), "notes.json") is None


def words(*spoken: tuple[str, float, str | None]) -> list[dict[str, object]]:
    return [
        {"word": word, "start": at, "end": at + 0.4, "speaker": speaker}
        for word, at, speaker in spoken
    ]


def test_the_words_of_a_segment_tell_where_another_person_speaks() -> None:
    spoken = words(("Is", 114.5, "S3"), ("it", 115.0, None), ("sound?", 115.5, "S3"),
                   ("Tested", 117.0, "S1"), ("in", 117.5, "S1"), ("May.", 118.0, "S1"))  # fmt: skip
    items = [
        {"start": 114.0, "end": 119.0, "text": "Is it sound? Tested in May.", "words": spoken},
        {"start": 125.0, "end": 127.0, "text": "Good.", "words": []},
    ]
    assert said(read({"segments": items, "word_segments": spoken})) == [
        ("S3: Is it sound?", 114.5, 115.9, "S3"),
        ("S1: Tested in May.", 117.0, 118.4, "S1"),
        ("Good.", 125.0, 127.0, None),
    ]


def test_words_of_amazon_are_joined_to_sentences_with_the_turns_beside_them() -> None:
    def word(at: float, content: str) -> dict[str, object]:
        return {"start_time": str(at), "end_time": str(at + 0.4),
                "alternatives": [{"confidence": "0.9", "content": content}]}  # fmt: skip

    mark = {"type": "punctuation", "alternatives": [{"content": "."}]}
    items = [
        word(0.5, "All"),
        word(1.0, "aboard"),
        mark,
        word(61.0, "Channel"),
        word(61.5, "six"),
    ]
    turns = [{"start_time": "0.5", "speaker_label": "spk_0"},
             {"start_time": "61.0", "speaker_label": "spk_1"}]  # fmt: skip
    data = {"results": {"items": items, "speaker_labels": {"segments": turns}}}
    assert said(read(data)) == [
        ("spk_0: All aboard.", 0.5, 1.4, "spk_0"),
        ("spk_1: Channel six", 61.0, 61.9, "spk_1"),
    ]


def test_utterances_are_read_rather_than_the_words_of_the_same_speech() -> None:
    spoken = words(("Hello", 0.5, "A"), ("all.", 1.0, "A"))
    items = [{"start": 0.5, "end": 2.0, "transcript": "Hello all.", "speaker": 0}]
    channels = [{"alternatives": [{"transcript": "Hello all.", "words": spoken}]}]
    only_words = read({"results": {"channels": channels}})
    assert said(only_words) == [("Speaker A: Hello all.", 0.5, 1.4, "Speaker A")]
    both = read({"results": {"channels": channels, "utterances": items}})
    assert said(both) == [("Speaker 0: Hello all.", 0.5, 2.0, "Speaker 0")]


NOTES = [{"text": "Anna", "start": 5, "end": 9}, {"text": "Rome", "start": 13, "end": 17}]
SENTENCE = "Meet Anna in Rome at noon, she said."


@pytest.mark.parametrize(
    "data",
    [{"text": SENTENCE, "items": NOTES}, {"body": SENTENCE * 9, "words": NOTES},
     {"results": {"content": SENTENCE, "items": NOTES}}, {"text": SENTENCE, "chunks": NOTES}],
)  # fmt: skip
def test_notes_on_a_longer_text_beside_them_are_no_transcript(data: object) -> None:
    assert read_transcript_json(json.dumps(data), "a.json") is None


def test_a_list_beside_the_same_text_or_a_long_title_is_a_transcript() -> None:
    assert len(said(read({"text": "Anna Rome", "title": SENTENCE, "words": NOTES}))) == 1
    assert len(said(read({"text": "Hello all Bye", "chunks": CHUNKS}))) == 2
