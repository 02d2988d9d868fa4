"""The size band: what is joined, what is split, where, and what cannot be inside."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.core.documents import ChunkSpan, Heading, ParsedDocument
from catalog.ingest.chunking import DocumentChunker
from catalog.ingest.chunking.cut import Band
from counters import WordCounter
from tables import table


def document(*sections: tuple[int, int], words: int = 5) -> ParsedDocument:
    """Sections given as (level, tokens), in sentences of five words; titles are one word."""
    text, headings = "", []
    for at, (level, tokens) in enumerate(sections):
        start = len(text)
        text += f"s{at}\n\n"
        headings.append(Heading(start, start + len(f"s{at}"), level, f"s{at}"))
        body = ["word"] * (tokens - 1)
        lines = [" ".join(body[i : i + words]) + "." for i in range(0, len(body), words)]
        text += "\n".join(lines) + "\n\n"
    return ParsedDocument(
        path="a.md", text=text, title="a", file_type="md", headings=tuple(headings)
    )


def cut(doc: ParsedDocument, least: int, most: int, overlap: int = 0) -> tuple[ChunkSpan, ...]:
    chunker = DocumentChunker(WordCounter(), chunk_size=most, chunk_overlap=overlap, min_size=least)
    return chunker.cut(doc).spans


def sizes(spans: tuple[ChunkSpan, ...]) -> list[int]:
    return [span.tokens for span in spans]


def test_a_chunk_says_how_many_tokens_it_has() -> None:
    assert sizes(cut(document((1, 31), (1, 46)), 30, 60)) == [31, 46]


def test_a_small_section_joins_the_one_after_it() -> None:
    spans = cut(document((1, 11), (1, 31), (1, 41)), 30, 60)
    assert sizes(spans) == [42, 41]
    assert [span.heading_path for span in spans] == [("s0",), ("s2",)]


def test_a_small_section_before_a_full_one_joins_the_one_before_it() -> None:
    spans = cut(document((1, 36), (1, 11), (1, 56)), 30, 60)
    assert sizes(spans) == [47, 56]
    assert [span.heading_path for span in spans] == [("s0",), ("s2",)]


def test_a_small_last_section_joins_the_one_before_it() -> None:
    assert sizes(cut(document((1, 41), (1, 6)), 30, 60)) == [47]


def test_where_no_neighbour_has_room_two_sections_are_cut_in_even_pieces() -> None:
    # 21 + 51 = 72 tokens: two passages of about 36, none under 30.
    spans = cut(document((1, 21), (1, 51)), 30, 60)
    assert sum(sizes(spans)) == 72
    assert all(30 <= size <= 45 for size in sizes(spans))
    assert [span.heading_path for span in spans] == [("s0",), ("s1",)]


@table("levels, path")
def test_several_sections_are_parted_where_one_starts_outer_before_inner(
    levels: tuple[int, int], path: tuple[str, ...]
) -> None:
    # The last 13 tokens fit with no 25 to 40 before them, so all 71 are two passages, and the
    # first has 31 to 40: s3 begins after 34 tokens, s4 after 37.
    third, fourth = levels
    doc = document((1, 10), (2, 20), (2, 4), (third, 3), (fourth, 21), (1, 13))
    assert [span.heading_path for span in cut(doc, 25, 40)] == [("s0",), path]


def test_chunks_that_begin_in_different_sections_share_no_text() -> None:
    for before, after in pairwise(cut(document((1, 21), (1, 150)), 30, 60, overlap=12)):
        if before.heading_path != after.heading_path:
            assert before.end <= after.start


def test_a_section_just_over_a_passage_leaves_a_rest_inside_the_band() -> None:
    for tokens in range(61, 121):
        assert all(30 <= size <= 60 for size in sizes(cut(document((1, tokens)), 30, 60)))


def test_a_narrow_band_is_kept_for_long_sections_and_for_many_small_ones() -> None:
    long = cut(document((1, 1201)), 70, 100, overlap=12)
    many = cut(document(*[(1, 16)] * 75), 70, 100, overlap=12)
    for spans in (long, many):
        assert len(spans) > 10
        assert all(70 <= size <= 100 for size in sizes(spans))


def test_a_text_between_one_passage_and_two_is_cut_as_evenly_as_the_band_allows() -> None:
    # 110 tokens are neither one passage of 70 to 100 nor two: the first keeps to the band.
    first, second = sizes(cut(document((1, 110)), 70, 100))
    assert 70 <= first <= 80
    assert first + second == 110


def test_a_document_under_the_band_is_one_chunk() -> None:
    assert sizes(cut(document((1, 3), (1, 4), (2, 5)), 30, 60)) == [12]


def test_a_least_size_of_the_whole_chunk_size_is_the_best_that_can_be_done() -> None:
    spans = cut(document((1, 203)), 60, 60)
    assert all(size <= 60 for size in sizes(spans))
    assert sum(size >= 55 for size in sizes(spans)) == 3


def test_a_table_stays_whole_even_where_that_leaves_a_chunk_too_small() -> None:
    doc = document((1, 10), (1, 58))
    table = (doc.text.index("s1"), len(doc.text.rstrip()))
    held = ParsedDocument(
        path="a.md",
        text=doc.text,
        title="a",
        file_type="md",
        headings=doc.headings,
        atomic=(table,),
    )
    spans = cut(held, 30, 60)
    assert sizes(spans) == [10, 58]


@table("size, held")
def test_the_band_knows_which_sizes_it_can_hold(size: int, held: bool) -> None:
    # 70 to 100 with 12 shared and 7 to spare: 147 to 181 for two passages, from 217 for three.
    assert Band(100, 12, 70).holds(size) is held


@st.composite
def prose(draw: st.DrawFn) -> ParsedDocument:
    sections = draw(
        st.lists(st.tuples(st.integers(1, 4), st.integers(2, 260)), min_size=1, max_size=30)
    )
    return document(*sections)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(prose())
def test_prose_of_two_least_sizes_or_more_is_all_inside_the_vaults_band(
    doc: ParsedDocument,
) -> None:
    spans = cut(doc, 30, 80, overlap=6)
    whole = len(re.findall(r"\w+", doc.text))
    assert all(size <= 80 for size in sizes(spans))
    if whole >= 60:
        assert min(sizes(spans)) >= 30


@settings(max_examples=50, deadline=None, derandomize=True)
@given(prose())
def test_long_prose_is_nine_tenths_inside_a_narrow_band(doc: ParsedDocument) -> None:
    spans = cut(doc, 70, 100, overlap=12)
    inside = sum(70 <= size <= 100 for size in sizes(spans))
    assert all(size <= 100 for size in sizes(spans))
    if Band(100, 12, 70).holds(len(re.findall(r"\w+", doc.text))):
        assert inside >= 0.9 * len(spans) or inside >= len(spans) - 2
