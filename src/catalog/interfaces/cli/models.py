"""``catalog models``: the model files on this machine. Also the commands ``index try-model``,
``adopt`` and ``drop``, which try another embedding model next to the old one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from catalog.interfaces.cli.options import (
    DatasetOption,
    HomeOption,
    JsonOption,
    PresetOption,
    known_name,
    open_library,
    settings_for,
)
from catalog.interfaces.cli.output import (
    TerminalProgress,
    complain,
    note,
    print_json,
    say,
    table_lines,
)

if TYPE_CHECKING:
    from catalog.core.params import Mode
    from catalog.library.model_trials import AdoptionReport, TrialReport
    from catalog.models.inventory import ModelEntry


_FAILURES_SHOWN = 5
_MODES: tuple[Mode, ...] = ("hybrid", "vector")
NameArgument = Annotated[str, typer.Argument(help="The model, as in IDX_EMBEDDING__MODEL.")]
app = typer.Typer(help="Show where the files of models are, and check them.", no_args_is_help=True)
_HEADINGS = ("", "model", "kind", "runs with", "from", "size", "hashes", "dim")


def add_commands(app: typer.Typer) -> None:
    """Add the commands to those of ``catalog index``."""
    app.command("try-model")(try_model)
    app.command("adopt")(adopt)
    app.command("drop")(drop)


def try_model(
    context: typer.Context,
    name: NameArgument,
    dataset: DatasetOption = None,
    provider: Annotated[
        str | None, typer.Option(help="As IDX_EMBEDDING__PROVIDER; that one unless given.")
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Embed whole documents of about so many passages of each dataset, the labelled "
            "ones first; all passages unless given.",
        ),
    ] = None,
    golden: Annotated[
        Path | None, typer.Option("--golden", help="Labelled queries to compare on, JSON Lines.")
    ] = None,
    mode: Annotated[
        list[str] | None,
        typer.Option("--mode", help="hybrid or vector; may be repeated; both by default."),
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="As IDX_EMBEDDING__URL; the key is IDX_EMBEDDING__API_KEY.")
    ] = None,
    dim: Annotated[int | None, typer.Option(min=1, help="As IDX_EMBEDDING__DIM.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=32, help="As IDX_EMBEDDING__MAX_TOKENS.")
    ] = None,
    query_prefix: Annotated[
        str | None, typer.Option(help="Put before queries; the model's own unless given.")
    ] = None,
    document_prefix: Annotated[
        str | None, typer.Option(help="Put before passages; the model's own unless given.")
    ] = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, max=1000, help="How deep.")] = 100,
    repeats: Annotated[
        int, typer.Option(min=0, max=100, help="Times each query is asked again for the clock.")
    ] = 1,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Embed with another model beside the one that is searched, and compare the two.

    Safe to interrupt: run it again to continue. Searches and updates go on as before, until
    'index adopt' makes the model the store's, or 'index drop' forgets it.
    """
    from catalog.evaluation.golden_files import read_golden
    from catalog.evaluation.model_comparison import compare_tried, tried_dict, tried_lines
    from catalog.library.model_trials import ModelTrials

    modes = [known_name("--mode", name, _MODES) for name in dict.fromkeys(mode or _MODES)]
    queries = None if golden is None else read_golden(golden)
    with open_library(context, home, preset) as library:
        chosen = library.chosen_dataset(dataset) if dataset or queries else None
        trials = ModelTrials(library)
        tried = trials.start(
            name,
            provider=provider,
            url=url,
            dim=dim,
            max_tokens=max_tokens,
            query_prefix=query_prefix,
            document_prefix=document_prefix,
        )
        labelled = {path for query in queries or () for path in query.relevant}
        with TerminalProgress() as progress:
            report = trials.embed(
                tried,
                [chosen] if chosen is not None and (dataset or sample) else [],
                sample=sample,
                first=labelled,
                progress=progress,
            )
            results = None
            if queries is not None and chosen is not None:
                results = compare_tried(
                    library,
                    tried,
                    queries,
                    chosen,
                    modes,
                    top_k=top_k,
                    repeats=repeats,
                    progress=progress,
                )
    if json:
        told = {"name": tried.name, "settings": dict(tried.settings)}
        print_json(
            {
                "tried": asdict(tried.model) | told,
                "newly_embedded": report.embedded,
                **asdict(report.counts),
                "missing": report.counts.missing,
                "failed": [asdict(failure) for failure in report.failed],
                "comparison": tried_dict(*results) if results else None,
            }
        )
    else:
        _print_trial(report)
        if results is not None:
            say("", *tried_lines(*results))
    if report.failed:
        raise typer.Exit(1)


def adopt(
    context: typer.Context,
    name: NameArgument,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Make a tried model the store's, at once: a search sees the old one or the new one.

    Embeds the passages that lack its vectors first. No passage is cut anew or gets another id.
    Prints what to set from now on.
    """
    from catalog.library.model_trials import ModelTrials

    with open_library(context, home, preset) as library, TerminalProgress() as progress:
        report = ModelTrials(library).adopt(name, progress=progress)
    if json:
        print_json(asdict(report) | {"seconds": round(report.seconds, 3)})
    else:
        _print_adoption(report)


def drop(
    context: typer.Context,
    name: NameArgument,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Forget a tried model and its vectors; what is searched stays as it is."""
    from catalog.library.model_trials import ModelTrials

    with open_library(context, home, preset) as library:
        dropped = ModelTrials(library).drop(name)
    if json:
        print_json({"dropped": name, "vectors": dropped})
    else:
        say(f"{name} is forgotten, with {dropped} vectors that nothing else uses")


def describe_tried(row: Mapping[str, Any]) -> str:
    """Return one line of such a row."""
    return (
        f"{row['name']}: {row['embedded']} of {row['passages']} passages, {row['vectors']} vectors "
        f"of {row['dim']} numbers, {row['bytes'] / 1e6:.1f} MB; waits for 'index adopt' or 'drop'"
    )


def _print_trial(report: TrialReport) -> None:
    for failure in report.failed[:_FAILURES_SHOWN]:
        complain(f"{failure.outcome}: {failure.path}: {failure.reason}")
    counts, name = report.counts, report.tried.name
    say(
        f"{name}: {counts.embedded} of {counts.passages} passages embedded, {report.embedded} new "
        f"texts; {counts.bytes / 1e6:.1f} MB of vectors; the store is searched as before"
    )
    if not counts.missing:
        say(f"catalog index adopt {name}   # makes it the store's; 'drop' forgets it")


def _print_adoption(report: AdoptionReport) -> None:
    say(*(f"note: {one}" for one in report.notes))
    say(
        f"{report.model.model} is the store's model now, in place of {report.replaced.model}: "
        f"{report.counts.embedded} of {report.counts.passages} passages have its vectors; "
        f"{report.seconds:.1f} s",
        "Set this from now on, as variables or in catalog.toml; until then the store's own note of "
        "it is followed:",
        *_toml_lines(report.settings),
    )


def _toml_lines(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield settings as lines of a TOML file, unset ones as comments."""
    for section in dict.fromkeys(name.rpartition(".")[0] for name in settings):
        inside = {
            name.rpartition(".")[2]: value
            for name, value in settings.items()
            if name.startswith(f"{section}.")
        }
        told = {name: value for name, value in inside.items() if value is not None}
        if told:
            yield f"[{section}]"
            yield from (
                f"{key} = {dumps(value, ensure_ascii=False)}" for key, value in told.items()
            )
        if unset := [name for name in inside if name not in told]:
            yield f"# {' and '.join(unset)} of [{section}]: leave out"


@app.command("list")
def list_all(
    context: typer.Context,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """List the models that are set, those of packages and the hub's cache.

    A star marks what searches and answers use now, a circle what is set and off.
    """
    from catalog.models.inventory import list_models

    _print(list_models(settings_for(context, home, preset).settings), json=json)


@app.command("check")
def check(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="One that 'list' shows, or a folder; else all.")
    ] = None,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Compare files with their hashes; exit 1 if one is wrong or missing.

    Missing is what searches or answers use now, or what is named here.
    """
    from catalog.models.inventory import check_model, count_bytes, list_models, named_models

    settings = settings_for(context, home, preset).settings
    entries = list_models(settings) if name is None else named_models(settings, name)
    with TerminalProgress() as progress:
        progress.start(count_bytes(entries), "comparing hashes")
        checked = [
            check_model(entry, partial(progress.advance, label=entry.name)) for entry in entries
        ]
    _print(checked, json=json)
    if any(entry.is_failure or (name and entry.problem) for entry in checked):
        raise typer.Exit(1)


@app.command("path")
def path(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="One that 'list' shows, or of the hub.")],
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Fetch it from the model hub if it is not here.")
    ] = False,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Print the folder (or GGUF file) of a model; exit 1 if it is not here."""
    from catalog.core.errors import ModelUnavailableError
    from catalog.models.inventory import find_files
    from catalog.models.model_files import fetch_command

    files = find_files(settings_for(context, home, preset).settings, name)
    if not files.found:
        if not fetch:
            files.require()
            raise ModelUnavailableError(f"{name} is not here: {fetch_command(name)}")
        note(f"fetching {name}\n")
        files.fetch(is_patient=True)
    place = files.weights_file if files.kind == "language model" else files.folder
    if json:
        print_json({"name": name, "kind": files.kind, "provider": files.provider, "path": place})
    else:
        say(str(place))


def _print(entries: Sequence[ModelEntry], *, json: bool) -> None:
    if json:
        print_json([asdict(entry) for entry in entries])
        return
    say(*table_lines(_HEADINGS, map(_cells, entries), right=("size", "dim")))
    for line in _problem_lines(entries):
        say(line)


def _cells(entry: ModelEntry) -> tuple[str, ...]:
    return (
        "*" if entry.is_on else "o" if entry.used else "",
        entry.name,
        entry.kind,
        entry.provider,
        entry.source or entry.origin or "missing",
        "" if entry.bytes is None else f"{entry.bytes / 1e6:,.1f} MB",
        entry.hashes if entry.origin not in (None, "elsewhere") else "",
        "" if entry.dim is None else str(entry.dim),
    )


def _problem_lines(entries: Sequence[ModelEntry]) -> Iterator[str]:
    for entry in entries:
        if entry.problem:
            yield f"{entry.name}: {entry.problem}"
        elif entry.sha256:
            yield f"{entry.name}: no hash is known; the weights have SHA-256 {entry.sha256}"
