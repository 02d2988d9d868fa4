"""Questions that count or list documents are answered exactly, from the index."""

import pytest

from answers.conftest import asking, serve
from catalog.answers.answering import answer_events, answer_question
from catalog.answers.listing import read_listing
from catalog.library.indexing import Indexer
from catalog.search_v2 import SearchServiceV2
from fakes import open_library, write

COUNT = 14


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    home = tmp_path_factory.mktemp("listing")
    folder = home / "notes"
    folder.mkdir()
    for number in range(COUNT):
        text = f"# Note {number}\n\nWe met on day {number}.\n\nThere is an indemnity clause here."
        (folder / f"{number:02}.md").write_text(text)
    (folder / "apart.md").write_text("# Apart\n\nThe clause on tax has no indemnity or budget.")
    (folder / "secret.md").write_text("---\nconfidentiality: 2\n---\nThe gold budget is 5 million.")
    (folder / "open.md").write_text("---\nconfidentiality: public\n---\nEveryone may read this.")
    with open_library(home / "home") as library:
        Indexer(library).build(folder, "notes")
    opened = serve(home / "home")
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("question", "phrases"),
    [
        ("how many notes mention an indemnity clause", ("indemnity clause",)),
        ("In how many documents is the word budget mentioned?", ("budget",)),
        ("list all documents that mention Kubernetes", ("Kubernetes",)),
        ("which of my notes talk about hiring?", ("hiring",)),
        (
            'Which files contain "force majeure" and "arbitration"?',
            ("force majeure", "arbitration"),
        ),
        ("show me the notes mentioning the phrase net 30", ("net 30",)),
    ],
)
def test_questions_that_count_or_list(question, phrases):
    assert read_listing(question).phrases == phrases


@pytest.mark.parametrize(
    "question",
    [
        "How many documents do I need for a visa?",
        "How many pages does the report have?",
        "Which documents are required?",
        "Which notes mention ???",
        "Which documents mention midnight but not key?",
        "Which notes mention trailer or regatta?",
        "How many notes mention Kingfisher in 2026?",
        "How many customers mention flour?",
        "What does the note say about hiring?",
    ],
)
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


def test_a_counted_document_shows_the_statement_and_what_turns_it(tmp_path):
    write(
        tmp_path / "notes",
        boats_dot_csv="boat,year,state\nHeron,1958,leaks\nSwift,2004,good\n",
        rules_dot_md="# Rules\n\n## Not allowed\n\n- Dogs in the hall\n\nThe fee is 9 euros.\n",
        board_dot_md="# Heron\n\nNothing new.\n",
    )
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(tmp_path / "notes", "notes")
        service = SearchServiceV2(library)

        def lines(question):
            sentences = answer_question(service, asking(question)).sentences[1:]
            return [f"{one.context}: {one.text}" for one in sentences]

        assert lines("how many notes mention dogs") == ["Rules › Not allowed: Dogs in the hall"]
        assert sorted(lines("how many notes mention Heron")) == [
            "Heron: Heron",
            "boats: Heron; year: 1958; state: leaks",
        ]
        assert lines("how many notes mention state") == ["boats: Heron; year: 1958; state: leaks"]
        assert lines('which notes contain "dogs" and "euros"') == [
            "Rules › Not allowed: Dogs in the hall … The fee is 9 euros."
        ]


def test_a_counted_document_shows_a_line_of_its_text_rather_than_its_subject(tmp_path):
    mail = "From: a@example.org\nSubject: {}\nDate: Mon, 2 Mar 2026 10:00:00 +0000\n\n{}\n"
    write(
        tmp_path / "notes",
        both_dot_eml=mail.format("Walnut", "Hello,\n\nthe walnut is sold."),
        head_dot_eml=mail.format("Walnut oil", "Hello,\n\nsee you."),
        link_dot_md="See [this](https://example.org/).\n\nA walnut tree costs 1,500.\n",
    )
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(tmp_path / "notes", "notes")
        service = SearchServiceV2(library)
        answer = answer_question(service, asking("how many notes mention walnut"))
        assert sorted(one.text for one in answer.sentences[1:]) == [
            "A walnut tree costs 1,500.",
            "Subject: Walnut oil",
            "the walnut is sold.",
        ]
        answer = answer_question(service, asking("how many notes mention 1,500"))
        assert [one.text for one in answer.sentences[1:]] == ["A walnut tree costs 1,500."]


@pytest.mark.parametrize(
    ("question", "is_noted"),
    [
        ("which notes mention a budget but not tax", True),
        ("how many notes don't mention a budget", True),
        ("how many notes mention a budget in 2026?", True),
        ("how many times is the budget mentioned?", True),
        ("which notes mention a budget", False),
        ("which notes discuss what to do before a budget", False),
        ("what do the notes say about the budget in 2026", False),
    ],
)
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
