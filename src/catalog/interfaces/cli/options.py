"""Options that several commands share, and the library they open."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from catalog.core.settings import LoadedSettings
    from catalog.library.library import Library

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="Folder of the store (IDX_HOME).", show_default=False),
]
PresetOption = Annotated[
    str | None,
    typer.Option("--preset", help="Settings of that name in configs/.", show_default=False),
]
DatasetOption = Annotated[
    str | None,
    typer.Option(
        "--dataset", "-d", help="Which documents; may be left out when there is one dataset."
    ),
]
TypeOption = Annotated[
    str | None,
    typer.Option("--type", "-t", help="Only documents of this type: pdf, markdown, video, …"),
]
NameOption = Annotated[
    str | None,
    typer.Option("--name", help="Only documents whose path, title or recording holds this text."),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option("--filter", help="Only what has field=value; may be repeated."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Home and preset as given before or after the command's name."""

    home: Path | None
    preset: str | None


def chosen(context: typer.Context, home: Path | None, preset: str | None) -> Chosen:
    """Home and preset; an option after the command wins over one before it."""
    before: Chosen = context.obj or Chosen(None, None)
    return Chosen(home or before.home, preset or before.preset)


def settings_for(context: typer.Context, home: Path | None, preset: str | None) -> LoadedSettings:
    """Effective settings."""
    from catalog.core.settings import load_settings

    asked = chosen(context, home, preset)
    overrides: dict[str, Any] = {"home": asked.home} if asked.home is not None else {}
    return load_settings(preset=asked.preset, overrides=overrides)


def open_library(context: typer.Context, home: Path | None, preset: str | None) -> Library:
    """The store these options name, opened."""
    import logging

    from catalog.library.library import Library

    settings = settings_for(context, home, preset).settings
    logging.basicConfig(level=settings.log_level, format="%(levelname)s %(name)s: %(message)s")
    return Library(settings)
