"""Options that several commands share, and the workspace they open."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from catalog.core.errors import UnknownDatasetError
from catalog.core.settings import LoadedSettings, load_settings

if TYPE_CHECKING:
    from catalog.search_v2.workspace import Workspace

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
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Home and preset as given before or after the command's name."""

    home: Path | None
    preset: str | None


def settings_for(context: typer.Context, home: Path | None, preset: str | None) -> LoadedSettings:
    """Effective settings; an option after the command wins over one before it."""
    before: Chosen = context.obj or Chosen(None, None)
    place = home or before.home
    overrides: dict[str, Any] = {"home": place} if place is not None else {}
    return load_settings(preset=preset or before.preset, overrides=overrides)


def open_workspace(context: typer.Context, home: Path | None, preset: str | None) -> Workspace:
    """The store these options name, opened."""
    import logging

    from catalog.search_v2.workspace import Workspace

    settings = settings_for(context, home, preset).settings
    logging.basicConfig(level=settings.log_level, format="%(levelname)s %(name)s: %(message)s")
    return Workspace(settings)


def only_dataset(workspace: Workspace, named: str | None) -> str:
    """The dataset named, or the only one there is."""
    if named is not None:
        return named
    names = workspace.datasets()
    if len(names) == 1:
        return names[0]
    known = ", ".join(names) or "none yet; 'catalog index build FOLDER --dataset NAME'"
    raise UnknownDatasetError(f"say which with --dataset; datasets: {known}")
