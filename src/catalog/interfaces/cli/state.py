"""``catalog config``, ``status`` and ``doctor``."""

from __future__ import annotations

from dataclasses import asdict

import typer

from catalog.interfaces.cli.ask import tell
from catalog.interfaces.cli.options import (
    HomeOption,
    JsonOption,
    PresetOption,
    open_library,
    settings_for,
)
from catalog.interfaces.cli.output import print_json, say

SECRET = "********"  # noqa: S105 - what is shown in place of one


def config(
    context: typer.Context,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Show every setting, its value, and where the value came from."""
    from catalog.core.settings import find_field, flatten, needs_rebuild
    from catalog.core.text import strip_userinfo

    loaded = settings_for(context, home, preset)
    rows = []
    for name, value in flatten(loaded.settings.model_dump(mode="json")):
        field = find_field(name)
        shown = strip_userinfo(value) if isinstance(value, str) else value
        hidden = value is not None and not field.repr
        rows.append(
            {
                "name": name,
                "value": SECRET if hidden else shown,
                "origin": loaded.origins.get(name, "default"),
                "variable": "IDX_" + name.upper().replace(".", "__"),
                "description": field.description,
                "rebuild": needs_rebuild(name),
            }
        )
    if json:
        print_json(rows)
        return
    for row in rows:
        mark = "  (a change re-does every document)" if row["rebuild"] else ""
        say(f"{row['variable']} = {row['value']}  [{row['origin']}]{mark}")


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
    from catalog.library.health import diagnose

    with open_library(context, home, preset) as library:
        checks = diagnose(library)
    if json:
        print_json([asdict(check) for check in checks])
    for check in checks:
        if not json:
            fix = f"\n      fix: {check.fix}" if check.fix else ""
            say(f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {check.detail}{fix}")
    if not all(check.ok for check in checks):
        raise typer.Exit(1)
