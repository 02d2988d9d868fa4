"""The pages of the reference that are written from the code say all of it."""

import runpy
from pathlib import Path

import pytest

from catalog.core.settings import Settings
from catalog.core.settings.loading import flatten
from catalog.interfaces.tools import TOOLS

WRITTEN = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "generated.py"))
COMMANDS = dict(WRITTEN["list_commands"]())


@pytest.fixture(scope="module")
def commands():
    return WRITTEN["commands_page"]()


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_a_section_and_says_what_each_option_does(path, commands):
    assert f"\n## {path}\n" in commands
    assert COMMANDS[path].help
    assert [one.name for one in COMMANDS[path].params if not getattr(one, "help", None)] == []


def test_every_setting_has_a_row_with_a_description():
    page = WRITTEN["settings_page"]()
    for name, _ in flatten(Settings().model_dump(mode="json")):
        assert f"| `IDX_{name.upper().replace('.', '__')}` |" in page
    assert "|  |\n" not in page


def test_every_tool_has_a_section():
    page = WRITTEN["tools_page"]()
    assert [name for name in TOOLS if f"\n## {name}\n" not in page] == []
