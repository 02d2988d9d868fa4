"""What holds for any document with times: coverage, order, cues in place, bounded windows."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.core.documents import ChunkSpan, Cue, Heading, ParsedDocument, Segment
from catalog.ingest.chunking import DocumentChunker
from counters import WordCounter

SIZE, SECONDS = 24, 20.0
TIMED = ("video_transcript", "audio_transcript", "video_frame")
MODALITIES = st.sampled_from([*TIMED[:1] * 4, *TIMED, "ocr", "image_caption", "text"])
LINES = st.sampled_from(
    ["so", "and then we go.", "Why? ", " well ", "x" * 300, "word " * 60, "is it e\u0301?", "\t"]
)


@st.composite
def documents(draw: st.DrawFn) -> ParsedDocument:
    text, segments, headings, now = "", [], [], 0.0
    for _ in range(draw(st.integers(0, 40))):
        line = draw(LINES)
        modality = draw(MODALITIES)
        start, text = len(text), text + line + draw(st.sampled_from(["\n", "\n\n", " "]))
        if draw(st.integers(0, 9)) == 0:
            level = draw(st.integers(1, 3))
            headings.append(Heading(start, start + len(line), level, line))
        elif modality != "text":
            now = max(0.0, now + draw(st.sampled_from([0.0, 1.5, 3.0, 9.0, 40.0, -7.0])))
            end = now + draw(st.sampled_from([0.0, 2.0, 4.0, 30.0]))
            speaker = draw(st.sampled_from([None, "Ann", "Bob"]))
            timed = (now, end, speaker) if modality in TIMED else (None, None, None)
            segments.append(Segment(start, start + len(line), modality, *timed))
    pages = draw(st.lists(st.integers(0, len(text)), max_size=5))
    return ParsedDocument(
        path="a.md",
        text=text,
        title="a",
        file_type="md",
        headings=tuple(headings),
        body_start=draw(st.one_of(st.just(0), st.integers(0, len(text)))),
        pages=tuple(sorted(pages)),
        segments=tuple(segments),
    )


def cut(doc: ParsedDocument) -> tuple[ChunkSpan, ...]:
    chunker = DocumentChunker(
        WordCounter(punctuation=True),
        chunk_size=SIZE,
        chunk_overlap=4,
        min_size=8,
        window_seconds=SECONDS,
    )
    return chunker.cut(doc).spans


def size(doc: ParsedDocument, span: ChunkSpan) -> int:
    tokens = WordCounter(punctuation=True).spans(doc.text)
    touching = (tokens[:, 0] < span.end) & (tokens[:, 1] > span.start)
    return max(int(touching.sum()), -((span.start - span.end) // 8))


@pytest.mark.slow
@settings(max_examples=33, deadline=None)
@given(documents())
def test_chunks_cover_the_body_in_order_and_none_is_too_large(doc: ParsedDocument) -> None:
    spans = cut(doc)
    covered = {at for span in spans for at in range(span.start, span.end)}
    body = range(doc.body_start, len(doc.text))
    assert all(at in covered or doc.text[at].isspace() for at in body)
    assert all(at in body for at in covered)
    for before, after in pairwise(spans):
        assert before.start < after.start
        assert before.end < after.end
    for span in spans:
        piece = doc.text[span.start : span.end]
        assert piece
        assert piece == piece.rstrip()
        indented = span.start - len(piece.lstrip()) + len(piece)
        assert not doc.text[span.start : indented].strip(" \t")
        assert span.start == indented or doc.text[span.start - 1 : span.start] in ("", "\n", "\r")
        assert span.tokens == size(doc, span) <= SIZE


@pytest.mark.slow
@settings(max_examples=33, deadline=None)
@given(documents())
def test_every_segment_is_in_chunks_of_its_modality_and_nothing_else_is(
    doc: ParsedDocument,
) -> None:
    kinds = ["text"] * len(doc.text)
    for segment in doc.segments:
        kinds[segment.start : segment.end] = [segment.modality] * (segment.end - segment.start)
    in_heading = {at for heading in doc.headings for at in range(heading.start, heading.end)}
    for span in cut(doc):
        for at in range(span.start, span.end):
            if not doc.text[at].isspace() and at not in in_heading:
                assert kinds[at] == span.modality


@pytest.mark.slow
@settings(max_examples=33, deadline=None)
@given(documents())
def test_cues_are_inside_their_chunk_in_order_and_give_it_its_times(doc: ParsedDocument) -> None:
    for span in cut(doc):
        length = span.end - span.start
        assert bool(span.cues) == (span.modality in TIMED)
        assert all(0 <= cue.start < cue.end <= length for cue in span.cues)
        assert all(before.end <= after.start for before, after in pairwise(span.cues))
        if span.cues:
            assert span.locator.time_start == span.cues[0].time_start
            assert span.locator.time_end == max(cue.time_end for cue in span.cues)
            assert all(cue.time_start <= cue.time_end for cue in span.cues)


@pytest.mark.slow
@settings(max_examples=33, deadline=None)
@given(documents())
def test_no_window_of_several_cues_is_much_longer_than_asked(doc: ParsedDocument) -> None:
    windows = [span for span in cut(doc) if span.modality.endswith("_transcript")]
    for window in windows:
        if len(window.cues) > 1:
            # 5/4, and 1/3 more where a short rest was joined
            assert _length(window.cues) <= SECONDS * (5 / 4 + 1 / 3)
            assert min(cue.time_start for cue in window.cues[1:]) >= window.cues[0].time_start


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.1, 8.0), min_size=1, max_size=120), st.integers(0, 2**32))
def test_windows_of_a_running_transcript_are_about_as_long_as_asked(
    lengths: list[float], voices: int
) -> None:
    text, segments, now = "", [], 0.0
    for at, length in enumerate(lengths):
        speaker = "Ann" if voices >> at % 32 & 1 else "Bob"
        segments.append(
            Segment(len(text), len(text) + 2, "audio_transcript", now, now + length, speaker)
        )
        text, now = text + "so\n", now + length
    doc = ParsedDocument("a.vtt", text, "a", "vtt", segments=tuple(segments))
    chunker = DocumentChunker(WordCounter(punctuation=True), chunk_size=800, window_seconds=SECONDS)
    spans = chunker.cut(doc).spans
    assert all(_length(span.cues) >= SECONDS / 2 - 1e-6 for span in spans[:-1])
    if len(spans) > 1:
        assert _length(spans[-1].cues) >= SECONDS / 3 - 1e-6
    assert sum(len(span.cues) for span in spans) == len(lengths)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(documents())
def test_pages_are_those_of_the_document(doc: ParsedDocument) -> None:
    for span in cut(doc):
        assert (span.locator.page or 0) == sum(page <= span.start for page in doc.pages)
        inside = [page for page in doc.pages if span.start < page < span.end]
        assert [span.start + at for at in span.page_breaks] == inside


def _length(cues: Sequence[Cue]) -> float:
    times = [(cue.time_start, cue.time_end) for cue in cues]
    return max(end for _, end in times) - times[0][0]
