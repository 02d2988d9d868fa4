"""The files of deploy/ name what exists: settings, commands, addresses, files and extras."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

from catalog.core.settings import load_settings
from catalog.interfaces.server.http import HEALTH, READY
from release.commands import parse

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
CONTAINERFILE = (ROOT / "deploy/Containerfile").read_text()
HAPROXY = (ROOT / "deploy/haproxy.cfg").read_text()
SECRET = "a secret of some length"


def settings_of(service, monkeypatch):
    """The settings that a service would run with, had each secret been set."""
    for name, value in service["environment"].items():
        monkeypatch.setenv(name, re.sub(r"\$\{\w+:\?[^}]*\}", SECRET, str(value)))
    return load_settings().settings


@pytest.mark.parametrize("name", ["first", "second", "index"])
def test_every_setting_of_a_service_is_one(name, monkeypatch, tmp_path):
    monkeypatch.setenv("IDX_HOME", str(tmp_path))
    service = COMPOSE["services"][name]
    assert all(variable.startswith("IDX_") for variable in service["environment"])
    settings = settings_of(service, monkeypatch)
    assert settings.database_url == f"postgresql://catalog:{SECRET}@postgres/catalog"
    assert settings.rag_v2.qdrant_url == "http://qdrant:6333"


def test_a_server_drains_for_longer_than_a_request_may_take_and_is_not_killed_before(monkeypatch):
    server = COMPOSE["services"]["first"]
    settings = settings_of(server, monkeypatch)
    grace = int(server["stop_grace_period"].removesuffix("s"))
    assert settings.serve.timeout_seconds < settings.serve.drain_seconds < grace - 5


def test_servers_answer_under_the_names_they_are_called_by(monkeypatch):
    allowed = settings_of(COMPOSE["services"]["first"], monkeypatch).serve.allowed_hosts
    called = re.findall(r"^    server (\w+) \1:8180$", HAPROXY, re.MULTILINE)
    assert called == ["first", "second"]
    assert set(called) <= set(COMPOSE["services"])
    assert {re.search("hdr Host (\\w+)", HAPROXY)[1], *called} == set(allowed)


def test_what_is_asked_for_health_is_an_address():
    assert f"GET uri {READY} " in HAPROXY
    assert HEALTH in COMPOSE["services"]["first"]["healthcheck"]["test"][-1]


def test_no_service_is_reached_from_outside_but_the_balancer_and_no_secret_is_written_down():
    reached = {name: one["ports"] for name, one in COMPOSE["services"].items() if "ports" in one}
    assert reached == {"balancer": ["127.0.0.1:8180:8180"]}
    text = (ROOT / "deploy/compose.yaml").read_text()
    secrets = re.findall(r"(?:PASSWORD|KEY|TOKEN): (.*)", text)
    assert len(secrets) == 4
    assert all(re.fullmatch(r"\$\{\w+:\?.*\}", secret) for secret in secrets)


def test_every_volume_is_declared():
    named = {
        volume.partition(":")[0]
        for service in COMPOSE["services"].values()
        for volume in service.get("volumes", ())
    }
    assert {name for name in named if not name.startswith(".")} == set(COMPOSE["volumes"])
    assert (ROOT / "deploy/haproxy.cfg").exists()


def test_the_container_is_built_of_files_and_extras_that_there_are():
    copied = [shlex.split(line)[1:-1] for line in re.findall("^COPY .*", CONTAINERFILE, re.M)]
    assert all((ROOT / path).exists() for paths in copied for path in paths)
    extras = re.search(r"'\.\[(.*)\]'", CONTAINERFILE)[1].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras) <= set(project["optional-dependencies"])


def test_what_a_container_runs_is_a_command_with_its_options():
    serve = parse(json.loads(re.search("^CMD (.*)", CONTAINERFILE, re.M)[1]))
    assert serve["http"] == "0.0.0.0:8180"
    index = parse(COMPOSE["services"]["index"]["command"])
    assert index["dataset"] == "docs"
