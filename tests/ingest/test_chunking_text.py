"""How documents are cut: sections, paths, overlap, what stays whole, and what is refused."""

import re
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from catalog.core.documents import ChunkSpan, ParsedDocument
from catalog.core.errors import ConfigError
from catalog.core.tokens import CharTokenCounter
from catalog.ingest.chunking import DocumentChunker
from catalog.ingest.readers.base import WholeFileReader
from catalog.ingest.readers.registry import load_reader, sniff
from counters import WordCounter
from growth import assert_linear
from tables import table


class BrokenCounter:
    name = "broken"

    def spans(self, text: str) -> npt.NDArray[np.int64]:
        raise RuntimeError("no vocabulary")


def parse(text: str, path: str = "note.md") -> ParsedDocument:
    reader = load_reader(sniff(path, b"", b"")[0])
    assert isinstance(reader, WholeFileReader)
    return reader.parse(text, path)


def chunk(doc: ParsedDocument, size: int = 40, overlap: int = 0, least: int = 0) -> list[ChunkSpan]:
    chunker = DocumentChunker(
        WordCounter(punctuation=True), chunk_size=size, chunk_overlap=overlap, min_size=least
    )
    return list(chunker.cut(doc).spans)


def texts(doc: ParsedDocument, spans: list[ChunkSpan]) -> list[str]:
    return [doc.text[span.start : span.end] for span in spans]


def sentences(count: int, word: str = "word") -> str:
    return " ".join(f"Sentence {number} has one {word}." for number in range(count))


def test_heading_path_runs_from_the_outermost_heading_to_the_chunks_own() -> None:
    doc = parse("intro\n\n# A\n\na\n\n## B\n\nb\n\n### C\n\nc\n\n## D\n\nd\n\n# E\n\ne\n")
    paths = [span.heading_path for span in chunk(doc)]
    assert paths == [(), ("A",), ("A", "B"), ("A", "B", "C"), ("A", "D"), ("E",)]


def test_a_bare_title_joins_the_section_below_it_and_lends_it_its_path() -> None:
    doc = parse("# Guide\n\n## Install\n\nRun the command.\n")
    (span,) = chunk(doc, least=0)
    assert span.heading_path == ("Guide", "Install")
    assert doc.text[span.start : span.end].startswith("# Guide")


def test_small_sections_merge_under_the_path_of_the_first_while_they_fit() -> None:
    doc = parse("# A\n\none\n\n# B\n\ntwo\n\n# C\n\n" + sentences(5))
    first, second = chunk(doc, size=40, least=5)
    assert (first.heading_path, second.heading_path) == (("A",), ("C",))
    assert "# B" in texts(doc, [first])[0]


def test_a_section_that_fits_is_one_chunk_and_is_not_joined_with_the_next() -> None:
    doc = parse(f"# A\n\n{sentences(3)}\n\n{sentences(2)}\n\n# B\n\n{sentences(3)}\n")
    assert [span.heading_path for span in chunk(doc, size=40, least=10)] == [("A",), ("B",)]


def test_a_large_section_is_cut_at_paragraphs_rather_than_within_them() -> None:
    doc = parse("\n\n".join(sentences(4, f"p{number}") for number in range(6)))
    for text in texts(doc, chunk(doc, size=50)):
        assert text.startswith("Sentence 0")
        assert text.endswith(".")
        assert text.count("Sentence 3") == text.count("Sentence 0")


def test_a_large_paragraph_is_cut_between_sentences_not_after_abbreviations() -> None:
    doc = parse("Ask Dr. Who, e.g. on Fig. 3, about J. Smith. " * 30)
    for text in texts(doc, chunk(doc, size=40)):
        assert text.startswith("Ask Dr. Who")
        assert text.endswith("J. Smith.")


def test_consecutive_chunks_of_a_section_overlap_from_a_sentence_start() -> None:
    doc = parse(sentences(40))
    spans = chunk(doc, size=60, overlap=20)
    assert len(spans) > 3
    for before, after in pairwise(spans):
        assert before.start < after.start < before.end
        assert doc.text[after.start :].startswith("Sentence")


def test_chunks_of_different_sections_never_overlap() -> None:
    doc = parse(f"# A\n\n{sentences(20)}\n\n# B\n\n{sentences(20)}\n")
    spans = chunk(doc, size=60, overlap=20)
    last_of_a = max(span.end for span in spans if span.heading_path == ("A",))
    first_of_b = min(span.start for span in spans if span.heading_path == ("B",))
    assert last_of_a < first_of_b


def test_without_punctuation_the_overlap_starts_at_a_word() -> None:
    doc = parse("alpha beta gamma delta " * 100)
    for span in chunk(doc, size=40, overlap=10):
        assert span.start == 0 or doc.text[span.start - 1] == " "
        assert doc.text[span.end : span.end + 1] in ("", " ")


def test_the_last_piece_of_a_section_is_not_tiny() -> None:
    doc = parse("word " * 83)
    sizes = [len(text.split()) for text in texts(doc, chunk(doc, size=40, least=15))]
    assert min(sizes) >= 15
    assert sum(sizes) == 83


@pytest.mark.parametrize("lead", range(20, 39, 3))
def test_a_fence_that_fits_is_never_cut_whatever_comes_before_it(lead: int) -> None:
    fence = "```py\n" + "call()\n\n" * 10 + "```"
    doc = parse("word " * lead + f"\n\n{fence}\n\n" + sentences(20))
    pieces = texts(doc, chunk(doc, size=40, overlap=12, least=6))
    assert any(fence in piece for piece in pieces)
    assert all(fence in piece or "call()" not in piece for piece in pieces)


def test_a_fence_too_large_for_a_chunk_is_cut_between_its_lines() -> None:
    body = "\n".join(f"value_{number} = compute(a, b). Then" for number in range(60))
    doc = parse(f"```py\n{body}\n```\n")
    for text in texts(doc, chunk(doc, size=50)):
        assert text.startswith(("```", "value_"))
        assert text.endswith(("Then", "```"))


def test_four_hundred_equal_lines_have_true_and_distinct_line_numbers() -> None:
    doc = parse("ERROR connection lost\n" * 400, "app.log")
    spans = chunk(doc, size=48, overlap=0)
    assert [span.locator.line_start for span in spans] == [
        span.start // len("ERROR connection lost\n") + 1 for span in spans
    ]
    assert len({span.locator for span in spans}) == len(spans)
    assert spans[-1].locator.line_end == 400


def test_lines_of_a_crlf_file_are_those_that_an_editor_shows() -> None:
    lines = [f"Line {number} stands here." for number in range(1, 201)]
    doc = parse("\r\n".join(lines), "windows.txt")
    for span in chunk(doc, size=40):
        start, end = span.locator.line_start, span.locator.line_end
        assert start is not None
        assert end is not None
        assert doc.text[span.start : span.end] == "\r\n".join(lines[start - 1 : end])


def test_front_matter_is_in_no_chunk_but_counts_as_lines() -> None:
    doc = parse("---\ntitle: Keys\nsecret: xyzzy\n---\n# Rotate\n\nOnce a year.\n")
    (span,) = chunk(doc)
    assert "xyzzy" not in doc.text[span.start : span.end]
    assert span.locator.line_start == 5
    assert span.heading_path == ("Rotate",)


@pytest.mark.parametrize("piece", ["x", "word ", "ab. "])
def test_one_long_line_is_cut_in_linear_time(piece: str) -> None:
    def cut(size: int) -> None:
        line = piece * size
        doc = ParsedDocument(path="big.txt", text=line, title="big", file_type="txt")
        spans = DocumentChunker(CharTokenCounter()).cut(doc).spans
        assert all(0 < span.end - span.start <= 6400 for span in spans)
        assert spans[0].start == 0
        assert spans[-1].end == len(line.rstrip())
        assert all(after.start <= before.end + 1 for before, after in pairwise(spans))

    assert_linear(cut, 500_000 // len(piece))


def test_one_token_of_a_megabyte_is_still_cut_by_its_characters() -> None:
    doc = parse("A" * 1_000_000, "blob.txt")
    spans = chunk(doc, size=100)
    assert max(span.end - span.start for span in spans) <= 800


def test_the_counter_is_asked_once_a_document() -> None:
    counter = WordCounter(punctuation=True)
    DocumentChunker(counter, chunk_size=20, chunk_overlap=5).cut(parse(sentences(200)))
    assert counter.calls == 1


def test_a_failing_tokenizer_is_replaced_and_the_replacement_is_reported() -> None:
    doc = parse(sentences(200))
    cut = DocumentChunker(BrokenCounter(), chunk_size=40, chunk_overlap=4).cut(doc)
    reference = DocumentChunker(CharTokenCounter(), chunk_size=40, chunk_overlap=4).cut(doc)
    assert cut.spans == reference.spans
    assert cut.fallback is not None
    assert "no vocabulary" in cut.fallback
    assert reference.fallback is None


@pytest.mark.parametrize("text", ["", " \r\n\t\n"])
def test_a_document_without_text_has_no_chunks(text: str) -> None:
    assert chunk(ParsedDocument(path="a", text=text, title="a", file_type="txt")) == []


@table("size, overlap, least, named")
def test_sizes_without_a_meaning_are_refused_by_value(
    size: int, overlap: int, least: int, named: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(named)):
        DocumentChunker(
            WordCounter(punctuation=True), chunk_size=size, chunk_overlap=overlap, min_size=least
        )
