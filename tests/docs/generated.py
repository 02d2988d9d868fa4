"""The pages of docs/ that are made from the code: run this file to write them anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from catalog.core.param_fields import argument_names
from catalog.core.settings import (
    RAGv2Settings,
    Settings,
    acts_only_with,
    find_field,
    flatten,
    needs_rebuild,
)
from catalog.interfaces.agents import AGENT_TOOLS, ANSWER_TOOLS, LISTED_TOOLS
from catalog.interfaces.cli.commands import app

DOCS = Path(__file__).parents[2] / "docs"


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
        about, choice = field.description, acts_only_with(name)
        if choice is not None:
            about += f" Acts only with `{choice[0].rpartition('.')[2]}={choice[1]}`."
        rows.append(f"| {variable} | {default} | {bounds} | {rebuild} | {about} |")
    head = (
        "# Settings\n\n"
        "Environment wins over a TOML file (`IDX_CONFIG`, or `catalog.toml` in the home folder), "
        "that over a preset\n(`--preset`, `IDX_PRESET`, or `preset` at the top of the file), that "
        "over these defaults. In TOML, `IDX_RAG_V2__CHUNK_SIZE`\nis `chunk_size` under `[rag_v2]`. "
        "A name that does not exist is an error: any in TOML, and of variables those in a section, "
        "or nearly a setting's. An empty\nvariable counts as not set.\n\n"
        "“Rebuild” marks what shapes passages. A dataset remembers these of `rag_v2`, and its "
        "preset, from its first build:\n`catalog index build` and `update` go by them, whatever "
        "the settings of the call are, and say how many documents those\nwould cut anew. "
        "`--apply-settings` does that for one dataset, `catalog index rebuild` for all of them. "
        "Another embedding\nmodel is tried beside the old one and adopted (`catalog index "
        "try-model`, docs/evaluation.md), or takes `catalog index rebuild`\n(`--keep-settings`: "
        "each dataset is cut as it was). `catalog index update --dry-run`\nlists what would be "
        "done. All other settings are those of each call: a search in a vault wants its preset, "
        "too.\n\n"
        "| variable | default | bounds | rebuild | what it does |\n|---|---|---|---|---|\n"
    )
    return head + "\n".join(rows) + "\n"


def commands_page() -> str:
    """Return the help of every command."""
    parts = [
        "# Commands\n",
        "`catalog --install-completion` completes commands and options in your shell; or add\n"
        '`eval "$(_CATALOG_COMPLETE=source_bash catalog)"` to `~/.bashrc` (`source_zsh`, '
        "`source_fish`).\n",
    ]
    for path, command in list_commands():
        with command.make_context(path, [], resilient_parsing=True, terminal_width=96) as context:
            context.terminal_width = 96
            parts.append(f"## {path}\n\n```\n{command.get_help(context).strip()}\n```\n")
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
        "What each tool of [agents](agents.md) takes. A whole number beyond its bounds becomes the "
        "nearest one, and a note\nsays so. An empty value counts as not given. A list may be "
        "given as one text, with commas if it names several.\n",
    ]
    for tool in {**AGENT_TOOLS, **ANSWER_TOOLS}.values():
        unlisted = "" if tool.name in LISTED_TOOLS else " Not listed; answers when called by name."
        if tool.name in ANSWER_TOOLS:
            unlisted = " There is such a tool where `IDX_ANSWERS__TOOL` is on."
        parts.append(f"## {tool.name}\n\n{tool.description.strip()}{unlisted}\n")
        for name, others in argument_names(tool.arguments).items():
            aliases.setdefault(name, {}).update(dict.fromkeys(others))
        rows = [
            f"| `{name}` | {'required' if field.is_required() else _default(field.default)} "
            f"| {_clamped(tool.arguments.CLAMPED.get(name))} | {field.description} |"
            for name, field in tool.arguments.model_fields.items()
        ]
        if rows:
            head = "| argument | default | bounds | what it does |\n|---|---|---|---|"
            parts.append("\n".join([head, *rows]) + "\n")
    parts.append(_aliases_section(aliases))
    return "\n".join(parts)


def _aliases_section(aliases: dict[str, dict[str, None]]) -> str:
    head = (
        "## Other names\n\nThese names of an argument are taken as well where a tool has none "
        "called so, and a note says which were; so is `topK` for `top_k`.\nThe HTTP API takes "
        "them, too. Any other name is refused, with the nearest there is.\n\n"
        "| argument | other names |\n|---|---|\n"
    )
    rows = [
        f"| `{name}` | {', '.join(f'`{other}`' for other in others)} |"
        for name, others in aliases.items()
        if others
    ]
    return head + "\n".join(rows) + "\n"


def _default(value: Any) -> str:
    return "" if value is None else f"`{value}`"


def _clamped(bounds: tuple[int, int] | None) -> str:
    return "" if bounds is None else f"{bounds[0]:,} to {bounds[1]:,}"


PAGES = {"settings.md": settings_page, "commands.md": commands_page, "tools.md": tools_page}

if __name__ == "__main__":
    for name, make in PAGES.items():
        (DOCS / name).write_text(make(), encoding="utf-8")
