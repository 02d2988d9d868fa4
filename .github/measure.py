"""Run ``catalog compare`` or ``eval`` in a GitHub job, and report it where people look.

``action.yml`` starts it. Inputs come as ``INPUT_…`` variables, the rest as GitHub sets it. The
report goes to the step summary, to one comment of the pull request and to a folder. The exit code
is that of the command: 3 if a gate fails.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

GATE_FAILED = 3
_LONGEST = 60_000  # characters of a report; GitHub takes 65,536 in a comment
_PAGE = 100  # comments in one answer of GitHub
_SECONDS = 30


def read_input(name: str) -> str:
    """Return an input of the action, without surrounding space; empty if it is not given."""
    return os.environ.get(f"INPUT_{name}", "").strip()


def main() -> int:
    folder = Path(os.environ["RUNNER_TEMP"]) / f"report-{_slug(read_input('TITLE'))}"
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("IDX_HOME", str(folder.parent / "catalog-home"))
    code, text = measure(folder)
    (folder / "report.md").write_text(write_markdown(code, text), encoding="utf-8")
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}\n… cut; the uploaded report has the rest"
    report = write_markdown(code, text)
    _append("GITHUB_STEP_SUMMARY", report)
    _append("GITHUB_OUTPUT", f"exit-code={code}\nreport={folder}\nname={folder.name}\n")
    if read_input("COMMENT").casefold() == "true" and (number := find_pull_request()) is not None:
        try:
            keep_comment(number, report)
        except OSError as error:  # as in a pull request from a fork, whose token may only read
            print(f"::warning::the comment could not be written: {error}")
    return code


def measure(folder: Path) -> tuple[int, str]:
    """Index the documents and run the command; return its exit code and output."""
    text = ""
    if documents := read_input("DOCUMENTS"):
        code, text = _run("index", "build", documents, "--dataset", read_input("DATASET"))
        if code != 0:
            return code, text
    command = read_input("COMMAND")
    arguments = ["--golden", read_input("GOLDEN"), "--dataset", read_input("DATASET")]
    gates = [line.strip() for line in read_input("FAIL_IF").splitlines() if line.strip()]
    if command == "compare":
        arguments += ["--baseline", read_input("BASELINE"), "--candidate", read_input("CANDIDATE")]
        arguments += ["--report", str(folder / "report.html")]
        arguments += [word for gate in gates for word in ("--fail-if", gate)]
    elif command != "eval" or gates:
        return 2, f"command is {command!r}: 'compare', or 'eval' without fail-if\n"
    return _run(command, *arguments, *shlex.split(read_input("ARGUMENTS")))


def _run(*arguments: str) -> tuple[int, str]:
    """Run ``catalog``, print its output, and return exit code and output."""
    print(f"$ catalog {shlex.join(arguments)}", flush=True)
    done = subprocess.run(
        ["catalog", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    print(done.stdout, flush=True)
    return done.returncode, done.stdout


def write_markdown(code: int, text: str) -> str:
    """Return the report: a heading, the verdict on the gates, and the output of the command."""
    verdict = {0: "Passed.", GATE_FAILED: "**A gate failed.**"}.get(
        code, "**It could not be run.**"
    )
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)  # so that no text of a query or document ends the block
    return f"## {read_input('TITLE')}\n\n{verdict}\n\n{fence}text\n{text.rstrip()}\n{fence}\n"


def find_pull_request() -> int | None:
    """Return the number of the pull request that the job is about, ``None`` for other events."""
    event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    return event.get("pull_request", {}).get("number")


def keep_comment(number: int, report: str) -> None:
    """Write the report into the comment of an earlier run, or into a new one.

    A hidden first line marks the comment. A comment by a person is never changed.
    """
    marker = f"<!-- catalog-search: {_slug(read_input('TITLE'))} -->"
    repository = f"/repos/{os.environ['GITHUB_REPOSITORY']}"
    comments = f"{repository}/issues/{number}/comments"
    address, method = comments, "POST"
    page = 1
    while found := _ask("GET", f"{comments}?per_page={_PAGE}&page={page}"):
        ours = (one for one in found if one["user"]["type"] == "Bot")
        earlier = next((one for one in ours if one["body"].startswith(marker)), None)
        if earlier is not None:
            address, method = f"{repository}/issues/comments/{earlier['id']}", "PATCH"
            break
        page += 1
    _ask(method, address, {"body": f"{marker}\n{report}"})


def _ask(method: str, path: str, body: dict[str, str] | None = None) -> Any:
    """Ask GitHub, or the server that ``GITHUB_API_URL`` names; return the JSON of its answer."""
    request = urllib.request.Request(
        os.environ["GITHUB_API_URL"] + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {read_input('TOKEN')}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
        return json.load(answer)


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.casefold()).strip("-") or "report"


def _append(variable: str, text: str) -> None:
    """Append to the file that GitHub names in a variable, if it names one."""
    if path := os.environ.get(variable):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    sys.exit(main())
