"""Scores of answers, by hand: citations, support, abstention and nuggets."""

import pytest

from catalog.core.answers import AnswerSentence
from catalog.core.results import ResultLocator
from catalog.evaluation.answer_metrics import (
    AnswerRecord,
    NuggetAssignment,
    PassageRecord,
    holds_span,
    nuggets_of,
    score_answers,
    score_nuggets,
)
from catalog.evaluation.golden import Span
from evaluation.stubs import golden, question
from tables import table


def passage(n, path, text=""):
    place = ResultLocator(line_start=10, line_end=20)
    return PassageRecord(
        n=n, chunk_id=f"c{n}", path=path, score=1.0, start=100, end=200, locator=place, text=text
    )


def answered(*sentences, passages, **more):
    said = tuple(
        AnswerSentence(text="s", citations=numbers, supported=ok) for numbers, ok in sentences
    )
    return AnswerRecord(text="said", reason=None, sentences=said, passages=tuple(passages), **more)


SILENT = AnswerRecord(text="I don't know", reason="nothing", sentences=(), passages=())
PASSAGES = [passage(1, "right.md", "in 14\n days"), passage(2, "wrong.md"), passage(3, "right.md")]


def scores_of(query, answer):
    scores = score_answers(golden(query), {} if answer is None else {query.id: answer})
    return {name: by[query.id] for name, by in scores.items() if by}


def test_citations_are_judged_by_their_documents_and_sentences_by_their_support():
    # Of the passages cited, 1, 2 and 3, the first and last are of the labelled document.
    answer = answered(((1, 2), True), ((3,), False), passages=PASSAGES)
    assert scores_of(question(1), answer) == {
        "Answered": 1.0,
        "CiteP": pytest.approx(2 / 3),
        "CiteR": 1.0,
        "Support": 0.5,
    }


def test_recall_counts_questions_that_were_not_answered_and_precision_does_not():
    assert scores_of(question(1), SILENT) == {"Answered": 0.0, "AbstainP": 0.0, "CiteR": 0.0}


def test_a_question_without_an_answer_is_for_abstaining():
    foreign = question(1, kind="unanswerable", expected=[])
    assert scores_of(foreign, SILENT) == {"AbstainP": 1.0, "AbstainR": 1.0}
    told = scores_of(foreign, answered(((1,), True), passages=PASSAGES))
    assert told == {"AbstainR": 0.0, "Support": 1.0}


def test_a_question_that_failed_is_neither_answered_nor_abstained_from():
    assert scores_of(question(1), None) == {"Answered": 0.0, "CiteR": 0.0}
    assert scores_of(question(1, kind="unanswerable", expected=[]), None) == {"AbstainR": 0.0}


@table("span, holds")
def test_a_passage_holds_a_span_by_its_words_or_its_place(span, holds):
    assert holds_span(PASSAGES[0], "right.md", Span(**span)) is holds
    assert not holds_span(PASSAGES[0], "other.md", Span(**span))


def test_nuggets_are_scored_as_autonuggetizer_does():
    # Two vital nuggets, one supported and one in part; an okay one that is not.
    # VitalStrict 1/2, All (1 + .5 + 0)/3.
    texts = [("a", "vital"), ("b", "vital"), ("c", "okay")]
    query = question(1, nuggets=[{"text": text, "importance": how} for text, how in texts])
    assigned = ["support", "partial_support", "not_support"]
    pairs = zip(texts, assigned, strict=True)
    given = [NuggetAssignment(importance=how, assigned=one) for (_, how), one in pairs]
    assert score_nuggets(query, given) == {"VitalStrict": 0.5, "All": 0.5}
    assert set(score_nuggets(query, ()).values()) == {0.0}


def test_the_sentences_of_a_right_answer_are_its_nuggets_if_it_has_no_others():
    query = question(1, answer="Within 14 days. In writing.")
    assert [one.text for one in nuggets_of(query)] == ["Within 14 days.", "In writing."]
    okay = question(1, nuggets=[{"text": "a", "importance": "okay"}])
    assert score_nuggets(okay, ()) == {"All": 0.0}
