"""A bound that a dataset keeps: sentences below it are unsupported, until something changes."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from answers.conftest import WritingLLM, asking, serve
from catalog.answers.answering import answer_question
from catalog.answers.risk import RiskBound, answer_conditions, flat_conditions, save_bound
from catalog.core.agents import Agent
from catalog.interfaces.cli.commands import app

ASKED = asking("How many days may customers cancel within?")
EXACT = "Customers may cancel within 14 days of the order [1]."
LOOSE = "People may cancel within 14 days of an order placed [1]."


@pytest.fixture
def bounded(project, tmp_path):
    """Ask a store that keeps this bound, made with a model, maybe under other settings."""
    home = shutil.copytree(project, tmp_path / "home")
    opened = []

    def run(threshold, *, now=None, params=ASKED, **answers):
        llm = WritingLLM(replies=[f"{EXACT} {LOOSE}"], prompts=[])
        service = serve(home, llm, **answers)
        opened.append(service)
        made_for = flat_conditions(answer_conditions(service, ASKED, "notes", llm, Agent()))
        bound = RiskBound(threshold, 0.05, 0.95, 100, 0.5, 0.0, made_for)
        save_bound(service.parts.database, "notes", bound)
        if now is not None:
            service = serve(home, llm, **now)
            opened.append(service)
        return answer_question(service, params)

    yield run
    for service in opened:
        service.close()


def test_a_sentence_below_the_bound_is_unsupported_and_the_bound_is_reported(bounded):
    exact, loose = bounded(0.95).sentences
    assert (exact.supported, exact.score) == (True, 1.0)
    assert not loose.supported
    assert loose.reasons == (f"bound: a score of {loose.score:.3f}, but 0.950 is needed",)
    assert bounded(0.95, unsupported="drop").text.count("cancel") == 1
    assert any(one.startswith("at most 5.0% of the sentences") for one in bounded(0.95).notes)


def test_a_bound_that_all_sentences_reach_changes_no_sentence(bounded):
    assert all(one.supported for one in bounded(0.6).sentences)


def test_another_setting_or_model_voids_it_aloud(bounded):
    answer = bounded(0.95, now={"context_passages": 2})
    assert all(one.supported for one in answer.sentences)
    (note,) = [one for one in answer.notes if "is void" in one]
    assert "changed since it was made: answers.context_passages;" in note


def test_roles_and_keys_do_not_void_it(bounded):
    assert not bounded(0.95, now={"tool": True}).sentences[1].supported


def test_a_question_may_ask_for_what_voids_it(bounded):
    answer = bounded(0.95, params=asking(ASKED.question, top_k=2))
    assert any("changed since it was made: asked.top_k;" in one for one in answer.notes)


@pytest.mark.slow
def test_the_commands_make_a_bound_from_labels_and_take_it_back(project, tmp_path, monkeypatch):
    home = shutil.copytree(project, tmp_path / "home")
    monkeypatch.setenv("IDX_HOME", str(home))
    golden, labels = tmp_path / "asked.jsonl", tmp_path / "labels.jsonl"
    rows = [{"id": f"q{n}", "query": "customers cancel order refund"} for n in range(2)]
    golden.write_text("\n".join(map(json.dumps, rows)))

    def run(*arguments, code=0):
        result = CliRunner().invoke(app, list(map(str, arguments)))
        assert result.exit_code == code, result.output
        return result.stdout if code == 0 else str(result.exception)

    measure = ("eval", "answers", "--golden", golden, "--mode", "lexical", "--sentences", labels)
    run(*measure)
    assert "may have labels" in run(*measure, code=1)
    assert "label 2 more" in run("golden", "bound", labels, "--at-most", "0.9", code=1)
    text = labels.read_text()
    labels.write_text(text.replace('"supported":null', '"supported":true'))
    said = run("golden", "bound", labels, "--at-most", "0.9")
    assert "at most 90.0% of the sentences shown are unsupported, with 95% confidence" in said
    assert "100% still get an answer" in said
    asked = run("ask", "customers cancel order refund", "--mode", "lexical", "--json")
    assert any("at most 90.0%" in note for note in json.loads(asked)["notes"])
    labels.unlink()
    assert "was made with a bound" in run(*measure, code=1)
    assert "no bound holds" in run("golden", "bound", "--undo", "--dataset", "notes")
    other = run("ask", "customers cancel order refund", "--mode", "lexical", "--json")
    assert not any("at most" in note for note in json.loads(other)["notes"])
