"""Load a user's own code by a dotted path; call a user's search and read its ranking."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from importlib.machinery import PathFinder
from itertools import islice
from pathlib import Path, PurePath
from types import SimpleNamespace
from typing import Any

from pydantic import ValidationError

from catalog.core.errors import BackendError, StageFailedError
from catalog.core.places import format_count
from catalog.core.results import Explanation
from catalog.core.retrieval_events import hearing_failures

_PACKAGE = __name__.partition(".")[0]
DEPTH_NAMES = ("top_k", "limit", "k", "n", "n_results", "similarity_top_k", "size")
_PATH_KEYS = (
    *("path", "source_doc_id", "doc_id", "file_path", "file_name", "ref_doc_id"),
    *("docno", "id", "_id"),
)
_TEXT_KEYS = ("text", "snippet", "content", "body")
_NOT_A_LIST = (str, bytes, Mapping, set, frozenset)


def load_object(spec: str, default: str) -> Any:
    """Import the object ``package.module:attribute.attribute``; without a colon, ``default``.

    Modules in the working directory are found, and by them their neighbours, unless something
    installed has their name. The import runs the module's code, so it may raise anything.
    """
    module_name, _, names = spec.partition(":")
    with _working_directory(module_name.partition(".")[0]):
        target: Any = importlib.import_module(module_name)
    for name in (names or default).split("."):
        target = getattr(target, name)
    return target


@contextmanager
def _working_directory(name: str) -> Iterator[None]:
    """Allow imports from the working directory if it has the top-level module ``name``."""
    folder = str(Path.cwd())
    spec = PathFinder.find_spec(name, [folder])
    if name == _PACKAGE or folder in sys.path or spec is None:
        yield
        return
    finder = SimpleNamespace(  # ours goes before an installed module, unless it is a bare folder
        find_spec=lambda wanted, *_: spec if wanted == name and spec.loader else None
    )
    sys.meta_path.insert(0, finder)
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        sys.path.remove(folder)


@dataclass(frozen=True, slots=True)
class RankedHit:
    """One hit: place, headings and certainty in words, seconds; ``also_in`` have the same text."""

    path: str
    score: float | None = None
    text: str = ""
    location: str = ""
    times: tuple[float, float] | None = None
    explain: tuple[str, ...] = ()
    also_in: tuple[RankedHit, ...] = ()
    headings: str = ""
    certainty: str = ""


@dataclass(frozen=True, slots=True)
class Ranking:
    """A ranked list, best first; milliseconds by stage and doubt if the backend reports them."""

    hits: tuple[RankedHit, ...]
    stages_ms: Mapping[str, float] = field(default_factory=dict)
    low_confidence: bool | None = None

    @property
    def documents(self) -> tuple[str, ...]:
        """Return the documents' paths in order of their first hit."""
        return tuple(self.best_hits)

    @property
    def best_hits(self) -> dict[str, RankedHit]:
        """Return each document's first hit by its path, in order; a copy follows its hit."""
        best: dict[str, RankedHit] = {}
        for hit in self.hits:
            for one in (hit, *hit.also_in):
                best.setdefault(one.path, one)
        return best

    def within(self, paths: Collection[str]) -> Ranking:
        """Return only the hits in these documents."""
        return self._choose(lambda group: [hit for hit in group if hit.path in paths])

    def below(self, root: str) -> Ranking:
        """Return the ranking with whole paths, which LlamaIndex names, relative to a folder."""

        def shorten(hit: RankedHit) -> RankedHit:
            path = PurePath(hit.path)
            if not (root and path.is_absolute() and path.is_relative_to(root)):
                return hit
            inside = path.relative_to(root).as_posix()
            return replace(hit, path=path.name if inside == "." else inside)

        return self._choose(lambda group: list(map(shorten, group)))

    def as_judged(self, grades: Mapping[str, int]) -> Ranking:
        """Return the ranking with each group's relevant documents, else a judged one or its hit."""

        def choose(group: Sequence[RankedHit]) -> Sequence[RankedHit]:
            judged = [hit for hit in group if hit.path in grades]
            judged.sort(key=lambda hit: -grades[hit.path])
            return [hit for hit in judged if grades[hit.path] > 0] or judged[:1] or group[:1]

        return self._choose(choose)

    def _choose(self, choose: Callable[[Sequence[RankedHit]], Sequence[RankedHit]]) -> Ranking:
        groups = [choose((replace(hit, also_in=()), *hit.also_in)) for hit in self.hits]
        hits = (replace(group[0], also_in=tuple(group[1:])) for group in groups if group)
        return replace(self, hits=tuple(hits))


class UserSearch:
    """Any callable whose first argument is the query text; loading raises :class:`BackendError`.

    ``spec`` is the object, its ``package.module:attribute.attribute``, or a module with a function
    ``search``. A class is instantiated without arguments; an object that cannot be called must have
    a method ``search``, or ``retrieve`` as LlamaIndex's retrievers and query engines have.
    """

    def __init__(self, spec: Any, function: Callable[..., object] | None = None) -> None:
        self.spec = spec
        self.function = _load_function(spec) if function is None else function
        self._parameters = _keyword_parameters(self.function)

    def unsupported(self, names: Collection[str]) -> list[str]:
        """Return the names that the callable does not take as arguments."""
        return [name for name in names if not {name, "**"} & self._parameters]

    def search(self, query: str, *, dataset: str, top_k: int, **options: object) -> Ranking:
        """Call the search and read its ranking, with the options that it takes by keyword.

        ``top_k`` is passed by the first of :data:`DEPTH_NAMES` that it knows; options of ``None``
        are left out. Raises :class:`StageFailedError` if a part of it failed.
        """
        depth = next((name for name in DEPTH_NAMES if name in self._parameters), "top_k")
        available: Mapping[str, object] = {"dataset": dataset, depth: top_k, **options}
        arguments = {
            name: deepcopy(value) if name == "filters" else value  # a copy, which they may change
            for name, value in available.items()
            if value is not None and {name, "**"} & self._parameters
        }
        with hearing_failures() as failures:
            found = to_ranking(self.function(query, **arguments), dataset, top_k)
        if failures:
            raise StageFailedError(failures[0])
        return found


def _load_function(spec: Any) -> Callable[..., object]:
    try:
        target = load_object(spec, "search") if isinstance(spec, str) else spec
        if inspect.isclass(target):
            target = target()
    except (Exception, SystemExit) as error:  # somebody else's code may raise anything
        raise BackendError(
            f"no search {spec!r} ({type(error).__name__}: {error}); give package.module or "
            "package.module:function"
        ) from error
    retrieve, schema = getattr(target, "retrieve", None), sys.modules.get("llama_index.core.schema")
    ways = [target, getattr(target, "search", None), retrieve]
    if retrieve is not None and schema is not None and hasattr(target, "query"):
        ways[2] = lambda query: retrieve(schema.QueryBundle(query))  # an engine takes no bare text
    function = next(filter(callable, ways), None)
    if function is None:
        raise BackendError(f"{spec!r} cannot be called and has no method search or retrieve")
    if inspect.iscoroutinefunction(function):
        raise BackendError(f"{spec!r} is asynchronous: give a function that waits for the result")
    return function


def _keyword_parameters(function: Callable[..., object]) -> frozenset[str]:
    """Return the names that it takes by keyword after the query; ``**`` for any name."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return frozenset()
    if parameters and parameters[0].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
        del parameters[0]  # the query
    names = {
        one.name for one in parameters if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)
    }
    return frozenset(names | {"**" for one in parameters if one.kind is one.VAR_KEYWORD})


def to_ranking(value: object, dataset: str, top_k: int) -> Ranking:
    """Convert the result of any search; raise :class:`BackendError` if it is not understood.

    Supported are sequences (or objects with ``results`` or ``source_nodes``) of paths, of ``(path,
    score)`` pairs, of mappings or objects with a ``path`` (or another of :data:`_PATH_KEYS`), and
    of LlamaIndex nodes with such metadata. ``also_in`` are the other places of a hit's text.
    """
    if isinstance(value, Ranking):
        return replace(value, hits=value.hits[:top_k])
    named = (_get(value, name) for name in ("results", "source_nodes", "hits"))
    results = next((one for one in named if one is not None and not callable(one)), value)
    if not isinstance(results, Iterable) or isinstance(results, _NOT_A_LIST):
        raise BackendError(f"a search must return a sequence of hits, not {_type_name(value)}")
    hits = tuple(_to_hit(result, dataset) for result in islice(results, top_k))
    doubt, stages = _get(value, "low_confidence"), _get(value, "stages")
    listed = stages if isinstance(stages, Iterable) else ()
    times = {_get(stage, "name"): _to_number(_get(stage, "ms")) for stage in listed}
    known = {str(name): ms for name, ms in times.items() if name and ms is not None}
    return Ranking(hits, known, doubt if isinstance(doubt, bool) else None)


def _to_hit(result: object, dataset: str) -> RankedHit:
    if isinstance(result, str | PurePath):
        return RankedHit(_to_path(str(result), dataset))
    match result:  # JSON makes lists of pairs
        case (str(path), score) if isinstance(result, tuple) or isinstance(score, int | float):
            return RankedHit(_to_path(path, dataset), _to_number(score))
    path = _first_of(result, _PATH_KEYS)
    if path is None:
        raise BackendError(f"a hit has no path: {_type_name(result)}; expected one of {_PATH_KEYS}")
    locator = _get(result, "locator")
    start, end = (_to_number(_get(locator, name)) for name in ("time_start", "time_end"))
    headings = _get(result, "heading_path")
    hit = RankedHit(
        path=_to_path(str(path), dataset),
        score=_to_number(_get(result, "score")),
        text=str(_first_of(result, _TEXT_KEYS) or ""),
        location=_format_location(locator),
        times=None if start is None else (start, start if end is None else end),
        explain=_explanation_lines(_get(result, "explain")),
        headings=" > ".join(map(str, headings)) if isinstance(headings, list | tuple) else "",
        certainty=str(_get(result, "certainty") or ""),
    )
    others = _first_of(result, ("also_in",))
    copies = [_to_hit(one, dataset) for one in others] if isinstance(others, list | tuple) else []
    same = (replace(one, score=hit.score, text=hit.text, explain=hit.explain) for one in copies)
    return replace(hit, also_in=tuple(same))


def _to_path(name: str, dataset: str) -> str:
    path = name.removeprefix(f"{dataset}:")
    if path == "":
        raise BackendError("a hit has an empty path")
    return path


def _first_of(result: object, names: Iterable[str]) -> Any:
    """Return the first of these fields in the result, its node or their metadata."""
    node = _get(result, "node")
    owners = [result, _get(result, "metadata")]
    if node is not None:  # LlamaIndex: the metadata names the document, the node only itself
        owners = [_get(node, "metadata"), node]
    for name in names:
        for owner in owners:
            value = _get(owner, name)
            if value is not None and value != "" and not callable(value):
                return value
    return None


def _get(owner: object, name: str) -> Any:
    return owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None)


def _to_number(value: Any) -> float | None:
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None


def _format_location(locator: object) -> str:
    unit = _get(locator, "unit")
    counted = (unit, "start", "end")
    if unit in (None, "line", "page", "time"):
        counted = ("page", "page", "page_end")
    told = [
        format_count(name, _get(locator, first), _get(locator, last), dash="–")
        for name, first, last in (counted, ("line", "line_start", "line_end"))
    ]
    return str(_get(locator, "cells") or ", ".join(filter(None, told)))


def _explanation_lines(value: object) -> tuple[str, ...]:
    if value is None or isinstance(value, str):
        return tuple((value or "").splitlines())
    try:
        explain = Explanation.model_validate(value)
    except ValidationError:
        return ()
    lines = [f"{explain.score:.6f} by {explain.fusion}"]
    lines += [
        f"{part.contribution:.6f}  {part.leg} ({part.engine}), rank {part.rank}, "
        f"score {part.raw_score:.4f}, weight {part.weight:.3g}"
        for part in explain.contributions
    ]
    if explain.bonus:
        lines.append(f"{explain.bonus:.6f}  top-rank bonus")
    if (rerank := explain.rerank) is not None:
        raw = "not scored" if rerank.raw_score is None else f"score {rerank.raw_score:.4f}"
        lines += [
            f"{explain.fused:.6f} fused, so rank {rerank.rank}; blended:",
            f"{rerank.fused_part:.6f}  of that ({rerank.blend})",
            f"{rerank.rerank_part:.6f}  of {rerank.model}, {raw}",
        ]
    return tuple(lines)


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
