"""action.yml and its script: run as a job runs them, with a GitHub of our own and no network."""

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from release.commands import parse

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
MEASURE = next(step for step in ACTION["runs"]["steps"] if step.get("id") == "measure")
SCRIPT = ROOT / ".github" / "measure.py"
MARKER = "<!-- catalog-search: search-quality -->"
STUB = """#!{python}
import json, os, sys
with open(os.environ["CALLS"], "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1] == "index":
    sys.exit(int(os.environ.get("INDEX_CODE", "0")))
print(os.environ.get("SAYS", "v2 is better"))
sys.exit(int(os.environ.get("CODE", "0")))
"""


class GitHub(BaseHTTPRequestHandler):
    """Comments of issue 7 in memory; everything asked is noted."""

    def _answer(self, body, status=200):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _take(self):
        text = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.command, self.path, self.headers["Authorization"]))
        return json.loads(text)["body"]

    def do_GET(self):
        page = int(re.search(r"page=(\d+)$", self.path)[1]) - 1
        self._answer(self.server.comments[100 * page : 100 * page + 100])

    def do_POST(self):
        body = self._take()
        if self.server.is_read_only:
            self._answer({"message": "Resource not accessible by integration"}, 403)
            return
        self.server.add(body)
        self._answer({}, 201)

    def do_PATCH(self):
        body, number = self._take(), int(self.path.rpartition("/")[2])
        self.server.comments[number]["body"] = body
        self._answer({})

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    is_read_only = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), GitHub)
        self.comments, self.asked = [], []

    def add(self, body, kind="Bot"):
        self.comments.append({"id": len(self.comments), "body": body, "user": {"type": kind}})


@pytest.fixture
def github():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def job(tmp_path, github):
    """Return a function that runs the script as the action does, and the job's files."""
    stub = tmp_path / "bin" / "catalog"
    stub.parent.mkdir()
    stub.write_text(STUB.format(python=sys.executable))
    stub.chmod(0o755)
    event, calls = tmp_path / "event.json", tmp_path / "calls"
    given = {
        f"INPUT_{name.upper().replace('-', '_')}": str(one.get("default", ""))
        for name, one in ACTION["inputs"].items()
    }

    def run(about=None, **changed):
        event.write_text(json.dumps({"pull_request": {"number": 7}} if about is None else about))
        calls.unlink(missing_ok=True)
        (tmp_path / "output").unlink(missing_ok=True)
        environment = {
            **os.environ,
            **given,
            "PATH": f"{stub.parent}{os.pathsep}{os.environ['PATH']}",
            "INPUT_GOLDEN": "golden.jsonl",
            "INPUT_TOKEN": "a token",
            "CALLS": str(calls),
            "RUNNER_TEMP": str(tmp_path / "temp"),
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
            "GITHUB_OUTPUT": str(tmp_path / "output"),
            "GITHUB_EVENT_PATH": str(event),
            "GITHUB_REPOSITORY": "someone/documents",
            "GITHUB_API_URL": f"http://127.0.0.1:{github.server_port}",
            **changed,
        }
        done = subprocess.run(
            [sys.executable, SCRIPT], env=environment, capture_output=True, text=True, cwd=tmp_path
        )
        done.calls = [json.loads(line) for line in calls.read_text().splitlines()]
        done.summary = (tmp_path / "summary").read_text()
        done.outputs = dict(
            line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines()
        )
        return done

    run.folder = tmp_path
    return run


def test_a_comparison_is_in_the_summary_the_comment_and_the_uploaded_folder(job, github):
    done = job(INPUT_DOCUMENTS="docs")
    assert done.returncode == 0, done.stderr
    assert "v2 is better" in done.summary
    assert [one["body"].splitlines()[0] for one in github.comments] == [MARKER]
    assert "v2 is better" in github.comments[0]["body"]
    assert done.outputs["exit-code"] == "0"
    assert "v2 is better" in (Path(done.outputs["report"]) / "report.md").read_text()
    assert github.asked == [
        ("POST", "/repos/someone/documents/issues/7/comments", "Bearer a token")
    ]


def test_the_action_runs_existing_commands(job):
    gates = "ndcg@10 worse\n\np95_ms > 50\n"
    done = job(INPUT_DOCUMENTS="docs", INPUT_FAIL_IF=gates, INPUT_ARGUMENTS="--top-k 20 --aa")
    build, compare = (parse(words) for words in done.calls)
    assert ([*map(str, build["folders"])], build["dataset"]) == (["docs"], "documents")
    assert compare["fail_if"] == ["ndcg@10 worse", "p95_ms > 50"]
    assert (compare["baseline"], compare["candidate"]) == ("v1", ["v2"])
    assert (compare["top_k"], compare["aa"]) == (20, True)
    assert Path(compare["report"]).parent == Path(done.outputs["report"])
    (measured,) = (parse(words) for words in job(INPUT_COMMAND="eval").calls)
    assert str(measured["golden"]) == "golden.jsonl"


def test_a_failed_gate_fails_the_job_and_is_reported_all_the_same(job, github):
    done = job(CODE="3", SAYS="failed: ndcg@10 worse", INPUT_FAIL_IF="ndcg@10 worse")
    assert done.returncode == 3
    assert done.outputs["exit-code"] == "3"
    assert "**A gate failed.**" in done.summary
    assert "failed: ndcg@10 worse" in github.comments[0]["body"]


def test_documents_that_cannot_be_indexed_end_it_before_anything_is_measured(job, github):
    done = job(INPUT_DOCUMENTS="docs", INDEX_CODE="1")
    assert (done.returncode, len(done.calls)) == (1, 1)
    assert "**It could not be run.**" in github.comments[0]["body"]


@pytest.mark.slow
def test_a_second_run_changes_the_comment_of_the_first_among_many(job, github):
    for number in range(150):
        github.add(f"comment {number}", "User")
    github.add(f"{MARKER}\nby a person", "User")
    job(SAYS="first")
    job(SAYS="second")
    assert len(github.comments) == 152
    assert "second" in github.comments[-1]["body"]
    assert github.comments[-2]["body"].endswith("by a person")
    job(INPUT_TITLE="Another set")
    assert len(github.comments) == 153


def test_no_comment_is_written_without_the_setting_or_a_pull_request(job, github):
    assert job(INPUT_COMMENT="false").returncode == 0
    assert job(about={"ref": "refs/heads/main"}).returncode == 0
    assert github.comments == []


def test_a_token_that_may_only_read_costs_the_comment_and_not_the_job(job, github):
    github.is_read_only = True
    done = job()
    assert done.returncode == 0
    assert "::warning::" in done.stdout
    assert "v2 is better" in done.summary


def test_text_of_documents_cannot_end_the_block_it_is_shown_in(job, github):
    job(SAYS="```\n# Approved by everyone\n````")
    fences = re.findall("^`{5,}", github.comments[0]["body"], re.MULTILINE)
    assert len(fences) == 2


def test_a_long_report_fits_into_a_comment_and_is_whole_in_the_folder(job, github):
    done = job(SAYS="x" * 100_000)
    assert len(github.comments[0]["body"]) < 65_536
    assert "x" * 100_000 in (Path(done.outputs["report"]) / "report.md").read_text()


def test_gates_are_refused_where_they_would_not_be_looked_at(job):
    (job.folder / "calls").touch()
    with pytest.raises(FileNotFoundError):  # nothing was run
        job(INPUT_COMMAND="eval", INPUT_FAIL_IF="ndcg@10 worse")
    assert "exit-code=2" in (job.folder / "output").read_text()


def test_every_input_is_used_and_none_is_put_into_a_script():
    used = set(re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", (ROOT / "action.yml").read_text()))
    assert used == set(ACTION["inputs"])
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
    script = SCRIPT.read_text()
    read = {f"INPUT_{name}" for name in re.findall(r"read_input\([\"'](\w+)", script)}
    assert read == set(MEASURE["env"])
    assert MEASURE["run"].endswith('$GITHUB_ACTION_PATH/.github/measure.py"')
