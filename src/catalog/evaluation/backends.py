"""The searches that can be compared, behind one protocol: ours, theirs, and recorded ones.

A backend is named by a text, its *spec*:

===========================  ======================================================
``v1``                       ``catalog.search``
``v2``, ``v2:k=v,k=v``       ``catalog.search_v2``, with settings changed if any are given
``lexical``, ``vector``      one leg of v2 alone; settings as above
``package.module:function``  any callable, called as ``function(query, …)``
``package.module``           its ``search`` function
a file that exists           a TREC run
===========================  ======================================================
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from catalog.core.errors import BackendError
from catalog.core.results import Mode
from catalog.core.settings import Settings, with_rag
from catalog.evaluation.answers import Answer, as_answer
from catalog.evaluation.golden import GoldenQuery
from catalog.evaluation.trec import read_run

V2_MODES: dict[str, Mode] = {"v2": "hybrid", "lexical": "lexical", "vector": "vector"}
_TOP_K_NAMES = ("top_k", "limit", "k", "n", "n_results", "similarity_top_k", "size")
_MODULES = {"catalog.search": "v1", "catalog.search:search": "v1"} | {
    "catalog.search_v2": "v2",
    "catalog.search_v2:search": "v2",
}


class SearchBackend(Protocol):
    """A search under comparison. ``name`` is shown; ``identity`` says exactly which it is."""

    name: str

    @property
    def identity(self) -> dict[str, Any]:
        """Configuration and code, JSON-ready; equal identities answer alike."""
        ...

    def prepare(self, dataset: str) -> None:
        """Build or open whatever answering needs; not timed."""
        ...

    def search(self, query: GoldenQuery, *, dataset: str, top_k: int) -> Answer:
        """The answer to one query; any exception counts as a failed query."""
        ...

    def close(self) -> None:
        """Release what was opened."""
        ...


class V2Backend:
    """``catalog.search_v2`` in one mode, query cache off."""

    def __init__(self, name: str, settings: Settings, mode: Mode) -> None:
        from catalog.search_v2.service import SearchServiceV2
        from catalog.search_v2.workspace import Workspace

        self.name, self._mode = name, mode
        settings = with_rag(settings, {"query_cache_size": 0})  # a second run would seem faster
        self._service = SearchServiceV2(Workspace(settings))

    @property
    def identity(self) -> dict[str, Any]:
        """Mode, settings and embedding model."""
        settings = self._service.workspace.settings
        return {
            "pipeline": "v2",
            "mode": self._mode,
            "rag_v2": settings.rag_v2.model_dump(mode="json", exclude={"qdrant_api_key"}),
            "embedding": self._service.workspace.wanted_model.fingerprint,
            "code": code_digest(),
        }

    def prepare(self, dataset: str) -> None:
        """Check the dataset and load the model and the indexes."""
        self._service.workspace.require_dataset(dataset)
        self._service.search("warm up", dataset=dataset, mode=self._mode)

    def search(self, query: GoldenQuery, *, dataset: str, top_k: int) -> Answer:
        """One search with its filters and explanations."""
        found = self._service.search(
            query.query,
            dataset=dataset,
            top_k=top_k,
            mode=self._mode,
            filters=query.filters,
            explain=True,
        )
        return as_answer(found, dataset, top_k)

    def close(self) -> None:
        """Close the workspace."""
        self._service.close()


class V1Backend:
    """``catalog.search``; it knows no filters, so filtered queries are asked without."""

    def __init__(self, settings: Settings) -> None:
        from catalog.search.service import SearchService

        self.name = "v1"
        self._settings = settings
        self._service = SearchService(settings)

    @property
    def identity(self) -> dict[str, Any]:
        """Its code and the embedding model; it has no other settings."""
        embedding = self._settings.embedding.model_dump(mode="json")
        return {"pipeline": "v1", "embedding": embedding, "code": code_digest()}

    def prepare(self, dataset: str) -> None:
        """Index the dataset in v1's own folder, if that is not up to date, and load the model."""
        self._service.index(dataset)
        self._service.search("warm up", dataset=dataset)

    def search(self, query: GoldenQuery, *, dataset: str, top_k: int) -> Answer:
        """One hybrid search."""
        return as_answer(
            self._service.search(query.query, dataset=dataset, top_k=top_k), dataset, top_k
        )

    def close(self) -> None:
        """Close v1's files."""
        self._service.close()


class CallableBackend:
    """Any callable; it is given what it can take of ``dataset``, a depth, and ``filters``."""

    def __init__(self, name: str, function: Callable[..., object]) -> None:
        self.name, self._function = name, function
        self._takes = _parameters(function)

    @property
    def identity(self) -> dict[str, Any]:
        """The name and a hash of the module's file; of other code it knows nothing."""
        module = sys.modules.get(getattr(self._function, "__module__", None) or "")
        file = getattr(module, "__file__", None)
        code = hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else None
        return {"callable": self.name, "code": code}

    def prepare(self, dataset: str) -> None:
        """Nothing: the first query, which is not timed, warms it up."""

    def search(self, query: GoldenQuery, *, dataset: str, top_k: int) -> Answer:
        """Call it."""
        depth = next((name for name in _TOP_K_NAMES if name in self._takes), "top_k")
        offered = {"dataset": dataset, depth: top_k, "filters": query.filters}
        every = "**" in self._takes
        given = {name: value for name, value in offered.items() if every or name in self._takes}
        if query.filters is None:
            given.pop("filters", None)
        return as_answer(self._function(query.query, **given), dataset, top_k)

    def close(self) -> None:
        """Nothing was opened here."""


class RunFileBackend:
    """A recorded TREC run: the lists of a search that is not here."""

    def __init__(self, path: Path) -> None:
        self.name, self._path = path.stem, path
        self._lists = read_run(path)

    @property
    def identity(self) -> dict[str, Any]:
        """A hash of the file."""
        return {"run": hashlib.sha256(self._path.read_bytes()).hexdigest()}

    def prepare(self, dataset: str) -> None:
        """Nothing to do."""

    @property
    def query_ids(self) -> frozenset[str]:
        """The queries the run answers."""
        return frozenset(self._lists)

    def search(self, query: GoldenQuery, *, dataset: str, top_k: int) -> Answer:
        """The recorded list."""
        return as_answer(self._lists.get(query.id, ()), dataset, top_k)

    def close(self) -> None:
        """Nothing was opened."""


def load_backend(spec: str, settings: Settings) -> SearchBackend:
    """The backend a spec names; raises :class:`BackendError` saying what could not be loaded."""
    spec = _MODULES.get(spec, spec)
    base, _, changes = spec.partition(":")
    if base in V2_MODES:
        changed = with_rag(settings, _changes(spec, changes)) if changes else settings
        return V2Backend(spec, changed, V2_MODES[base])
    if spec == "v1":
        return V1Backend(settings)
    if Path(spec).is_file():
        return RunFileBackend(Path(spec))
    return CallableBackend(spec, load_callable(spec))


def load_callable(spec: str) -> Callable[..., object]:
    """``package.module:attribute.attribute``, or a module's ``search``.

    A class is instantiated without arguments; an object that is not callable must have a
    ``search`` method. Modules of the working directory are found.
    """
    module_name, _, names = spec.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
        for name in (names or "search").split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as error:
        known = "v1, v2, lexical, vector, package.module:function or a TREC run file"
        raise BackendError(f"no backend {spec!r} ({error}); give {known}") from error
    if inspect.isclass(found):
        found = found()
    found = found if callable(found) else getattr(found, "search", None)
    if not callable(found):
        raise BackendError(f"{spec!r} cannot be called and has no search method")
    return found  # type: ignore[no-any-return]


def code_digest() -> str:
    """A hash of this package's source, so that no run of other code is taken for its own."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for file in sorted(root.rglob("*.py")):
        digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _changes(spec: str, text: str) -> dict[str, str]:
    pairs = dict(part.partition("=")[::2] for part in text.split(",") if part)
    if any(not value for value in pairs.values()):
        raise BackendError(f"{spec!r}: settings are given as name=value,name=value")
    return pairs


def _parameters(function: Callable[..., object]) -> frozenset[str]:
    """Names it takes by keyword; ``**`` if it takes any."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return frozenset()
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = {one.name for one in parameters if one.kind in by_name}
    any_name = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
    return frozenset(names | ({"**"} if any_name else set()))
