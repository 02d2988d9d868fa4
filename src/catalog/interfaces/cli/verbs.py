"""``catalog search``, ``get`` and ``browse``."""

from __future__ import annotations

from typing import Annotated

import typer

from catalog.interfaces.cli.ask import tell
from catalog.interfaces.cli.options import (
    DatasetOption,
    HomeOption,
    JsonOption,
    NameOption,
    PresetOption,
    TypeOption,
    WhereOption,
)


def search(
    context: typer.Context,
    query: Annotated[
        str,
        typer.Argument(
            help='Words, "quoted phrases", -exclusions, or typed parts: lex: … / vec: …'
        ),
    ],
    dataset: DatasetOption = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", help="How many passages.")] = 5,
    mode: Annotated[str, typer.Option(help="lexical, vector or hybrid.")] = "hybrid",
    doc: Annotated[
        list[str] | None,
        typer.Option("--doc", help="Only this path, glob or #docid; may be repeated."),
    ] = None,
    file_type: TypeOption = None,
    name: NameOption = None,
    where: WhereOption = None,
    rerank: Annotated[
        bool | None,
        typer.Option(
            "--rerank/--no-rerank", help="Let a second model read the best passages, or not."
        ),
    ] = None,
    expand: Annotated[
        bool | None,
        typer.Option("--expand/--no-expand", help="Ask a language model for other words, or not."),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show how scores add up.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail instead of answering with less.")
    ] = False,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Find the passages that answer a query."""
    asked = {
        "query": query,
        "dataset": dataset,
        "top_k": top_k,
        "mode": mode,
        "docs": doc,
        "file_type": file_type,
        "name": name,
        "filters": where,
        "rerank": rerank,
        "expand": expand,
        "explain": explain,
        "strict": strict,
    }
    tell(context, home, preset, "search", asked, json=json, explain=explain)


def get(
    context: typer.Context,
    reference: Annotated[
        str,
        typer.Argument(help="dataset:path, path or #docid; :12-20 after it picks lines."),
    ],
    dataset: DatasetOption = None,
    numbers: Annotated[
        bool, typer.Option("--line-numbers", "-n", help="Number the lines.")
    ] = False,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Print a document, or a range of its lines, as it was indexed."""
    asked = {"reference": reference, "dataset": dataset}
    tell(context, home, preset, "get", asked, json=json, numbers=numbers)


def browse(
    context: typer.Context,
    query: Annotated[
        str | None, typer.Argument(help="Words of titles, names, summaries and tags.")
    ] = None,
    dataset: DatasetOption = None,
    file_type: TypeOption = None,
    name: NameOption = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", help="Only with this tag; may be repeated.")
    ] = None,
    where: WhereOption = None,
    after: Annotated[
        str | None, typer.Option(help="Only dated on or after this day, month or year.")
    ] = None,
    before: Annotated[str | None, typer.Option(help="Only dated before this one.")] = None,
    sort: Annotated[
        str,
        typer.Option(help="best, name, modified or size; dates are the document's own, if any."),
    ] = "best",
    limit: Annotated[int, typer.Option("--limit", "-k", help="How many documents.")] = 20,
    offset: Annotated[int, typer.Option(help="How many to pass over first.")] = 0,
    json: JsonOption = False,
    home: HomeOption = None,
    preset: PresetOption = None,
) -> None:
    """Show what documents there are: titles, summaries, types, dates, tags, sizes."""
    asked = {
        "query": query,
        "dataset": dataset,
        "file_type": file_type,
        "name": name,
        "tags": tag,
        "filters": where,
        "after": after,
        "before": before,
        "sort": sort,
        "limit": limit,
        "offset": offset,
    }
    tell(context, home, preset, "browse", asked, json=json)
