"""README says what is true: its commands and code run, its pictures are those of the program."""

import html
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from catalog import search_v2
from catalog.interfaces.cli import main
from catalog.models import packaged

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
QUESTIONS = ROOT / "examples" / "questions.jsonl"
PAGES, ALL_PAGES, MAIN_JOB = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def run(line, monkeypatch, capsys):
    """Run a command of the page, and return the lines that it printed."""
    monkeypatch.setattr(sys, "argv", shlex.split(line, comments=True))
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    return [each.rstrip() for each in capsys.readouterr().out.rstrip().splitlines()]


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other Pythons have other pages")
def test_a_stranger_gets_the_answers_that_the_readme_shows(tmp_path, monkeypatch, capsys):
    if packaged.locate(packaged.BGE_SMALL) is None:
        pytest.skip("bge-small is not installed: pip install '.[offline]'")
    monkeypatch.chdir(tmp_path)
    exec(compile(PAGES, "README.md", "exec"), {})
    (block,) = re.findall(r"```\n(catalog index build python.*?)```", README, re.DOTALL)
    build, ask, *shown = block.rstrip().splitlines()
    run(build, monkeypatch, capsys)
    printed = run(ask, monkeypatch, capsys)
    assert printed == shown[1:]
    drawn = html.unescape((ROOT / "docs/pictures/search.svg").read_text(encoding="utf-8"))
    for line in printed:
        assert line in drawn.replace("\N{NO-BREAK SPACE}", " ")
    exec(compile(ALL_PAGES, "README.md", "exec"), {})
    (update, compare) = re.findall(r"^catalog (?:index update|compare) .*", README, re.MULTILINE)
    run(update, monkeypatch, capsys)
    (tmp_path / "golden_queries").symlink_to(ROOT / "golden_queries")
    told = run(f"{compare} --baseline lexical", monkeypatch, capsys)
    assert "n = 201." in told[0]
    assert "better" in told[0]
    job = MAIN_JOB.replace(").verdict", ", baseline='lexical', repeats=0).verdict")  # v1 is slow
    exec(compile(job, "README.md", "exec"), {})
    cited, *answer, verdict = capsys.readouterr().out.splitlines()
    assert cited.startswith("[source: ")
    assert any("cause" in line for line in answer)
    assert verdict == told[0]
    search_v2.close()


def test_the_example_questions_are_golden_queries_that_the_first_pages_answer():
    golden = (ROOT / "golden_queries" / "python-docs.jsonl").read_text(encoding="utf-8")
    labelled = {query["id"]: query for query in map(json.loads, golden.splitlines())}
    (names,) = re.findall(r'names = "(.*)"', PAGES)
    pages = {f"{name}.rst" for name in names.split()}
    for question in map(json.loads, QUESTIONS.read_text(encoding="utf-8").splitlines()):
        whole = labelled[question["id"]]
        assert question["query"] == whole["query"]
        assert [(one["path"], one["grade"]) for one in question["expected"]] == [
            (one["path"], one["grade"]) for one in whole["expected"] if one["path"] in pages
        ]


def test_every_file_the_readme_links_to_exists():
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []
