"""``catalog why``: which step lost a document, and which stage makes the difference."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from catalog.core.params import Mode
from catalog.interfaces.cli.options import DatasetOption, Printed, command, open_library
from catalog.interfaces.cli.output import TerminalProgress, complain


@command
def why(
    context: typer.Context,
    query: Annotated[str | None, Argument(help="The query that did not find it.")] = None,
    doc: str | None = Option(None, "--doc", help="The document: path, name or #docid."),
    text: str | None = Option(None, help="Words of the document that the result should have."),
    golden: Path | None = Option(None, help="Labelled queries, instead: all that they lose."),
    pipeline: str | None = Option(
        None, help="Another search, module:object; steps of LlamaIndex are observed."
    ),
    candidate: str | None = Option(
        None, help="With --golden: a second search, such as v2:fusion_mode=rrf, to compare."
    ),
    baseline: str = Option("v2", help="The first one: v2, lexical, vector or v2:setting=value,…"),
    candidate_dataset: str | None = Option(None, help="Another index for the second search."),
    candidate_filter: list[str] | None = Option(None, help="A condition of the second search."),
    dataset: DatasetOption = None,
    mode: Mode | None = Option(None, help="lexical, vector or hybrid."),
    top_k: int | None = Option(None, "--top-k", "-k", min=1, max=1000, help="Results."),
    filters: list[str] | None = Option(None, "--filter", help="A condition of the search."),
    rerank: bool | None = Option(None, help="With the reranker."),
    threshold: float | None = Option(None, min=0, max=1, help="Least relevance."),
) -> Printed:
    """Say which step of a search lost a document, and the smallest change that brings it back.

    With --golden for all labelled documents, as shares of the loss; with --candidate which stages
    make the difference between two searches.

    Examples:
        catalog why "rotate keys" --doc guides/keys.md
        catalog why --golden notes.jsonl --candidate v2:rerank_enabled=true
    """
    from catalog.core.params import SearchParams
    from catalog.evaluation import losses, shares
    from catalog.evaluation.golden import Span, find_label_warnings
    from catalog.evaluation.golden_files import read_golden
    from catalog.evaluation.observed import explain_pipeline
    from catalog.evaluation.why import explain_golden, explain_loss
    from catalog.retrieval.search import Searcher

    if (golden is None) == (query is None) or (query is None) != (doc is None):
        raise typer.BadParameter("give either a query and --doc, or --golden")
    queries = None if golden is None else read_golden(golden)
    with open_library(context) as library, redirect_stdout(sys.stderr):
        name = library.chosen_dataset(dataset)
        params = SearchParams(
            query or "",
            dataset=name,
            mode=mode,
            top_k=top_k,
            filters=filters or None,
            rerank=rerank,
            similarity_threshold=threshold,
        )
        service = Searcher(library)
        if pipeline is not None and query is not None:
            k = top_k or library.settings.rag_v2.top_k
            loss = explain_pipeline(library.database, name, pipeline, query, str(doc), k)
            return Printed(losses.loss_dict(loss), losses.loss_lines(loss))
        if queries is None:
            span = None if text is None else Span(text=text)
            loss = explain_loss(service.parts, params, str(doc), span)
            return Printed(losses.loss_dict(loss), losses.loss_lines(loss))
        for warning in find_label_warnings(queries, library.database, name):
            complain(warning)
        with TerminalProgress() as progress:
            if candidate is None:
                found = explain_golden(service.parts, params, queries, progress)
                return Printed(losses.golden_loss_dict(found), losses.golden_loss_lines(found))
            first = shares.SearchSetup(baseline, name)
            second = shares.SearchSetup(candidate, candidate_dataset or name, candidate_filter)
            told = shares.share_out(service, first, second, queries, progress)
    return Printed(shares.share_dict(told), shares.share_lines(told))
