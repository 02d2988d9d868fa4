"""Ask the backends that may be compared, and keep what people judge in golden sets."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial, reduce
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from catalog.core.errors import InputError, NotReadyError
from catalog.core.kept import LRUCache
from catalog.core.user_search import Ranking
from catalog.evaluation.backends import Backends, SearchBackend
from catalog.evaluation.golden import GoldenQuery, Judgement, Preference, find_allowed_documents
from catalog.evaluation.golden_files import changing_golden, describe_problems, load_golden, next_id
from catalog.evaluation.judging import add_judgement, add_preference
from catalog.library.names import roles_in_force
from catalog.store.chunks import find_by_path, list_paths
from catalog.store.restriction import read_stamp

if TYPE_CHECKING:
    from catalog.library.library import Library

LEGS = ("lexical", "vector")
OWN = ("v2", "v1", *LEGS)
DEPTH = 30  # passages asked of a backend
_WAIT_SECONDS = 5.0  # for a backend that another request uses
_READY_SECONDS = 2.0  # for a backend that is made ready, before its progress is shown
_NAME = re.compile(r"\w[\w.-]{0,59}", re.ASCII)
_RANKINGS, _PAGES = 1000, 5000  # that are remembered
TOP = 10  # documents of a list that are shown, and compared for the queue


@dataclass(frozen=True, slots=True)
class Shown:
    """A page that a person was asked to judge: the question and the backends on both sides.

    ``teams`` has the side of each document in an interleaved list. ``documents`` are to be
    graded. ``is_new``: the question was typed, and is in no set yet.
    """

    query: GoldenQuery
    left: str
    right: str
    golden: str
    dataset: str
    mode: str
    by: str
    teams: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    is_new: bool = False


@dataclass(eq=False)
class _Opening:
    """A backend that is made ready for a state of a dataset, and its progress."""

    stamp: Hashable
    ready: Future[SearchBackend] = field(default_factory=Future)
    total: float = 0.0
    done: float = 0.0
    at: str = ""

    def start(self, total: float, doing: str = "", *, then: str = "") -> None:  # noqa: ARG002
        self.total, self.done = total, 0.0

    def advance(self, amount: float, label: str, counts: str = "") -> None:  # noqa: ARG002
        self.done += amount

    def run(self, load: Callable[[], SearchBackend], dataset: str) -> None:
        try:
            backend = load()
            backend.prepare(dataset, self)
            self.at = f"{_now()[:16].replace('T', ' ')} UTC"
            self.ready.set_result(backend)
        except BaseException as error:  # noqa: BLE001 - of a user's search; whoever waits gets it
            self.ready.set_exception(error)


class Bench:
    """Backends, opened when first asked, and the folder of the golden sets. Thread-safe.

    Only the backends of ``specs`` can be asked: a browser cannot name code to load.
    """

    def __init__(self, library: Library, specs: Sequence[str], folder: Path) -> None:
        self.specs = tuple(dict.fromkeys((*OWN, *specs)))
        self.library, self._folder = library, folder
        self._backends, self._loading, self._opening = Backends(library), Lock(), Lock()
        self._open: dict[tuple[str, str], tuple[_Opening | None, _Opening]] = {}
        self._locks = {spec: Lock() for spec in self.specs}
        self._rankings: LRUCache[tuple[Hashable, ...], Ranking] = LRUCache(_RANKINGS)
        self._shown: LRUCache[str, Shown] = LRUCache(_PAGES)

    def require_owner(self) -> None:
        """Raise :class:`InputError` for callers with a role, since not every backend keeps it."""
        if roles_in_force(self.library.settings, None):
            raise InputError("a role may search, but not compare searches or judge them")

    def rank(self, spec: str, dataset: str, query: GoldenQuery) -> tuple[Ranking, str, str]:
        """Return a backend's ranking, the reason if it failed, and the date of an old index."""
        if spec not in self.specs:
            told = f"{spec!r} is not offered; 'catalog serve --compare' adds to"
            raise InputError(f"{told}: {', '.join(self.specs)}")
        stamp = self.stamp(dataset)
        key = (spec, dataset, stamp, query.id, query.query, repr(query.filters))
        if (known := self._rankings.get(key)) is not None:
            return known, "", ""
        if not self._locks[spec].acquire(timeout=_WAIT_SECONDS):
            raise NotReadyError(f"{spec} is busy: try again in a moment")
        try:
            kept, coming = self._prepare(spec, dataset, stamp)
            is_ready = wait([coming.ready], _READY_SECONDS).done
            if (opened := coming if is_ready else kept) is None:
                raise NotReadyError(f"{spec} is not ready for {dataset}")  # noqa: TRY301 - passed on
            if opened.ready.exception() is not None:  # is told once, then tried again
                del self._open[spec, dataset]
            backend = opened.ready.result()
            started = time.perf_counter()
            ranking = backend.search(query, dataset=dataset, top_k=DEPTH)
            ms = 1000 * (time.perf_counter() - started)
            ranking = replace(ranking, stages_ms={**ranking.stages_ms, "all": ms})
        except NotReadyError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - of a user's search; shown
            return Ranking(()), f"{type(error).__name__}: {error}"[:600], ""
        finally:
            self._locks[spec].release()
        if query.filters is not None:
            allowed = find_allowed_documents(self.library.database, dataset, query)
            ranking = ranking if allowed is None else ranking.within(allowed)
        if opened.stamp != stamp:
            return ranking, "", opened.at
        self._rankings.put(key, ranking)
        return ranking, "", ""

    def stamp(self, dataset: str) -> Hashable:
        """Return the stamp of the dataset's present state."""
        with self.library.database.read() as connection:
            return read_stamp(connection, dataset)

    def dataset_of(self, queries: Sequence[GoldenQuery]) -> str:
        """Return the dataset with most of the labelled documents, ``""`` without a dataset."""
        names = self.library.datasets()
        labelled = {label.path for query in queries for label in query.expected}
        if len(names) < 2 or not labelled:
            return next(iter(names), "")
        with self.library.database.read() as connection:
            return max(
                names, key=lambda one: len(labelled.intersection(list_paths(connection, one)))
            )

    def waits(self, specs: Sequence[str], dataset: str) -> dict[str, _Opening]:
        """Begin to make backends ready; return those that are not."""
        known = [spec for spec in specs if spec in self.specs]
        stamp = self.stamp(dataset)  # None: there is no such dataset
        opened = {spec: self._prepare(spec, dataset, stamp)[1] for spec in known if stamp}
        return {spec: one for spec, one in opened.items() if not one.ready.done()}

    def _prepare(
        self, spec: str, dataset: str, stamp: Hashable
    ) -> tuple[_Opening | None, _Opening]:
        """Return a backend as it was ready last, and as it is made ready for the present state.

        That runs in a thread of its own, since v1 may build an index for minutes. A server that
        ends does not wait for it.
        """
        with self._opening:
            kept, coming = self._open.get((spec, dataset), (None, None))
            if coming is None or (coming.ready.done() and coming.stamp != stamp):
                kept, coming = coming, _Opening(stamp)
                load = partial(self._load, spec) if kept is None else kept.ready.result
                Thread(target=coming.run, args=(load, dataset), daemon=True).start()
                self._open[spec, dataset] = kept, coming
            return kept, coming

    def _load(self, spec: str) -> SearchBackend:
        with self._loading:
            return self._backends.load(spec)

    def sets(self) -> list[str]:
        """Return the names of the golden sets, in order."""
        names = (file.stem for file in self._folder.glob("*.jsonl"))
        return sorted(name for name in names if _NAME.fullmatch(name))

    def file(self, name: str) -> Path:
        """Return the file of a set; raise :class:`InputError` for a name that is not one."""
        if not _NAME.fullmatch(name):
            raise InputError(f"{name[:60]!r} is not a name: use letters, digits, '.', '-' and '_'")
        return self._folder / f"{name}.jsonl"

    def queries(self, name: str) -> list[GoldenQuery]:
        """Return the questions of a set, which may not exist yet."""
        return load_golden(self.file(name)) if name else []

    def show(self, shown: Shown) -> str:
        """Remember a page, and return the name under which its form is sent."""
        nonce = secrets.token_urlsafe(16)
        self._shown.put(nonce, shown)
        return nonce

    def knows(self, nonce: str) -> bool:
        """Return whether a page was shown by this server."""
        return self._shown.get(nonce) is not None

    def was_shown(self, nonce: str) -> Shown:
        """Return the page that a form answers."""
        if (shown := self._shown.get(nonce)) is None:
            raise InputError("the server was started again since that page was shown: judge again")
        return shown

    def prefer(self, shown: Shown, preferred: str) -> str:
        """Write a preference to the golden set, and return the question's id."""
        fields = {name: getattr(shown, name) for name in ("left", "right", "mode", "by")}
        preference = _checked(Preference, {**fields, "preferred": preferred, "at": _now()})
        return self._judge(shown, lambda query: add_preference(query, preference))

    def grade(self, shown: Shown, grades: Sequence[dict[str, Any]]) -> str:
        """Write grades of documents to the golden set, and return the question's id."""
        about = {"by": shown.by, "at": _now(), "seen": (shown.left, shown.right)}
        judgements = [_checked(Judgement, {**one, **about}) for one in grades]
        return self._judge(shown, lambda query: reduce(add_judgement, judgements, query))

    def exact_words(self, dataset: str, path: str, words: str) -> str:
        """Return words as a document has them, with its white space.

        Raises :class:`InputError` if the document does not contain them.
        """
        with self.library.database.read() as connection:
            document = find_by_path(connection, dataset, path)
        pattern = r"\s+".join(map(re.escape, words.split()))
        found = re.search(pattern, document.text) if document is not None else None
        if found is None:
            raise InputError(f"{path[:200]} does not contain the words {words[:200]!r}")
        return found[0]

    def settle(self, name: str, question: str, path: str, grade: str, by: str) -> None:
        """Write the decision between people who graded a document differently."""
        fields = {"path": path, "grade": grade, "by": by, "at": _now(), "settled": True}
        judgement = _checked(Judgement, fields)
        with changing_golden(self.file(name)) as queries:
            if (found := find_question(queries, "", question)) is None:
                raise InputError(f"{name} has no question {question[:60]!r}")
            queries[queries.index(found)] = add_judgement(found, judgement)

    def _judge(self, shown: Shown, change: Callable[[GoldenQuery], GoldenQuery]) -> str:
        with changing_golden(self.file(shown.golden)) as queries:
            asked = shown.query
            found = find_question(queries, asked.query, "" if shown.is_new else asked.id)
            if found is None and not shown.is_new:
                raise InputError(f"{asked.id} was removed since that page was shown")
            if found is not None and found.query != asked.query:
                raise InputError(f"{asked.id} was changed since that page was shown: judge again")
            if found is None:
                found = asked.model_copy(update={"id": next_id(queries)})
                queries.append(found)
            queries[queries.index(found)] = change(found)
        return found.id


def find_question(queries: Sequence[GoldenQuery], text: str, name: str = "") -> GoldenQuery | None:
    """Return the question with that id, else the one with that text."""
    by_id = (one for one in queries if name and one.id == name)
    by_text = (one for one in queries if text and one.query == text)
    return next(by_id, None) or next(by_text, None)


def new_question(text: str) -> GoldenQuery:
    """Return a question that is in no set yet; raise :class:`InputError` for a blank one."""
    question: GoldenQuery = _checked(GoldenQuery, {"id": "new", "query": text})
    return question


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _checked(kind: Any, fields: dict[str, Any]) -> Any:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise InputError(describe_problems(error, kind.model_fields)) from error
