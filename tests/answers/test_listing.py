"""Questions that count or list documents are answered exactly, from the index."""

import pytest

from answers.conftest import asking, serve
from catalog.answers.answering import answer_events, answer_question
from catalog.answers.listing import read_listing
from stores import service_of, store_of
from tables import read_cases, table

COUNT = 14
OFFICE = read_cases(__file__)["office"]


@pytest.fixture(scope="module")
def store():
    clause = "There is an indemnity clause here."
    files = {
        f"notes/{number:02}.md": f"# Note {number}\n\nWe met on day {number}.\n\n{clause}"
        for number in range(COUNT)
    }
    files |= {
        "notes/apart.md": "# Apart\n\nThe clause on tax has no indemnity or budget.",
        "notes/secret.md": "---\nconfidentiality: 2\n---\nThe gold budget is 5 million.",
        "notes/open.md": "---\nconfidentiality: public\n---\nEveryone may read this.",
    }
    opened = serve(store_of(files))
    yield opened
    opened.close()


@table("question, phrases")
def test_questions_that_count_or_list(question, phrases):
    assert read_listing(question).phrases == phrases


@table("question")
def test_other_questions(store, question):
    answer = answer_question(store, asking(question))
    assert answer.certainty != "exact"
    assert not any("not counted" in note for note in answer.notes)


@table("question, headline")
def test_nouns_tags_senders_folders_and_dates_are_counted(question, headline):
    answer = answer_question(service_of(OFFICE), asking(question))
    assert answer.sentences[0].text == headline


@table("question, role, count")
def test_what_a_role_may_not_see_is_never_counted(question, role, count):
    opened = serve(store_of(OFFICE))
    answer = answer_question(opened, asking(question, role=role))
    opened.close()
    assert "Secret" not in f"{answer.text} {answer.notes} {answer.to_dict()['results']}"
    assert answer.certainty == ("exact" if count else None)
    assert not count or answer.sentences[0].text.startswith(count)


def test_a_count_is_exact_and_its_documents_are_cited_where_they_say_it(store):
    answer = answer_question(store, asking("How many notes mention an indemnity clause?"))
    headline, *lines = answer.sentences
    assert headline.text == f'{COUNT} documents contain "indemnity clause" or a form of it.'
    assert [line.context for line in lines[:2]] == ["Note 0", "Note 1"]
    assert [line.citations for line in lines] == [(n,) for n in range(1, 11)]
    assert {line.text for line in lines} == {"There is an indemnity clause here."}
    assert {(one.locator.line_start, one.text) for one in answer.citations} == {
        (5, "There is an indemnity clause here.")
    }
    assert answer.notes == ("4 more: ask with --top-k 14",)
    more = answer_question(store, asking("which notes mention an indemnity clause", top_k=1000))
    assert (len(more.sentences), more.notes) == (1 + COUNT, ())
    assert more.text.startswith(f'{COUNT} documents contain "indemnity clause".\n')


def test_words_that_nowhere_follow_one_another_are_looked_for_in_one_passage(store):
    answer = answer_question(store, asking("which notes mention tax in the budget"))
    assert answer.sentences[0].text == '1 document contains "tax" and "budget" in one passage.'
    assert [one.path for one in answer.citations] == ["apart.md"]


def test_none_is_an_answer_where_the_question_is_about_the_words(store):
    answer = answer_question(store, asking("How many documents mention Ulaanbaatar?"))
    assert not answer.abstained
    assert answer.text == 'No document contains "Ulaanbaatar".'
    meant = answer_question(store, asking("Which documents discuss Ulaanbaatar?"))
    assert meant.abstained


def test_a_count_knows_roles_and_conditions(store):
    question = "how many documents mention a budget"
    asked = {"all": {}, "guest": {"role": "guest"}, "lead": {"role": "lead"}}
    asked |= {"named": {"name": "apart"}}
    first = {
        name: answer_question(store, asking(question, **params)).sentences[0].text.split()[0]
        for name, params in asked.items()
    }
    assert first == {"all": "2", "guest": "No", "lead": "1", "named": "1"}


def test_a_count_streams_its_results_then_its_sentences(store):
    kinds = [one.kind for one in answer_events(store, asking("which notes mention a budget"))]
    assert kinds == ["results", "sentence", "sentence", "sentence", "answer"]


MAIL = "From: a@example.org\nSubject: {}\nDate: Mon, 2 Mar 2026 10:00:00 +0000\n\nHello,\n\n{}\n"
COUNTED = {
    "notes/boats.csv": "boat,year,state\nHeron,1958,leaks\nSwift,2004,good\n",
    "notes/rules.md": "# Rules\n\n## Not allowed\n\n- Dogs in the hall\n\nThe fee is 9 euros.\n",
    "notes/board.md": "# Heron\n\nNothing new.\n",
    "notes/both.eml": MAIL.format("Walnut", "the walnut is sold."),
    "notes/head.eml": MAIL.format("Walnut oil", "see you."),
    "notes/link.md": "See [this](https://example.org/).\n\nA walnut tree costs 1,500.\n",
}


@table("question, lines", list)
def test_a_counted_document_shows_the_statement_and_what_turns_it(question, lines):
    sentences = answer_question(service_of(COUNTED), asking(question)).sentences[1:]
    assert sorted(f"{one.context}: {one.text}" for one in sentences) == lines


@table("question, is_noted")
def test_a_question_that_is_searched_and_not_counted_says_so(question, is_noted):
    notes = answer_question(service_of(OFFICE), asking(question)).notes
    assert any("not counted" in note for note in notes) == is_noted
