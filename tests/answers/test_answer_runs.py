"""Labelled questions put to ask: what is recorded, what goes on, what is compared."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from answers.conftest import WritingLLM, serve
from catalog.core.errors import BackendError
from catalog.core.params import AskParams
from catalog.evaluation import answer_runs
from catalog.evaluation.answer_runs import (
    answer_run_dict,
    answer_run_lines,
    read_answers,
    run_answers,
)
from catalog.evaluation.backends import require_run
from catalog.evaluation.golden import GoldenQuery, GoldenSet
from catalog.evaluation.run_records import diff_runs
from catalog.evaluation.summary import diff_lines
from catalog.ingest.sync_report import Silent
from catalog.interfaces.cli.commands import app

CANCEL = {
    "id": "cancel",
    "query": "How many days may customers cancel within?",
    "expected": [{"path": "cancel.md", "span": "within 14 days of the order"}],
    "nuggets": [{"text": "Customers may cancel within 14 days."}, {"text": "Bring the papers."}],
}
FOREIGN = {"id": "foreign", "query": "What is the capital of Mongolia?", "answerable": False}
QUERIES = GoldenSet("asked", tuple(GoldenQuery.model_validate(one) for one in (CANCEL, FOREIGN)))
RIGHT = "Customers may cancel within 14 days of the order [1]."
WRONG = "Customers may cancel within 41 days of the order [1]."


@pytest.fixture
def measure(project, tmp_path, monkeypatch):
    """Ask with a model that replies so; all runs go to one store."""
    monkeypatch.setattr(answer_runs, "code_digest", lambda: "code")
    home = shutil.copytree(project, tmp_path / "home")
    opened = []

    def run(*replies, queries=QUERIES, judge=None, progress=None, **answers):
        llm = WritingLLM(replies=list(replies), prompts=[]) if replies else None
        service = serve(home, llm, **{"judge": None, **answers})
        opened.append(service)
        job = answer_runs.AnswerJob(service, queries, "notes", AskParams(""), llm, judge)
        return run_answers(job, progress=progress or Silent(), now=lambda: 1.0), service

    yield run
    for service in opened:
        service.close()


class StopAtTwo(Silent):
    """Ends the program after two questions."""

    done = 0

    def advance(self, amount, label, counts=""):
        self.done += amount
        if self.done == 2:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_a_run_has_the_metrics_the_passages_and_the_answers(measure):
    run, service = measure()
    record = require_run(service.parts.database, run.id)
    assert record == run
    assert {
        name: record.scores[name] for name in ("Answered", "AbstainR", "CiteP", "CiteSpan")
    } == {
        "Answered": {"cancel": 1.0},
        "AbstainR": {"foreign": 1.0},
        "CiteP": {"cancel": 1.0},
        "CiteSpan": {"cancel": 1.0},
    }
    assert record.scores["VitalStrict"] == {"cancel": 0.5}
    assert record.scores["nDCG@10"] == {"cancel": 1.0}
    answer = read_answers(record)["cancel"]
    assert answer.text.startswith("Customers may cancel within 14 days of the order. [1]")
    assert answer.passages[0].chunk_id == record.answers["cancel"]["passages"][0]["chunk_id"]
    assert [one.n for one in answer.passages if one.text] == [one.n for one in answer.cited]
    assert read_answers(record)["foreign"].reason


@pytest.mark.slow
def test_shown_results_have_intervals_and_no_nuggets_of_a_question(measure):
    run, _ = measure()
    lines = list(answer_run_lines(run))
    assert lines[0] == f"asked on notes: 2 questions, ask; run {run.id}"
    assert "Support 1 1.000 [0.207, 1.000]" in [" ".join(line.split()) for line in lines]
    assert lines[-1].startswith("1 of 2 questions answered; 1 sentences, 0 of them unsupported")
    told = json.loads(json.dumps(answer_run_dict(run)))
    assert told["measured"]["VitalStrict"] == {"n": 1, "mean": 0.5, "low": 0.5, "high": 0.5}
    assert "nuggets" not in told["answers"]["cancel"]


@pytest.mark.slow
def test_two_runs_are_compared_on_the_questions_of_which_both_have_a_score(measure):
    before, _ = measure(f"{RIGHT} {WRONG}")
    after, _ = measure(RIGHT, sentences=4)
    difference = diff_runs(before, after)
    assert difference.changed == {"answers.sentences": (3, 4)}
    assert difference.tests["Support"].difference == 0.5
    assert difference.tests["CiteR"].difference == 0.0
    assert any(line.startswith("Support") for line in diff_lines(difference))


@pytest.mark.slow
def test_a_stopped_run_goes_on_where_it_was(measure):
    more = [GoldenQuery(id=f"q{n}", query=CANCEL["query"]) for n in range(3)]
    three = GoldenSet("three", tuple(more))
    with pytest.raises(KeyboardInterrupt):
        measure(RIGHT, queries=three, progress=StopAtTwo())
    run, service = measure(RIGHT, queries=three)
    assert len(service.library.llm_of(None).prompts) == 1
    assert len(run.answers) == 3
    again, service = measure(RIGHT, queries=three)
    assert len(service.library.llm_of(None).prompts) == 3
    assert again.key == run.key


@pytest.mark.slow
def test_a_model_that_fails_fails_the_question_and_one_that_always_does_the_run(measure):
    twice = GoldenSet(
        "twice", tuple(GoldenQuery(id=f"q{n}", query=CANCEL["query"]) for n in (1, 2))
    )
    run, _ = measure([OSError("gone")], RIGHT, queries=twice)
    assert run.summary["failed"] == 1
    assert "could not be reached" in run.summary["errors"]["q1"]
    assert any(line.startswith("! failed: q1") for line in answer_run_lines(run))
    with pytest.raises(BackendError, match="failed on every question"):
        measure([OSError("gone")], queries=twice, sentences=4)


@pytest.mark.slow
def test_a_judge_says_which_nuggets_are_there(measure):
    judge = WritingLLM(replies=["1: support\n2: partial_support"], prompts=[])
    run, _ = measure(judge=judge)
    assert run.scores["VitalStrict"] == {"cancel": 0.5}
    assert run.scores["All"] == {"cancel": 0.75}
    (prompt,) = judge.prompts
    assert "2: Bring the papers." in prompt
    assert run.identity["judge"] == "WritingLLM writer"


@pytest.mark.slow
def test_the_command_prints_records_and_compares(project, tmp_path, monkeypatch):
    monkeypatch.setenv("IDX_HOME", str(shutil.copytree(project, tmp_path / "home")))
    golden = tmp_path / "asked.jsonl"
    golden.write_text("\n".join(map(json.dumps, (CANCEL, FOREIGN))))
    ask = ["eval", "answers", "--golden", str(golden), "--mode", "lexical"]
    page = tmp_path / "report.html"
    first = CliRunner().invoke(app, [*ask, "--json", "--report", str(page)])
    assert first.exit_code == 0, first.output
    run = json.loads(first.stdout)
    assert run["measured"]["Answered"]["mean"] == 1.0
    html = page.read_text()
    assert "Customers may cancel within 14 days of the order. [1]" in html
    assert "[1] cancel.md ✓" in html
    assert html.count("▲ as labelled") == 2
    shown = CliRunner().invoke(app, ["runs", "show", run["id"], "--json"])
    assert json.loads(shown.stdout)["answers"] == run["answers"]
    again = json.loads(CliRunner().invoke(app, [*ask, "--json"]).stdout)
    difference = CliRunner().invoke(app, ["runs", "diff", run["id"], again["id"]])
    assert "same configuration, corpus, queries and code" in difference.stdout
    wrong = CliRunner().invoke(app, ["eval", "--json", "answers", "--golden", str(golden)])
    assert wrong.exit_code == 2
