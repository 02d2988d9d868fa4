"""The verbs as functions of :mod:`catalog.search_v2`, on the store of the effective settings."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack, nullcontext
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from catalog.core.arguments import check_names, parameter_names, takes
from catalog.core.errors import InputError
from catalog.core.params import BrowseParams, GetParams, SearchParams
from catalog.core.settings import get_settings, load_settings
from catalog.ingest.sync_report import SyncReport
from catalog.interfaces.calls import get_lines
from catalog.interfaces.cli.output import NO_RUN, TerminalProgress, complain
from catalog.library.browse import DocumentCatalog
from catalog.library.indexing import Indexer, Removal, RunOptions
from catalog.library.library import Library
from catalog.library.names import dataset_name, roles_in_force
from catalog.models.model_files import require_models
from catalog.retrieval.shared import shared_service
from catalog.store.database import require_store

if TYPE_CHECKING:
    from catalog.core.results import CatalogPage
    from catalog.evaluation.comparison import PipelineComparison, SystemsComparison
    from catalog.evaluation.losses import Loss
    from catalog.evaluation.replay import Replay
    from catalog.evaluation.tuning import Tuning
    from catalog.library.get import DocumentLines


def index(
    folder: str | PathLike[str] | None = None,
    *,
    dataset: str | None = None,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    show_progress: bool = False,
    **options: Unpack[RunOptions],
) -> SyncReport:
    """Index a folder or file as a dataset, or what changed in it, like ``catalog index build``.

    Without a ``folder`` that of the dataset is looked at again; without a ``dataset`` it is named
    after the folder. It continues an interrupted run; ``show_progress`` writes to standard error.
    What could not be read is in ``report.failed``. Raises as :meth:`Indexer.build`.

    Examples:
        >>> from catalog import search_v2
        >>> report = search_v2.index("notes")
        >>> report.documents, report.added, report.failed
        (5, 0, ())
    """
    known = ("folder", "dataset", "include", "exclude", *RunOptions.__annotations__)
    check_names(options, dict.fromkeys(known, ()))
    library = _own_library("index", make_store=folder is not None)
    with TerminalProgress() if show_progress else nullcontext() as progress:
        options.setdefault("progress", progress)
        if folder is None:
            return Indexer(library).update(library.chosen_dataset(dataset), **options)
        root = Path(folder).expanduser()
        both = {"include": include, "exclude": exclude}  # a pattern alone, or several
        globs: Any = {k: (v,) if isinstance(v, str) else v and tuple(v) for k, v in both.items()}
        return Indexer(library).build(root, dataset or dataset_name(root), **globs, **options)


@takes(GetParams)
def get(params: GetParams) -> DocumentLines:
    """Return a document, or the lines, pages, cells or seconds of it that its reference names.

    Examples:
        >>> from catalog.search_v2 import get
        >>> get("keys.md:8-8", dataset="notes").text
        'Rotate the API keys every ninety days with the keys command.'
    """
    return get_lines(shared_service().library, params)


@takes(BrowseParams)
def browse(params: BrowseParams) -> CatalogPage:
    """Return which documents there are: a page of ``entries``, and the ``total``.

    Examples:
        >>> from catalog.search_v2 import browse
        >>> [entry.path for entry in browse(dataset="notes", tags=["ops"]).entries]
        ['keys.md']
    """
    return DocumentCatalog(shared_service().library).query(**vars(params))


@overload
def compare(
    golden: str | PathLike[str],
    *,
    candidate: list[Any],
    dataset: str | None = None,
    baseline: Any = "v1",
    top_k: int = 100,
    repeats: int = 2,
    show_progress: bool = False,
) -> SystemsComparison: ...
@overload
def compare(
    golden: str | PathLike[str],
    *,
    dataset: str | None = None,
    baseline: Any = "v1",
    candidate: Any = "v2",
    top_k: int = 100,
    repeats: int = 2,
    show_progress: bool = False,
) -> PipelineComparison: ...
def compare(
    golden: str | PathLike[str],
    *,
    dataset: str | None = None,
    baseline: Any = "v1",
    candidate: Any = "v2",
    top_k: int = 100,
    repeats: int = 2,
    show_progress: bool = False,
) -> PipelineComparison | SystemsComparison:
    """Ask two searches the labelled queries of a file, like ``catalog compare``, and test them.

    ``baseline`` and ``candidate`` are what the command takes, or your own function, retriever or
    query engine. Both runs are recorded. The result has a ``verdict``, ``metrics`` and ``deltas``.
    With a list of candidates each pair is tested, and the result has ``pairs`` and ``groups``.

    Examples:
        >>> from catalog.search_v2 import compare
        >>> compare("questions.jsonl", dataset="notes", baseline="lexical").outcome
        'too few to tell'
    """
    from catalog.evaluation.golden_files import read_golden
    from catalog.evaluation.measurement import Measurement

    library, queries = _own_library("compare"), read_golden(Path(golden))
    name = library.chosen_dataset(dataset)
    with TerminalProgress(NO_RUN) if show_progress else nullcontext() as progress:
        shown: Any = {"progress": progress} | ({"tell": complain} if show_progress else {})
        job = Measurement(library, name, queries, top_k, repeats, **shown)
        if isinstance(candidate, list) and len(candidate) > 1:
            return job.compare_all([baseline, *candidate])
        return job.compare(baseline, candidate[0] if isinstance(candidate, list) else candidate)


def why(
    query: str, doc: str, *, text: str | None = None, pipeline: Any = None, **params: Any
) -> Loss:
    """Return which step of a search lost the document ``doc``, or its rank, like ``catalog why``.

    ``text`` are words of it that a result should hold, and ``params`` are those of a search. A
    ``pipeline`` is another search, as for :func:`compare`, of which only dataset and top_k can be
    given. The result's ``change`` is the smallest one that brings the document back.

    Examples:
        >>> from catalog.search_v2 import why
        >>> why("how often do keys change", "keys.md", dataset="notes").rank
        1
    """
    from catalog.evaluation import observed
    from catalog.evaluation.golden import Span
    from catalog.evaluation.why import explain_loss

    library = _own_library("why")
    if pipeline is not None:
        check_names(params, {"dataset": (), "top_k": ()})
        name, top_k = library.chosen_dataset(params.get("dataset")), params.get("top_k") or 10
        return observed.explain_pipeline(library.database, name, pipeline, query, doc, top_k)
    span = None if text is None else Span(text=text)
    check_names(params, parameter_names(SearchParams))
    return explain_loss(shared_service().parts, SearchParams(query, **params), doc, span)


def tune(
    golden: str | PathLike[str],
    *,
    dataset: str | None = None,
    budget_ms: float | None = None,
    slower_by: float = 1.5,
    keep: Iterable[str] = (),
    show_progress: bool = False,
) -> Tuning:
    """Choose settings by the labelled queries of a file, like ``catalog tune``; write nothing.

    The result has ``chosen``, ``gain`` and ``is_adopted``. Raises :class:`BlindComparisonError`
    with fewer than 25 answerable queries.

    Examples:
        >>> from catalog.search_v2 import tune
        >>> tune("questions.jsonl", dataset="notes")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        catalog.core.errors.BlindComparisonError: questions has 1 answerable question, and 25 are...
    """
    from catalog.evaluation.golden_files import read_golden
    from catalog.evaluation.tuning import tune as run

    library, queries = _own_library("tune"), read_golden(Path(golden))
    with TerminalProgress("") if show_progress else nullcontext() as progress:
        options: Any = {"slower_by": slower_by, "keep": tuple(keep), "progress": progress}
        name = library.chosen_dataset(dataset)
        return run(shared_service(), queries, name, budget_ms=budget_ms, **options)


def replay(
    *,
    save: str | PathLike[str] | None = None,
    before: str | PathLike[str] | None = None,
    other_home: str | PathLike[str] | None = None,
    other_preset: str | None = None,
    golden: str | PathLike[str] | None = None,
    dataset: str | None = None,
    backend: str = "v2",
    moved: float = 0.1,
    margin: float = 0.05,
) -> Replay | None:
    """Save the lists of labelled or logged questions, or ask those of a file ``before`` again.

    Like ``catalog replay``: with ``save`` it returns ``None``; ``other_home`` is a second home,
    which is asked in turn with this one. The result has a ``verdict``, ``PASS``, ``FAIL`` or
    ``HOLD``, its ``reason``, and the questions that ``moved``.

    Examples:
        >>> from catalog.search_v2 import replay
        >>> replay(save="before.json", golden="questions.jsonl", dataset="notes")
        >>> replay(before="before.json").verdict
        'PASS'
    """
    from catalog.evaluation.replay import Replay, run_replay

    library = _own_library("replay")
    files = {"save": save, "before": before, "golden": golden}
    given: Any = {name: file and Path(file) for name, file in files.items()}
    with ExitStack() as opened:
        if other_home is not None:
            other = load_settings(preset=other_preset, overrides={"home": Path(other_home)})
            require_store(other.settings)
            given["other"] = opened.enter_context(Library(other.settings))
        how: Any = {"backend": backend, "moved": moved, "margin": margin}
        found = run_replay(library, dataset=dataset, **given, **how)
    return found if isinstance(found, Replay) else None


def remove(dataset: str, doc: str | None = None) -> Removal:
    """Remove a dataset from the store, or only the document ``doc`` of it; the files stay.

    Examples:
        >>> from catalog import search_v2
        >>> report = search_v2.index("notes/guides")
        >>> search_v2.remove("guides").documents
        1
    """
    indexer = Indexer(_own_library("remove"))
    return indexer.remove(dataset) if doc is None else indexer.remove_document(dataset, doc)


def _own_library(verb: str, *, make_store: bool = False) -> Library:
    """Return the shared library; raise :class:`InputError` where a role is in force."""
    if roles_in_force(get_settings(), None):
        raise InputError(f"a role is in force (IDX_ANSWERS__ROLE), which {verb} does not heed")
    if verb == "index":
        require_models(get_settings(), rerank=False)  # before a store is made in vain
    return shared_service(make_store=make_store).library
