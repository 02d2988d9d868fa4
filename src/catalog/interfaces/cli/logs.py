"""``catalog logs`` and ``runs``: the questions asked of a store, and the recorded measurements."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from catalog.core.dates import format_timestamp, read_bound, seconds_since_epoch
from catalog.core.text import counted
from catalog.interfaces.cli.options import Printed, command, open_library
from catalog.interfaces.cli.output import table_lines
from catalog.interfaces.plain_text import one_line

if TYPE_CHECKING:
    from catalog.core.settings.sections import LogSettings
    from catalog.store.log_entries import LogEntry

_SPAN = re.compile(r"(\d{1,6})\s*([mhdw])")
_SECONDS = {"m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_HEADINGS = ("id", "asked at", "edge", "verb", "ms", "outcome", "question")
_WIDEST = 60  # characters of a question in a list

SinceOption = Annotated[
    str | None, Option("--since", help="Only requests from then on: 30m, 24h, 7d, or a date.")
]
runs_app = typer.Typer(help="Show and compare recorded evaluation runs.", no_args_is_help=True)
RunArgument = Annotated[str, Argument(help="A run's id, or the first part of it.")]
app = typer.Typer(help="Show or clear the log of requests (IDX_LOG__*).", no_args_is_help=True)


@app.command("queries")
@command
def list_queries(
    context: typer.Context,
    since: SinceOption = None,
    limit: int = Option(20, min=1, help="Number of entries, newest first."),
) -> Printed:
    """List the logged requests, newest first: by default without searches, questions as hashes.

    Examples:
        catalog logs queries
        catalog logs queries --since 24h
    """
    from catalog.store.log_entries import read_entries

    moment = moment_of("--since", since)
    with open_library(context) as library, library.database.read() as connection:
        entries = list(read_entries(connection, since=moment, limit=limit))
    table = table_lines(_HEADINGS, map(_cells, entries), right=("id", "ms"))
    lines = table if entries else ["The log is empty."]
    told = _what_is_logged(library.settings.log)
    return Printed([asdict(entry) for entry in entries], lines, [told])


@app.command("show")
@command
def show_query(
    context: typer.Context,
    number: int = Argument(metavar="ID", help="Number of the entry in the list."),
) -> Printed:
    """Show one entry: passages with scores, stages, tokens, errors.

    Examples:
        catalog logs show 12
        catalog logs show 12 --json
    """
    from catalog.core.errors import InputError
    from catalog.store.log_entries import find_entry

    with open_library(context) as library, library.database.read() as connection:
        entry = find_entry(connection, number)
    if entry is None:
        raise InputError(f"the log has no entry {number}; catalog logs queries shows the entries")
    return Printed(asdict(entry), _entry_lines(entry))


@app.command("stats")
@command
def show_stats(context: typer.Context, since: SinceOption = None) -> Printed:
    """Show times, failures, unanswered questions with reasons, tokens and cost.

    Examples:
        catalog logs stats
        catalog logs stats --since 7d
    """
    from catalog.evaluation.log_stats import log_stats, log_stats_lines
    from catalog.store.log_entries import read_entries

    moment = moment_of("--since", since)
    with open_library(context) as library, library.database.read() as connection:
        stats = log_stats(read_entries(connection, since=moment))
    return Printed(stats, log_stats_lines(stats), [_what_is_logged(library.settings.log)])


@app.command("clear")
@command
def clear_log(
    context: typer.Context,
    before: str | None = Option(
        None, "--before", help="Only entries older than 7d, or from before a date."
    ),
) -> Printed:
    """Delete the log, or its old entries.

    Examples:
        catalog logs clear
        catalog logs clear --before 30d
    """
    from catalog.store.log_entries import clear_entries

    moment = None if before is None else moment_of("--before", before)
    with open_library(context) as library, library.database.write() as connection:
        dropped = clear_entries(connection, before=moment)
    return Printed({"dropped": dropped}, [f"{dropped:,} dropped"])


def moment_of(option: str, value: str | None) -> float:
    """Return the seconds since 1970 that an option names, 0 for none; a span is one until now."""
    from catalog.core.errors import InputError

    if value is None:
        return 0.0
    if span := _SPAN.fullmatch(value.strip()):
        return time.time() - int(span[1]) * _SECONDS[span[2]]
    try:
        moment = read_bound(option, value)
    except InputError as error:
        raise InputError(f"{error}; or a span until now, such as 24h or 7d") from None
    return 0.0 if moment is None else seconds_since_epoch(moment)


def _what_is_logged(settings: LogSettings) -> str:
    """Say which verbs the settings log, and in which form the questions."""
    if not settings.verbs:
        return "nothing is logged (IDX_LOG__VERBS)"
    logged = f"logged: {', '.join(settings.verbs)}"
    if "search" not in settings.verbs:
        logged += "; searches are not (IDX_LOG__VERBS)"
    return logged if settings.query_text else f"{logged}; questions as hashes (IDX_LOG__QUERY_TEXT)"


def _cells(entry: LogEntry) -> tuple[str, ...]:
    asked, ms = format_timestamp(entry.asked_at), f"{entry.elapsed_ms:,.0f}"
    question = _question(entry)[:_WIDEST]
    return str(entry.id), asked, entry.edge, entry.verb, ms, _outcome(entry), question


def _outcome(entry: LogEntry) -> str:
    if entry.retrieval_ms is None:
        return ", ".join(entry.errors)
    if entry.abstained is not None:
        return "no answer"
    return counted(len(entry.passages), "passage") + (" (failures)" if entry.errors else "")


def _question(entry: LogEntry) -> str:
    return f"#{entry.query_hash}" if entry.query is None else one_line(entry.query)


def _entry_lines(entry: LogEntry) -> Iterator[str]:
    facts = asdict(entry) | {"asked_at": format_timestamp(entry.asked_at)}
    facts |= {"query": _question(entry), "datasets": ", ".join(entry.datasets)}
    facts["outcome"] = _outcome(entry)
    for name, value in facts.items():
        if value in (None, "") or name in ("query_hash", "stages", "errors", "passages"):
            continue
        shown = f"{value:,.1f}" if name.endswith("_ms") else one_line(str(value))
        yield f"{name.replace('_', ' '):16}{shown}"
    yield from (f"{'error':16}{error}" for error in entry.errors)
    for stage, status, ms in entry.stages:
        yield f"{'stage':16}{stage} {status}, {ms:,.1f} ms"
    for chunk_id, score in entry.passages:
        yield f"{'passage':16}{chunk_id}  {score:.4f}"


@runs_app.command("list")
@command
def list_recorded(
    context: typer.Context,
    limit: int = Option(20, min=1, max=10_000, help="Number of runs, newest first."),
) -> Printed:
    """List the recorded runs, newest first.

    Examples:
        catalog runs list
        catalog runs list --limit 5 --json
    """
    from catalog.evaluation.summary import run_dict, run_lines
    from catalog.store.eval_runs import list_runs

    with open_library(context) as library, library.database.read() as connection:
        runs = list_runs(connection, limit)
    return Printed([*map(run_dict, runs)], run_lines(runs))


@runs_app.command("show")
@command
def show_recorded(context: typer.Context, run: RunArgument) -> Printed:
    """Show one run: its scores and its settings.

    Examples:
        catalog runs show 3f2a
        catalog runs show 3f2a --json
    """
    from catalog.evaluation.answer_runs import answer_run_dict, answer_run_lines
    from catalog.evaluation.backends import require_run
    from catalog.evaluation.summary import run_detail_lines, run_dict

    with open_library(context) as library:
        record = require_run(library.database, run)
    if record.answers:
        told = answer_run_dict(record) | {"identity": record.identity}
        return Printed(told, answer_run_lines(record))
    told = run_dict(record) | {"identity": record.identity, "scores": record.scores}
    return Printed(told, run_detail_lines(record))


@runs_app.command("diff")
@command
def diff_recorded(context: typer.Context, before: RunArgument, after: RunArgument) -> Printed:
    """Compare two runs: their settings, and their metrics with tests.

    Examples:
        catalog runs diff 3f2a 9c01
        catalog runs diff 3f2a 9c01 --json
    """
    from catalog.evaluation.backends import require_run
    from catalog.evaluation.run_records import diff_runs
    from catalog.evaluation.summary import diff_dict, diff_lines

    with open_library(context) as library:
        two = (require_run(library.database, run) for run in (before, after))
        difference = diff_runs(*two)
    return Printed(diff_dict(difference), diff_lines(difference))
