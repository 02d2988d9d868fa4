"""``catalog config``."""

from __future__ import annotations

import typer

from catalog.interfaces.cli.options import HomeOption, JsonOption, PresetOption, settings_for
from catalog.interfaces.cli.output import print_json, say

SECRET = "********"  # noqa: S105 - what is shown in place of one


def config(
    context: typer.Context,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Show every setting, its value, and where the value came from."""
    from catalog.core.settings import field_of, leaves, needs_rebuild
    from catalog.core.text import without_userinfo

    loaded = settings_for(context, home, preset)
    rows = []
    for name, value in leaves(loaded.settings.model_dump(mode="json")):
        field = field_of(name)
        shown = without_userinfo(value) if isinstance(value, str) else value
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
