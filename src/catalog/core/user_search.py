"""A search of somebody else's: loading it by a dotted path, asking it, reading its ranking."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import PurePath
from typing import Any

from pydantic import ValidationError

from catalog.core.dotted import named_object
from catalog.core.errors import BackendError
from catalog.core.results import Explanation

_PATH_KEYS = ("path", "source_doc_id", "doc_id", "file_path", "file_name", "docno", "id", "_id")
_NO_RANKING = (str, bytes, Mapping, set, frozenset)
_TEXT_KEYS = ("text", "snippet", "content", "body")


@dataclass(frozen=True, slots=True)
class RankedHit:
    """One hit: the document's path, and what else the backend told of it.

    ``times`` are the seconds it covers. ``explain`` are lines for a person to read.
    """

    path: str
    score: float | None = None
    text: str = ""
    place: str = ""
    times: tuple[float, float] | None = None
    explain: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """A ranked list, best first; milliseconds by stage, and doubt, if the backend tells."""

    passages: tuple[RankedHit, ...]
    stages_ms: Mapping[str, float] = field(default_factory=dict)
    low_confidence: bool | None = None

    @property
    def documents(self) -> tuple[str, ...]:
        """Paths in order of their first passage."""
        return tuple(dict.fromkeys(one.path for one in self.passages))


def to_ranking(value: object, dataset: str, top_k: int) -> Ranking:
    """Whatever a search returned, as an :class:`Ranking`; raises :class:`BackendError`.

    Understood are sequences (or objects with ``results`` or ``source_nodes``) of paths, of
    ``(path, score)`` pairs, of mappings or objects with a ``path`` (or ``source_doc_id``,
    ``doc_id``, ``file_path``, ``id``), and of LlamaIndex nodes with such metadata.
    """
    if isinstance(value, Ranking):
        return replace(value, passages=value.passages[:top_k])
    listed: object = value
    for name in ("results", "source_nodes", "hits"):
        found = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        if found is not None and not callable(found):
            listed = found
            break
    if not isinstance(listed, Iterable) or isinstance(listed, _NO_RANKING):
        raise BackendError(f"a search must return a sequence of hits, not {_named(value)}")
    passages = tuple(_passage(one, dataset) for one in islice(listed, top_k))
    return Ranking(passages, _stages(value), _doubt(value))


def _passage(hit: object, dataset: str) -> RankedHit:
    if isinstance(hit, str | PurePath):
        return RankedHit(_path(str(hit), dataset))
    if isinstance(hit, tuple) and len(hit) == 2 and isinstance(hit[0], str):
        return RankedHit(_path(hit[0], dataset), _number(hit[1]))
    if isinstance(hit, list):  # what JSON makes of such a pair
        match hit:
            case [str(path), int() | float() as score]:
                return RankedHit(_path(path, dataset), float(score))
    path = _first(hit, _PATH_KEYS)
    if path is None:
        raise BackendError(f"a hit has no path: {_named(hit)}; expected one of {_PATH_KEYS}")
    locator = _get(hit, "locator")
    start, end = _number(_get(locator, "time_start")), _number(_get(locator, "time_end"))
    return RankedHit(
        path=_path(str(path), dataset),
        score=_number(_get(hit, "score")),
        text=str(_first(hit, _TEXT_KEYS) or ""),
        place=_place(locator),
        times=None if start is None else (start, start if end is None else end),
        explain=_explained(_get(hit, "explain")),
    )


def _path(name: str, dataset: str) -> str:
    path = name.removeprefix(f"{dataset}:")
    if path == "":
        raise BackendError("a hit has an empty path")
    return path


def _first(hit: object, names: Iterable[str]) -> Any:
    """The first of these that the hit, its node or their metadata has."""
    node = _get(hit, "node")
    places = [hit, _get(hit, "metadata")]
    if node is not None:  # LlamaIndex: the metadata names the document, the node only itself
        places = [_get(node, "metadata"), node]
    for name in names:
        for place in places:
            found = _get(place, name)
            if found is not None and found != "" and not callable(found):
                return found
    return None


def _get(owner: object, name: str) -> Any:
    return owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _place(locator: object) -> str:
    first, last = _get(locator, "line_start"), _get(locator, "line_end")
    lines = f"lines {first}–{last}" if first is not None else ""
    return ", ".join(filter(None, (_pages(locator), lines)))


def _pages(locator: object) -> str:
    first, last = _get(locator, "page"), _get(locator, "page_end")
    if first is None:
        return ""
    return f"page {first}" if last in (None, first) else f"pages {first}–{last}"


def _explained(value: object) -> tuple[str, ...]:
    """Ours, part by part; a text as it is; nothing of what has another form."""
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
    if explain.rerank is not None:
        rerank = explain.rerank
        raw = "not scored" if rerank.raw_score is None else f"score {rerank.raw_score:.4f}"
        lines.append(f"{explain.fused:.6f}  fused, which made rank {rerank.rank}; blended:")
        lines.append(f"{rerank.fused_part:.6f}  of that ({rerank.blend})")
        lines.append(f"{rerank.rerank_part:.6f}  of {rerank.model}, {raw}")
    return tuple(lines)


def _stages(value: object) -> dict[str, float]:
    stages = _get(value, "stages")
    if not isinstance(stages, Iterable):
        return {}
    told = {_get(stage, "name"): _number(_get(stage, "ms")) for stage in stages}
    return {str(name): ms for name, ms in told.items() if name and ms is not None}


def _doubt(value: object) -> bool | None:
    doubt = _get(value, "low_confidence")
    return doubt if isinstance(doubt, bool) else None


def _named(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


DEPTH_NAMES = ("top_k", "limit", "k", "n", "n_results", "similarity_top_k", "size")


class UserSearch:
    """Any callable whose first argument is the query text; raises :class:`BackendError` on loading.

    ``spec`` is ``package.module:attribute.attribute``, or a module, whose ``search`` is meant. A
    class is made without arguments; an object that cannot be called must have a ``search``
    method. Modules of the working directory are found.
    """

    def __init__(self, spec: str, function: Callable[..., object] | None = None) -> None:
        self.spec = spec
        self.function = _loaded(spec) if function is None else function
        self._takes = _parameters(self.function)

    def not_taken(self, names: Collection[str]) -> list[str]:
        """Those of the names that the callable would not be given."""
        return [name for name in names if not {name, "**"} & self._takes]

    def ask(self, query: str, *, dataset: str, top_k: int, **offered: object) -> Ranking:
        """Its answer, in our form; it gets what it takes by keyword of what is offered.

        ``top_k`` goes by the first of :data:`DEPTH_NAMES` it knows; an offer of ``None`` is not
        made.
        """
        depth = next((name for name in DEPTH_NAMES if name in self._takes), "top_k")
        offers: Mapping[str, object] = {"dataset": dataset, depth: top_k, **offered}
        given = {
            name: deepcopy(value) if name == "filters" else value  # theirs to change
            for name, value in offers.items()
            if value is not None and (name in self._takes or "**" in self._takes)
        }
        return to_ranking(self.function(query, **given), dataset, top_k)


def _loaded(spec: str) -> Callable[..., object]:
    try:
        found = named_object(spec, "search")
        if inspect.isclass(found):
            found = found()
    except (Exception, SystemExit) as error:  # somebody else's code may raise anything
        raise BackendError(
            f"no search {spec!r} ({type(error).__name__}: {error}); "
            "give package.module or package.module:function"
        ) from error
    called = found if callable(found) else getattr(found, "search", None)
    if not callable(called):
        raise BackendError(f"{spec!r} cannot be called and has no search method")
    if inspect.iscoroutinefunction(called):
        raise BackendError(f"{spec!r} is asynchronous: give a function that waits for the answer")
    return called  # type: ignore[no-any-return]


def _parameters(function: Callable[..., object]) -> frozenset[str]:
    """Names it takes by keyword after the first, which is the query; ``**`` if it takes any."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return frozenset()
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = {
        one.name
        for place, one in enumerate(parameters)
        if one.kind in by_name and not (place == 0 and one.kind is by_name[1])
    }
    any_name = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
    return frozenset(names | ({"**"} if any_name else set()))
