"""The generated pages of docs/ say what the code says."""

import pytest

from docs.generated import DOCS, PAGES, list_commands

COMMANDS = dict(list_commands())


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "96")
    written = (DOCS / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), "run: python tests/docs/generated.py"


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_a_section_and_says_what_each_option_does(path):
    assert f"\n## {path}\n" in (DOCS / "commands.md").read_text(encoding="utf-8")
    assert COMMANDS[path].help
    assert [one.name for one in COMMANDS[path].params if not getattr(one, "help", None)] == []
