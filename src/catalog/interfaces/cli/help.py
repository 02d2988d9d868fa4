"""Help pages that fit any terminal: whole words, whole summaries, and examples at the end."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, Literal, get_args, get_origin

from typer.core import TyperArgument, TyperCommand

from catalog.core.arguments import plain_words
from catalog.interfaces.cli.options import add_store_options

_ROOM = 40  # columns beside the options below which their help goes under them
_LEFT = 30  # columns for names and options at most
_EXCESS = "Got unexpected extra argument(s)"  # typer's message
_LIKE = 0.75  # similarity (0 to 1) from which an option may be a misspelling of another
_MEANT = {"--name": "--dataset", "--port": "--http", "--host": "--http"}
_EXAMPLES = "\n\nExamples:\n"  # how the last part of a command's docstring begins
_Context: Any = TyperCommand.context_class
_Formatter: Any = _Context.formatter_class


class HelpFormatter(_Formatter):  # type: ignore[misc]
    """Write help without breaking a word, such as a setting or an option, at any width."""

    def write_text(self, text: str) -> None:
        """Write paragraphs."""
        paragraphs = (
            self._lines(paragraph, self.current_indent) for paragraph in text.split("\n\n")
        )
        self.write("\n\n".join(map("\n".join, paragraphs)) + "\n")

    def _lines(self, text: str, margin: int, hanging: int = 0) -> list[str]:
        return textwrap.wrap(
            text,
            max(self.width, margin + 20),
            initial_indent=" " * margin,
            subsequent_indent=" " * (margin + hanging),
            break_long_words=False,
            break_on_hyphens=False,
        )

    def write_dl(
        self, rows: Sequence[tuple[str, str]], col_max: int = _LEFT, col_spacing: int = 2
    ) -> None:
        """Write names with their descriptions: next to them, or under them in a narrow terminal."""
        rows = [(name.replace("<list[str]>", "<str>"), text) for name, text in rows]
        indent = self.current_indent
        left = min(max(len(name) for name, _ in rows), col_max) + col_spacing
        if self.width - indent - left < _ROOM:
            left = 0
        for name, text in rows:
            lines = self._lines(text, indent + (left or 6))
            if left >= len(name) + col_spacing and lines:
                lines[0] = " " * indent + name.ljust(left) + lines[0][indent + left :]
            else:
                lines = [*self._lines(name, indent, hanging=4), *lines]
            self.write("\n".join(lines) + "\n")

    def write_commands(self, commands: Iterable[str]) -> None:
        """Write lines for a shell; a long one goes on after a backslash, never inside quotes."""
        self.width -= 2
        for command in commands:
            whole = re.sub(r'"[^"]*"', lambda quoted: quoted[0].replace(" ", "\0"), command)
            lines = self._lines(whole, self.current_indent, hanging=4)
            self.write(" \\\n".join(lines).replace("\0", " ") + "\n")
        self.width += 2


class HelpContext(_Context):  # type: ignore[misc]
    """The context of a command whose help :class:`HelpFormatter` writes."""

    formatter_class = HelpFormatter


def explain_misuse(command: Any, parse: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """Return the parser of a command, whose errors name the correction.

    It is the nearest option, quotes around an argument of several words, or ``--`` before one
    that begins with dashes.
    """
    argument = next((it for it in command.params if isinstance(it, TyperArgument)), None)

    def parse_args(ctx: Any, args: list[str]) -> list[str]:
        for param in command.get_params(ctx):
            take_plain_values(param)
        given = next((one for one in args if one.startswith("-") and one != "-"), "")
        try:
            return parse(ctx, args)
        except Exception as error:
            if hasattr(error, "message"):
                error.message = _explain(error, ctx, given)
                error.possibilities = ()  # type: ignore[attr-defined]
            raise

    def _explain(error: Any, ctx: Any, given: str) -> str:
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

    def is_plain(value: Any) -> bool:
        if value is None:
            return not param.required
        if takes_many:
            return kind == list[str] and bool(value)
        if kind is int and isinstance(value, str):
            least, most = info.min or 0, info.max or sys.maxsize
            return value.isdecimal() and least <= int(value) <= most
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        return isinstance(value, str) and (kind is str or value in choices)

    def process_value(context: Any, value: Any) -> Any:
        if not is_plain(value):
            return check(context, value)
        if takes_many:
            value = value or ()
        elif kind is int and value is not None:
            value = int(value)
        return value if param.callback is None else param.callback(context, param, value)

    param.process_value = process_value


def dress(command: Any) -> None:
    """Give a command, and those in it, this help; move the examples of its docstring to the end."""
    command.context_class = HelpContext
    command.parse_args = explain_misuse(command, command.parse_args)
    if command.callback and "context" in inspect.signature(command.callback).parameters:
        add_store_options(command)
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
