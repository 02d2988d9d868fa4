"""Statements carry what they depend on, and each is cited at its own place."""

from types import SimpleNamespace

import pytest

from answers.conftest import asking
from catalog.answers.answerable import estimate_answer
from catalog.answers.answering import answer_question
from catalog.answers.extracting import Candidate, choose_sentences, rank_candidates
from catalog.answers.statements import read_statements
from catalog.core.params import SearchParams
from catalog.library.indexing import Indexer
from catalog.search_v2 import SearchServiceV2
from fakes import open_library, write


def read(text):
    return [(one.text, one.context) for one in read_statements(text)]


@pytest.mark.parametrize(
    "text",
    [
        "# Install\n",
        "Install\n=======\n",
        "**Results**\n",
        "=== WHILE IT RUNS ===\n",
        "TABLE SAW - CELLAR\n",
        "```\npip install it\n```\n",
        "~~~sh\nmake it.\n~~~\n",
        "    $ make it\n>>> run(it)\n",
        "1. [Install](#install)\n2. [Use](#use)\n",
        "Introduction . . . . . . . . 12\n",
        "Links: [[one note]], [[another]]\n",
        "© 2024 Example Ltd. All rights reserved.\n",
        "Page 3 of 10\n",
        "Which plan is it?\n",
        "These are not paid:\n",
        "|---|---|\n",
    ],
)
def test_a_fragment_without_meaning_is_not_a_statement(text):
    assert read(text) == []


def test_an_item_has_its_heading_and_its_lead_in():
    text = "## Not OK\n\nNever do these:\n\n- Sell your time to a rival.\n- Sleep.\n"
    assert read(text) == [
        ("Sell your time to a rival.", ("Not OK", "Never do these")),
        ("Sleep.", ("Not OK", "Never do these")),
    ]


def test_a_row_has_the_names_of_its_columns():
    text = "| Plan | Pays |\n|---|---|\n| Medical | 100 % |\n| Dental | 75 % |\n"
    assert [one for one, _ in read(text)] == ["Medical; Pays: 100 %", "Dental; Pays: 75 %"]


def test_rows_without_marks_at_their_ends_are_rows_too():
    assert [one for one, _ in read("Width | 60 kg\n28 mm | 5.0 bar\n")] == ["28 mm; 60 kg: 5.0 bar"]


def test_an_answer_has_its_question():
    assert read("May I eat here? Only in the kitchen. It is warm.") == [
        ("Only in the kitchen.", ("May I eat here?",)),
        ("Only in the kitchen. It is warm.", ()),
    ]


def test_a_sentence_that_begins_with_a_pronoun_has_the_one_before_it():
    (first, second) = read("The pump leaks. It must be replaced.")
    assert first[0] == "The pump leaks."
    assert second[0] == "The pump leaks. It must be replaced."


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rules")
    write(
        folder / "notes",
        side_dot_md=(
            "# Side work\n\nSome kinds of side work are fine and others are not.\n\n## Not OK\n\n"
            "- Be aggressive in marketing your availability for a competitor.\n\n## OK\n\n"
            "- Teach a class in the evening.\n"
        ),
        plans_dot_md=(
            "# Plans\n\n## Medical\n\nThe plan pays 100 % of a visit.\n\n"
            "## Dental\n\nThe plan pays 75 % of a visit.\n"
        ),
        talk_dot_srt=(
            "1\n00:00:01,000 --> 00:00:04,000\nWelcome to the lecture on rivers.\n\n"
            "2\n00:01:10,000 --> 00:01:14,000\nA gauge is read at noon.\n\n"
            "3\n00:02:20,000 --> 00:02:25,000\nA gauge is cleaned with a brush.\n"
        ),
    )
    with open_library(folder / "home", transcript_window_seconds=300.0) as library:
        Indexer(library).build(folder / "notes", "notes")
    opened = SearchServiceV2(open_library(folder / "home"))
    yield opened
    opened.close()


def test_an_item_is_shown_under_the_heading_that_turns_its_meaning(service):
    answer = answer_question(service, asking("market my availability for a competitor aggressive"))
    assert answer.text.startswith("Not OK: Be aggressive in marketing")


def test_sentences_alike_are_distinguished_by_their_headings(service):
    answer = answer_question(service, asking("how much of a dental visit does the plan pay"))
    assert answer.sentences[0].context == "Dental"
    assert "75 %" in answer.sentences[0].text


def test_numbers_count_up_and_each_source_is_where_its_sentence_is_said(service):
    answer = answer_question(service, asking("gauge read at noon, gauge cleaned with a brush"))
    seconds = {one.n: one.locator.time_start for one in answer.citations}
    assert list(seconds) == list(range(1, len(seconds) + 1))
    for sentence in answer.sentences:
        (number,) = sentence.citations
        expected = 70 if "noon" in sentence.text else 140 if "brush" in sentence.text else 1
        assert seconds[number] == expected
        cited = next(one for one in answer.citations if one.n == number)
        assert cited.link.endswith(f"t={expected}")
        assert answer.results.results[cited.rank - 1].path == "talk.srt"


def test_the_estimate_uses_the_reader_where_it_is_there_and_the_confidence_else(service):
    results = service.run(SearchParams("how often should the gauge be cleaned"))
    candidates = rank_candidates(results.query, results.results)
    read = estimate_answer(service.parts, results.query, results, candidates)
    assert 0 < read < 1
    assert read != results.confidence
    rag = service.parts.rag.model_copy(update={"rerank_model": "another/model"})
    settings = service.parts.settings.model_copy(update={"rag_v2": rag})
    other = SimpleNamespace(settings=settings, reranker=None)
    assert estimate_answer(other, results.query, results, candidates) == results.confidence
    keyword = service.run(SearchParams("gauge"))
    found = rank_candidates("gauge", keyword.results)
    assert estimate_answer(service.parts, "gauge", keyword, found) == keyword.confidence


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Rules:\n\n- Not allowed:\n  - keys in mail\n- tea\n", [("keys in mail", "Not allowed")]),
        ("## Not allowed\n\n### Mail\n\n- send keys\n", [("send keys", "Not allowed")]),
        ("# A\n\n## Not allowed\n\n## Fine\n\n- tea\n", [("tea", "Fine")]),
    ],
)
def test_what_stands_further_above_is_kept_as_long_as_it_holds(text, expected):
    read_ones = dict(read(text))
    for statement, part in expected:
        assert part in read_ones[statement]
    assert not any("Not allowed" in read_ones.get(one, ()) for one in ("tea",))


def test_a_whole_sentence_in_bold_is_a_statement_and_no_heading():
    assert read("**Never share keys.**\n\nTea is at four.") == [
        ("Never share keys.", ()),
        ("Tea is at four.", ()),
    ]


def test_stars_that_mark_nothing_stay():
    text = "The limit is 2**10 of `src/**/*.py` files."
    assert read(text) == [(text, ())]


@pytest.mark.parametrize("text", ["Alice | 5\nBob | 7\n", "| Alice | 5 |\n| Bob | 7 |\n"])
def test_a_first_row_that_is_no_header_names_no_columns(text):
    assert [one for one, _ in read(text)] == ["Alice; 5", "Bob; 7"]


def test_an_empty_cell_shifts_no_column():
    rows = read("| who | when | where |\n|--|--|--|\n|| noon | hall |\n")
    assert [one for one, _ in rows] == ["when: noon; where: hall"]


def test_a_question_is_answered_once():
    rows = read("- Is it encrypted?\n- No.\n- Keys rotate daily.\n")
    assert rows == [("No.", ("Is it encrypted?",)), ("Keys rotate daily.", ())]


def test_a_short_sentence_is_no_repetition_of_one_whose_letters_hold_it():
    chosen = choose_sentences(
        [candidate("Notes are kept.", 1.0, 0), candidate("No", 1.0, 50)], most=3
    )
    assert [one.text for one in chosen] == ["Notes are kept.", "No"]


def candidate(text, score, start):
    return Candidate(score, 1.0, 1, start, start + len(text), text, "", text)
