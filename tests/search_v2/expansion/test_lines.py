"""Reading a model's reply, and which of its lines are worth asking."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.retrieval.expansion import (
    LENGTHS,
    MOST,
    PROMPT,
    ExpansionLine,
    count_words,
    filter_lines,
    parse_lines,
)
from catalog.store.lexical.analysis import Analyzer

ANALYZER = Analyzer()
QUERY = "how do I rotate API keys"


def line(text):
    kind, _, said = text.partition(": ")
    return ExpansionLine(kind, said)


def pairs(reply):
    return [(one.kind, one.text) for one in parse_lines(reply)]


def keep(*texts, query=QUERY):
    lines = [line(text) for text in texts]
    kept, dropped = filter_lines(lines, query, PROMPT)
    reasons = Counter(reason for _, reason in dropped)
    return [f"{one.kind}: {one.text}" for one in kept], dict(reasons)


def test_lines_are_read_in_their_order():
    reply = "lex: rotate keys\nvec: how to replace a key\nhyde: Keys are rotated monthly.\n"
    assert pairs(reply) == [
        ("lex", "rotate keys"),
        ("vec", "how to replace a key"),
        ("hyde", "Keys are rotated monthly."),
    ]


@pytest.mark.parametrize(
    "raw",
    [
        "LEX: rotate keys",
        "  lex :rotate keys  ",
        "- lex: rotate keys",
        "* **lex:** rotate keys",
        "**lex**: rotate keys",
        "**Lex: rotate keys**",
        "1. lex: rotate keys",
        "2) `lex`: rotate keys",
        "lex 1: rotate keys",
        "> lex: rotate keys",
        'lex: "rotate keys"',
        "lex: \u201crotate keys\u201d",
        '"lex": "rotate keys",',
        "lex\uff1arotate keys",
        "lex:\trotate \u200b keys\x07",
    ],
)
def test_decoration_around_a_line_is_taken_off(raw):
    assert pairs(f"Sure, here are some:\n{raw}\nHope this helps!") == [("lex", "rotate keys")]


@pytest.mark.parametrize(
    "raw",
    ["lexical: rotate keys", "rotate keys", "lex rotate keys", "lex:", 'lex: ""', "see lex: a"],
)
def test_what_is_no_line_is_left_out(raw):
    assert pairs(raw) == []


def test_quotes_that_hold_only_a_part_of_the_text_stay():
    assert pairs('lex: "api key" rotation') == [("lex", '"api key" rotation')]
    assert pairs('lex: "api key" "rotation"') == [("lex", '"api key" "rotation"')]


OBJECT = (
    '{"lex": ["rotate keys", "key renewal"], "VEC": "replace a key?", "hyde": null, "x": ["y"]}'
)
ITEMS = (
    '[{"kind": "lex", "text": "rotate keys"}, {"type": "LEX", "text": "key renewal"},'
    ' "vec: replace a key?", 7, {"kind": "other", "text": "no"}, {"kind": "vec", "text": 5}]'
)


@pytest.mark.parametrize("json", [OBJECT, ITEMS])
@pytest.mark.parametrize("around", ["{}", "```json\n{}\n```", "Here you are:\n```\n{}\n```\nBye."])
def test_json_is_read_alone_or_inside_other_text(json, around):
    expected = [("lex", "rotate keys"), ("lex", "key renewal"), ("vec", "replace a key?")]
    assert pairs(around.replace("{}", json)) == expected


def test_json_cut_short_gives_the_lines_that_are_whole():
    assert pairs('{\n"lex": ["a", "b"],\n"vec": "replace a key",\n"hyde": {"te') == [
        ("vec", "replace a key")
    ]


def test_json_nested_beyond_reason_is_left_out():
    assert pairs("[" * 9_000 + "]" * 9_000) == []


def test_a_fenced_block_of_lines_is_read():
    assert pairs("```\nlex: rotate keys\n```") == [("lex", "rotate keys")]


def test_good_lines_are_kept_as_they_are():
    good = ["lex: rotate credentials", "vec: replacing an API key", "hyde: Keys rotate each month."]
    assert keep(*good) == (good, {})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("lex: password renewal", "no query term"),
        ("lex: how do I", "no query term"),  # stop words of the query are none of its tokens
        ("lex: API  KEYS, rotate!", "nothing new"),  # the query's own words in another order
        ("lex: rotating the API key", "nothing new"),  # … and after stemming
        ("vec: How do I rotate API-keys?!", "nothing new"),
        ("hyde: HOW DO I ROTATE \uff21PI KEYS", "nothing new"),
        ("lex: rotate a key", "nothing new"),  # fewer of its words find less
        ("vec: how are keys to be rotated", "nothing new"),
        ("hyde: Rotate the keys, or do not.", "nothing new"),
        ("vec: what is it", "nothing new"),  # stop words alone
        ("lex: keys " + "a " * 12, "length"),
        ("lex: keys " + "a" * 120, "length"),
        ("vec: key" + " a" * 40, "length"),
        ("vec: keys " + "a" * 300, "length"),
        ("hyde: key" + " a" * 200, "length"),
        ("hyde: rotate keys every " + "a" * 1500, "length"),
        ("vec: rotation", "length"),
        ("hyde: Rotate keys monthly.", "length"),
        ("lex: ?!", "length"),
        ("lex: ", "length"),
        ("vec: rotate vec: replace", "instructions"),
        ("hyde: first LEX : then the keys", "instructions"),
        ("lex: <keywords> rotate", "instructions"),
        ("vec: <one rephrased question> about keys", "instructions"),
        ("vec: why does a cuckoo clock squeak when the bird calls", "instructions"),
        ("vec: Does a cuckoo clock SQUEAK", "instructions"),
        ("vec: which key does the wheel of a hurdy-gurdy need", "instructions"),  # 5 in a row
        ("hyde: Stay with the subject of the query", "instructions"),
        ("vec: As an AI I have no keys", "instructions"),
        ("vec: I cannot rotate keys", "instructions"),
        ("vec: I\u2019m sorry, rotate what?", "instructions"),
        ("vec: Here are some keys", "instructions"),
        ("vec: Sure, rotate keys", "instructions"),
    ],
)
def test_a_line_is_dropped_for_its_reason(text, reason):
    assert keep(text) == ([], {reason: 1})


@pytest.mark.parametrize(
    "text",
    [
        "lex: keys b" + " a" * 10,  # 12 words
        "lex: keys " + "a" * 115,  # 120 characters
        "vec: key b" + " a" * 38,
        "hyde: key b" + " a" * 198,
        "hyde: Rotate keys each month.",  # 4 words
        "vec: sure-footed rotation",
        "vec: is a < b or a > b for keys",
        "vec: keys for the wheel of a clock",  # 4 in a row
        "vec: cuckoo clock",  # two words of the prompt may be chance
    ],
)
def test_a_line_at_the_limit_is_kept(text):
    assert keep(text) == ([text], {})


def test_a_line_may_use_of_the_prompt_what_the_query_says_too():
    query = "my cuckoo clock bellows squeak in winter"
    text = "lex: cuckoo clock bellows frost"
    assert keep(text, query=query) == ([text], {})
    assert keep("lex: cuckoo clock bellows noise", query=query) == ([], {"instructions": 1})


def test_a_placeholder_or_apology_that_the_query_has_itself_is_no_leak():
    assert keep("vec: centring a <div> block", query="centre a <div>")[1] == {}
    assert keep("vec: I can't sign in", query="I cannot log in")[1] == {}


def test_a_vec_line_may_be_as_short_as_the_query():
    assert keep("vec: turnover", query="rotate") == (["vec: turnover"], {})


def test_a_query_without_any_token_drops_no_lex_line_for_that():
    assert keep("lex: password renewal", query="how do I") == (["lex: password renewal"], {})


def test_scripts_without_spaces_count_two_letters_as_a_word():
    assert count_words("\u5bc6\u94a5\u8f6e\u6362 api") == 4  # two by spaces, two by letters
    query = "\u5982\u4f55\u8f6e\u6362\u5bc6\u94a5"
    text = "hyde: \u5bc6\u94a5\u5e94\u8be5\u6bcf\u6708\u8f6e\u6362\u4e00\u6b21"
    assert keep(text, query=query) == ([text], {})


def test_lex_lines_of_the_same_words_are_one():
    assert keep("lex: key expiry", "lex: Expiry of keys", "lex: key policy") == (
        ["lex: key expiry", "lex: key policy"],
        {"duplicate": 1},
    )


def test_other_lines_are_one_when_they_read_the_same():
    kept, dropped = keep("vec: replacing a key", "vec: Replacing  a key!", "vec: a key replacing")
    assert (kept, dropped) == (["vec: replacing a key", "vec: a key replacing"], {"duplicate": 1})


def test_a_passage_that_is_the_question_again_is_one_too():
    kept, dropped = keep("vec: replacing a worn key", "hyde: Replacing a worn key.")
    assert (kept, dropped) == (["vec: replacing a worn key"], {"duplicate": 1})


def test_the_same_text_may_be_asked_of_both_legs():
    both = ["lex: key expiry", "vec: key expiry"]
    assert keep(*both) == (both, {})


def test_the_first_lines_of_a_kind_are_kept_up_to_its_number():
    lex = [f"lex: key {letter}1" for letter in "abcd"]
    hyde = ["hyde: One such passage here.", "hyde: Another such passage here."]
    kept, dropped = keep("lex: other", *lex, *hyde)  # a dropped line takes no place
    assert (kept, dropped) == ([*lex[:3], hyde[0]], {"no query term": 1, "too many": 2})


def test_a_kept_line_is_printable_and_on_one_line():
    kept, _ = keep("vec: replace\n\x1b[31m a\u202e  key\u2028now")
    assert kept == ["vec: replace [31m a key now"]


@settings(deadline=None)
@given(st.text(max_size=300))
def test_no_reply_whatever_it_is_breaks_the_reading(reply):
    for one in [*parse_lines(reply), *parse_lines(f"lex: {reply}"), *parse_lines(f"[{reply}]")]:
        assert one.kind in LENGTHS
        assert one.text.isprintable()
        assert one.text.strip() == one.text != ""


texts = st.text(max_size=200) | st.lists(
    st.sampled_from(["key", "rotate", "lex:", "<x>", "api", "\u5bc6\u94a5", "!"]), max_size=60
).map(" ".join)


@settings(deadline=None)
@given(
    st.lists(st.builds(ExpansionLine, st.sampled_from([*LENGTHS]), texts), max_size=12),
    texts,
)
def test_every_kept_line_is_within_the_limits(lines, query):
    kept, dropped = filter_lines(lines, query, PROMPT)
    assert len(kept) + len(dropped) == len(lines)
    for kind, most in MOST.items():
        assert sum(one.kind == kind for one in kept) <= most
    asked = set(ANALYZER.tokens(query))
    for one in kept:
        _, words, characters = LENGTHS[one.kind]
        assert 1 <= count_words(one.text) <= words
        assert len(one.text) <= characters
        assert one.text.isprintable()
        if one.kind == "lex" and asked:
            assert asked & set(ANALYZER.tokens(one.text))
    assert len(set(kept)) == len(kept)
