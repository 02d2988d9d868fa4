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


def test_a_plain_query_is_for_both_legs_and_its_phrases_for_the_lexical_one():
    found = parsed('rotate "api keys"')
    assert [(part.kind, part.text, part.phrases) for part in found.parts] == [
        ("lex", "rotate api keys", ("api keys",)),
        ("vec", "rotate api keys", ()),
    ]
    assert not found.is_typed


@pytest.mark.parametrize(
    "text",
    [
        "lex: rotate key / vec: how to rotate a key / hyde: To rotate, open the panel.",
        "LEX: rotate key\nvec:  how to rotate a key \r\nHyde: To rotate, open the panel.",
    ],
)
def test_typed_parts_are_taken_from_lines_or_after_slashes(text):
    found = parsed(text)
    assert found.is_typed
    assert [(part.kind, part.text) for part in found.parts] == [
        ("lex", "rotate key"),
        ("vec", "how to rotate a key"),
        ("hyde", "To rotate, open the panel."),
    ]
    assert found.text == "how to rotate a key"


def test_the_first_part_of_a_leg_is_the_users_own_query_there_and_the_others_expand_it():
    found = parsed("lex: a / lex: b / hyde: c d / vec: e")
    origins = [part.origin for part in found.parts]
    assert origins == ["original", "expansion", "original", "expansion"]


def test_only_typed_lexical_parts_have_phrases_and_exclusions():
    found = parsed('lex: "api keys" -draft / vec: rm -rf "api keys"')
    assert found.exclusions == ("draft",)
    assert [part.phrases for part in found.parts] == [("api keys",), ()]
    assert found.parts[1].text == 'rm -rf "api keys"'


@pytest.mark.parametrize("text", ["what is lex: in qmd", "a / vec: b", "lexical: words", "lex"])
def test_a_text_that_does_not_begin_with_a_type_is_plain(text):
    assert not parsed(text).is_typed


@pytest.mark.parametrize("text", ["lex:", "lex: a / vec:", "vec: a\nlex: -draft"])
def test_a_typed_part_without_a_text_is_refused_by_name(text):
    with pytest.raises(QueryError, match=r"lex:|vec:"):
        parsed(text)
