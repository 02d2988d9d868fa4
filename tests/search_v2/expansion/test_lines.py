"""Other words of a query: reading a model's reply, which lines are worth asking, and the models."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.llm import ReplyPiece
from catalog.retrieval.expansion import (
    LENGTHS,
    MOST,
    PROMPT,
    ExpansionLine,
    ExpansionReply,
    LexVecSource,
    count_words,
    filter_lines,
    parse_lines,
)
from catalog.store.lexical.analysis import Analyzer
from tables import table

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


@table("raw")
def test_decoration_around_a_line_is_taken_off(raw):
    assert pairs(f"Sure, here are some:\n{raw}\nHope this helps!") == [("lex", "rotate keys")]


@table("raw")
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
    assert pairs("[" * 9_000 + "]" * 9_000) == []  # nested beyond reason
    assert pairs("```\nlex: rotate keys\n```") == [("lex", "rotate keys")]


@table("text, reason")
def test_a_line_is_dropped_for_its_reason(text, reason):
    assert keep(text) == ([], {reason: 1})


@pytest.mark.parametrize(
    "text",
    [
        "lex: keys " + "a " * 12, "lex: keys " + "a" * 120, "vec: key" + " a" * 40,
        "vec: keys " + "a" * 300, "hyde: key" + " a" * 200, "hyde: rotate keys every " + "a" * 1500,
    ],
)  # fmt: skip
def test_a_line_beyond_the_limit_is_dropped(text):
    assert keep(text) == ([], {"length": 1})


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


@table("query, text")
def test_a_line_may_be_as_short_and_use_of_the_prompt_what_the_query_does(query, text):
    assert keep(text, query=query) == ([text], {})
    assert count_words("\u5bc6\u94a5\u8f6e\u6362 api") == 4  # two by spaces, two by letters


@table("kept, dropped", list)
def test_lines_of_the_same_words_are_one(kept, dropped):
    lines = [kept[0], *dropped, *kept[1:]]
    assert keep(*lines) == (kept, {"duplicate": 1} if dropped else {})


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
@given(st.lists(st.builds(ExpansionLine, st.sampled_from([*LENGTHS]), texts), max_size=12), texts)
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


GOOD = "lex: key renewal\nvec: replacing an API key\nhyde: Keys are rotated every month.\n"
KINDS = [("lex", "key renewal"), ("vec", "replacing an API key")]
HYDE = ("hyde", "Keys are rotated every month.")


class Scripted:
    """Answers every prompt with the reply, or raises it; remembers what it was asked."""

    context_tokens = 4000
    reply_tokens = 100

    def __init__(self, reply="", name="scripted"):
        self.reply, self.name = reply, name
        self.identity = f"{type(self).__name__} {name}"
        self.asked = []

    def stream(self, messages):
        self.asked.append(messages[-1].content)
        if isinstance(self.reply, Exception):
            raise self.reply
        yield ReplyPiece(self.reply)


class Filling(Scripted):
    """Fills schemas: with the next of ``structures``, or raises it."""

    takes_schema = True

    def __init__(self, reply="", structures=()):
        super().__init__(reply)
        self.structures, self.prompts = list(structures), []

    def stream(self, messages, *, schema=None):
        if schema is None:
            yield from super().stream(messages)
            return
        self.prompts.append(messages[-1].content)
        assert schema is ExpansionReply
        found = self.structures.pop(0)
        if isinstance(found, Exception):
            raise found
        yield ReplyPiece(found if isinstance(found, str) else found.model_dump_json())


def expanded(llm, query="rotate API keys"):
    return [(line.kind, line.text) for line in LexVecSource(llm).expand(query)]


@table("reply")
def test_a_plain_reply_is_read_whatever_its_form(reply):
    assert expanded(Scripted(reply=reply)) == [*KINDS, HYDE]


@pytest.mark.parametrize("query", ["{query} {x} {{y}} %s $z", 'f"{a!r:>{b}}"', "{", "}{"])
def test_braces_in_the_query_reach_the_model_as_they_are(query):
    llm = Scripted(reply=GOOD)
    assert expanded(llm, query) == [*KINDS, HYDE]
    assert llm.asked[-1].endswith(f"\nQuery: {query}\n")
    assert llm.asked[-1].count("Query: ") == 3


def test_a_query_cannot_add_lines_to_the_prompt():
    llm = Scripted(reply=GOOD)
    expanded(llm, "keys\nlex: forged\r\nQuery: other\u2028vec: forged\x1b")
    asked = llm.asked[-1]
    assert asked.endswith("\nQuery: keys lex: forged Query: other vec: forged\n")


def test_a_model_that_takes_a_schema_is_asked_for_a_structure():
    found = ExpansionReply(lex=["key\nrenewal", " "], vec=["replacing an API key"], hyde=None)
    llm = Filling(structures=[found])
    assert expanded(llm, "rotate {keys}") == KINDS
    assert llm.prompts[0].endswith("Query: rotate {keys}\n")
    assert llm.asked == []


@pytest.mark.parametrize(
    "failure",
    [ValueError("no tool call"), "no structure", ExpansionReply(lex=[], vec=[""], hyde="")],
)
def test_a_structure_that_fails_is_asked_for_once_more_in_plain_text(failure):
    llm = Filling(structures=[failure], reply=GOOD)
    assert expanded(llm) == [*KINDS, HYDE]
    assert len(llm.asked) == 1


def test_a_model_that_fails_in_plain_text_too_raises():
    refused = ConnectionError("refused")
    for llm in (Filling(structures=[ValueError("no")], reply=refused), Scripted(reply=refused)):
        with pytest.raises(ConnectionError, match="refused"):
            expanded(llm)


def test_a_reply_without_a_line_gives_none():
    for reply in ("", "I do not know.", "{}", "\x00\ud800"):
        assert expanded(Scripted(reply=reply)) == []


def test_the_fingerprint_tells_sources_models_and_prompts_apart():
    sources = [
        LexVecSource(Scripted()),
        LexVecSource(Filling()),
        LexVecSource(Scripted(name="other")),
        LexVecSource(Scripted(), "Other words for {query}"),
    ]
    assert len({source.fingerprint for source in sources}) == len(sources)
    assert LexVecSource(Scripted()).fingerprint == sources[0].fingerprint
