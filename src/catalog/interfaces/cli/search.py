"""``catalog search``."""

from __future__ import annotations

from typing import Annotated

import typer

from catalog.interfaces.cli.answering import tell
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
