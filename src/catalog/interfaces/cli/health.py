"""``catalog status`` and ``catalog doctor``."""

from __future__ import annotations

from dataclasses import asdict

import typer

from catalog.interfaces.cli.answering import tell
from catalog.interfaces.cli.options import HomeOption, JsonOption, PresetOption, open_workspace
from catalog.interfaces.cli.output import print_json, say


def status(
    context: typer.Context,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """What the store holds, and which model and engines are set."""
    tell(context, home, preset, "status", {}, json=json)


def doctor(
    context: typer.Context,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Check the store, its indexes and the model; exit 1 with the fix if something is wrong."""
    from catalog.search_v2.health import diagnose

    with open_workspace(context, home, preset) as workspace:
        checks = diagnose(workspace)
    if json:
        print_json([asdict(check) for check in checks])
    for check in checks:
        if not json:
            fix = f"\n      fix: {check.fix}" if check.fix else ""
            say(f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {check.detail}{fix}")
    if not all(check.ok for check in checks):
        raise typer.Exit(1)
