"""Putting an operation to the server that keeps everything open, or else answering it here.

The way to a server loads no settings, no model and no LlamaIndex; the server runs the same
operation and words it the same way.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from catalog.core.home import home_folder, settings_key
from catalog.interfaces.cli.options import chosen, open_library
from catalog.interfaces.cli.output import complain, note, styles

if TYPE_CHECKING:
    from catalog.interfaces.terminal import TerminalText


def tell(
    context: typer.Context,
    home: Path | None,
    preset: str | None,
    operation: str,
    arguments: Mapping[str, Any],
    **form: bool,
) -> None:
    """Print the operation's answer; arguments that are ``None`` are not given.

    ``form`` is as in ``terminal.Form``.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    form["bold"] = styles(sys.stdout)
    printed = _served(context, home, preset, operation, given, form)
    if printed is None:
        answered = _alone(context, home, preset, operation, given, form)
        printed = answered.out, answered.err, answered.code
    out, err, code = printed
    sys.stdout.write(out)
    sys.stdout.flush()
    note(err)
    if code:
        raise typer.Exit(code)


def _served(
    context: typer.Context,
    home: Path | None,
    preset: str | None,
    operation: str,
    arguments: Mapping[str, Any],
    form: Mapping[str, bool],
) -> tuple[str, str, int] | None:
    """What the server of this store says; ``None`` if there is none, or it has other settings."""
    from catalog.interfaces.server.announcement import read_announcement

    asked = chosen(context, home, preset)
    place = home_folder(asked.home)
    found = read_announcement(place)
    if found is None:
        return None
    from catalog.interfaces.server.nearest_engine import Remote, ServerGoneError

    if found.key != settings_key(place, asked.preset):
        complain(f"the server of {place} runs with other settings: answering without it")
        return None
    remote = Remote(found)
    try:
        return remote.printed(operation, arguments, form)
    except ServerGoneError:
        return None
    finally:
        remote.close()


def _alone(
    context: typer.Context,
    home: Path | None,
    preset: str | None,
    operation: str,
    arguments: Mapping[str, Any],
    form: Mapping[str, bool],
) -> TerminalText:
    from catalog.interfaces.engine import LocalEngine
    from catalog.interfaces.terminal import Form, render

    with LocalEngine(open_library(context, home, preset)) as engine:
        return render(operation, engine.answer(operation, arguments), Form(**form))
