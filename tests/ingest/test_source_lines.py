"""Source lines of the words that a parser of HTML hands over."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.ingest.readers.html import extract
from catalog.ingest.readers.source_lines import SourceLines


def lines_of(source, words):
    return SourceLines(source).lines_of(words.split())


@pytest.mark.parametrize(
    ("source", "words", "lines"),
    [
        ("<p>one\ntwo\r\nthree\rfour", "one two three four", [1, 2, 3, 4]),
        ("<p\n class='a > b'\n>one</p\n>two", "one two", [3, 4]),
        ("<!-- one\n -->\none <script>\nif (a<b) one\n</script>two", "one two", [3, 5]),
        ("<!doctype html [\n<!ENTITY a 'b'>\n]>\none", "one", [4]),
        ("a &amp; b\n&lt;c&gt; &eacute;", "a & b <c> é", [1, 1, 1, 2, 2]),
        ("one\n</p\n>two < three\n<5 four", "one two < three <5 four", [1, 3, 3, 3, 4, 4]),
        ("one\nlost\ntwo three four", "one two three four", [1, 3, 3, 3]),
        ("one\ntwo", "one new two", [1, 1, 2]),
        ("x &notit;\nx &notit;\nx", "x &notit; x &notit; x", [1, 1, 2, 2, 3]),
    ],
)
def test_words_stand_where_the_source_has_them(source, words, lines):
    assert lines_of(source, words) == lines


def test_a_word_that_is_nowhere_near_stands_with_the_one_before_it():
    source = "one\ntwo\n" + "filler\n" * 50 + "two"
    assert lines_of(source, "one elsewhere two") == [1, 1, 2]
    assert lines_of("one\n" + "filler\n" * 50 + "two", "one two") == [1, 1]
    assert lines_of("one\n" + "filler\n" * 50 + "two three\nfour", "one two three four")[1:] == [
        52,
        52,
        53,
    ]


@given(st.lists(st.sampled_from(["<p>", "</p\n>", "\n", "word ", "w\nx ", "<i>", "é &lt; "])))
def test_lines_never_run_backwards_or_past_the_end(parts):
    source = "".join(parts)
    numbers = extract(f"<html>{source}", keep_navigation=False, unit="line").places.numbers
    assert list(numbers) == sorted(numbers)
    assert all(1 <= number <= source.count("\n") + 1 for number in numbers)
