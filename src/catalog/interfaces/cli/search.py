"""``catalog search``."""

from __future__ import annotations

from typing import Annotated

import typer

from catalog.interfaces.cli.options import (
    DatasetOption,
    HomeOption,
    JsonOption,
    PresetOption,
    only_dataset,
    open_workspace,
)
from catalog.interfaces.cli.output import print_json, print_results


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
    where: Annotated[
        list[str] | None,
        typer.Option("--filter", help="Only passages with field=value; may be repeated."),
    ] = None,
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
    from catalog.search_v2.references import resolve_documents
    from catalog.search_v2.service import SearchServiceV2

    with open_workspace(context, home, preset) as workspace:
        name = only_dataset(workspace, dataset)
        workspace.require_dataset(name)
        answer = SearchServiceV2(workspace).search(
            query,
            dataset=name,
            top_k=top_k,
            mode=mode,
            doc_ids=resolve_documents(workspace.database, name, doc) if doc else None,
            filters=where or None,
            rerank=rerank,
            expand=expand,
            explain=explain,
            strict=strict,
        )
    if json:
        print_json(answer.to_dict())
    else:
        print_results(answer, explain=explain)
