"""A search of somebody's own, named by a dotted path: loading it and asking it what it can take."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy

from catalog.core.answers import Ranking, to_ranking
from catalog.core.dotted import named_object
from catalog.core.errors import BackendError

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
