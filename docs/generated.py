"""Write the pages of the reference that follow from the code, each time the site is built.

``mkdocs.yml`` names this file as a hook; the tests call the same functions without MkDocs. To read
a page without the site: ``python docs/generated.py reference/settings.md``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

from typer.main import get_command

from catalog.core import errors
from catalog.core.settings import RAGv2Settings, Settings
from catalog.core.settings.loading import find_field, flatten, needs_rebuild
from catalog.interfaces.cli.commands import app
from catalog.interfaces.tools import ASK, LISTED_TOOLS, TOOLS

DOCS = Path(__file__).parent
COMMON = ("home", "preset", "json", "help")  # options that nearly every command has


def settings_page() -> str:
    """Return every setting with its default, bounds and whether a change needs a rebuild."""
    rows = []
    values = Settings(home=Path("…"), rag_v2=RAGv2Settings()).model_dump(mode="json")
    for name, value in flatten(values):
        field = find_field(name)
        default = "the user's data folder" if name == "home" else "" if value is None else value
        bounds = ", ".join(_bounds(field))
        rebuild = "yes" if needs_rebuild(name) else ""
        variable = f"`IDX_{name.upper().replace('.', '__')}`"
        about = field.description.replace("[", "\\[")
        rows.append(f"| {variable} | {default} | {bounds} | {rebuild} | {about} |")
    head = """# Settings

A setting is an environment variable, or a key of a TOML file: `IDX_RAG_V2__CHUNK_SIZE` is
`chunk_size` under `[rag_v2]`. The first of these that sets a value wins:

1. the environment,
2. the TOML file (`IDX_CONFIG`, or `catalog.toml` in the home folder),
3. a preset (`--preset`, `IDX_PRESET`, or `preset` at the top of the file),
4. the defaults below.

`catalog config` prints every effective value and its source. An unknown name is an error in TOML;
of variables, where it is in a section or nearly a setting's name. An empty variable counts as not
set.

*Rebuild* marks settings that shape passages. A dataset keeps those of its first build, with its
preset; `catalog index build` and `update` follow them and report how many documents other settings
would change. `--apply-settings` takes new ones for a dataset, `catalog index rebuild` for all of
them. All other settings belong to each call, so a search may want its preset, too.

| variable | default | bounds | rebuild | what it does |
|---|---|---|---|---|
"""
    return head + "\n".join(rows) + "\n"


def commands_page() -> str:
    """Return the help of every command, without the options that all of them have."""
    parts = [
        "# Commands\n",
        "`catalog --install-completion` completes commands and options in your shell.\n\n"
        "`catalog COMMAND --help` prints the following. Nearly every command also takes\n"
        "`--home FOLDER` (the store's folder, `IDX_HOME`), `--preset NAME` (settings of that name\n"
        "in `configs/`) and `--json` (one JSON object instead of text).\n",
    ]
    for path, command in list_commands():
        command = copy(command)
        command.params = [
            one for one in command.params if one.name not in COMMON or path == "catalog"
        ]
        with command.make_context(path, [], resilient_parsing=True, terminal_width=96) as context:
            context.terminal_width = 96
            text = re.sub(
                r"\n *--help +Show this message and exit\.", "", command.get_help(context)
            )
            text = re.sub(r"Options:\n\n|Options:$", "", text.strip()).strip()
            parts.append(f"## {path}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def list_commands() -> list[tuple[str, Any]]:
    """Return every command and group with its path, such as ``catalog index build``."""
    return list(_commands("catalog", get_command(app)))


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(f"{path} {name}", inner)


def _bounds(field: Any) -> Iterator[str]:
    for rule in field.metadata:
        for sign, attribute in (("≥", "ge"), (">", "gt"), ("≤", "le"), ("<", "lt")):
            if hasattr(rule, attribute):
                yield f"{sign} {getattr(rule, attribute):g}"


def tools_page() -> str:
    """Return what every agent's tool takes."""
    aliases: dict[str, dict[str, None]] = {}
    parts = [
        "# Tools of agents\n",
        "The tools of `catalog mcp`; [agents](../start/agents.md) shows how to connect one.\n\n"
        "A whole number out of bounds becomes the nearest bound, and a note says so. An empty"
        " value counts as not given.\nA list may be one text with commas between the items.\n",
    ]
    for tool in TOOLS.values():
        unlisted = "" if tool.name in LISTED_TOOLS else " Not listed; answers when called by name."
        if tool is ASK:
            unlisted = " There is such a tool where `IDX_ANSWERS__TOOL` is on."
        parts.append(f"## {tool.name}\n\n{tool.description.strip()}{unlisted}\n")
        for name, one in tool.parameters.items():
            aliases.setdefault(name, {}).update(dict.fromkeys(one.aliases))
        rows = [
            f"| `{name}` | {'required' if one.is_required else _default(one.default)} "
            f"| {_clamped(one.within)} | {one.help} |"
            for name, one in tool.parameters.items()
        ]
        if rows:
            head = "| argument | default | bounds | what it does |\n|---|---|---|---|"
            parts.append("\n".join([head, *rows]) + "\n")
    parts.append(_aliases_section(aliases))
    return "\n".join(parts)


def _aliases_section(aliases: dict[str, dict[str, None]]) -> str:
    head = (
        "## Other names\n\nTools and the HTTP API accept these names, too, and `topK` for `top_k`;"
        " a note says which one was replaced.\nAny other name is refused, with the nearest known"
        " one.\n\n"
        "| argument | other names |\n|---|---|\n"
    )
    rows = [
        f"| `{name}` | {', '.join(f'`{other}`' for other in others)} |"
        for name, others in aliases.items()
        if others
    ]
    return head + "\n".join(rows) + "\n"


def _default(value: Any) -> str:
    return "" if value in (None, ()) else f"`{value}`"


def _clamped(bounds: tuple[int | None, int | None]) -> str:
    return "" if bounds[0] is None else f"{bounds[0]:,} to {bounds[1]:,}"


def errors_page() -> str:
    """Return every error below its base, with what its class says."""
    lines: list[str] = []

    def add(kind: type[errors.CatalogError], depth: int) -> None:
        about = (kind.__doc__ or "").partition("\n")[0]
        lines.append(f"{'    ' * depth}- `{kind.__name__}`: {about}")
        for below in kind.__subclasses__():
            if below.__module__ == errors.__name__ and below.__bases__[0] is kind:
                add(below, depth + 1)

    add(errors.CatalogError, 0)
    return (
        "# Errors\n\nEvery error that catalog raises on purpose is a `CatalogError` of"
        " `catalog.core.errors`. Commands print its message\nand end with code 1; HTTP and tools"
        " return its kind and message; results list the failed stages of a search.\nA message says"
        " what is wrong and what to do.\n\n" + "\n".join(lines) + "\n"
    )


PAGES = {
    "reference/commands.md": commands_page,
    "reference/settings.md": settings_page,
    "reference/tools.md": tools_page,
    "reference/errors.md": errors_page,
}


def on_config(config: Any) -> Any:
    """Add every decision to the navigation of the site, in the order of their numbers."""
    pages = sorted(page.name for page in (DOCS / "decisions").glob("*.md"))
    config.nav.append({"Decisions": [f"decisions/{name}" for name in pages]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that the code writes to the site."""
    from mkdocs.structure.files import File

    for name, make in PAGES.items():
        files.append(File.generated(config, name, content=make()))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Show names in docstrings without the role that Sphinx would read."""
    return re.sub(r":(?:func|class|mod|meth|data):<code>~?", "<code>", html)


if __name__ == "__main__":
    sys.stdout.write(PAGES[sys.argv[1]]())
