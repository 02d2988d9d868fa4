"""The workflows of .github/: every step names what exists, and its shell runs."""

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from release.commands import parse

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
WORKFLOWS = {one.stem: yaml.safe_load(one.read_text()) for one in FILES}
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = [
    *(
        pytest.param(step, id=f"{name}-{job}-{number}")
        for name, workflow in WORKFLOWS.items()
        for job, one in workflow["jobs"].items()
        for number, step in enumerate(one["steps"])
    ),
    *(pytest.param(step, id=f"action-{n}") for n, step in enumerate(ACTION["runs"]["steps"])),
]
SCRIPTS = [
    pytest.param(step.values[0]["run"], id=step.id) for step in STEPS if "run" in step.values[0]
]
ACTIONS = {  # each with the major version that is used everywhere
    "actions/checkout": "v5",
    "actions/setup-python": "v6",
    "actions/upload-artifact": "v4",
    "actions/download-artifact": "v5",
    "actions/upload-pages-artifact": "v4",
    "actions/deploy-pages": "v4",
    "pypa/gh-action-pypi-publish": "release/v1",
}
PYTHON_MODULES = {"pip", "pytest", "build"}


def lines_of(script):
    return [line.strip() for line in script.splitlines() if line.strip()]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_python_that_is_promised_is_tested_on_every_system():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    promised = set(re.findall(r"Python :: (\d\.\d+)", "\n".join(project["classifiers"])))
    jobs = WORKFLOWS["ci"]["jobs"]
    assert promised == {"3.11", "3.12", "3.13", "3.14"}
    for job in ("linux", "elsewhere"):
        assert set(jobs[job]["strategy"]["matrix"]["python"]) == promised
    assert jobs["elsewhere"]["strategy"]["matrix"]["os"] == ["macos-latest", "windows-latest"]
    assert len(jobs["wheel"]["strategy"]["matrix"]["os"]) == 3


@pytest.mark.parametrize("step", STEPS)
def test_a_step_runs_a_script_or_a_known_action(step):
    assert ("run" in step) != ("uses" in step)
    if "uses" in step:
        name, _, version = step["uses"].partition("@")
        assert ACTIONS[name] == version


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_is_sound_and_takes_nothing_from_outside_into_its_text(script):
    subprocess.run(["bash", "-n", "-c", script], check=True)
    assert "${{" not in script


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_names_files_targets_modules_and_extras_that_there_are(script):
    makefile = (ROOT / "Makefile").read_text()
    for line in lines_of(script):
        if re.match(r"\w+=", line):
            continue
        words = shlex.split(line.replace("$GITHUB_ACTION_PATH", str(ROOT)))
        assert words[0] in {"make", "python", "docker", "echo"}, line
        if words[0] == "make":
            assert re.search(f"^{words[1]}:", makefile, re.MULTILINE)
        elif words[:2] == ["python", "-m"]:
            assert words[2] in PYTHON_MODULES
            named = [word for word in words if word.startswith("tests/")]
            assert all((ROOT / one).exists() for one in named)
        elif words[0] == "python":
            assert (ROOT / words[1]).is_file()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {one for many in re.findall(r"\.\[([\w,-]+)\]", script) for one in many.split(",")}
    assert extras <= project["optional-dependencies"].keys()
    for file in re.findall(r"-c (\S+)|--file (\S+)", script):
        assert (ROOT / "".join(file)).exists()


def test_elsewhere_what_make_installs_and_runs_is_the_same():
    makefile = (ROOT / "Makefile").read_text()
    steps = {one.get("name"): one for one in WORKFLOWS["ci"]["jobs"]["elsewhere"]["steps"]}
    install, test = steps["Install"]["run"], steps["Test"]["run"]
    extras = re.search(r"-e ('\S+')", install)[1]
    assert f"-e {extras}" in makefile
    assert test.removeprefix("python -m pytest ") in makefile


def test_jobs_have_the_least_rights_and_only_a_tag_releases():
    for workflow in WORKFLOWS.values():
        assert workflow["permissions"] == {"contents": "read"}
    release = WORKFLOWS["release"]
    assert release[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads "on" as true
    jobs = release["jobs"]
    assert jobs["package"]["permissions"] == {"id-token": "write"}
    assert jobs["package"]["needs"] == "build"
    assert {jobs[name]["needs"] for name in ("container", "docs")} == {"package"}
    assert "secrets." not in "".join(one.read_text() for one in FILES)


def test_the_container_is_built_started_and_published_under_the_version(tmp_path):
    steps = WORKFLOWS["release"]["jobs"]["container"]["steps"]
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\n')
    docker.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_REF_NAME": "v1.2.3",
        "GITHUB_ACTOR": "someone",
        "TOKEN": "a token",
        "IMAGE": "ghcr.io/SomeOne/Documents",
    }
    for script in (step["run"] for step in steps if "run" in step):
        subprocess.run(["bash", "-e", "-c", script], env=environment, check=True, input="")
    login, build, run, push = (tmp_path / "said").read_text().splitlines()
    image = "ghcr.io/someone/documents:1.2.3"
    assert login == "login ghcr.io --username someone --password-stdin"
    assert build == f"build --file deploy/Containerfile --tag {image} ."
    assert (ROOT / "deploy/Containerfile").exists()
    assert run == f"run --rm {image} --version"
    assert push == f"push {image}"


def test_a_wheel_is_tried_with_commands_that_exist_and_every_preset():
    trial = load(ROOT / ".ci" / "try_wheel.py")
    for words, _ in trial.COMMANDS:
        if words not in (["--version"], ["--help"]):
            parse(words)
    assert {words[0] for words, _ in trial.COMMANDS} >= {"search", "ask", "doctor", "compare"}


@pytest.fixture
def checkout(tmp_path):
    """The files that state a version, in a folder where they can be changed."""
    for file in (
        "src/catalog/__init__.py", "CHANGELOG.md", "CITATION.cff", "server.json", "pyproject.toml",
        ".claude-plugin/plugin.json", ".ci/check_release.py",
    ):  # fmt: skip
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)

    def check(*tag):
        script = tmp_path / ".ci" / "check_release.py"
        done = subprocess.run([sys.executable, script, *tag], capture_output=True, text=True)
        return done.returncode, done.stdout

    check.folder = tmp_path
    return check


def test_every_file_states_the_version_of_the_code(checkout):
    assert checkout() == (0, "every file states the same version\n")


def test_a_release_is_refused_that_is_not_ready(checkout):
    version = json.loads((ROOT / "server.json").read_text())["version"]
    code, said = checkout("v9.9.9")
    assert code == 1
    assert "the tag is v9.9.9" in said
    assert ("OWNER" in said) == ("OWNER" in (ROOT / "server.json").read_text())
    for file in ("server.json", "pyproject.toml", "CHANGELOG.md"):
        place = checkout.folder / file
        text = place.read_text().replace("OWNER", "someone")
        place.write_text(text.replace(", not released yet", ", 2027-01-02"))
    assert checkout(f"v{version}")[0] == 0
    place = checkout.folder / "CITATION.cff"
    place.write_text(place.read_text().replace(f"version: {version}", "version: 0.0.1"))
    code, said = checkout(f"v{version}")
    assert (code, "CITATION.cff says 0.0.1" in said) == (1, True)
