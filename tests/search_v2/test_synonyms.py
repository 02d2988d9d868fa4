"""A user's own synonyms, read from ``synonyms.txt`` in the home."""

import json

import pytest

from catalog.answers.answering import answer_question
from catalog.core.errors import ConfigError
from catalog.core.params import AskParams
from catalog.core.settings.sections import AnswerSettings
from catalog.library.health import check
from catalog.retrieval.query_words import read_synonyms
from catalog.search_v2.service import SearchServiceV2
from stores import open_store
from tables import table

FILES = {
    "hr/leave.md": "# Leave\n\nEach employee has 25 days of paid time off.\n",
    "hr/secret.md": "---\nconfidentiality: secret\n---\nThe board has 60 days of paid time off.\n",
    "hr/desk.md": "# Desk\n\nInformation technology is open from 8 to 17.\n",
    "hr/parking.md": "# Parking\n\nIt is free, and places are assigned each quarter.\n",
}


@pytest.fixture
def library(tmp_path):
    with open_store(FILES, tmp_path) as library:
        yield library


@pytest.fixture
def search(library):
    """Search by words; the paths found and the note of the stage ``synonyms``."""

    def search(query, mode="lexical", **asked):
        found = SearchServiceV2(library).search(query, dataset="hr", mode=mode, **asked)
        notes = [one.note for one in found.stages if one.name == "synonyms"]
        return {one.path for one in found}, notes

    return search


def write(library, text):
    (library.settings.home / "synonyms.txt").write_text(text, encoding="utf-8")


def test_a_synonym_finds_what_the_query_does_not_say_in_both_directions(library, search):
    assert search("PTO") == (set(), [])
    write(library, "# ours\n\nPTO, holidays = paid time off\n")
    assert search("PTO?") == ({"leave.md", "secret.md"}, ["holidays?, paid time off?"])
    assert search("paid  time off")[1] == ["PTO, holidays"]
    assert search("my pto", mode="hybrid")[1] == ["my holidays, my paid time off"]
    assert search("the shuttle") == (set(), [])
    write(library, "shuttle = parking\n")  # read again at once
    assert search("the shuttle") == ({"parking.md"}, ["the parking"])


def test_nothing_changes_for_a_query_without_a_synonym_or_without_the_leg(library):
    def told(query, mode="hybrid"):
        found = SearchServiceV2(library).search(query, dataset="hr", mode=mode, explain=True)
        return [json.loads(one.model_dump_json()) for one in found]

    asked = [("free places",), ("days of holidays", "vector"), ("lex: holidays / vec: days off",)]
    before = [told(*one) for one in asked]
    write(library, "PTO, holidays = paid time off\n")
    assert [told(*one) for one in asked] == before


def test_a_word_of_grammar_is_meant_only_in_capitals(library, search):
    write(library, "IT = information technology\n")
    assert search("is it free") == ({"parking.md"}, [])
    assert search("who is IT")[1] == ["who is information technology"]


def test_an_answer_takes_a_synonym_for_the_word(library):
    def missing(question):
        params = AskParams(question=question, dataset="hr")
        return answer_question(SearchServiceV2(library), params).missing

    write(library, "PTO = paid time off\nIT, help desk = information technology\nshift = hours\n")
    assert missing("How many days of PTO has each employee?") == ()
    assert missing("How many shift days of PTO has each employee?") == ("shift",)
    assert missing("When is the help desk open?") == ()
    write(library, "")
    assert missing("How many days of PTO has each employee?") == ("PTO",)


def test_exclusions_and_filters_hold_for_synonyms(library, search):
    write(library, "PTO = paid time off\n")
    assert search("PTO -board")[0] == {"leave.md"}
    assert search("PTO", filters=["confidentiality=secret"])[0] == {"secret.md"}


def test_a_role_finds_no_hidden_document_by_a_synonym(library, search):
    roles = AnswerSettings(roles=["guest: unlabelled"])
    library.settings = library.settings.model_copy(update={"answers": roles})
    write(library, "PTO, boardroom = paid time off\n")
    assert search("PTO", role="guest")[0] == {"leave.md"}
    assert search("boardroom", role="guest", mode="hybrid")[0].isdisjoint({"secret.md"})


@table("line")
def test_a_damaged_line_is_told_by_its_number_at_a_search_and_by_doctor(library, search, line):
    write(library, f"PTO = paid time off\n{line.replace('MANY', 'a, ' * 50)}\n")
    with pytest.raises(ConfigError, match=r"synonyms\.txt in the home, line 2 "):
        search("anything")
    home = library.settings.home
    found = check("synonyms", lambda: str(read_synonyms(home)), "search again", home)
    assert (found.ok, "line 2" in found.detail) == (False, True)


def test_a_file_that_is_no_text_is_told(library, search):
    (library.settings.home / "synonyms.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"cannot read synonyms\.txt"):
        search("anything")


def test_no_query_gets_more_than_ten_other_wordings(library, search):
    write(library, f"{', '.join(f'name{n}' for n in range(40))} = product\n")
    assert len(search("product and name3")[1][0].split(", ")) == 10
