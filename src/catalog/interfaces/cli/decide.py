"""``catalog why`` and ``tune``: which step lost a document, and which settings are better."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from catalog.core.params import Mode
from catalog.interfaces.cli.options import (
    DatasetOption,
    Printed,
    command,
    open_library,
    require_folder_of,
    settings_for,
)
from catalog.interfaces.cli.output import TerminalProgress, complain

_NOTHING_KEPT = "nothing was written or changed: the same command begins again"


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


@command
def tune(
    context: typer.Context,
    golden: Annotated[Path, Option(help="Labelled queries, JSON Lines.")],
    dataset: DatasetOption = None,
    write: Path | None = Option(None, help="TOML file for the chosen settings, if adopted."),
    report: Path | None = Option(None, help="HTML file to write."),
    budget_ms: float | None = Option(None, min=0.0, help="Longest p95 of the chosen settings."),
    slower_by: float = Option(
        1.5, min=0.0, help="The same as a multiple of the present one; without --budget-ms."
    ),
    keep: list[str] | None = Option(
        None, "--keep", help="Setting that is not tried, such as max_chunks_per_doc; repeatable."
    ),
) -> Printed:
    """Choose settings of the search by labelled questions, if they are shown to be better.

    Tries fusion, weights, depths, the limit per document and the reranker. The gain is measured on
    questions left out of the choice.

    Examples:
        catalog tune --golden notes.jsonl -d notes --write tuned.toml --report tuned.html
        catalog tune --golden notes.jsonl --budget-ms 200 --keep max_chunks_per_doc
    """
    from catalog.evaluation import tuning
    from catalog.evaluation.golden_files import read_golden, write_whole
    from catalog.retrieval.search import Searcher

    require_folder_of(write)
    require_folder_of(report)
    queries = read_golden(golden)
    with open_library(context) as library:
        with TerminalProgress(_NOTHING_KEPT) as progress:
            tuned = tuning.tune(
                Searcher(library),
                queries,
                library.chosen_dataset(dataset),
                budget_ms=budget_ms,
                slower_by=slower_by,
                keep=keep or (),
                progress=progress,
            )
        preset = library.settings.preset
    lines = [*tuning.tuning_lines(tuned)]
    if report is not None:
        tuning.write_tuning(tuned, report, created=datetime.now(UTC))
        lines.append(f"Report: {report}")
    if write is not None and tuned.is_adopted:
        write_whole(write, tuning.preset_text(tuned, preset))
        lines.append(f"Settings: {write}; use them with --preset {write}")
        origins = settings_for(context).origins
        for name, _ in tuned.chosen:
            origin = origins.get(f"rag_v2.{name}", "default")
            if not origin.startswith(("default", "preset")):
                lines.append(f"! {origin} sets {name} and goes before a preset: remove it there")
    return Printed(tuning.tuning_dict(tuned), lines)
