"""Questions that count or list documents are answered exactly, from the index."""

import pytest

from answers.conftest import asking, serve
from catalog.answers.answering import answer_events, answer_question
from catalog.answers.listing import read_listing
from stores import service_of, store_of
from tables import table

COUNT = 14


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
def test_other_questions(question):
    assert read_listing(question) is None


def test_a_count_is_exact_and_its_documents_are_cited_where_they_say_it(store):
    answer = answer_question(store, asking("How many notes mention an indemnity clause?"))
    headline, *lines = answer.sentences
    assert headline.text == f'{COUNT} documents contain "indemnity clause".'
    assert [line.context for line in lines[:2]] == ["Note 0", "Note 1"]
    assert [line.citations for line in lines] == [(n,) for n in range(1, 11)]
    assert {line.text for line in lines} == {"There is an indemnity clause here."}
    assert {(one.locator.line_start, one.text) for one in answer.citations} == {
        (5, "There is an indemnity clause here.")
    }
    assert answer.notes == ('4 more: catalog browse --containing "indemnity clause" --offset 10',)
    more = answer_question(store, asking("which notes mention an indemnity clause", top_k=1000))
    assert (len(more.sentences), more.notes) == (1 + COUNT, ())


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
def test_a_question_that_is_searched_and_not_counted_says_so(store, question, is_noted):
    notes = answer_question(store, asking(question)).notes
    assert any("not counted" in note for note in notes) == is_noted


@pytest.mark.parametrize(
    ("question", "file_type"),
    [
        ("How many mails mention the walnut?", "mail"),
        ("Which e-mails contain walnut", "mail"),
        ("in which emails is walnut mentioned", "mail"),
        ("List all my mails that mention walnut", "mail"),
        ("How many notes mention mails?", None),
        ("which documents contain e-mail", None),
    ],
)
def test_a_question_about_mail_counts_mail_alone(question, file_type):
    listing = read_listing(question)
    assert listing is not None
    assert listing.file_type == file_type
