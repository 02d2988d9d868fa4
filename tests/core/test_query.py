"""Reading queries: what is a phrase, what an exclusion, and what is only text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.errors import QueryError
from catalog.core.query import MOST_PARTS, MOST_PHRASES, parse_query
from tables import table


def parsed(text, max_chars=2000):
    return parse_query(text, max_chars=max_chars)


@table("text, phrases")
def test_a_quoted_word_is_required_where_the_quotes_stand_alone(text, phrases):
    assert parsed(text).required == phrases
    assert parsed(text).text


@pytest.mark.parametrize(
    "text",
    [
        'which of the recipes for bread says that the "oven is hot" before noon',
        " ".join(["a pasted sentence"] * 11) + ' "rotate api keys" -legacy -"old console"',
    ],
)
def test_quotes_bind_neither_in_a_long_question_nor_in_pasted_text(text):
    found = parsed(text)
    assert (found.required, found.exclusions) == ((), ())
    assert all(phrase in found.text for phrase in re.findall('"(.+?)"', text))


def test_quotes_count_in_a_long_question_but_not_in_pasted_text():
    question = 'which of the recipes for bread says that the "oven is hot" before noon'
    assert parsed(question).loose == ("oven is hot",)
    assert parsed(f"{question} {'and what follows ' * 9}").loose == ()


def test_quotes_bind_where_they_are_most_of_a_query():
    phrase = "the walrus dives for clams in the cold water of the bay"
    found = parsed(f'"{phrase}" who wrote that and in which of these books')
    assert (found.required, found.loose) == ((phrase,), ())


def test_quotes_in_a_typed_part_always_bind():
    text = f'lex: {" ".join(["word"] * 40)} "rotate api keys" -legacy'
    assert parsed(text).phrases == ("rotate api keys",)
    assert parsed(text).exclusions == ("legacy",)


def test_a_minus_before_a_word_or_phrase_excludes_it():
    found = parsed('keys -legacy -"old console"')
    assert found.text == "keys"
    assert found.exclusions == ("legacy", "old console")
    assert "legacy" in found.notes[0]


@table("text, flags")
def test_a_flag_or_a_number_after_a_minus_is_looked_for_and_told(text, flags):
    found = parsed(text)
    assert found.exclusions == ()
    assert found.parts[0].text == text.removeprefix("lex: ").removesuffix(" / vec: delete")
    assert found.readings[0].startswith(f"{flags} read as")


@table("text, excluded")
def test_a_word_that_can_hardly_be_a_flag_is_excluded(text, excluded):
    found = parsed(text)
    assert (found.exclusions, found.readings) == ((excluded,), ())


def test_a_word_that_is_known_to_be_a_flag_is_looked_for():
    found = parse_query("find -snake -legacy", max_chars=99, flags=["snake"])
    assert (found.text, found.exclusions) == ("find -snake", ("legacy",))


@table("text")
def test_dashes_around_an_aside_or_before_speech_exclude_nothing(text):
    assert (parsed(text).text, parsed(text).exclusions) == (text, ())


@table("text")
def test_typographic_quotes_make_a_phrase(text):
    assert parsed(f"after {text}").required == ("thirty days",)
    assert parsed(f"after -{text}").exclusions == ("thirty days",)
    assert parsed(f"after \u2013{text}").exclusions == ("thirty days",)


@table("text")
def test_operators_of_other_engines_are_plain_text(text):
    found = parsed(text)
    assert (found.text, found.required, found.exclusions) == (text, (), ())


@table("said, texts")
def test_a_query_without_anything_to_look_for_is_refused(said, texts):
    for text in texts:
        with pytest.raises(QueryError, match=said):
            parsed(text)


@pytest.mark.parametrize("text", ["lex:", "lex: a / vec:", "vec: a\nlex: -draft"])
def test_a_typed_part_without_a_text_is_refused_by_name(text):
    with pytest.raises(QueryError, match=r"lex:|vec:"):
        parsed(text)
    with pytest.raises(QueryError, match="vec: has no text"):
        parsed("lex: rotate keys / vec:", 12)  # after a cut, too
    with pytest.raises(QueryError, match="lex: contains nothing"):
        parsed("lex: rotate", 4)


@given(st.text(alphabet=st.characters(), max_size=60))
def test_any_text_is_read_or_refused_with_our_own_error(text):
    try:
        found = parsed(text)
    except QueryError:
        return
    assert found.text.strip() == found.text != ""
    found.text.encode("utf-8")


def test_a_plain_query_is_for_both_legs_and_its_phrases_bind_both():
    found = parsed('rotate "api keys"')
    assert found.required == ("api keys",)
    assert [(part.kind, part.text, part.phrases) for part in found.parts] == [
        ("lex", "rotate api keys", ("api keys",)),
        ("vec", "rotate api keys", ()),
    ]
    assert not found.is_typed


@table("text")
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
    assert (found.exclusions, found.required) == (("draft",), ())
    assert [part.phrases for part in found.parts] == [("api keys",), ()]
    assert found.parts[1].text == 'rm -rf "api keys"'


@pytest.mark.parametrize("text", ["what is lex: in qmd", "a / vec: b", "lexical: words", "lex"])
def test_a_text_that_does_not_begin_with_a_type_is_plain(text):
    assert not parsed(text).is_typed


@pytest.mark.parametrize("phrase", ["B 6", "c", "7", "c++", "古い"])
def test_a_minus_before_a_phrase_of_short_words_excludes_it_and_never_requires_it(phrase):
    found = parsed(f'vitamins -"{phrase}"')
    assert (found.text, found.required, found.exclusions) == ("vitamins", (), (phrase,))


@pytest.mark.parametrize("phrase", ["", "  ", "+ +", "--"])
def test_a_minus_before_a_phrase_without_a_letter_is_left_out(phrase):
    found = parsed(f'vitamins -"{phrase}"')
    assert (found.text, found.required, found.exclusions) == ("vitamins", (), ())


def test_a_quoted_separator_parts_nothing():
    found = parsed('lex: "foo / vec: bar" baz')
    assert [(part.kind, part.text) for part in found.parts] == [("lex", "foo / vec: bar baz")]
    assert found.parts[0].phrases == ("foo / vec: bar",)


@table("text")
def test_quotes_that_are_not_around_it_do_not_hide_a_separator(text):
    assert [part.kind for part in parsed(text).parts] == ["lex", "vec"]


@pytest.mark.parametrize("line_break", ["\u2028", "\u2029", "\x85", "\r", "\n\n \n"])
def test_typed_parts_may_stand_on_lines_of_any_kind(line_break):
    found = parsed(f"lex: a{line_break}vec: b")
    assert [(part.kind, part.text) for part in found.parts] == [("lex", "a"), ("vec", "b")]


@table("label")
def test_a_label_may_follow_what_cannot_be_seen_and_have_another_colon(label):
    found = parsed(f"{label} rotate keys / \ufeffvec : b")
    assert [(part.kind, part.text) for part in found.parts] == [
        ("lex", "rotate keys"),
        ("vec", "b"),
    ]


@table("text")
def test_labels_after_the_beginning_of_a_plain_query_are_text(text):
    assert not parsed(text).is_typed


def test_a_long_query_is_cut_between_words():
    # "gamma" begins after 10 characters and would be cut at 12
    found = parsed("alpha bet gamma", 12)
    assert found.text == "alpha bet"
    assert found.notes == ("query cut from 15 to 10 characters",)
    assert parsed("lex: " + "word " * 2000).notes[0] == "query cut from 10,004 to 2,000 characters"
    assert parsed("alpha bet gamma", 9).text == "alpha bet"
    assert parsed("alpha bet gamma", 10).text == "alpha bet"


def test_a_long_text_without_white_space_in_its_last_half_is_cut_at_the_limit():
    assert parsed("a " + "b" * 20, 10).text == "a bbbbbbbb"
    assert parsed("本" * 20, 10).text == "本" * 10


@pytest.mark.parametrize("text", ["keys -legacy", 'keys -"old console"'])
def test_no_cut_makes_another_exclusion_or_an_excluded_phrase_wanted(text):
    for limit in range(5, len(text)):
        found = parsed(text, limit)
        assert (found.text, found.required, found.exclusions) == ("keys", (), ())


@pytest.mark.parametrize("limit", range(12, 20))
@pytest.mark.parametrize("label", ["/ vec :", "\nvec  :"])
def test_a_cut_within_the_next_label_makes_no_words_of_it(label, limit):
    text = f"lex: rotate {label} keys and secrets"
    found = parsed(text, limit)
    assert [(part.kind, part.text) for part in found.parts] == [("lex", "rotate")]


def test_all_parts_give_words_to_mark_each_text_once():
    assert parsed("rotate keys").words == "rotate keys"
    assert parsed("lex: a b / vec: c / hyde: c / lex: d").words == "a b c d"


@table("text, lexical, vector, hybrid")
def test_a_query_is_about_the_first_part_that_its_mode_asks(text, lexical, vector, hybrid):
    found = parsed(text)
    assert [found.about(mode) for mode in ("lexical", "vector", "hybrid")] == [
        lexical,
        vector,
        hybrid,
    ]


def test_a_huge_query_is_cut_whatever_it_repeats():
    for text in ("\n" * 90_000, " / " * 30_000, 'a"' * 30_000, "\ufeff" * 90_000):
        assert len(parsed(f"lex: a{text}b", 100).original) <= 100


def test_a_typed_query_has_few_different_parts():
    parts = [f"lex: word{number}" for number in range(MOST_PARTS)]
    assert len(parsed("\n".join(parts)).parts) == MOST_PARTS
    assert len(parsed("\n".join([*parts, *parts])).parts) == MOST_PARTS
    with pytest.raises(QueryError, match=f"at most {MOST_PARTS} typed parts"):
        parsed("\n".join([*parts, "vec: more"]))


def test_more_phrases_than_anybody_types_are_words():
    phrases = [f'"phrase {number}"' for number in range(MOST_PHRASES)]
    assert len(parsed(" ".join(phrases)).required) == MOST_PHRASES
    many = parsed(" ".join([*phrases, '"one more"']))
    assert (many.required, "one more" in many.text) == ((), True)
    with pytest.raises(QueryError, match="can exclude at most"):
        parsed("key " + " ".join(f"-word{'x' * number}" for number in range(MOST_PHRASES + 1)))


def test_the_cut_of_a_pasted_text_keeps_both_ends():
    pasted = f"{'the log of a day ' * 40}ValueError: last"
    found = parsed(pasted, 200)
    assert (found.text[:16], found.text[-16:]) == ("the log of a day", "ValueError: last")
    assert 180 < len(found.text) <= 200
    assert found.notes == (f"query cut from {len(pasted)} to {len(found.text)} characters",)
    unspaced = parsed("x " * 40 + "図" * 400, 200).text
    assert (len(unspaced) <= 200, unspaced[-90:]) == (True, "図" * 90)


@table("query, text, exclusions")
def test_not_between_words_is_a_minus(query, text, exclusions):
    assert (parsed(query).text, parsed(query).exclusions) == (text, exclusions)


@pytest.mark.parametrize("query", ['zebra -file:"a.md"', "tag:dev zebra", "zebra #dev"])
def test_a_condition_of_another_engine_is_text_and_the_way_to_filter_is_told(query):
    found = parsed(query)
    assert ("zebra" in found.text, found.exclusions) == (True, ())
    assert "to filter: filters='tags=dev'" in found.readings[0]


def test_not_between_words_in_capitals_is_no_operator_and_the_way_to_exclude_is_told():
    assert (found := parsed("the DO NOT DISTURB sign")).exclusions + found.readings == ()
    for text in ("the SQL NOT NULL constraint", "error 404 NOT FOUND", "NASA NOT ESA"):
        assert (found := parsed(text)).text == text
        words = text.partition(" NOT ")[2].split()[0]
        assert f'NOT {words} read as a word; to exclude, use quotes: -"{words}"' in found.readings
        assert parsed(f'x -"{words}"').exclusions == (words,)
