"""``catalog cache``: stats, clear."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

import typer

from catalog.interfaces.cli.options import (
    HomeOption,
    JsonOption,
    PresetOption,
    open_library,
    settings_for,
)
from catalog.interfaces.cli.output import print_json, say

if TYPE_CHECKING:
    from catalog.core.settings import Settings
    from catalog.library.library import Library

app = typer.Typer(help="What models answered, kept to be used again.", no_args_is_help=True)
CacheKind = Literal["expansion", "rerank", "queries"]
CACHE_KINDS: tuple[CacheKind, ...] = ("expansion", "rerank", "queries")
_HEADINGS = ("kind", "model", "entries", "used again", "size", "oldest", "newest")


@app.command("stats")
def stats(
    context: typer.Context,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """What is kept, by kind and model: expansions, rerank scores, query embeddings."""
    rows: list[dict[str, Any]] = []
    if _is_store(settings_for(context, home, preset).settings):
        with open_library(context, home, preset) as library:
            rows = _stats(library)
    if json:
        print_json(rows)
    elif not rows:
        say("There is no store yet, so nothing is kept.")
    else:
        for line in _table(rows):
            say(line)


@app.command("clear")
def clear(
    context: typer.Context,
    kind: Annotated[
        str | None, typer.Option(help="Only these: expansion, rerank or queries.")
    ] = None,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Drop what is kept, all of it or one kind; documents and their vectors stay."""
    kinds = _chosen(kind)
    dropped = dict.fromkeys(kinds, 0)
    if _is_store(settings_for(context, home, preset).settings):
        with open_library(context, home, preset) as library:
            dropped = _clear(library, kinds)
    if json:
        print_json({"dropped": dropped})
    else:
        for name, count in dropped.items():
            say(f"{name:12}{count:,} dropped")


def _chosen(kind: str | None) -> tuple[CacheKind, ...]:
    if kind is None:
        return CACHE_KINDS
    for name in CACHE_KINDS:
        if name == kind:
            return (name,)
    raise typer.BadParameter(f"{kind!r}; one of {', '.join(CACHE_KINDS)}", param_hint="--kind")


def _is_store(settings: Settings) -> bool:
    """Whether opening the store would make none; a URL of another kind fails when opened."""
    if settings.database_url is None:
        from catalog.store.database import store_file

        return store_file(settings.home).exists()
    url = urlsplit(settings.database_url)
    return not url.scheme.startswith("sqlite") or Path(url.path[1:].removeprefix("file:")).is_file()


def _stats(library: Library) -> list[dict[str, Any]]:
    from catalog.store import embedding_cache, llm_cache

    with library.database.read() as connection:
        kept = llm_cache.stats(connection)
        entries, hits = embedding_cache.query_cache_stats(connection)
    queries = {"kind": "queries", "model": None, "entries": entries, "hits": hits}
    unknown = {"bytes": None, "oldest": None, "newest": None}
    return [asdict(one) for one in kept] + [queries | unknown]


def _clear(library: Library, kinds: Iterable[CacheKind]) -> dict[CacheKind, int]:
    from catalog.store import embedding_cache, llm_cache

    dropped: dict[CacheKind, int] = {}
    with library.database.write() as connection:
        for kind in kinds:
            if kind == "queries":
                dropped[kind], _ = embedding_cache.query_cache_stats(connection)
                embedding_cache.trim_queries(connection, 0)
            else:
                dropped[kind] = llm_cache.clear(connection, kind)
    return dropped


def _table(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    cells = [_HEADINGS, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = [
            cell.ljust(width) if heading in ("kind", "model") else cell.rjust(width)
            for heading, cell, width in zip(_HEADINGS, row, widths, strict=True)
        ]
        yield "  ".join(padded)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        row["kind"],
        row["model"] or "-",
        f"{row['entries']:,}",
        f"{row['hits']:,}",
        _size(row["bytes"]),
        _date(row["oldest"]),
        _date(row["newest"]),
    )


def _size(count: int | None) -> str:
    if count is None:
        return "-"
    if count < 1_000:
        return f"{count} B"
    return f"{count / 1e3:,.1f} kB" if count < 1_000_000 else f"{count / 1e6:,.1f} MB"


def _date(moment: float | None) -> str:
    return "-" if moment is None else f"{datetime.fromtimestamp(moment, tz=UTC):%Y-%m-%d}"
