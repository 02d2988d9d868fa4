"""Settings of retrievers and engines that are set on a finished part: they act, or raise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Generic, TypeVar

from catalog.core.arguments import check_params, parameter_names
from catalog.core.params import AskParams, SearchParams
from catalog.retrieval.request import search_arguments

_OF_LLAMA_INDEX = ("callback_manager", "object_map")  # which its classes set

ParamsT = TypeVar("ParamsT", SearchParams, AskParams)


def is_own(part: object, name: str) -> bool:
    """Return whether an attribute is no setting: private, LlamaIndex's, or a property."""
    is_property = isinstance(getattr(type(part), name, None), property)
    return name.startswith("_") or name in _OF_LLAMA_INDEX or is_property


class LaterSettings(Generic[ParamsT]):
    """A part whose parameters can also be read and set as attributes.

    A set parameter acts at the next query. :class:`InputError` for a name that does not exist.
    """

    _params: ParamsT

    def __setattr__(self, name: str, value: Any) -> None:
        if is_own(self, name):
            super().__setattr__(name, value)
            return
        params = self._params
        changed = replace(params, **search_arguments({name: value}, kind=type(params)))
        if isinstance(changed, SearchParams):
            check_params(changed)
        else:
            check_params(changed)
        self._params = changed

    def __getattr__(self, name: str) -> Any:
        name = "top_k" if name == "similarity_top_k" else name
        if name.startswith("_") or name not in parameter_names(type(self._params)):
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return getattr(self._params, name)
