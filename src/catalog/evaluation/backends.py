"""The searches that can be compared, behind one protocol: v1, v2, a user's, a recorded one.

The name of a backend is its *spec*:

===========================  ======================================================
``v1``                       ``catalog.search``
``v2``, ``v2:k=v,k=v``       ``catalog.search_v2``, optionally with changed settings
``lexical``, ``vector``      one leg of v2 only; settings as above
``package.module:function``  any callable, called as ``function(query, …)``, or retriever
``package.module``           its ``search`` function
``collection[:NAME]``        a Qdrant collection of others (``IDX_COLLECTION__*``)
``run:ID``                   a recorded run's lists (``catalog runs list``)
an existing file             a TREC run
===========================  ======================================================
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, unquote

from catalog.core.errors import BackendError, GoldenSetError, InputError, StageFailedError
from catalog.core.params import Mode
from catalog.core.settings import Settings
from catalog.core.settings.loading import default_shaping
from catalog.core.text import strip_userinfo
from catalog.core.user_search import Ranking, UserSearch, to_ranking
from catalog.evaluation.golden import GoldenQuery, GoldenSet
from catalog.evaluation.golden_files import read_lines, write_whole
from catalog.ingest.sync_report import Progress
from catalog.retrieval.query_words import read_synonyms
from catalog.store import Database
from catalog.store.chunks import find_root
from catalog.store.document_names import list_addresses
from catalog.store.eval_runs import EvalRun, find_runs

if TYPE_CHECKING:
    from pydantic import BaseModel

    from catalog.library.library import Library
    from catalog.retrieval.search import Searcher
    from catalog.search.dataset_index import LoadedIndex

_SECRETS = {"qdrant_api_key", "rerank_api_key", "api_key"}
V2_MODES: dict[str, Mode] = {"v2": "hybrid", "lexical": "lexical", "vector": "vector"}
Tell = Callable[[str], None]
_MODULES = {"catalog.search": "v1", "catalog.search:search": "v1"} | {
    "catalog.search_v2": "v2",
    "catalog.search_v2:search": "v2",
}


class SearchBackend(Protocol):
    """A search to compare. ``name`` is shown; ``identity`` identifies it exactly.

    Classes that open nothing inherit methods that do nothing.
    """

    name: str

    @property
    def identity(self) -> dict[str, Any]:
        """Return configuration and code, JSON-ready; equal identities give equal answers."""
        ...

    def prepare(self, dataset: str, progress: Progress) -> None:  # noqa: ARG002
        """Build or open everything that answering needs; not timed."""
        return

    def search(self, query: GoldenQuery, *, dataset: str, top_k: int) -> Ranking:
        """Search for one query; any exception counts as a failed query."""
        ...

    def close(self) -> None:
        """Release opened files and clients."""
        return


class V2Backend(SearchBackend):
    """``catalog.search_v2`` in one mode, on a service that the caller closes.

    With ``documents`` (ids or paths), only these are searched.
    """

    def __init__(
        self,
        name: str,
        service: Searcher,
        mode: Mode,
        documents: Sequence[str] | None = None,
    ) -> None:
        self.name, self.mode, self.service = name, mode, service
        self._documents = documents

    @property
    def identity(self) -> dict[str, Any]:
        """Return mode, settings of the search, embedding model and code."""
        settings, model = self.service.parts.settings, self.service.library.wanted_model
        rag = public_settings(settings.rag_v2)
        return {
            "pipeline": "v2",
            "mode": self.mode,
            "rag_v2": {name: rag[name] for name in rag if name not in default_shaping()},
            "llm": public_settings(settings.llm),
            "synonyms": read_synonyms(settings.home),
            "model": model.model,
            "embedding": model.fingerprint,
            "code": code_digest(),
            **({} if self._documents is None else {"documents": list(self._documents)}),
        }

    def prepare(self, dataset: str, progress: Progress) -> None:
        """Check the dataset and load the model and the indexes."""
        progress.start(1)
        self.service.library.require_dataset(dataset)
        self.service.search("warm up", dataset=dataset, mode=self.mode)
        progress.advance(1, f"loading {self.name}")

    def search(self, query: GoldenQuery, *, dataset: str, top_k: int) -> Ranking:
        """Search with the query's filters and with explanations; a failed leg fails the query."""
        results = self.service.search(
            query.query,
            dataset=dataset,
            top_k=top_k,
            mode=self.mode,
            filters=query.filters,
            doc_ids=self._documents,
            explain=True,
        )
        for stage in results.stages:
            if stage.status == "failed":  # otherwise the other leg's answer would hide the failure
                raise StageFailedError(f"stage {stage.name} failed: {stage.note}")
        return to_ranking(results, dataset, top_k)


class _IndexProgress:
    """Pass progress on; before the first step, say that v1 builds its index once."""

    def __init__(self, progress: Progress, dataset: str, tell: Tell) -> None:
        self._progress, self._dataset, self._tell = progress, dataset, tell

    def start(self, total: float, doing: str = "", *, then: str = "") -> None:
        """Announce the index; v1 starts a progress only if its index is not up to date."""
        self._tell(
            f"v1, the plain LlamaIndex search, has no index of {self._dataset!r} and builds it: "
            "that takes about as long as 'catalog index build', and happens once until the "
            "dataset changes"
        )
        self._progress.start(total, doing, then=then)

    def advance(self, amount: float, label: str, counts: str = "") -> None:
        """Pass it on."""
        self._progress.advance(amount, f"v1's index: {label}", counts)


class V1Backend:
    """``catalog.search``. It has no filters, so filtered queries are searched without them."""

    def __init__(self, settings: Settings, tell: Tell) -> None:
        from catalog.search.service import SearchService

        class KeptIndex(SearchService):
            """Answer from an index that is loaded until ``index`` has replaced it."""

            def _current_index(self, dataset: str, progress: Progress | None = None) -> LoadedIndex:
                kept = self._indexes.get(dataset) if progress is None else None
                return kept or super()._current_index(dataset, progress)

        self.name = "v1"
        self._settings, self._tell = settings, tell
        self._service = KeptIndex(settings)

    @property
    def identity(self) -> dict[str, Any]:
        """Return its code and the embedding model; it has no other settings."""
        embedding = self._settings.embedding.model_dump(mode="json")
        return {"pipeline": "v1", "embedding": embedding, "code": code_digest()}

    def prepare(self, dataset: str, progress: Progress) -> None:
        """Index the dataset in v1's own folder if that is outdated, and load the model."""
        self._service.index(dataset, _IndexProgress(progress, dataset, self._tell))
        self._service.search("warm up", dataset=dataset)

    def search(self, query: GoldenQuery, *, dataset: str, top_k: int) -> Ranking:
        """Search in hybrid mode."""
        return to_ranking(
            self._service.search(query.query, dataset=dataset, top_k=top_k), dataset, top_k
        )

    def close(self) -> None:
        """Close v1's files."""
        self._service.close()


class UserBackend(SearchBackend):
    """Any callable or retriever; it gets dataset, depth and ``filters`` if it takes them.

    Whole paths of files in the dataset's folder are documents of the dataset.
    """

    def __init__(self, spec: Any, database: Database) -> None:
        self.name = (
            spec if isinstance(spec, str) else getattr(spec, "__name__", type(spec).__name__)
        )
        self._search, self._database = UserSearch(spec), database
        self._root = ""

    @property
    def identity(self) -> dict[str, Any]:
        """Return the name and a hash of the module's file; imported code is not covered."""
        owner = getattr(self._search.function, "__module__", None)
        modules = [sys.modules.get(name or "") for name in (self.name.partition(":")[0], owner)]
        files = dict.fromkeys(getattr(module, "__file__", None) for module in modules)
        try:
            texts = [Path(file).read_bytes() for file in files if file]
        except OSError:  # the module is in an archive, or its file is gone
            texts = []
        code = hashlib.sha256(b"".join(texts)).hexdigest() if texts else None
        return {"callable": self.name, "code": code}

    def prepare(self, dataset: str, progress: Progress) -> None:  # noqa: ARG002
        """Find the dataset's folder; the first query, which is not timed, warms it up."""
        with self._database.read() as connection:
            self._root = find_root(connection, dataset)

    def search(self, query: GoldenQuery, *, dataset: str, top_k: int) -> Ranking:
        """Call it."""
        found = self._search.search(
            query.query, dataset=dataset, top_k=top_k, filters=query.filters
        )
        return found.below(self._root)


class CollectionBackend:
    """A collection that other software filled.

    Its passages count for the document of the dataset with the same ``source_url``, or else for
    that address.
    """

    def __init__(self, spec: str, library: Library, name: str) -> None:
        from catalog.search_v2.collections import CollectionSearch

        self.name, self._library = spec, library
        self._search = CollectionSearch(library.settings, name=name or None)
        self._paths: dict[str, str] = {}

    @property
    def identity(self) -> dict[str, Any]:
        """Return its address, settings and model; changes by other software go unnoticed."""
        return {
            "collection": self._search.name,
            "address": self._search.address,
            "settings": public_settings(self._search.fields),
            "embedding": self._search.model.encoder.fingerprint,
            "code": code_digest(),
        }

    def prepare(self, dataset: str, progress: Progress) -> None:
        """Check the collection, load the model, and read the dataset's addresses."""
        progress.start(1)
        with self._library.database.read() as connection:
            self._paths = dict(list_addresses(connection, dataset))
        self._search.search("warm up", top_k=1)
        progress.advance(1, f"loading {self.name}")

    def search(self, query: GoldenQuery, *, dataset: str, top_k: int) -> Ranking:
        """Search with the query's filters."""
        results = self._search.search(query.query, top_k=top_k, filters=query.filters)
        ranking = to_ranking(results, dataset, top_k)
        hits = [replace(hit, path=self._paths.get(hit.path, hit.path)) for hit in ranking.hits]
        return replace(ranking, hits=tuple(hits))

    def close(self) -> None:
        """Close the connection."""
        self._search.close()


class Backends:
    """Load backends over one store; those of v2 share its model and indexes. Use ``with``.

    v2's caches are off: a query asked again would seem faster than it is. ``tell`` gets a sentence
    before something that takes long and happens once.
    """

    def __init__(
        self,
        library: Library,
        dataset: str = "",
        *,
        tell: Tell = lambda _: None,
    ) -> None:
        self._library, self._dataset, self._tell = library, dataset, tell
        self._loaded: list[SearchBackend] = []
        self._opened = ExitStack()

    def load(self, spec: Any) -> SearchBackend:
        """Load the backend of a spec; raise :class:`BackendError` with the reason if that fails.

        Names of this package come first, then files, then dotted paths. An object is the search.
        """
        backend = self._backend(_MODULES.get(spec, spec) if isinstance(spec, str) else spec)
        self._loaded.append(backend)
        return backend

    def close(self) -> None:
        """Release the loaded backends; the library stays open."""
        for backend in self._loaded:
            backend.close()
        self._loaded.clear()
        self._opened.close()

    def __enter__(self) -> Backends:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def _service(self) -> Searcher:
        from catalog.retrieval.search import Searcher

        return Searcher(self._library)

    def _backend(self, spec: Any) -> SearchBackend:
        if not isinstance(spec, str):
            return UserBackend(spec, self._library.database)
        base, _, changes = spec.partition(":")
        if base in V2_MODES:
            no_cache = {"query_cache_size": 0, "cache_ttl_seconds": 0}
            settings: dict[str, Any] = {**parse_changes(spec, changes), **no_cache}
            return V2Backend(spec, self._service.with_settings(settings), V2_MODES[base])
        if spec == "v1":
            return V1Backend(self._library.settings, self._tell)
        if base == "collection":
            return CollectionBackend(spec, self._library, changes)
        if spec.startswith("run:"):
            run = require_run(self._library.database, changes)
            return RecordedBackend(f"{run.backend} ({run.id})", run.lists, {"run": run.id}, run)
        if Path(spec).is_file():
            return RecordedBackend.from_file(Path(spec))
        return UserBackend(spec, self._library.database)


def code_digest() -> str:
    """Hash this package's source, so that runs of different code are not confused."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for file in sorted(root.rglob("*.py")):
        digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def public_settings(settings: BaseModel, left_out: set[str] = _SECRETS) -> dict[str, Any]:
    """Return settings without keys; addresses lose user and password."""
    values = settings.model_dump(mode="json", exclude=left_out)
    return {
        name: strip_userinfo(value) if isinstance(value, str) else value
        for name, value in values.items()
    }


def parse_changes(spec: str, text: str) -> dict[str, str]:
    pairs = dict(part.partition("=")[::2] for part in text.split(",") if part)
    if any(not value for value in pairs.values()):
        raise BackendError(f"{spec!r}: write settings as name=value,name=value")
    return pairs


class RecordedBackend(SearchBackend):
    """The lists of an earlier run, or of a search that cannot be called; they take no time."""

    def __init__(
        self,
        name: str,
        lists: Mapping[str, Sequence[object]],
        identity: dict[str, Any],
        record: EvalRun | None = None,
    ) -> None:
        self.name, self._lists, self._identity = name, lists, identity
        self._record = record
        self._errors: Mapping[str, str] = record.summary.get("errors", {}) if record else {}

    @classmethod
    def from_file(cls, path: Path) -> RecordedBackend:
        """Read the lists of a TREC run file."""
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        return cls(unquote(path.stem), read_run(path), {"file": digest})

    @property
    def identity(self) -> dict[str, Any]:
        """Return a hash of the file, or the id of the run."""
        return self._identity

    def require(self, golden: GoldenSet, dataset: str, top_k: int) -> None:
        """Raise :class:`InputError` unless the lists are for these queries and deep enough."""
        record = self._record
        if record is not None and (record.labels, record.dataset) != (golden.digest, dataset):
            raise InputError(
                f"run {record.id} was made with {record.golden} on {record.dataset}, whose "
                "queries or labels are different: measure again"
            )
        if record is not None and record.top_k < top_k:
            raise InputError(
                f"run {record.id} has {record.top_k} results per query: use --top-k {record.top_k}"
            )
        ids = [query.id for query in golden]
        absent = self._absent_queries(golden)
        # A run file has no line for a query on which nothing was found.
        if len(absent) > len(ids) / 2 or (absent and set(self._lists).difference(ids)):
            raise InputError(
                f"run {self.name} answers {len(ids) - len(absent)} of {len(ids)} queries "
                f"(not {', '.join(absent[:3])} …): it was made with another set"
            )

    def notes(self, golden: GoldenSet) -> tuple[str, ...]:
        """Describe the queries that are missing from the lists."""
        absent = self._absent_queries(golden)
        if not absent:
            return ()
        return (f"{self.name} has no list for {len(absent)} queries, which count as empty",)

    def search(self, query: GoldenQuery, *, dataset: str, top_k: int) -> Ranking:
        """Return the recorded list, or raise the recorded failure as :class:`BackendError`."""
        if query.id in self._errors:
            raise BackendError(f"failed when it was recorded: {self._errors[query.id]}")
        return to_ranking(self._lists.get(query.id, ()), dataset, top_k)

    def _absent_queries(self, golden: GoldenSet) -> list[str]:
        return [query.id for query in golden.answerable if query.id not in self._lists]


def require_run(database: Database, prefix: str) -> EvalRun:
    """Return the only run whose id starts with ``prefix``; raise :class:`InputError`."""
    with database.read() as connection:
        runs = find_runs(connection, prefix)
    if len(runs) == 1:
        return runs[0]
    problem = (
        "several runs begin with it" if runs else "no such run; 'catalog runs list' shows them"
    )
    raise InputError(f"{prefix!r}: {problem}")


def write_run(folder: Path, name: str, lists: Mapping[str, Sequence[str]]) -> Path:
    """Write ranked documents by query id as ``NAME.run`` and return the file's path.

    Each hit is a line ``query Q0 document rank score tag``, as in TREC. Columns are separated by
    white space, so white space in a path is percent-encoded. Scores fall with the rank, so that
    every tool keeps the order. Raises :class:`GoldenSetError` if the folder, or a path that is not
    Unicode, cannot be written.
    """
    tag = quote(name, safe="=,-_") or "run"
    path = folder / f"{tag}.run"
    lines = (
        f"{query} Q0 {encode_name(document)} {rank} {len(documents) - rank + 1} {tag}\n"
        for query, documents in lists.items()
        for rank, document in enumerate(documents, start=1)
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GoldenSetError(f"cannot write {path}: {error.strerror}") from error
    write_whole(path, "".join(lines))
    return path


def read_run(path: Path) -> dict[str, list[tuple[str, float]]]:
    """Read documents with scores by query id, highest score first, ties by the rank column.

    Raises :class:`GoldenSetError` for a line that is not TREC's and, like trec_eval, for a document
    that is listed twice, because its rank is ambiguous.
    """
    lists: dict[str, dict[str, tuple[float, int]]] = {}
    lines: dict[tuple[str, str], int] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            query, _, name, rank, score, _ = line.split()
            position = -float(score), int(rank)
        except ValueError:
            position = math.nan, 0
        if not math.isfinite(position[0]):
            raise GoldenSetError(f"{path} line {number} is not 'query Q0 document rank score tag'")
        document = unquote(name)
        first = lines.setdefault((query, document), number)
        if first != number:
            raise GoldenSetError(
                f"{path} line {number}: query {query!r} lists {document!r} again, after line "
                f"{first}; a run lists each document once for a query"
            )
        lists.setdefault(query, {})[document] = position
    return {
        query: [
            (name, -positions[name][0]) for name in sorted(positions, key=positions.__getitem__)
        ]
        for query, positions in lists.items()
    }


def encode_name(name: str) -> str:
    """Percent-encode white space, which separates the columns of TREC's files."""
    return "".join(quote(char) if char.isspace() or char == "%" else char for char in name)
