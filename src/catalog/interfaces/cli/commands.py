"""All commands: the options before them, their help, and the group that imports each when used.

Help pages fit any terminal: whole words, whole summaries, and examples at the end.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections import UserDict
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from itertools import pairwise, takewhile
from typing import Any, Literal, get_args, get_origin

import typer
from typer import Option
from typer.core import TyperArgument, TyperCommand, TyperGroup

from catalog import __version__
from catalog.core.arguments import plain_words
from catalog.interfaces.cli.options import store_parameters

GROUPS = {
    "Everyday": {
        "index": "index:app",
        "search": "verbs:search",
        "ask": "verbs:ask",
        "get": "verbs:get",
        "browse": "verbs:browse",
        "generate": "verbs:generate",
        "status": "verbs:status",
    },
    "Agents and servers": {
        "mcp": "serve:mcp",
        "serve": "serve:serve",
        "agents": "verbs:agents",
        "collection": "collection_commands:app",
        "logs": "logs:app",
    },
    "Measure": {
        "compare": "measure:compare",
        "why": "measure:why",
        "tune": "measure:tune",
        "replay": "measure:replay",
        "eval": "measure:eval_app",
        "golden": "golden:app",
        "judge": "golden:judge_app",
        "validate": "golden:validate",
        "runs": "logs:runs_app",
    },
    "Maintain": {
        "doctor": "maintenance:doctor",
        "config": "maintenance:config",
        "models": "maintenance:models",
        "cache": "maintenance:cache",
        "export": "maintenance:export",
        "import": "maintenance:import_",
        "backup": "maintenance:backup",
        "restore": "maintenance:restore",
    },
}
"""In the order of the help, by group and name: the module in this package and what in it."""
COMMANDS = {name: place for group in GROUPS.values() for name, place in group.items()}
_START = (
    "catalog index build FOLDER --dataset notes",
    'catalog search "how to rotate keys"',
    'catalog ask "How often are keys rotated?"',
)
_ROOM = 40  # columns beside the options below which their help goes under them
_EXCESS = "Got unexpected extra argument(s)"  # typer's message
_JOINED = re.compile(r"-[^\W\d_]{3,}")  # an option with its value, or an excluded word
_LIKE = 0.75  # similarity (0 to 1) from which an option may be a misspelling of another
_MEANT = {"--name": "--dataset", "--port": "--http", "--host": "--http"}
_EXAMPLES = "\n\nExamples:\n"  # how the last part of a command's docstring begins
_HYPHEN = "\ue000"  # stands for a hyphen, at which typer would break an option
_Context: Any = TyperCommand.context_class
_Formatter: Any = _Context.formatter_class


class HelpFormatter(_Formatter):  # type: ignore[misc]
    """Write help without breaking a word, such as a setting or an option, at any width."""

    def write(self, string: str) -> None:
        """Write text as it is."""
        super().write(string.replace(_HYPHEN, "-"))

    def write_text(self, text: str) -> None:
        """Write paragraphs."""
        super().write_text(text.replace("-", _HYPHEN))

    def write_dl(
        self, rows: Sequence[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write names with their descriptions: next to them, or under them in a narrow terminal."""
        rows = [(re.sub(r"<list\[(\w+)\]>", r"<\1>", name), text) for name, text in rows]
        left = min(max(len(name) for name, _ in rows), col_max) + col_spacing
        is_narrow = self.width - self.current_indent - left < _ROOM
        whole = [(name, text.replace("-", _HYPHEN)) for name, text in rows]
        super().write_dl(whole, 4 if is_narrow else col_max, col_spacing)

    def write_commands(self, commands: Iterable[str]) -> None:
        """Write lines for a shell; a long one goes on after a backslash, never inside quotes."""
        margin = " " * self.current_indent
        for command in commands:
            lines = textwrap.wrap(
                re.sub(r'"[^"]*"', lambda quoted: quoted[0].replace(" ", "\0"), command),
                self.width - 2,
                initial_indent=margin,
                subsequent_indent=margin + "    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
            self.write(" \\\n".join(lines).replace("\0", " ") + "\n")


class HelpContext(_Context):  # type: ignore[misc]
    """The context of a command whose help :class:`HelpFormatter` writes."""

    formatter_class = HelpFormatter


def explain_misuse(command: Any, parse: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """Return the parser of a command, whose errors name the correction.

    It is the nearest option, quotes around an argument of several words, or ``--`` before one
    that begins with dashes. ``-days`` next to a query is refused, not read as ``-d ays``.
    """
    argument = next((it for it in command.params if isinstance(it, TyperArgument)), None)

    def parse_args(ctx: Any, args: list[str]) -> list[str]:
        for param in command.get_params(ctx):
            take_plain_values(param)
        if argument is not None and argument.name in ("query", "question"):
            valued = (one for one in command.params if not getattr(one, "is_flag", True))
            takes = {option for one in valued for option in one.opts}
            for before, one in pairwise(["", *takewhile("--".__ne__, args)]):
                if _JOINED.fullmatch(one) and one[:2] in takes and before not in takes:
                    told = f"{one} was read as {one[:2]} {one[2:]}: write that with a space, or the"
                    ctx.fail(f'{told} whole {argument.name} in quotes after --: -- "… {one}"')
        try:
            return parse(ctx, [*args])
        except Exception as error:
            name, is_end = getattr(error, "option_name", ""), "--" in args
            given = next((one for one in args if one.startswith(name or "-") and one != "-"), "")
            is_text = given.startswith("---") or (given[1:2] != "-" and len(given) > 2)
            if is_text and name in (given, given[:2]) and not is_end and argument is not None:
                return parse_args(ctx, [*(one for one in args if one != given), "--", given])
            if hasattr(error, "message"):
                error.message = explain(error, ctx, given)
                error.possibilities = ()  # type: ignore[attr-defined]
            raise

    def explain(error: Any, ctx: Any, given: str) -> str:
        message, name = str(error.message), getattr(error, "option_name", "")
        has = {option for one in command.params for option in one.opts}
        near = get_close_matches(name, getattr(error, "possibilities", None) or (), 1, _LIKE)
        near = [_MEANT[name]] if _MEANT.get(name) in has else near
        is_dashed = name == given if name else " " in given and error.param is argument
        if near:
            return f"{message}; did you mean {near[0]}?"
        if argument is not None and given and is_dashed:
            told = f"{message}. " if name else ""
            return f'{told}If it is the {argument.name}, put -- before it: -- "{given}"'
        if argument is not None and message.startswith(_EXCESS):
            whole = f"{ctx.params[argument.name]} {message.removeprefix(_EXCESS)[2:-1]}"
            return f'{message}. If all of it is the {argument.name}, put it in quotes: "{whole}"'
        return plain_words(message) if hasattr(error, "param") else message

    return parse_args


def take_plain_values(param: Any) -> None:
    """Spare typer the check of an option that is absent or plainly right: it imports pydantic.

    A command that asks a server needs no other part of pydantic.
    """
    if "process_value" in vars(param):
        return
    check, kind = param.process_value, param.type_descriptor.annotation
    info, takes_many = param.type_descriptor.parameter_info, param.nargs != 1 or param.multiple
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    numbers = range(info.min or 0, (info.max or sys.maxsize) + 1) if kind is int else ()

    def process_value(context: Any, value: Any) -> Any:
        is_text = isinstance(value, str) and not takes_many
        if value is None and not param.required:
            value = () if takes_many else None
        elif is_text and value.isdecimal() and int(value) in numbers:
            value = int(value)
        elif not (is_text and (kind is str or value in choices)) and not (
            takes_many and kind == list[str] and value
        ):
            return check(context, value)
        return value if param.callback is None else param.callback(context, param, value)

    param.process_value = process_value


def dress(command: Any) -> None:
    """Give a command, and those in it, this help; move the examples of its docstring to the end."""
    command.context_class = HelpContext
    command.parse_args = explain_misuse(command, command.parse_args)
    if command.callback and "context" in inspect.signature(command.callback).parameters:
        command.params.extend(store_parameters())
    text, _, examples = inspect.cleandoc(command.help or "").partition(_EXAMPLES)
    command.help = text
    paragraph = " ".join(text.partition("\n\n")[0].split())
    command.short_help = paragraph.partition(". ")[0].removesuffix(".")  # the first sentence
    if examples:
        command.examples = textwrap.dedent(examples).splitlines()
        command.format_epilog = partial(_write_examples, command.examples)
    for inner in getattr(command, "commands", {}).values():
        dress(inner)


def _write_examples(examples: Iterable[str], _context: Any, formatter: Any) -> None:
    with formatter.section("Examples"):
        formatter.write_commands(examples)


class Commands(TyperGroup):
    """Hold all commands."""

    context_class = HelpContext

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _LazyCommands(COMMANDS)
        self.params.extend(store_parameters())
        self.parse_args = explain_misuse(self, self.parse_args)  # type: ignore[method-assign]

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, without importing a command."""
        del ctx
        return list(COMMANDS)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write how to start, the commands by group, and the options before them."""
        with formatter.section("Start"):
            formatter.write_commands(_START)
        for title, group in GROUPS.items():
            with formatter.section(title):
                rows = [(name, self.commands[name].short_help or "") for name in group]
                formatter.write_dl(rows)
        TyperCommand.format_options(self, ctx, formatter)  # type: ignore[arg-type]


class _LazyCommands(UserDict[str, Any]):
    """Map names to commands; each is imported at its first use."""

    def __getitem__(self, name: str) -> Any:
        command = self.data[name]
        if isinstance(command, str):
            command = self.data[name] = _import_command(name, command)
        return command


def _import_command(name: str, place: str) -> Any:
    """Return the command, made by a group of its own as if all were registered there."""
    module, _, attribute = place.partition(":")
    target = getattr(import_module(f"catalog.interfaces.cli.{module}"), attribute)
    group = typer.Typer(add_completion=False, rich_markup_mode=None)
    group.callback()(lambda: None)  # else a single command is no group
    if isinstance(target, typer.Typer):
        group.add_typer(target, name=name)
    else:
        group.command(name)(target)
    command = typer.main.get_group(group).commands[name]
    dress(command)
    return command


app = typer.Typer(
    name="catalog",
    cls=Commands,
    help="Find passages in your own documents, with exact citations.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"catalog {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = Option(
        False,
        "--version",
        callback=_print_version,
        is_eager=True,
        help="Show the version and exit.",
    ),
) -> None:
    """Find passages in your own documents, with exact citations."""
    del version
