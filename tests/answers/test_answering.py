"""Questions answered without a language model, and those that are not answered."""

import asyncio
from types import SimpleNamespace

import pytest

from answers.conftest import WritingLLM, asking, serve
from catalog.answers.answering import answer_events, answer_question
from catalog.answers.extracting import choose_sentences, rank_candidates
from catalog.answers.statements import sentence_bounds
from catalog.core.errors import ConfigError, InputError
from catalog.search_v2 import AnswerQueryEngine


def test_an_answer_is_made_of_the_documents_own_sentences_each_with_its_source(service):
    answer = answer_question(service, asking("How many days may customers cancel within?"))
    first = answer.sentences[0]
    assert first.text == "Customers may cancel within 14 days of the order."
    cited = answer.citations[0]
    assert first.citations == (cited.n,)
    assert answer.text.startswith(f"{first.text} [{cited.n}]")
    assert (cited.path, cited.verified) == ("cancel.md", True)
    assert cited.text == first.text
    assert cited.chunk_id == answer.results[cited.n - 1].chunk_id
    assert cited.citation.startswith("[source: Cancellation, line")
    assert answer.model is None
    assert any("IDX_LLM__PROVIDER" in note for note in answer.notes)


def test_each_row_of_a_table_is_a_sentence_but_not_the_line_under_its_head():
    text = (
        "The fees are these.\n| plan | fee |\n|---|---|\n| basic | 5 |\n| large | 20 |\nAll yearly."
    )
    bounds = [text[start:end].strip() for start, end in sentence_bounds(text)]
    assert bounds == [
        "The fees are these.", "| plan | fee |", "|---|---|", "| basic | 5 |", "| large | 20 |",
        "All yearly.",
    ]  # fmt: skip
    passage = SimpleNamespace(
        rank=1, title="", sections=(), score=1.0, relevance=0.5, text=text, link=None
    )
    extracted = choose_sentences(rank_candidates("fee of the large plan", [passage]), 3)
    assert [sentence.text for sentence in extracted] == ["large; fee: 20"]


def test_a_source_is_where_its_cited_sentences_stand(service):
    answer = answer_question(service, asking("How many days may customers cancel within?"))
    (cited,) = [one for one in answer.citations if one.path == "cancel.md"]
    assert (cited.locator.line_start, cited.locator.line_end) == (7, 7)
    passage = answer.results[cited.n - 1]
    assert passage.locator.line_start < 7


def test_a_model_that_does_not_exist_is_refused_when_it_was_named(service):
    with pytest.raises(ConfigError, match="fake"):
        answer_question(service, asking("How long does a refund take?", model="fake:nosuch"))


def test_a_question_outside_the_collection_is_not_answered_and_says_what_is_near(service):
    answer = answer_question(service, asking("What is the capital of Mongolia?"))
    assert answer.abstained
    assert "I don't see an answer to that in these documents" in answer.text
    assert "pricing" not in answer.text
    assert answer.abstained.reason
    assert "index update --dataset notes" in answer.abstained.ingest
    assert {one.path for one in answer.abstained.nearest} <= {
        "cancel.md", "keys.md", "salaries.md", "bread.txt",
    }  # fmt: skip
    assert answer.sentences == answer.citations == ()


@pytest.mark.slow
def test_who_may_see_the_folder_is_told_to_put_a_document_there(service, project):
    folder = str(project.parent / "notes")
    asked = "What is the capital of Mongolia?"
    assert f"into {folder}, then" in answer_question(service, asking(asked)).abstained.ingest
    limited = answer_question(service, asking(asked, role="guest")).abstained.ingest
    assert folder not in limited
    assert "index update --dataset notes" in limited


def test_how_likely_an_answer_must_be_is_a_setting(project):
    asked = asking("How many weeks may customers cancel within?", mode="lexical")
    for least, is_answered in ((0.4, True), (1.0, False)):
        opened = serve(project, answered_from=least)
        answer = answer_question(opened, asked)
        opened.close()
        assert bool(answer.sentences) == is_answered
        assert is_answered or "100% is needed" in answer.abstained.reason


def test_a_question_that_finds_nothing_says_so(service):
    answer = answer_question(service, asking("bread", docs=[]))
    assert answer.abstained.reason == "no passage was found"
    assert answer.abstained.nearest == ()


def test_the_json_has_the_promised_keys_and_the_results(service):
    said = answer_question(service, asking("How do I bake bread?")).to_dict()
    promised = "question answer abstained reason citations results model stages tokens elapsed_ms"
    assert set(promised.split()) <= said.keys()
    assert {"n", "chunk_id", "path", "locator", "text", "verified"} <= said["citations"][0].keys()
    assert said["results"][0]["path"] == "bread.txt"
    assert [stage["name"] for stage in said["stages"]][-2:] == ["extract", "abstain"]


def test_results_come_first_then_each_sentence_then_the_whole(service):
    events = list(answer_events(service, asking("How long does a refund take?")))
    kinds = [event.kind for event in events]
    assert kinds == ["results", *["sentence"] * (len(kinds) - 2), "answer"]
    assert tuple(one.sentence for one in events[1:-1]) == events[-1].answer.sentences


@pytest.mark.parametrize("name", ["project", "dataset"])
def test_project_is_another_name_of_dataset(service, name):
    from catalog.interfaces.calls import LocalEngine

    engine = LocalEngine(service.library)
    assert engine.ask("ask", {"question": "bake bread", name: "notes"})["datasets"] == ["notes"]


CANCEL = "How many days may customers cancel within?"
RIGHT = "Customers may cancel within 14 days of the order [1]."


def test_a_query_engine_gives_the_answer_and_its_sources(service):
    response = AnswerQueryEngine("notes", service=service).query(CANCEL)
    assert response.response.startswith("Customers may cancel within 14 days of the order. [1]")
    assert response.source_nodes[0].node.metadata["path"] == "cancel.md"
    assert response.metadata["citations"][0]["verified"]
    later = asyncio.run(AnswerQueryEngine("notes", service=service).aquery(CANCEL))
    assert later.response == response.response


def test_a_query_engine_sees_what_its_role_sees(service):
    engine = AnswerQueryEngine(service=service, role="guest")
    assert engine.query("What is the salary of a director?").metadata["abstained"]
    with pytest.raises(InputError, match="rolle"):
        AnswerQueryEngine(service=service, rolle="guest")


def test_a_query_engine_streams_checked_sentences(service):
    llm = WritingLLM(replies=[f"{RIGHT} A refund takes 50 working days [1]."], prompts=[])
    response = AnswerQueryEngine(service=service, llm=llm, streaming=True).query(CANCEL)
    assert response.source_nodes
    parts = list(response.response_gen)
    assert len(parts) == 2
    assert parts[1].endswith("[unsupported]")
    assert response.metadata["answer"] == "".join(parts)


def test_a_reply_that_may_not_answer_looks_like_one(service, monkeypatch):
    run, asked = service.run, []
    monkeypatch.setattr(service, "run", lambda params: asked.append(params) or run(params))
    answer = answer_question(service, asking("Can the gift wrapping of an order be cancelled?"))
    assert {(one.mode, one.expand) for one in asked[1:]} == {("lexical", False)}
    assert answer.certainty == "possible"
    assert answer.text.startswith("These documents may not answer it. Closest:\n")
    words = ("gift", "wrapping")
    assert answer.notes[:2] == tuple(f'no document mentions "{word}"' for word in words)
    assert {*words} <= {*answer.missing}
    shown = [event.sentence for event in answer_events(service, asking(answer.question))]
    assert [one for one in shown if one is not None] == list(answer.sentences)


def test_words_that_only_the_quoted_text_lacks_are_named_but_not_how_many_now_or_today(service):
    answer = answer_question(service, asking("How many days may customers cancel now, or today?"))
    assert (answer.certainty, answer.missing) == ("likely", ())
    answer = answer_question(service, asking("May customers cancel keys within 14 days?"))
    assert (answer.certainty, answer.missing) == ("likely", ("keys",))
    assert answer.text.startswith("Not in the quoted text: keys.\nCustomers may cancel")
    assert not any("keys" in note for note in answer.notes)
    shown = [event.sentence for event in answer_events(service, asking(answer.question))]
    assert [one for one in shown if one is not None] == list(answer.sentences)
    response = AnswerQueryEngine(service=service).query(answer.question)
    assert str(response) == answer.text


def test_a_question_is_read_as_far_as_a_query_is(service):
    words = " ".join(f"w{number}" for number in range(30_000))
    answer = answer_question(service, asking(f"How may customers cancel? {words}"))
    assert any("query cut from" in stage.note for stage in answer.stages)
    assert not any("no document mentions" in note for note in answer.notes)
