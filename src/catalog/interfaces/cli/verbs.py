"""Each verb as a command: ``search``, ``ask``, ``generate``, ``get``, ``browse``, ``status``.

The options of a command come from the parameters of its verb. It asks the server that keeps the
store open, or answers in this process. The way to a server loads no settings, no model and no
LlamaIndex; the server runs the same verb and words the answer the same way. Also ``agents``, as
which one may search and ask.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from catalog.core import params
from catalog.core.errors import ArtifactSchemaError
from catalog.core.files import home_folder, settings_key
from catalog.interfaces.cli import options
from catalog.interfaces.cli.output import columns_of, complain, has_styles, note
from catalog.interfaces.plain_text import safe

_Texts = tuple[str, str, int]  # for standard output and standard error, and the exit code
_keyword = partial(Parameter, kind=Parameter.KEYWORD_ONLY)
_write_now = partial(print, end="", flush=True)
_CONTEXT = Parameter("context", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)


def verb_command(
    verb: str, kind: type[params.Params], summary: str, *examples: str, **more: Any
) -> Callable[..., None]:
    """Return the command of a verb: an argument or option for each of its parameters.

    ``more`` are options that only change the printed form, named as in ``terminal.Form``, or
    ``out``, the file to write to.
    """
    more["json"] = options.JsonOption

    def command(context: typer.Context, **values: Any) -> None:
        form = {name: values.pop(name) for name in more}
        out: Path | None = form.pop("out", None)
        options.require_folder_of(out)
        form["explain"] = values.get("explain", False)
        arguments = {name: value for name, value in values.items() if value is not None}
        try:
            _print_answer(context, verb, arguments, form, out)
        except ArtifactSchemaError as error:
            raise _keep_draft(error, out) from None

    parameters = [_CONTEXT, *map(_command_parameter, params.edge_fields(kind))]
    for name, option in more.items():
        parameters.append(
            _keyword(name, annotation=option, default=None if name == "out" else False)
        )
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__doc__ = "\n".join((f"{summary}\n\nExamples:", *examples))
    return command


def _command_parameter(field: params.Param) -> Parameter:
    """Return an argument or option for a parameter; a list is an option that may be repeated."""
    kind, help_text = field.type, field.help
    if field.takes_list:
        kind = list[str] if field.is_required else list[str] | None
        help_text = f"{help_text.removesuffix('.')}; may be repeated."
    default = None if field.default == () else field.default
    if field.is_required:
        default = Parameter.empty
    if field.is_positional:
        argument = Argument(help=field.help)
        return _keyword(field.name, annotation=Annotated[kind, argument], default=default)
    first, *others = field.flags.split() or (f"--{field.name.replace('_', '-')}",)
    if kind == bool | None:
        first = f"{first}/--no-{first.removeprefix('--')}"
    least, most = field.within
    option = Option(first, *others, help=help_text, min=least, max=most)
    return _keyword(field.name, annotation=Annotated[kind, option], default=default)


search = verb_command(
    "search",
    params.SearchParams,
    "Find the passages that answer a query.",
    'catalog search "how to rotate keys"',
    'catalog search "api key -draft" -d notes --type pdf',
)
ask = verb_command(
    "ask",
    params.AskParams,
    "Answer a question in cited sentences, or say why not.",
    'catalog ask "How often are keys rotated?"',
    'catalog ask "Who approves a release?" -d notes --after 2026',
)
generate = verb_command(
    "generate",
    params.GenerateParams,
    "Make a cited blueprint, pdr, workflow or build-plan with a language model.",
    'catalog generate workflow --topic "rotating keys"',
    'catalog generate blueprint --topic "backups" --out backups.md',
    out=Annotated[
        Path | None, Option("--out", "-o", help="Write to this file.", show_default=False)
    ],
)
get = verb_command(
    "get",
    params.GetParams,
    "Print a document, or some of its lines, pages or cells.",
    "catalog get notes:keys.md",
    "catalog get keys.md:12-20 --line-numbers",
    numbers=Annotated[
        bool, Option("--line-numbers", "-n", help="Number the lines like citations.")
    ],
)
browse = verb_command(
    "browse",
    params.BrowseParams,
    "Show which documents there are, with titles, dates and tags.",
    "catalog browse",
    'catalog browse "key rotation" --sort modified',
)
status = verb_command(
    "status",
    params.StatusParams,
    "Show datasets, sizes, the model and the engines.",
    "catalog status",
    "catalog status --json",
)


def _print_answer(
    context: typer.Context,
    verb: str,
    arguments: Mapping[str, Any],
    form: dict[str, Any],
    file: Path | None,
) -> None:
    form |= {"bold": has_styles(sys.stdout), "width": columns_of(sys.stdout)}
    streamed = verb == "ask" and not form["json"] and sys.stdout.isatty()
    call = {"verb": verb, "arguments": arguments, "form": form, "streamed": streamed}
    if (printed := _ask_server(options.store_options(context), call)) is None:
        from catalog.core.retrieval_events import asked_at
        from catalog.interfaces.calls import LocalEngine
        from catalog.interfaces.terminal import Form, render, stream_answer

        with asked_at("cli"), LocalEngine(options.open_library(context)) as engine:
            if streamed:
                for part in stream_answer(engine.answer_events(arguments), Form(**form)):
                    if isinstance(part, str):
                        _write_now(part)
                    else:
                        printed = part
            else:
                printed = render(verb, engine.answer(verb, arguments), Form(**form))
    assert printed is not None
    out, err, code = printed
    if file is None:
        _write_now(out)
    else:
        file.write_text(out, encoding="utf-8")
    note(err)
    if code:
        raise typer.Exit(code)


def _keep_draft(error: ArtifactSchemaError, file: Path | None) -> ArtifactSchemaError:
    """Return the error with the place of the draft: next to the file, or printed above."""
    draft = f"{safe(error.draft)}\n"
    if file is None:
        _write_now(draft)
        return ArtifactSchemaError(f"{error}; the draft is above", error.draft)
    beside = file.with_name(f"{file.stem}.draft{file.suffix}")
    beside.write_text(draft, encoding="utf-8")
    return ArtifactSchemaError(f"{error}; the draft is in {beside}", error.draft)


def _ask_server(store: options.StoreOptions, call: dict[str, Any]) -> _Texts | None:
    """Return the output of the store's server; ``None`` without one of the same settings."""
    from catalog.interfaces import home_socket

    home = home_folder(store.home)
    if not home_socket.socket_of(home).exists():
        return None
    message: dict[str, Any] = {}
    try:
        for message in home_socket.ask_server(home, settings_key(home, store.preset), call):
            _write_now(message.get("write", ""))
        return message["out"], message["err"], message["code"]
    except home_socket.OtherSettingsError:
        complain(f"the server of {home} has other settings, so this command answers without it")
    except home_socket.ServerGoneError:
        pass
    return None


@options.command
def agents(context: typer.Context) -> options.Printed:
    """List the agents that --agent can name, and what each says.

    Examples:
        catalog agents
        catalog agents --json
    """
    from catalog.core.agents import agent_places, read_agent
    from catalog.core.settings.loading import flatten

    settings = options.settings_for(context).settings
    rows, lines = list[dict[str, Any]](), list[str]()
    for name, path in agent_places(settings).items():
        told = read_agent(settings, name).model_dump(mode="json", exclude_defaults=True)
        rows.append({"name": name, "file": None if path is None else str(path), "agent": told})
        place = path or ("settings" if name in settings.agents else "as it comes")
        lines.append(f"{name}  [{place}]")
        lines += (f"    {key} = {value}" for key, value in flatten(told))
    if len(rows) == 1:
        lines.append("To add an agent, write [agents.NAME] in the settings.")
    return options.Printed(rows, lines)
