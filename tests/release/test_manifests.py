"""What registries and agents read about us: sound files that name what exists."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.retrievers import BaseRetriever

import catalog
from catalog import search_v2
from catalog.core.settings import load_settings
from catalog.interfaces.tools import LISTED_TOOLS, TOOLS
from release.commands import parse

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NAME = PROJECT["project"]["name"]
SERVER = json.loads((ROOT / "server.json").read_text())
(PACKAGE,) = SERVER["packages"]
PLUGIN = json.loads((ROOT / ".claude-plugin" / "plugin.json").read_text())
MARKET = json.loads((ROOT / ".claude-plugin" / "marketplace.json").read_text())
_, _HEAD, SKILL = (ROOT / "skills" / "catalog" / "SKILL.md").read_text().split("---\n", 2)
HEAD = yaml.safe_load(_HEAD)


def test_every_manifest_has_the_version_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    stated = {SERVER["version"], PACKAGE["version"], PLUGIN["version"], str(citation["version"])}
    assert stated == {catalog.__version__}


def test_the_registry_can_start_the_server_as_it_is_described():
    assert re.fullmatch(rf"io\.github\.[\w-]+/{NAME}", SERVER["name"])
    assert len(SERVER["description"]) <= 100  # the registry refuses more
    assert (PACKAGE["registryType"], PACKAGE["identifier"]) == ("pypi", NAME)
    assert PACKAGE["transport"] == {"type": "stdio"}
    # uvx, its arguments, the package and then the arguments of the package's command
    assert PACKAGE["identifier"] in PROJECT["project"]["scripts"]
    parse([one["value"] for one in PACKAGE["packageArguments"]])
    (model,) = PACKAGE["runtimeArguments"]
    assert model["name"] == "--with"
    extra = re.fullmatch(rf"{NAME}\[(\w+)\]=={re.escape(catalog.__version__)}", model["value"])[1]
    assert extra in PROJECT["project"]["optional-dependencies"]


def test_the_variables_of_the_server_are_settings(monkeypatch, tmp_path):
    defaults = {one["name"]: one.get("default") for one in PACKAGE["environmentVariables"]}
    for name, default in defaults.items():
        monkeypatch.setenv(name, default or str(tmp_path))
    settings = load_settings().settings
    assert settings.home == tmp_path
    assert settings.embedding.offline is True


def test_the_plugin_starts_a_command_that_exists_and_its_folder_has_the_skill():
    (server,) = PLUGIN["mcpServers"].values()
    assert server["command"] in PROJECT["project"]["scripts"]
    parse(server["args"])
    (listed,) = MARKET["plugins"]
    assert (listed["name"], listed["source"]) == (PLUGIN["name"], "./")
    assert HEAD["name"] == "catalog"  # the name of its folder
    assert len(HEAD["description"]) <= 1024


def test_the_skill_names_tools_that_agents_see():
    (server,) = PLUGIN["mcpServers"]
    allowed = re.findall(rf"mcp__{server}__(\w+)", HEAD["allowed-tools"])
    assert set(allowed) == set(LISTED_TOOLS)
    in_table = set(re.findall(r"^\|[^|]*\| `(\w+)` \|", SKILL, re.MULTILINE))
    assert in_table == set(LISTED_TOOLS) <= set(TOOLS)


COMMANDS = [one for one in re.findall(r"`catalog ([^`]+)`", SKILL) if not one.startswith("get`")]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_skill_exists_with_its_options(line):
    words = shlex.split(line)
    parse([*words, "notes:a.md"] if words == ["get"] else words)


def test_an_option_of_the_skill_is_one_of_searching():
    narrowing = re.findall(r"`(--[^`]+)`", SKILL)
    assert len(narrowing) == 5
    parse(["search", "a question", *(word for one in narrowing for word in shlex.split(one))])


def test_the_skill_lets_an_agent_read_and_change_nothing():
    allowed = re.findall(r"Bash\(catalog (\w+):\*\)", HEAD["allowed-tools"])
    assert allowed == ["search", "ask", "get", "browse", "status"]
    assert "Bash(*" not in HEAD["allowed-tools"]


@pytest.mark.slow
def test_llamahub_lists_public_parts_of_llamaindex_kinds():
    hub = PROJECT["tool"]["llamahub"]
    assert hub["import_path"] == search_v2.__name__
    kinds = (BaseRetriever, BaseQueryEngine, BaseNodePostprocessor)
    for name in hub["class_authors"]:
        assert name in search_v2.__all__
        assert issubclass(getattr(search_v2, name), kinds)


def test_forms_for_issues_have_what_github_asks_for():
    folder = ROOT / ".github" / "ISSUE_TEMPLATE"
    forms = {one.stem: yaml.safe_load(one.read_text()) for one in folder.glob("*.yml")}
    assert forms.pop("config") == {"blank_issues_enabled": True}
    assert set(forms) == {"bug", "idea", "quality"}
    for form in forms.values():
        assert {"name", "description", "body"} <= form.keys()
        ids = [field["id"] for field in form["body"]]
        assert len(ids) == len(set(ids))
        assert all(field["attributes"]["label"] for field in form["body"])
        for line in re.findall(r"`catalog ([^`]+)`", json.dumps(form)):
            words = shlex.split(line.replace('\\"', '"'))
            if words != ["--version"]:
                parse(words)


def test_the_security_page_links_to_pages_that_there_are():
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "SECURITY.md").read_text())
    assert links
    assert all((ROOT / link).exists() for link in links)


def test_no_address_is_invented():
    assert "urls" not in PROJECT["project"] or all(
        "OWNER" not in url for url in PROJECT["project"]["urls"].values()
    )
