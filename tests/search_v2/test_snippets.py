"""What of a passage is shown, with which lines, and which words of it are marked."""

import re
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from catalog.core.documents import Locator, ParsedDocument
from catalog.core.places import Places
from catalog.core.query import parse_query
from catalog.core.tokens import CharTokenCounter
from catalog.ingest.chunking import DocumentChunker
from catalog.ingest.chunking.boundaries import sentence_spans
from catalog.library.indexing import Indexer
from catalog.retrieval.fusion import FoundWords
from catalog.retrieval.query_words import cover_of, query_words
from catalog.retrieval.snippets import find_snippet
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library
from made_results import stored
from tables import table

FILLER = "Nothing of interest stands in this line.\n"  # 41 characters with its break
BREAK = re.compile(r"\r\n|\n|\r")


def chunk(text, *, line_start=1, headings=()):
    end = None if line_start is None else line_start + len(BREAK.findall(text))
    place = Locator(line_start=line_start, line_end=end)
    return stored(text, heading_path=headings, locator=place)


def marks(snippet):
    return [snippet.text[start:end] for start, end in snippet.matches]


def test_a_passage_that_fits_is_given_whole_without_the_blank_lines_around_it():
    got = find_snippet(chunk("\n \n    indented\r\n\r\nlast  \n\n", line_start=10), "x", 300)
    assert got.text == "    indented\r\n\r\nlast  "
    assert (got.locator.line_start, got.locator.line_end) == (12, 14)


SOME, OTHER = "Some words come first. " * 20, "Other words follow. " * 20
MANY = ["- apples and pears"] * 20 + ["- rotate keys"] + ["- plums"] * 20


@pytest.mark.parametrize(
    ("text", "query", "size", "shown", "lines"),
    [
        # the lines around the sentence with most different words
        (FILLER * 5 + "keys keys keys\n" + FILLER * 5 + "Rotate the keys.\n" + FILLER * 5,
         "rotating a key", 120, FILLER + "Rotate the keys.\n" + FILLER.rstrip("\n"), (11, 13)),
        # all lines of a sentence
        (FILLER * 5 + "Rotate every\nkey in the\nconsole.\n" + FILLER * 5,
         "rotate key console", 40, "Rotate every\nkey in the\nconsole.", (6, 8)),
        # a paragraph on one line is cut at words, and its end shown with words before it
        (f"Intro.\n{SOME}Rotate the keys. {OTHER}\nOutro.\n", "rotate key", 60,
         "Rotate the keys. Other words follow. Other words follow.", (2, 2)),
        (f"{SOME}Rotate the keys.", "rotate key", 60,
         "words come first. Some words come first. Rotate the keys.", (1, 1)),
        # the line of a sentence that is too long
        ("\n".join(MANY), "rotate key", 40, "- apples and pears\n- rotate keys\n- plums", (20, 22)),
    ],
)  # fmt: skip
def test_the_lines_around_the_best_sentence_are_shown(text, query, size, shown, lines):
    got = find_snippet(chunk(text), query, size)
    assert got.text == shown
    assert (got.locator.line_start, got.locator.line_end) == lines
    assert {one.lower() for one in marks(got)} >= {"rotate"}


def test_more_occurrences_break_a_tie_and_then_the_first_sentence_wins():
    once, twice = "One key here.\n", "A key and a key here.\n"
    text = once + FILLER * 9 + twice + FILLER * 9 + twice
    got = find_snippet(chunk(text), "key", 60)
    assert got.locator.line_start == 11
    assert marks(got) == ["key", "key"]


def test_a_sentence_that_is_too_long_is_cut_around_the_words_that_stand_together():
    text = "key " + "plain " * 60 + "rotate the key " + "plain " * 60
    got = find_snippet(chunk(text), "rotate key", 50)
    # 14 characters of words, so at most (50 - 14) // 3 = 12 before them: two words
    assert got.text == "plain plain rotate the key plain plain plain plain"
    assert marks(got) == ["rotate", "key"]


def test_words_that_stand_together_are_shown_though_a_longer_one_stands_before_them():
    word = "y" * 60
    text = f"{word} plain key plain " + "plain " * 30 + "rotate the key rotate " + "plain " * 30
    got = find_snippet(chunk(text), f"rotate key {word}", 50)
    assert marks(got) == ["rotate", "key", "rotate"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["key", "rotate", "console", "y" * 50, "plain"]), min_size=20))
def test_no_other_run_of_a_long_sentence_holds_more_of_the_query(said):
    text = " ".join([*said, "plain " * 9])
    words = query_words(f"rotate key console {'y' * 50}")
    found = words.matches(text)
    runs = [
        words.rank(found[first:last])
        for first in range(len(found))
        for last in range(first + 1, len(found) + 1)
        if found[last - 1].end - found[first].start <= 40
    ]
    got = find_snippet(chunk(text), f"rotate key console {'y' * 50}", 40)
    assert words.rank(words.matches(got.text)) >= max(runs, default=(0, 0, 0))


def test_a_heading_alone_is_not_shown_when_its_section_has_text():
    text = (
        "## Rotating keys\n\n" + "First of all, read this. " * 20 + "A key lasts. " + "More. " * 20
    )
    got = find_snippet(chunk(text, headings=("Guide", "Rotating keys")), "rotating keys", 60)
    assert got.text.startswith("A key lasts. More.")
    assert got.locator.line_start == got.locator.line_end == 3


def test_without_a_word_of_the_query_the_head_is_shown():
    got = find_snippet(chunk(FILLER * 9), "the unknown", 90)
    assert got.text == FILLER + FILLER.rstrip("\n")
    assert got.matches == ()
    assert (
        find_snippet(chunk("many words " * 50), "unknown", 40).text
        == "many words many words many words many"
    )


@table("query, text, marked", list)
def test_a_name_is_marked_however_it_is_joined_or_split(query, text, marked):
    assert marks(find_snippet(chunk(text), query, 99)) == marked
    assert cover_of(chunk(text), query) == 1.0


def test_a_long_text_without_spaces_is_cut_between_characters():
    text = "字" * 400 + "東京" + "\u0915\u093f" * 400
    got = find_snippet(chunk(text), "東京", 50)
    assert "東京" in got.text
    assert len(got.text) > 40
    assert not got.text.endswith("\u0915"), "a consonant was parted from its vowel"


def test_a_passage_without_lines_has_a_snippet_without_lines():
    got = find_snippet(chunk(FILLER * 9, line_start=None), "interest", 90)
    assert (got.locator.line_start, got.locator.line_end) == (None, None)


PIECES = st.sampled_from(
    [
        "\r\n", "\n", "\r", "\n\n", "\r\n\r\n", " ", "\t", "  ", "\f", "\u2028", "\u00a0", "key ",
        "Rotate the keys. ", "KEY-ring ", "e.g. Dr. Who ", "日本語です。", "keyboard", "x" * 40,
        "repeated line\n", "repeated line\r\n", "\tindented key\n",
        "y" * 90 + " ", "e\u0301", "## Keys\n",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES, min_size=1, max_size=120).map("".join)
QUERIES = st.sampled_from(["key", "rotate keys", "日本", "the", "repeated keyboard", "é x"])


@settings(max_examples=40, deadline=None)
@given(TEXTS, QUERIES, st.integers(40, 120))
@example("\r\n" * 50 + "key", "key", 40)
@example("key\r" * 60, "key", 40)
@example("y" * 90 + " key ", "unknown", 40)
def test_a_snippet_stands_in_the_lines_it_names(text, query, max_chars):
    document = ParsedDocument(path="any.md", text=text, title="any", file_type="md")
    chunker = DocumentChunker(CharTokenCounter(), chunk_size=100, chunk_overlap=10, min_size=8)
    split = BREAK.split(text)
    ends = [*BREAK.findall(text), ""]
    lines = [line + end for line, end in zip(split, ends, strict=True)]
    wanted = query_words(query)
    for span in chunker.cut(document).spans:
        passage = text[span.start : span.end]
        got = find_snippet(chunk(passage, line_start=span.locator.line_start), query, max_chars)
        assert 0 < len(got.text) <= max_chars
        assert got.text in passage
        assert got.text.strip()
        shown = lines[got.locator.line_start - 1 : got.locator.line_end]
        assert got.text in "".join(shown)
        assert (
            len(BREAK.findall(got.text))
            == got.locator.line_end - got.locator.line_start
            == len(shown) - 1
        )
        if got.locator.line_start < got.locator.line_end:
            parts = BREAK.split(got.text)
            whole = BREAK.split(passage)
            assert any(whole[at : at + len(parts)] == parts for at in range(len(whole)))
        last = 0
        for start, end in got.matches:
            assert last <= start < end <= len(got.text)
            assert wanted.matches(got.text[start:end])[0].tokens
            last = end
        found = wanted.matches(passage)
        if found and all(match.end - match.start <= max_chars for match in found):
            assert got.matches, "there is a word to show"


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
def test_lines_are_the_files_own_before_and_after_an_update(tmp_path, end):
    folder = tmp_path / "notes"
    folder.mkdir()
    file = folder / "keys.md"
    body = [f"Line {number} says little." for number in range(40)]
    body[25] = "\tRotate the API keys\there.  "
    with open_library(tmp_path / "home", snippet_chars=80) as library:
        for inserted in ([], ["A new line.", "", "Another."]):
            lines = inserted + body
            file.write_bytes(end.join(lines).encode())
            if inserted:
                Indexer(library).update("notes")
            else:
                Indexer(library).build(folder, "notes")
            service = SearchServiceV2(library)
            hit = service.search("rotate api keys", dataset="notes", mode="lexical")[0]
            first, last = hit.snippet_lines
            assert hit.snippet == end.join(lines[first - 1 : last])
            assert first <= 26 + len(inserted) <= last


def best_of_every_sentence(text, query):
    """The sentence to show, found by looking at each."""
    words = query_words(query)
    found = words.matches(text)
    return max(
        sentence_spans(text),
        key=lambda span: (words.rank(m for m in found if span[0] <= m.start < span[1]), -span[0]),
    )


@table("text, query, shown", list)
def test_words_are_marked_in_the_forms_of_the_passages_language(text, query, shown):
    got = find_snippet(chunk(text), query, 300)
    assert marks(got) == shown


def test_the_best_sentence_of_a_text_without_spaces_is_shown():
    text = "犬は公園で遊びます。" * 20 + "薬は食後に水と飲んでください。" + "猫は家で寝ます。" * 20
    got = find_snippet(chunk(text), "薬を飲む", 40)
    assert "薬は食後に水と飲んでください。" in got.text


SENTENCES = st.lists(
    st.sampled_from(
        ["key ", "keys, ", "rotate ", "ring. ", "Dr. ", "Plain ", "0.5 ", "Why? ", "(a key.) ",
         "...", "。", "日本", "e.g. key ", "Rotate! ", "words ", "stand "]
    ),
    min_size=30,
    max_size=120,
).map("".join)  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(SENTENCES, st.sampled_from(["key", "rotate keys", "ring 日本 key", "plain rotating key"]))
@example("One key. " + "More words. " * 9 + "Another key.", "key")
@example("Rotate. " + "Rotate the key. " * 3 + "A ring. " * 9, "rotate key")
def test_the_first_of_the_best_sentences_of_a_line_is_shown(text, query):
    start, end = best_of_every_sentence(text, query)
    got = find_snippet(chunk(text), query, max(40, end - start))
    places = [at for at in range(len(text)) if text.startswith(got.text, at)]
    assert any(at <= start and end <= at + len(got.text) for at in places)


@table("paragraphs, best", list)
def test_the_first_best_sentence_of_equally_promising_paragraphs_wins(paragraphs, best):
    text = "".join(f"{paragraph}\n\n{FILLER}\n" for paragraph in paragraphs)
    got = find_snippet(chunk(text), "rotate key", 40)
    assert got.text == paragraphs[best]
    assert got.locator.line_start == 1 + 4 * best


@table("query, text, told", list)
def test_a_word_is_marked_in_every_form_and_behind_any_punctuation(query, text, told):
    assert marks(find_snippet(chunk(text), query, 99)) == told


def test_a_word_is_found_again_by_another_query_and_in_another_passage():
    text = "Ringed plovers, sea-bird and " + "q" * 80 + "."
    for query in ("plover", "bird", "ring", "q" * 80, "plover"):
        assert marks(find_snippet(chunk(text), query, 200)) == marks(
            find_snippet(chunk("And " + text), query, 200)
        )
        assert len(find_snippet(chunk(text), query, 200).matches) == 1


def test_a_snippet_that_begins_with_blanks_stands_where_its_first_word_does():
    places = Places("line", (0, 4, 24), (7, 90, 91))
    passage = replace(chunk("one\n" + "    the second line\nthird"), places=places)
    got = find_snippet(passage, "second", 20)
    assert got.text.startswith("    the")
    assert (got.locator.line_start, got.locator.line_end) == (90, 90)
    moved = replace(passage, places=replace(places, offsets=(0, 8, 24)))
    got = find_snippet(moved, "second", 20)
    assert (got.locator.line_start, got.locator.line_end) == (90, 90)


@table("query, cover")
def test_the_cover_is_the_share_of_the_querys_words_that_a_passage_has(query, cover):
    passage = chunk("Keys are rotated every month.", headings=("Secrets",))
    assert cover_of(passage, query) == pytest.approx(cover)


def test_stop_words_of_the_querys_own_language_are_none_in_a_passage_of_another():
    german = chunk("Der Proxy ist nicht für die Rechner in diesem Netz und für andere auch nicht.")
    assert cover_of(german, "what is the proxy") == 1.0
    assert cover_of(german, "what is the proxy quagga") == 0.5
    assert cover_of(chunk("図書館で本を読む。"), "本の色は何ですか") == 1.0  # any part of a word


@table("weights, cover", list)
def test_a_rarer_word_has_more_of_the_cover(weights, cover):
    found = FoundWords(weights=weights)
    assert cover_of(chunk("Keys are rotated."), "keys of lamps", found) == pytest.approx(cover)


@table("phrase, line")
def test_the_lines_with_a_quoted_phrase_are_shown(phrase, line):
    before = "Names are defined, and a name by what that defines: class names.\n"
    text = f"{before}{FILLER * 12}{line}{FILLER * 12}"
    query = parse_query(f'"{phrase}"', max_chars=99)
    assert line.strip() in find_snippet(chunk(text), query.words, 200, query.phrases).text
    unquoted = parse_query(phrase, max_chars=99)
    assert line.strip() not in find_snippet(chunk(text), unquoted.words, 200).text
