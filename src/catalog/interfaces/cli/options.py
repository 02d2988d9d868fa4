"""Options that several commands share, and the library they open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args

import typer
from typer import Option

from catalog.core.errors import InputError
from catalog.interfaces.cli.output import complain, say
from catalog.interfaces.plain_text import json_text

if TYPE_CHECKING:
    from catalog.core.settings import LoadedSettings, Settings
    from catalog.library.library import Library

DatasetOption = Annotated[
    str | None,
    Option(
        *("--dataset", "--project", "-d"),
        help="Name of the dataset; not needed if there is only one.",
    ),
]
DatasetsOption = Annotated[list[str] | None, get_args(DatasetOption)[1]]
RayOption = Annotated[
    str | None,
    Option(
        "--ray", help="Embed on a Ray cluster: its address, auto, or local.", show_default=False
    ),
]
JsonOption = Annotated[bool, Option("--json", help="Print one JSON object.")]
HEED_ROLE = frozenset(
    (
        *("search", "ask", "generate", "get", "browse", "status", "mcp", "serve"),
        *("agents", "config", "models"),  # show no documents
    )
)
"""The commands that a process bound to a role may run."""


class Printed(NamedTuple):
    """A command's output: ``data`` with ``--json``, else lines, and notes on standard error."""

    data: Any
    lines: Iterable[str] = ()
    notes: Iterable[str] = ()
    code: int = 0


def command(run: Callable[..., Printed | Iterator[Printed]]) -> Callable[..., None]:
    """Return the command that prints each output of a function; it also has ``--json``."""

    def printed(json: bool, **given: Any) -> None:
        done = run(**given)
        for shown in [done] if isinstance(done, Printed) else done:
            if json:
                print(json_text(shown.data))
            else:
                say(*shown.lines)
                for told in shown.notes:
                    complain(told)
            if shown.code:
                raise typer.Exit(shown.code)

    option = Parameter("json", Parameter.KEYWORD_ONLY, annotation=JsonOption, default=False)
    parameters = [*signature(run, eval_str=True).parameters.values(), option]
    printed.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    printed.__doc__ = run.__doc__
    return printed


def require_folder_of(file: Path | None) -> None:
    """Raise :class:`~catalog.core.errors.InputError` for a file that could not be written."""
    if file is not None and (file.is_dir() or not file.absolute().parent.is_dir()):
        raise InputError(
            f"cannot write {file}: its folder does not exist, or it is a folder itself"
        )


@contextmanager
def reading_options(kind: type[Exception] = InputError) -> Iterator[None]:
    """End the command with code 2, as for any wrong option, if a value of one cannot be read."""
    try:
        yield
    except kind as error:
        raise typer.BadParameter(str(error)) from error


def variable_of(name: str) -> str:
    """Return the environment variable of a setting, by dotted name."""
    return "IDX_" + name.upper().replace(".", "__")


class StoreOptions(NamedTuple):
    """Home and preset, given before or after the name of the command; the last one counts."""

    home: Path | None = None
    preset: str | None = None


def store_options(context: typer.Context) -> StoreOptions:
    """Return the home and preset that were given."""
    return context.obj or StoreOptions()


def _keep(context: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
    if value is not None:
        context.obj = store_options(context)._replace(**{str(param.name): value})
    return value


_KEPT: dict[str, Any] = {"show_default": False, "expose_value": False, "callback": _keep}


@cache
def store_parameters() -> list[Any]:
    """Return the options ``--home`` and ``--preset`` of a command, for :func:`store_options`."""
    app = typer.Typer(add_completion=False)

    @app.command()
    def _declare(
        home: Path | None = Option(None, help="Folder of the store (IDX_HOME).", **_KEPT),
        preset: str | None = Option(
            None, help="Settings: a name in configs/, or a file that ends in .toml.", **_KEPT
        ),
    ) -> None: ...

    return typer.main.get_command(app).params


def settings_for(
    context: typer.Context, store: StoreOptions | None = None, ray: str | None = None
) -> LoadedSettings:
    """Return the effective settings; ``store`` is used instead of the given home and preset.

    Raises :class:`InputError` in a process bound to a role, unless the command heeds the role.
    """
    from catalog.core.settings import load_settings

    store = store or store_options(context)
    overrides: dict[str, Any] = {} if store.home is None else {"home": store.home}
    if ray is not None:
        overrides["rag_v2"] = {"ingest": {"ray": ray}}
    loaded = load_settings(preset=store.preset, overrides=overrides)
    if (role := loaded.settings.answers.role) is not None:
        top: Any = context
        while top.parent is not None and top.parent.parent is not None:
            top = top.parent
        if top.info_name not in HEED_ROLE:
            raise InputError(
                f"this process is bound to the role {role!r}, which 'catalog {top.info_name}' does "
                f"not heed; unset {variable_of('answers.role')} to run it"
            )
    return loaded


def logged_settings(
    context: typer.Context, store: StoreOptions | None = None, ray: str | None = None
) -> Settings:
    """Return the effective settings, and write the log as they say.

    Libraries stay above DEBUG, where they log whole messages with queries and documents. Those that
    call servers stay above INFO, where they log each address with any password or key in it.
    """
    import logging

    settings = settings_for(context, store, ray).settings
    logging.basicConfig(level=settings.log_level, format="%(levelname)s %(name)s: %(message)s")
    least = dict.fromkeys(("mcp", "sse_starlette", "asyncio"), logging.INFO)
    least |= dict.fromkeys(("urllib3", "httpcore", "httpx"), logging.WARNING)
    # Ctrl-C while a connection goes back to the pool is logged there, with a traceback.
    for name, level in (least | {"sqlalchemy.pool": logging.CRITICAL}).items():
        logger = logging.getLogger(name)
        logger.setLevel(max(logger.getEffectiveLevel(), level))
    return settings


def open_library(
    context: typer.Context,
    store: StoreOptions | None = None,
    *,
    make_store: bool = False,
    embeds: bool = False,
    ray: str | None = None,
) -> Library:
    """Open the store that these options name; only commands that fill one make it.

    For a command that ``embeds`` documents, a missing model is reported first: the embedder takes a
    second to load, and a store made in vain would be left.
    """
    settings = logged_settings(context, store, ray)
    if embeds:
        from catalog.models.model_files import require_models

        require_models(settings, rerank=False)
    from catalog.library.library import Library
    from catalog.store.database import require_store

    if not make_store:
        require_store(settings)
    return Library(settings)
