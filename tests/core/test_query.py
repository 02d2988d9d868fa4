"""Reading queries: what is a phrase, what an exclusion, and what is only text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.errors import QueryError
from catalog.core.query import parse_query


def parsed(text, max_chars=2000):
    return parse_query(text, max_chars=max_chars)


def test_a_quoted_phrase_is_searched_for_and_required():
    found = parsed('how to "rotate api keys" safely')
    assert found.phrases == ("rotate api keys",)
    assert found.text == "how to rotate api keys safely"


def test_a_minus_before_a_word_or_phrase_excludes_it():
    found = parsed('keys -legacy -"old console"')
    assert found.text == "keys"
    assert found.exclusions == ("legacy", "old console")
    assert "legacy" in found.notes[0]


@pytest.mark.parametrize(
    "text",
    [
        "state-of-the-art", "git commit --amend", "5 - 3", "docker -v", "-", "c++", "AND",
        "title:x", "*", "NOT a", "(a OR b)", "o'reilly", "5' 11",
    ],
)  # fmt: skip
def test_operators_of_other_engines_are_plain_text(text):
    found = parsed(text)
    assert (found.text, found.phrases, found.exclusions) == (text, (), ())


def test_an_unbalanced_quote_is_plain_text():
    found = parsed('c++ "unbalanced title:x AND *')
    assert found.phrases == ()
    assert "unbalanced" in found.text


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\x00"])
def test_an_empty_query_is_an_error(text):
    with pytest.raises(QueryError, match="empty"):
        parsed(text)


def test_a_query_that_only_excludes_is_an_error():
    with pytest.raises(QueryError, match="only excludes"):
        parsed("-legacy")


def test_a_long_query_is_cut_and_says_so():
    found = parsed("word " * 2000)
    assert len(found.text) <= 2000
    assert found.notes == ("query cut from 9,999 to 2,000 characters",)


@given(st.text(alphabet=st.characters(), max_size=60))
def test_any_text_is_read_or_refused_with_our_own_error(text):
    try:
        found = parsed(text)
    except QueryError:
        return
    assert found.text.strip() == found.text != ""
    found.text.encode("utf-8")
