"""What holds for any document: exact slices, full coverage, bounded size, same answer twice."""

import math
import re
import unicodedata
from dataclasses import replace
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from catalog.core.documents import Heading, ParsedDocument
from catalog.core.tokens import CharTokenCounter
from catalog.ingest.chunking import Cut, DocumentChunker
from counters import WordCounter

CHUNK_SIZE, OVERLAP, MIN_SIZE = 16, 5, 6


PIECES = st.sampled_from(
    [
        "\r\n", "\n", "\r", "\n\n", "\r\n\r\n", " ", "\t", "   ", "\f", "\u2028", "\u00a0",
        "\ufeff", "\ufffd", "e\u0301", "\u0301", "\u093f", "👩\u200d👩\u200d👧", "👍🏽", "\u200d",
        "One sentence here. ", "Really? ", "e.g. Dr. Who ", "日本語です。", "错误！", "word ",
        "repeated line\n", "repeated line\n", "x" * 40, "y" * 300, "# Title\n", "```\n# no\n```\n",
    ]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=400), st.lists(PIECES, max_size=120).map("".join))


@st.composite
def documents(draw: st.DrawFn) -> ParsedDocument:
    text = draw(TEXTS)
    offsets = st.integers(0, len(text))
    marks = sorted(draw(st.sets(offsets, max_size=8)))
    headings = tuple(
        Heading(start, min(start + 3, end), draw(st.integers(1, 4)), f"h{start}")
        for start, end in zip(marks, [*marks[1:], len(text)], strict=False)
    )
    pairs = draw(st.lists(st.tuples(offsets, offsets), max_size=6))
    return ParsedDocument(
        path="any.md",
        text=text,
        title="any",
        file_type=draw(st.sampled_from(["md", "py"])),
        headings=headings,
        atomic=tuple((min(pair), max(pair)) for pair in pairs),
        body_start=draw(st.one_of(st.just(0), offsets)),
    )


def plain(text: str) -> ParsedDocument:
    return ParsedDocument(path="any.txt", text=text, title="any", file_type="txt")


def cut(doc: ParsedDocument) -> Cut:
    chunker = DocumentChunker(
        WordCounter(punctuation=True),
        chunk_size=CHUNK_SIZE,
        chunk_overlap=OVERLAP,
        min_size=MIN_SIZE,
    )
    return chunker.cut(doc)


@settings(max_examples=40, deadline=None)
@given(documents())
@example(plain("\n\u0301 a"))
@example(plain("a" + "\u0301" * 500))
@example(plain("\r\n" * 300 + "x"))
@example(replace(plain("000000000 0"), body_start=9))
def test_chunks_are_clean_slices_that_cover_the_body_in_order(doc: ParsedDocument) -> None:
    spans = cut(doc).spans
    covered = bytearray(len(doc.text))
    for span in spans:
        piece = doc.text[span.start : span.end]
        assert piece
        assert piece == piece.rstrip()
        indented = span.start - len(piece.lstrip()) + len(piece)
        assert not doc.text[span.start : indented].strip(" \t")
        assert span.start == indented or doc.text[span.start - 1 : span.start] in ("", "\n", "\r")
        covered[span.start : span.end] = b"\x01" * len(piece)
    missing = [
        at
        for at in range(doc.body_start, len(doc.text))
        if not covered[at] and not doc.text[at].isspace()
    ]
    assert missing == []
    assert all(span.start >= doc.body_start for span in spans)
    starts = [span.start for span in spans]
    assert starts == sorted(set(starts))
    assert [span.end for span in spans] == sorted({span.end for span in spans})


@settings(max_examples=60, deadline=None)
@given(documents())
def test_no_chunk_exceeds_the_token_or_the_character_limit(doc: ParsedDocument) -> None:
    tokens = WordCounter(punctuation=True).spans(doc.text)
    for span in cut(doc).spans:
        touching = (tokens[:, 0] < span.end) & (tokens[:, 1] > span.start)
        assert int(touching.sum()) <= CHUNK_SIZE
        assert span.end - span.start <= CHUNK_SIZE * 8


@settings(max_examples=60, deadline=None)
@given(TEXTS)
@example("e\u0301\u0302" * 100)
def test_a_cut_never_parts_a_character_from_its_marks(text: str) -> None:
    cuts = {offset for span in cut(plain(text)).spans for offset in (span.start, span.end)}
    for at in cuts - {0, len(text)}:
        base = at - 1
        while base > 0 and unicodedata.combining(text[base]):
            base -= 1
        is_short_cluster = at - base < CHUNK_SIZE
        if unicodedata.combining(text[at]) and is_short_cluster:
            assert text[base].isspace() or unicodedata.combining(text[base])


@settings(max_examples=40, deadline=None)
@given(documents())
def test_lines_are_those_that_an_editor_shows(doc: ParsedDocument) -> None:
    for span in cut(doc).spans:
        before = re.sub("\r\n?", "\n", doc.text[: span.start])
        assert span.locator.line_start == before.count("\n") + 1
        through = re.sub("\r\n?", "\n", doc.text[: span.end])
        assert span.locator.line_end == through.count("\n") + 1


@settings(max_examples=33, deadline=None)
@given(documents())
def test_the_same_document_is_always_cut_alike(doc: ParsedDocument) -> None:
    assert cut(doc) == cut(doc)


@settings(max_examples=40, deadline=None)
@given(documents())
def test_overlap_stays_within_its_limit_and_within_one_section(doc: ParsedDocument) -> None:
    tokens = WordCounter(punctuation=True).spans(doc.text)
    spans = cut(doc).spans
    for before, after in pairwise(spans):
        if after.start >= before.end:
            continue
        shared = (tokens[:, 0] < before.end) & (tokens[:, 1] > after.start)
        assert int(shared.sum()) <= OVERLAP
        assert math.ceil((before.end - after.start) / 8) <= OVERLAP
        assert before.heading_path == after.heading_path


@settings(max_examples=33, deadline=None)
@given(st.text(max_size=2000))
def test_the_four_character_fallback_covers_any_text_too(text: str) -> None:
    chunker = DocumentChunker(CharTokenCounter(), chunk_size=32, chunk_overlap=4, min_size=0)
    joined: set[int] = set()
    for span in chunker.cut(plain(text)).spans:
        joined.update(range(span.start, span.end))
    assert all(text[at].isspace() for at in range(len(text)) if at not in joined)
