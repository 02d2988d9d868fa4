"""``catalog why``, ``tune`` and ``replay``: what lost a document, which settings, what moved."""

from __future__ import annotations

import sys
from contextlib import ExitStack, redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from typer import Argument, Option

from catalog.core.params import Mode
from catalog.interfaces.cli.logs import SinceOption, moment_of
from catalog.interfaces.cli.measure import BACKENDS, Measurement
from catalog.interfaces.cli.options import (
    DatasetOption,
    Printed,
    StoreOptions,
    command,
    open_library,
    reading_options,
    require_folder_of,
    settings_for,
)
from catalog.interfaces.cli.output import TerminalProgress, complain

if TYPE_CHECKING:
    from catalog.evaluation.golden import GoldenSet
    from catalog.evaluation.replay import Replay, Snapshot
    from catalog.library.library import Library

_OF_SHARES = ("baseline", "candidate_dataset", "candidate_filter")
_OF_SEARCH = ("mode", "filters", "rerank", "threshold")
_UNUSED = {  # options of 'why' that the others leave without an effect
    "document": ("candidate", *_OF_SHARES),
    "pipeline": ("candidate", *_OF_SHARES, *_OF_SEARCH, "text"),
    "golden": (*_OF_SHARES, "text", "pipeline"),
    "shares": (*_OF_SEARCH, "top_k", "text", "pipeline"),
}
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
    asked_of = "document" if golden is None else "golden" if candidate is None else "shares"
    asked_of = "pipeline" if asked_of == "document" and pipeline is not None else asked_of
    if given := [name for name in _UNUSED[asked_of] if _is_given(context, name)]:
        name = "--" + given[0].replace("filters", "filter").replace("_", "-")
        raise typer.BadParameter("it has no place with the other options", param_hint=name)
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


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


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


@command
def replay(
    context: typer.Context,
    save: Path | None = Option(None, help="File for the lists of now, to compare with later."),
    before: Path | None = Option(None, "--from", help="Such a file: ask its questions again."),
    other_home: Path | None = Option(None, help="A second home: ask both in turn, this one first."),
    other_preset: str | None = Option(None, help="The second home's --preset."),
    golden: Path | None = Option(
        None, help="Labelled queries; without them those of the file, or else the log's questions."
    ),
    dataset: DatasetOption = None,
    backend: str = Option("v2", help=f"One of {BACKENDS}."),
    since: SinceOption = None,
    limit: int = Option(200, min=1, help="Number of logged questions, newest first."),
    top_k: int = Option(100, "--top-k", "-k", min=10, max=1000, help="How deep."),
    moved: float = Option(0.1, min=0, max=1, help="How far lists may move without labels."),
    margin: float = Option(0.05, min=0.001, max=1, help="Loss of nDCG@10 that labels rule out."),
) -> Printed:
    """Ask questions again after a change, and say what moved: PASS, FAIL or HOLD.

    Exit code 3 (FAIL): labels show a loss. 4 (HOLD): lists moved further than --moved, and no
    labels decide. Questions of the log are asked if their words were logged.

    Examples:
        catalog replay --save before.json --golden notes.jsonl
        catalog replay --from before.json
    """
    from catalog.core.errors import BackendError
    from catalog.evaluation import replay as replays
    from catalog.evaluation.golden_files import read_golden

    if sum(one is not None for one in (save, before, other_home)) != 1:
        raise typer.BadParameter("give one of --save, --from and --other-home")
    require_folder_of(save)
    earlier = None if before is None else replays.read_snapshot(before)
    labelled = None if golden is None else read_golden(golden)
    with ExitStack() as opened, reading_options(BackendError), redirect_stdout(sys.stderr):
        library = opened.enter_context(open_library(context))
        name = library.chosen_dataset(dataset or (earlier.run.dataset if earlier else None))
        notes: list[str] = []
        if labelled is not None:
            queries = labelled
        elif earlier is not None:
            queries = earlier.golden
        else:
            since_then = moment_of("--since", since)
            queries, notes = replays.read_logged(
                library.database, name, since=since_then, limit=limit
            )
        job = Replaying(library, name, queries, backend, earlier.run.top_k if earlier else top_k)
        if save is not None:
            snapshot = job.snapshot()
            replays.write_snapshot(snapshot, save)
            told = {"file": str(save), "questions": len(queries), **snapshot.about, "notes": notes}
            return Printed(told, [f"{len(queries)} questions, written to {save}"], notes)
        if earlier is not None:
            found = job.compare(earlier, moved, margin)
        else:
            store = StoreOptions(other_home, other_preset)
            other = opened.enter_context(open_library(context, store))
            found = job.compare_homes(other, moved, margin, notes)
    code = replays.EXIT_CODES[found.verdict]
    return Printed(replays.replay_dict(found), replays.replay_lines(found), code=code)


class Replaying(NamedTuple):
    """Questions to ask again of one search of a dataset."""

    library: Library
    dataset: str
    queries: GoldenSet
    backend: str
    top_k: int
    is_shown: bool = True

    def snapshot(self) -> Snapshot:
        """Ask the questions, and return their lists with what they came of."""
        from catalog.evaluation.replay import Snapshot, describe_moment
        from catalog.evaluation.run_records import corpus_digest

        (run,) = self._measurement().ask([self.backend])
        now = datetime.now(UTC).isoformat(timespec="seconds")
        source = "log" if self.queries.name == "log" else "golden"
        corpus = corpus_digest(self.library.database, self.dataset)
        return Snapshot(self.queries, run, describe_moment(now, source, corpus))

    def compare(self, before: Snapshot, moved: float, margin: float) -> Replay:
        """Ask again what a snapshot has, and compare."""
        from catalog.core.errors import InputError
        from catalog.evaluation.golden import find_drift, without_spans
        from catalog.evaluation.replay import compare_replay

        if absent := [query.id for query in self.queries if query.id not in before.run.outcomes]:
            raise InputError(f"the file has no list for {absent[0]!r}: save again with this set")
        now = self.snapshot()
        about = {name: (before.about.get(name), now.about[name]) for name in ("version", "corpus")}
        kept = {query.id: before.run.outcomes[query.id] for query in self.queries}
        return compare_replay(
            replace(before.run, name=f"{before.run.name} before", outcomes=kept),
            replace(now.run, name=f"{now.run.name} now"),
            without_spans(self.queries),  # a file has too few words to look for them
            self._measurement().allowed,
            most_moved=moved,
            margin=margin,
            changed={name: both for name, both in about.items() if both[0] != both[1]},
            drift=find_drift(self.queries, self.library.database, self.dataset, before.quotes),
        )

    def compare_homes(
        self, other: Library, moved: float, margin: float, notes: list[str]
    ) -> Replay:
        """Ask this home and another one in turn, and compare."""
        from catalog.evaluation.golden import find_drift
        from catalog.evaluation.replay import compare_replay

        job = self._measurement()
        before, now = job.ask([self.backend, self.backend], other)
        names = [str(one.settings.home.name) for one in (self.library, other)]
        first, second = names if len({*names}) == 2 else ("first home", "second home")
        return compare_replay(
            replace(before, name=f"{before.name} of {first}"),
            replace(now, name=f"{now.name} of {second}"),
            job.with_words(),
            job.allowed,
            most_moved=moved,
            margin=margin,
            drift=find_drift(self.queries, other.database, self.dataset),
            notes=notes,
        )

    def _measurement(self) -> Measurement:
        of = (self.library, self.dataset, self.queries, self.top_k)
        return Measurement(*of, repeats=0, is_shown=self.is_shown)
