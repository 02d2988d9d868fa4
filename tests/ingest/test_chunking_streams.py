"""Transcripts by time, frames one by one, and pages: hand-worked."""

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest

from catalog.core.documents import ChunkSpan, Cue, Heading, Modality, ParsedDocument, Segment
from catalog.core.errors import ConfigError
from catalog.ingest.chunking import DocumentChunker
from counters import WordCounter


class Page:
    """A document in the making: plain text, headings and segments, one to a line."""

    def __init__(self) -> None:
        self.text = ""
        self.headings: list[Heading] = []
        self.segments: list[Segment] = []

    def write(self, line: str) -> tuple[int, int]:
        start = len(self.text)
        self.text += line + "\n"
        return start, start + len(line)

    def heading(self, title: str, level: int = 1) -> None:
        self.headings.append(Heading(*self.write(title), level, title))

    def cue(
        self,
        start: float,
        end: float,
        text: str = "some words",
        speaker: str | None = None,
        modality: Modality = "video_transcript",
    ) -> None:
        self.segments.append(Segment(*self.write(text), modality, start, end, speaker))

    def untimed(self, modality: Modality, text: str) -> None:
        self.segments.append(Segment(*self.write(text), modality))

    def document(self) -> ParsedDocument:
        return ParsedDocument(
            path="a.vtt",
            text=self.text,
            title="a",
            file_type="vtt",
            headings=tuple(self.headings),
            segments=tuple(self.segments),
        )


def cut(page: Page, size: int = 400, seconds: float = 60.0) -> tuple[ChunkSpan, ...]:
    chunker = DocumentChunker(
        WordCounter(), chunk_size=size, chunk_overlap=4, min_size=4, window_seconds=seconds
    )
    return chunker.cut(page.document()).spans


def times(spans: Sequence[ChunkSpan]) -> list[tuple[float | None, float | None]]:
    return [(span.locator.time_start, span.locator.time_end) for span in spans]


def cut_by_size(page: Page, size: int, overlap: int, least: int) -> tuple[ChunkSpan, ...]:
    chunker = DocumentChunker(
        WordCounter(), chunk_size=size, chunk_overlap=overlap, min_size=least, window_seconds=0
    )
    return chunker.cut(page.document()).spans


def every(step: int, stop: int) -> Page:
    page = Page()
    for start in range(0, stop, step):
        page.cue(start, start + step)
    return page


def test_without_any_better_place_a_window_is_as_long_as_it_may_be() -> None:
    # 75 s at most; the last 30 s are over a third of a minute.
    assert times(cut(every(5, 180))) == [(0, 75), (75, 150), (150, 180)]


def test_a_window_closes_after_the_sentence_that_ends_nearest_to_a_minute() -> None:
    page = Page()
    for start in range(0, 120, 5):
        ends = start in (40, 50, 70)  # after 45, 55 and 75 seconds
        page.cue(start, start + 5, "he said “stop.”" if ends else "and then")
    assert times(cut(page)) == [(0, 55), (55, 120)]


def test_a_window_closes_where_the_speaker_changes_rather_than_after_a_sentence() -> None:
    page = Page()
    for start in range(0, 120, 5):
        page.cue(start, start + 5, "A sentence.", "Ann" if start < 70 else "Bob")
    assert times(cut(page)) == [(0, 70), (70, 120)]


def test_a_turn_of_half_a_minute_closes_a_window_if_no_later_turn_comes() -> None:
    page = Page()
    for start in range(0, 120, 5):
        page.cue(start, start + 5, "A sentence.", "Ann" if start < 35 else "Bob")
    assert times(cut(page)) == [(0, 35), (35, 95), (95, 120)]


def test_short_turns_are_heard_together_and_keep_their_speakers() -> None:
    page = Page()
    for start in range(0, 60, 10):
        page.cue(start, start + 10, "well", "Ann" if start % 20 == 0 else "Bob")
    (span,) = cut(page)
    assert [cue.speaker for cue in span.cues] == ["Ann", "Bob"] * 3


def test_without_sentences_a_window_closes_in_the_longest_pause() -> None:
    page = Page()
    for start in range(0, 130, 10):
        page.cue(start, start + (7 if start == 50 else 9))
    # The pauses are 3 s after 57 and 1 s after every other cue.
    assert times(cut(page))[0] == (0, 57)


def test_a_short_last_window_is_joined_to_the_one_before() -> None:
    assert times(cut(every(5, 90))) == [(0, 90)]  # 75 + 15
    assert times(cut(every(5, 95))) == [(0, 75), (75, 95)]


def test_a_last_cue_after_a_long_silence_is_not_joined() -> None:
    page = every(5, 60)
    page.cue(600, 602)
    assert times(cut(page)) == [(0, 60), (600, 602)]


def test_a_cue_longer_than_a_window_is_one_of_its_own() -> None:
    page = Page()
    page.cue(0, 30)
    page.cue(30, 330)
    page.cue(330, 360)
    assert times(cut(page)) == [(0, 30), (30, 330), (330, 360)]


def test_overlapping_cues_end_a_window_at_the_latest_of_their_ends() -> None:
    page = Page()
    page.cue(0, 50)
    page.cue(10, 20)
    (span,) = cut(page)
    assert (span.locator.time_start, span.locator.time_end) == (0, 50)


def test_cues_that_go_back_before_the_window_begin_another() -> None:
    page = Page()
    page.cue(100, 110)
    page.cue(5, 15)
    assert times(cut(page)) == [(100, 110), (5, 15)]


def test_the_nominal_length_can_be_chosen() -> None:
    assert times(cut(every(5, 60), seconds=20)) == [(0, 25), (25, 50), (50, 60)]


def test_cues_are_at_their_words_in_the_chunk_and_windows_do_not_overlap() -> None:
    page = Page()
    for start in range(0, 300, 5):
        page.cue(start, start + 4, f"word {start} is said")
    spans = cut(page)
    for span in spans:
        text = page.text[span.start : span.end]
        for cue in span.cues:
            assert text[cue.start : cue.end] == f"word {int(cue.time_start)} is said"
    assert all(before.end < after.start for before, after in pairwise(spans))
    assert sum(len(span.cues) for span in spans) == 60


def test_no_window_is_over_the_chunk_size() -> None:
    page = Page()
    for start in range(0, 60, 5):
        page.cue(start, start + 5, "one two three four five six")
    spans = cut(page, size=20)
    assert [span.tokens for span in spans] == [18, 18, 18, 18]


def test_a_cue_over_the_chunk_size_is_cut_and_its_parts_timed_by_their_characters() -> None:
    page = Page()
    page.cue(100, 140, " ".join(["word"] * 40))
    spans = cut(page, size=20)
    assert "".join(page.text[span.start : span.end] + " " for span in spans) == "word " * 40
    assert times(spans)[0][0] == 100
    assert times(spans)[-1][1] == 140
    for span in spans:
        # 199 characters in 40 seconds
        assert span.locator.time_start == pytest.approx(100 + 40 * span.start / 199)
        assert span.locator.time_end == pytest.approx(100 + 40 * span.end / 199)
        (cue,) = span.cues
        assert (cue.start, cue.end) == (0, span.end - span.start)


def test_text_between_cues_ends_a_window_and_is_a_chunk_of_its_own() -> None:
    page = every(5, 20)
    page.write("They laugh for a while and nobody says a word.")
    page.cue(20, 25)
    spans = cut(page)
    assert [span.modality for span in spans] == ["video_transcript", "text", "video_transcript"]
    assert times(spans) == [(0, 20), (None, None), (20, 25)]


def test_blank_lines_between_cues_end_nothing() -> None:
    page = Page()
    page.cue(0, 5)
    page.write("\n \n")
    page.cue(5, 10)
    assert times(cut(page)) == [(0, 10)]


def test_what_is_heard_in_a_video_and_in_a_recording_is_kept_apart() -> None:
    page = Page()
    page.cue(0, 5)
    page.cue(5, 10, modality="audio_transcript")
    assert [span.modality for span in cut(page)] == ["video_transcript", "audio_transcript"]


def test_headings_right_above_a_transcript_begin_its_first_window() -> None:
    page = Page()
    page.heading("Talk")
    page.write("A talk about keys and how to rotate them.")
    page.heading("Transcript", 2)
    page.cue(0, 5, "good morning")
    page.heading("Questions", 2)
    page.cue(60, 65, "why")
    text, first, second = cut(page)
    assert (text.modality, text.heading_path) == ("text", ("Talk",))
    assert first.heading_path == ("Talk", "Transcript")
    assert page.text[first.start : first.end] == "Transcript\ngood morning"
    assert first.cues == (Cue(11, 23, 0, 5),)
    assert second.heading_path == ("Talk", "Questions")


def test_each_frame_is_one_chunk_under_its_heading() -> None:
    page = Page()
    for at in (65, 70):
        start = len(page.text)
        page.heading(f"Frame at {at}", 2)
        page.write("A slide: BatchNorm formula")
        page.segments.append(Segment(start, len(page.text), "video_frame", at, at))
    spans = cut(page)
    assert [span.modality for span in spans] == ["video_frame"] * 2
    assert times(spans) == [(65, 65), (70, 70)]
    assert [span.heading_path for span in spans] == [("Frame at 65",), ("Frame at 70",)]
    for span in spans:
        assert [(cue.start, cue.end) for cue in span.cues] == [(0, span.end - span.start)]


def test_the_parts_of_a_large_frame_share_its_time() -> None:
    page = Page()
    page.cue(65, 66, "A slide of words. " * 20, modality="video_frame")
    spans = cut(page, size=20)
    assert len(spans) > 3
    assert set(times(spans)) == {(65, 66)}
    assert all(span.tokens <= 20 for span in spans)


def test_neighbouring_texts_of_images_are_cut_together_by_kind() -> None:
    page = Page()
    page.untimed("ocr", "BatchNorm")
    page.untimed("ocr", "formula")
    page.untimed("image_caption", "A slide.")
    page.write("Plain text.")
    spans = cut(page)
    assert [span.modality for span in spans] == ["ocr", "image_caption", "text"]
    assert page.text[spans[0].start : spans[0].end] == "BatchNorm\nformula"
    assert times(spans) == [(None, None)] * 3


def test_a_chunk_knows_its_page_and_where_the_next_ones_begin() -> None:
    text = "one two\nthree four\n\nfive six\nseven"
    # Page 1 is empty and page 3 blank; page 4 begins at "three", page 5 at "five".
    doc = ParsedDocument(
        path="a.pdf", text=text, title="a", file_type="pdf", pages=(0, 0, 8, 8, 20)
    )
    (span,) = DocumentChunker(WordCounter(), min_size=0).cut(doc).spans
    assert (span.locator.page, span.locator.page_end) == (2, 5)
    assert span.page_breaks == (8, 8, 20)


def test_pages_follow_the_first_character_of_each_chunk() -> None:
    lines = [f"page {page} has these words" for page in range(1, 31)]
    text = "\n\n".join(lines)
    pages = tuple(text.index(line) for line in lines)
    doc = ParsedDocument(path="a.pdf", text=text, title="a", file_type="pdf", pages=pages)
    spans = (
        DocumentChunker(WordCounter(), chunk_size=20, chunk_overlap=0, min_size=4).cut(doc).spans
    )
    assert len(spans) > 5
    for span in spans:
        piece = text[span.start : span.end]
        numbers = [int(number) for number in re.findall(r"page (\d+)", piece)]
        assert (span.locator.page, span.locator.page_end) == (numbers[0], numbers[-1])
        assert [piece[at:].split()[1] for at in span.page_breaks] == [str(n) for n in numbers[1:]]


def test_a_document_without_pages_or_times_has_neither() -> None:
    page = Page()
    page.write("Plain text.")
    (span,) = cut(page)
    assert (span.locator.page, span.locator.page_end) == (None, None)
    assert (span.page_breaks, span.cues) == ((), ())


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_a_window_of_less_than_no_length_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match="window_seconds"):
        DocumentChunker(WordCounter(), window_seconds=seconds)


def test_a_transcript_cut_by_size_overlaps_and_ends_before_another_speaker() -> None:
    page = Page()
    for at in range(40):  # ten words in each; another person from the 8th, 16th … on
        page.cue(at, at + 1, "w " * 10, "AB"[at // 8 % 2])
    spans = cut_by_size(page, size=105, overlap=20, least=70)
    assert [span.tokens for span in spans] == [80, 100, 100, 100, 100]
    assert [span.cues[0].time_start for span in spans] == [0.0, 6.0, 14.0, 22.0, 30.0]
    for before, after in pairwise(spans):
        shared = page.text[after.start : before.end].split()
        assert 17 <= len(shared) <= 20  # five sixths of the overlap, or more


def test_passages_cut_by_size_know_the_seconds_and_speakers_of_their_cues() -> None:
    page = Page()
    page.cue(0, 10, "a " * 30, "Anna")
    page.cue(10, 110, "b " * 100, "Bob")
    spans = cut_by_size(page, size=60, overlap=12, least=30)
    assert len(spans) > 2
    assert {cue.speaker for span in spans for cue in span.cues} == {"Anna", "Bob"}
    for span in spans:
        assert all(0 <= cue.start < cue.end <= span.end - span.start for cue in span.cues)
        letters = page.text[span.start : span.end].split()
        first = page.text[: span.start].split()
        if letters[0] == "b":  # one a second, from the tenth second on
            assert span.locator.time_start == pytest.approx(10 + len(first) - 30, abs=0.5)


def test_a_transcript_below_the_size_is_one_passage() -> None:
    (span,) = cut_by_size(every(60, 600), size=100, overlap=20, least=70)
    assert times([span]) == [(0, 600)]
