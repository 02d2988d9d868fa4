"""``catalog index stats``: what a dataset holds, why files are missing, sizes."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from catalog.interfaces.cli.options import (
    DatasetOption,
    HomeOption,
    JsonOption,
    PresetOption,
    open_library,
)
from catalog.interfaces.cli.output import print_json, say
from catalog.interfaces.cli.try_model import describe_tried
from catalog.interfaces.terminal import describe_origin

if TYPE_CHECKING:
    from catalog.library.health import DatasetStats
    from catalog.store.manifest import FileCounts
    from catalog.store.statistics import ChunkSizes

_BAR = 40  # characters of the longest bar
_REASONS_SHOWN = 10


def stats(
    context: typer.Context,
    dataset: DatasetOption = None,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Count what a dataset holds, in the database: files, passages and their sizes."""
    from catalog.library.indexing import Indexer

    with open_library(context, home, preset) as library:
        counts = Indexer(library).stats(library.chosen_dataset(dataset))
    if json:
        print_json(asdict(counts))
    else:
        _print_stats(counts)
        say(*(f"{'tried model':15} {describe_tried(row)}" for row in counts.tried_models))


def _print_stats(stats: DatasetStats) -> None:
    """Print the counts, why files are missing, and the histogram of sizes."""
    modalities = ", ".join(f"{count} {name}" for name, count in stats.modalities.items())
    languages = ", ".join(f"{count} {name}" for name, count in stats.languages.items())
    updated = datetime.fromtimestamp(stats.updated_at, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    _print_files(stats.files)
    for name, value in (
        ("documents", stats.documents),
        ("chunks", f"{stats.chunks} ({modalities})" if modalities else stats.chunks),
        ("languages", languages or "not known yet"),
        ("embedded", f"{stats.embedded} of {stats.chunks} passages"),
        ("pending points", stats.pending_points),
        ("database", f"{stats.database_bytes / 1e6:.1f} MB, all datasets"),
        ("updated", updated),
        ("folder", stats.root or "none: filled by a pipeline"),
        ("made with", describe_origin(stats.preset, stats.settings)),
    ):
        say(f"{name:15} {value}")
    _print_sizes(stats.sizes)


def _print_files(files: FileCounts) -> None:
    share = "" if files.coverage is None else f", {files.coverage:.1%} of those with text"
    say(f"{'files':15} {files.indexed} of {files.listed} indexed{share}")
    _print_reasons(files.reasons, "not")
    _print_reasons(files.partly, "not wholly, or not as it is")


def _print_reasons(reasons: dict[str, int], outcome: str) -> None:
    for reason, count in list(reasons.items())[:_REASONS_SHOWN]:
        say(f"{'':15} {count} {outcome}: {reason}")
    if len(reasons) > _REASONS_SHOWN:
        say(f"{'':15} … for {len(reasons) - _REASONS_SHOWN} more reasons (--json lists all)")


def _print_sizes(sizes: ChunkSizes) -> None:
    if sizes.in_band is not None:
        aside = f"; {sizes.short} of documents shorter than that aside" if sizes.short else ""
        say(f"{'sizes':15} {sizes.in_band:.1%} have {sizes.low} to {sizes.high} tokens{aside}")
    if sizes.uncounted:
        say(f"{'':15} {sizes.uncounted} were not counted when they were cut")
    most = max((size_range.chunks for size_range in sizes.histogram), default=0)
    for size_range in sizes.histogram:
        span = (
            f"{size_range.low}-{size_range.high}"
            if size_range.high is not None
            else f"{size_range.low}-"
        )
        bar = "#" * round(_BAR * size_range.chunks / most) if most else ""
        say(f"{span:>15} {size_range.chunks:>7} {bar}".rstrip())
