"""The logs of searches: questions asked at an edge, and ``logs/retrieval.log`` in a home.

A query is logged after its answer, without delaying it. The other log lists steps of searches that
failed, were repeated or degraded.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from catalog.core.answers import Answer, Artifact
from catalog.core.errors import StoreBusyError
from catalog.core.files import make_folder, make_private
from catalog.core.params import AskParams, GenerateParams, SearchParams
from catalog.core.retrieval_events import LOGGER, Edge, current_edge, current_home
from catalog.store.log_entries import LogEntry, add_entries, drop_old_entries

if TYPE_CHECKING:
    from pathlib import Path

    from catalog.core.results import SearchResults
    from catalog.core.settings import Settings
    from catalog.store import Database


_log = logging.getLogger(__name__)
_LOCK = Lock()
_USERS: Counter[RetrievalFile] = Counter()  # libraries that write to each open file
_MOST_WAITING = 1_000
_DAY = 86_400.0
_VERBS = {AskParams: "ask", GenerateParams: "generate", SearchParams: "search"}


class RetrievalFile(WatchedFileHandler):
    """Append the events of a home's searches, and those outside any search, to its file.

    Libraries of one home share the file; so do processes, because each line is written at once. The
    file may be moved away at any time (``logrotate``): the next line creates a new one. If it
    cannot be written, there is a warning, and searches go on.
    """

    def __init__(self, home: Path) -> None:
        self._file, self._home = home / "logs" / "retrieval.log", str(home)
        self._is_warned = False
        super().__init__(self._file, encoding="utf-8", delay=True)
        form = logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        form.converter = time.gmtime
        self.setFormatter(form)
        self.addFilter(lambda _: current_home() in ("", self._home))

    @classmethod
    def of(cls, home: Path) -> RetrievalFile:
        """Return the file of a home, to be left once by each who took it."""
        with _LOCK:
            known = next((one for one in _USERS if one._home == str(home)), None)
            handler = known or cls(home)
            _USERS[handler] += 1
            LOGGER.addHandler(handler)  # which adds one once
            return handler

    def leave(self) -> None:
        """Close the file with its last user."""
        with _LOCK:
            _USERS[self] -= 1
            if _USERS[self] > 0:
                return
            del _USERS[self]
            LOGGER.removeHandler(self)
        self.close()

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line; also handle errors of looking for the file, which the base raises."""
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)

    def _open(self) -> TextIOWrapper:
        make_folder(self._file.parent)
        stream = super()._open()
        make_private(self._file)
        return stream

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the base class's name
        """Warn once that lines are lost, instead of a traceback for each."""
        del record
        level = logging.DEBUG if self._is_warned else logging.WARNING
        self._is_warned = True
        _log.log(level, "%s cannot be written to: events of searches are lost", self._file)


class Outcome(NamedTuple):
    """The outcome of a question, without its words; ``stages`` are pairs of name and status."""

    verb: str
    edge: Edge
    kind: Literal["answered", "abstained", "failed"]
    stages: tuple[tuple[str, str], ...] = ()


class QueryLog:
    """Write an entry for each question that :meth:`watching` saw; thread-safe.

    It never raises and never waits for the store: entries that cannot be written while another
    process writes are written with the next ones, or at :meth:`close`. A warning is logged for lost
    entries. ``observer``, if given, is called for every question at an edge, logged or not.
    """

    observer: Callable[[Outcome], None] | None = None

    def __init__(
        self, database: Database, settings: Settings, clock: Callable[[], float] = time.time
    ) -> None:
        self._database, self._settings, self._clock = database, settings, clock
        self._waiting: deque[LogEntry] = deque()
        self._writing = Lock()
        self._is_warned = False

    @contextmanager
    def watching(
        self, params: SearchParams | AskParams | GenerateParams
    ) -> Iterator[Callable[..., None]]:
        """Log the question of the block, if it came in at an edge and the settings say so.

        The block calls the yielded function with results, answer or artifact, and further fields of
        the entry. An error that ends the block before that is logged instead.
        """
        edge = current_edge()
        verb = _VERBS[type(params)]
        is_logged = verb in self._settings.log.verbs
        if edge is None or not (is_logged or self.observer):
            yield lambda *_, **__: None
            return
        started = time.perf_counter()
        known: dict[str, Any] = {
            "asked_at": self._clock(),
            "verb": verb,
            "edge": edge,
            "query": _words(params),
            "role": params.role if params.role in self._settings.answers.levels() else None,
        }
        noted: list[LogEntry] = []

        def add(kind: Literal["answered", "abstained", "failed"], **told: Any) -> None:
            noted.append(LogEntry(**known, **told))
            if is_logged:
                self._waiting.append(noted[-1])
                self._write()
            if self.observer is not None:
                stages = tuple((name, status) for name, status, _ in noted[-1].stages)
                self.observer(Outcome(verb, edge, kind, stages))

        def note(outcome: SearchResults | Answer | Artifact, **more: Any) -> None:
            told = _tell(outcome, self._settings) | more
            if told.get("generation_ms") is None:  # no model was asked, of whatever profile
                told["profile"] = None
            add("abstained" if told.get("abstained") else "answered", **told)

        try:
            yield note
        except BaseException as error:
            if not noted:
                elapsed_ms = round((time.perf_counter() - started) * 1000, 3)
                add(
                    "failed",
                    elapsed_ms=elapsed_ms,
                    errors=(type(error.__cause__ or error).__name__,),
                )
            raise

    def close(self) -> None:
        """Write the waiting entries; they are lost if that fails."""
        self._write(is_last=True)

    def _write(self, *, is_last: bool = False) -> None:
        """Write the waiting entries, and drop some that are too old or too many."""
        log = self._settings.log
        with self._writing:
            if not self._waiting:
                return
            some = list(self._waiting)
            try:
                with self._database.write(wait=False) as connection:
                    add_entries(connection, some, keep_text=log.query_text)
                    before = self._clock() - log.days * _DAY
                    drop_old_entries(connection, before=before, at_most=log.entries)
            except StoreBusyError as error:
                if not is_last and len(some) < _MOST_WAITING:
                    return
                self._warn(len(some), error)
            except Exception as error:  # noqa: BLE001 - whatever it is, the answer stands
                self._warn(len(some), error)
            for _ in some:
                self._waiting.popleft()

    def _warn(self, count: int, error: Exception) -> None:
        """Warn of lost entries, once in a process, because the cause usually lasts."""
        level = logging.DEBUG if self._is_warned else logging.WARNING
        self._is_warned = True
        _log.log(level, "%d questions are missing from the log (catalog logs): %s", count, error)


def _words(params: SearchParams | AskParams | GenerateParams) -> str:
    """Return the text of the question; for an artifact, its kind and its topic."""
    if isinstance(params, GenerateParams):
        return f"{params.kind}: {params.topic}"
    return params.question if isinstance(params, AskParams) else params.query


def _tell(outcome: SearchResults | Answer | Artifact, settings: Settings) -> dict[str, Any]:
    """Return the fields of an entry for an answer, an artifact, or the results of a search.

    Of errors there is only the class, because a message may quote a document.
    """
    stages, found = outcome.stages, outcome.results if isinstance(outcome, Answer) else outcome
    failed = [stage for stage in stages if stage.status == "failed"]
    hits = found.results
    told: dict[str, Any] = {
        "datasets": found.datasets,
        "passages": tuple((hit.chunk_id, hit.score) for hit in hits),
        "elapsed_ms": outcome.elapsed_ms,
        "stages": tuple((stage.name, stage.status, stage.ms) for stage in stages),
        "errors": tuple(f"{stage.name}: {stage.note.partition(':')[0]}" for stage in failed),
    }
    if isinstance(found, Artifact):
        searches = [stage.ms for stage in stages if stage.name.startswith("search ")]
        told["retrieval_ms"] = round(sum(searches), 3)
        told["abstained"] = "no section has any evidence" if found.abstained else None
    else:
        told |= {"confidence": found.confidence, "retrieval_ms": found.elapsed_ms}
    if isinstance(outcome, Answer):
        told["abstained"] = None if outcome.abstained is None else outcome.abstained.reason
    if isinstance(outcome, Answer | Artifact):
        if outcome.model is not None and outcome.tokens is not None:
            prompt, reply = outcome.tokens.prompt, outcome.tokens.reply
            cost = settings.llm.cost(outcome.model, prompt, reply)
            told |= {"prompt_tokens": prompt, "reply_tokens": reply, "cost": cost}
        times = [stage.ms for stage in stages if stage.name == "write"]
        told |= {"model": outcome.model, "generation_ms": sum(times) if times else None}
    return told
