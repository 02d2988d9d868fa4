"""Statements carry what they depend on, and each is cited at its own place."""

from types import SimpleNamespace

import pytest

from answers.conftest import asking
from catalog.answers.answerable import estimate_answer, is_sure, read_candidates
from catalog.answers.answering import answer_question
from catalog.answers.cited_sources import Sources
from catalog.answers.extracting import Candidate, choose_sentences, find_conflict, rank_candidates
from catalog.answers.statements import read_statements
from catalog.core.answers import AnswerSentence
from catalog.core.params import SearchParams
from catalog.library.indexing import Indexer
from catalog.search_v2 import SearchServiceV2
from fakes import open_library, write
from made_results import result
from tables import table


def read(text):
    return [(one.text, one.context) for one in read_statements(text)]


@table("text")
def test_a_fragment_without_meaning_is_not_a_statement(text):
    assert read(text) == []


@table("text, expected", list)
def test_code_that_a_passage_cuts_is_no_statement(text, expected):
    assert [statement for statement, _ in read(text)] == expected


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


@pytest.mark.parametrize(
    ("rows", "statements"),
    [
        ("| Walrus | North | 7 |\n| Otter | South | 9 |", ["Walrus; Sea: North; Age: 7", ...]),
        ("Walrus | North | 7\nOtter | South | 9", ["Walrus; Sea: North; Age: 7", ...]),
        ('Walrus;"North";7\nOtter;South;9', ["Walrus; Sea: North; Age: 7", ...]),
        ("Animal,Sea,Age\nWalrus,North,7\nOtter,South,9", ["Walrus; Sea: North; Age: 7", ...]),
        ("Walrus swims; it sleeps, too.\n", ["Walrus swims; it sleeps, too."]),
    ],
)
def test_a_row_has_the_known_names_of_its_columns(rows, statements):
    found = [one.text for one in read_statements(rows, ["Zoo", "| Animal | Sea | Age |"])]
    assert found == [*statements[:1], *(["Otter; Sea: South; Age: 9"] if statements[1:] else [])]
    assert not any(one.context for one in read_statements(rows, ["| Only | Old | 2019 |"]))


def test_an_answer_has_its_question():
    assert read("May I eat here? Only in the kitchen. It is warm.") == [
        ("Only in the kitchen.", ("May I eat here?",)),
        ("Only in the kitchen. It is warm.", ()),
    ]


def test_a_sentence_that_begins_with_a_pronoun_has_the_one_before_it():
    (first, second) = read("The pump leaks. It must be replaced.")
    assert first[0] == "The pump leaks."
    assert second[0] == "The pump leaks. It must be replaced."


@table("text, expected", list)
def test_a_statement_goes_on_to_what_turns_its_meaning(text, expected):
    assert [statement for statement, _ in read(text)] == expected


@pytest.mark.parametrize("lead", ["The following is no longer valid:", "Do not write:"])
def test_a_paragraph_has_a_lead_in_that_turns_it(lead):
    statements = read(f"{lead}\n\nUse the form.\n\nSign it.\n")
    assert statements[-2:] == [("Use the form.", (lead.rstrip(".:"),)), ("Sign it.", ())]


@table("text, expected", list)
def test_a_row_of_csv_has_the_names_of_its_columns_if_it_has_any(text, expected):
    assert [statement for statement, _ in read(text)] == expected


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
    ranked = rank_candidates(results.query, results.results)
    candidates = read_candidates(service.parts, results.query, results, ranked)
    read = estimate_answer(service.parts, results.query, results, candidates)
    assert 0 < read < 1
    assert read != results.confidence
    unrelated = [one._replace(read_score=-11.2) for one in candidates]
    assert estimate_answer(service.parts, results.query, results, unrelated) < 0.001
    german = "Wie oft soll der Pegel nach der Reinigung noch einmal gelesen werden?"
    assert estimate_answer(service.parts, german, results, unrelated) > 0.001
    rag = service.parts.rag.model_copy(update={"rerank_model": "another/model"})
    settings = service.parts.settings.model_copy(update={"rag_v2": rag})
    other = SimpleNamespace(settings=settings, reranker=None, database=service.parts.database)
    assert read_candidates(other, results.query, results, ranked) == ranked
    unread = estimate_answer(other, results.query, results, ranked)
    assert unread == pytest.approx(results.confidence)
    even = SimpleNamespace(scores=lambda _, read: [1.0] * len(read))
    level = SimpleNamespace(settings=service.parts.settings, reranker=even)
    newest = read_candidates(level, "the latest gauge", results, ranked)
    assert all(one.read_score == 2 - one.n for one in newest if one.read_score is not None)
    of_keyword = estimate_answer(service.parts, "gauge", results, unrelated)
    assert 0.001 < of_keyword < estimate_answer(service.parts, "gauge", results, candidates)


@table("text, expected")
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
    return Candidate(score, 1.0, 1, start, start + len(text), text, "", text, "")


def conflict(question, *texts, titles=("", "")):
    own = {"sections": (), "score": 1.0, "relevance": 0.5, "link": None}
    passages = [
        SimpleNamespace(rank=rank, title=titles[rank - 1], text=text, **own)
        for rank, text in enumerate(texts, start=1)
    ]
    found = find_conflict(rank_candidates(question, passages), passages)
    return found and found[1]


@table("question, one, other, values")
def test_statements_that_say_different_things_of_one_are_found(question, one, other, values):
    assert conflict(question, one, other) == values


@table("question, one, other")
def test_statements_of_other_days_or_other_things_do_not_differ(question, one, other):
    assert conflict(question, one, other) is None


@table("titles, differ")
def test_documents_of_a_series_say_different_things_of_different_matters(titles, differ):
    texts = ("The monthly fee is 7 percent.", "The monthly fee is 5 percent of the plan.")
    assert bool(conflict("what is the monthly fee", *texts, titles=titles)) == differ


def test_both_statements_are_shown_and_said_to_differ(tmp_path):
    folder = tmp_path / "notes"
    write(
        folder,
        old_dot_md="# Old\n\nThe API keys are rotated every 90 days.\n",
        new_dot_md="# New\n\nThe API keys are rotated every 30 days by the robot.\n",
    )
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(folder, "notes")
        service = SearchServiceV2(library)
        answer = answer_question(service, asking("how often are the API keys rotated"))
    assert {one.text for one in answer.sentences[:2]} == {
        "The API keys are rotated every 90 days.",
        "The API keys are rotated every 30 days by the robot.",
    }
    (note,) = [one for one in answer.notes if "different" in one]
    assert note.startswith("[1] and [2] say different things: ")
    assert set(note.rpartition(": ")[2].split(", ")) == {"90 days", "30 days"}


def test_the_best_read_comes_first_and_others_only_if_read_nearly_as_well():
    read = [candidate(f"Sentence {n}.", 1.0 - n / 10, 10 * n) for n in range(4)]
    scores = (5.0, 4.2, 3.9, None)
    read = [one._replace(read_score=score) for one, score in zip(read, scores, strict=True)]
    assert [one.text for one in choose_sentences(read, 3)] == ["Sentence 0.", "Sentence 1."]


@table("text, headings, words, context", list)
def test_what_turns_a_statement_is_its_context(text, headings, words, context):
    first = next(iter(read_statements(text, headings)))
    assert (first.text, " ".join(first.context)) == (words, context)


@table("text, shown")
def test_a_heading_that_turns_a_sentence_is_shown_with_it(text, shown):
    passage = SimpleNamespace(
        rank=1, title="", sections=(), score=1.0, relevance=0.5, text=text, link=None
    )
    assert rank_candidates("how high is the fee", [passage])[0].context == shown


def test_a_citation_has_all_that_is_quoted_and_only_a_mark_is_a_number_in_brackets():
    text = "Run print [1] first. Then wait. The key is in it." + " Long." * 100
    sources = Sources([passage := result(text=text)], "number")
    for start, end in ((33, len(text)), (0, 20)):
        quoted = AnswerSentence(
            text=text[start:end], citations=(passage.rank,), supported=True, span=(start, end)
        )
        cited = sources.cite(quoted)
    [citation] = sources.of([cited])
    assert citation.text == text
    assert cited.marked() == "Run print [ 1 ] first. [1]"


def test_an_answer_stands_in_the_first_passage():
    found = SimpleNamespace(results=[SimpleNamespace(rank=1, certainty=None)])
    for rank, is_answer in ((1, True), (2, False)):
        best = candidate("The fee is 9 euros.", 1.0, 0)._replace(n=rank, read_score=4.0)
        assert is_sure(found, [best, best._replace(read_score=2.0)]) is is_answer


def test_a_statement_that_denies_a_part_of_the_best_one_is_shown():
    best = candidate("Smoking is allowed.", 1.0, 0)
    other = candidate("Smoking is allowed nowhere.", 0.9, 50)
    assert [one.text for one in choose_sentences([best, other], 1, other)] == [
        "Smoking is allowed.",
        "Smoking is allowed nowhere.",
    ]


def test_a_table_whose_first_row_is_in_the_headings_has_its_column_names():
    text = "# Servers\n\n| host | role |\n|---|---|\n| alder | database |\n| birch | web |\n"
    found = read_statements(text, ("Servers", "| host | role |"))
    assert [one.text for one in found] == ["alder; role: database", "birch; role: web"]
    assert all(one.context == () for one in found)


def test_an_answer_that_begins_with_a_limit_stays_with_its_own_question():
    text = (
        "Q: Where do I park my bicycle?\nA: In the cellar, behind the lift.\n\n"
        "Q: Is the office open on Saturdays?\nA: Only from 9 to 13, and not in August.\n"
    )
    first, second = read_statements(text)
    assert first.turned == ""
    assert "bicycle" in first.context[-1]
    assert "Saturdays" in second.context[-1]
