"""The logs of searches: questions asked at an edge, and ``logs/retrieval.log`` in a home.

The other lists steps of searches that failed, were repeated or degraded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from catalog.core.errors import StoreBusyError
from catalog.core.files import make_folder, make_private
from catalog.core.params import AskParams, GenerateParams, SearchParams
from catalog.core.retrieval_events import EDGE, HOME, LOGGER
from catalog.store.log_entries import LogEntry, add_entries, drop_old_entries

if TYPE_CHECKING:
    from catalog.core.answers import Answer, Artifact
    from catalog.core.results import SearchResults
    from catalog.core.settings import Settings
    from catalog.store import Database


_log = logging.getLogger(__name__)
_MOST_WAITING = 1_000
_DAY = 86_400.0


class RetrievalFile(WatchedFileHandler):
    """Append the events of a home's searches, and those outside any search, to its file.

    Processes share the file, because each line is written at once. It may be moved away at any time
    (``logrotate``). If it cannot be written, there is one warning, and searches go on.
    """

    def __init__(self, home: Path) -> None:
        self._home, self._is_warned = str(home), False
        super().__init__(home / "logs" / "retrieval.log", encoding="utf-8", delay=True)
        form = logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        form.converter = time.gmtime
        self.setFormatter(form)
        LOGGER.addHandler(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Let through what the first handler of the file in this process sees."""
        is_ours = HOME.get() in ("", self._home)
        return is_ours and vars(record).setdefault(self.baseFilename, self) is self

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line, and warn once if lines are lost, which the base raises or prints."""
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - the base's
        if not self._is_warned:
            _log.warning("%s cannot be written to: events of searches are lost", self.baseFilename)
        self._is_warned = True

    def _open(self) -> TextIOWrapper:
        make_folder(Path(self.baseFilename).parent)
        stream = super()._open()
        make_private(Path(self.baseFilename))
        return stream

    def close(self) -> None:
        """Close the file and listen no longer."""
        LOGGER.removeHandler(self)
        super().close()


class QueryLog:
    """Write an entry for each question that :meth:`watching` saw; thread-safe.

    It never raises and never waits for the store: what cannot be written while another process
    writes is written later. ``observer`` gets the entry of every question, logged or not.
    """

    observer: Callable[[LogEntry], None] | None = None

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database, self._settings = database, settings
        self._waiting: list[LogEntry] = []
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
        verb, words = _question(params)
        edge, is_logged = EDGE.get(), verb in self._settings.log.verbs
        if edge is None or not (is_logged or self.observer):
            yield lambda *_, **__: None
            return
        asked_at, started = time.time(), time.perf_counter()
        told: dict[str, Any] = {}

        def note(outcome: SearchResults | Answer | Artifact, **more: Any) -> None:
            told.update(_tell(outcome, self._settings) | more)
            if told.get("generation_ms") is None:  # no model was asked, of whatever profile
                told["profile"] = None

        try:
            yield note
        except BaseException as error:
            told = {"errors": (type(error.__cause__ or error).__name__,)}
            told["elapsed_ms"] = round((time.perf_counter() - started) * 1000, 3)
            raise
        finally:
            if told:
                role = params.role if params.role in self._settings.answers.levels() else None
                entry = LogEntry(asked_at, verb, edge, query=words, role=role, **told)
                if is_logged:
                    self._write(entry)
                if self.observer is not None:
                    self.observer(entry)

    def close(self) -> None:
        """Write the waiting entries; they are lost if that fails."""
        self._write()

    def _write(self, *new: LogEntry) -> None:
        """Write the waiting and new entries, and drop some that are too old or too many."""
        log = self._settings.log
        with self._writing:
            self._waiting += new
            if not self._waiting:
                return
            try:
                with self._database.write(wait=False) as connection:
                    add_entries(connection, self._waiting, keep_text=log.query_text)
                    before = time.time() - log.days * _DAY
                    drop_old_entries(connection, before=before, at_most=log.entries)
            except Exception as error:  # noqa: BLE001 - whatever it is, the answer stands
                lost = len(self._waiting)
                if new and lost < _MOST_WAITING and isinstance(error, StoreBusyError):
                    return
                if not self._is_warned:  # the cause usually lasts
                    told = "%d questions are missing from the log (catalog logs): %s"
                    _log.warning(told, lost, error)
                self._is_warned = True
            self._waiting.clear()


def _question(params: SearchParams | AskParams | GenerateParams) -> tuple[str, str]:
    """Return the verb and the text of a question; for an artifact, its kind and its topic."""
    if isinstance(params, GenerateParams):
        return "generate", f"{params.kind}: {params.topic}"
    return ("ask", params.question) if isinstance(params, AskParams) else ("search", params.query)


def _tell(outcome: SearchResults | Answer | Artifact, settings: Settings) -> dict[str, Any]:
    """Return the fields of an entry; of errors only the class: a message may quote a document."""
    from catalog.core.answers import Answer, Artifact

    stages, found = outcome.stages, outcome.results if isinstance(outcome, Answer) else outcome
    failed = [stage for stage in stages if stage.status == "failed"]
    told: dict[str, Any] = {
        "datasets": found.datasets,
        "passages": tuple((hit.chunk_id, hit.score) for hit in found.results),
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
    if isinstance(outcome, Answer) and outcome.abstained is not None:
        told["abstained"] = outcome.abstained.reason
    if isinstance(outcome, Answer | Artifact):
        if outcome.model is not None and outcome.tokens is not None:
            prompt, reply = outcome.tokens.prompt, outcome.tokens.reply
            cost = settings.llm.cost(outcome.model, prompt, reply)
            told |= {"prompt_tokens": prompt, "reply_tokens": reply, "cost": cost}
        times = [stage.ms for stage in stages if stage.name == "write"]
        told |= {"model": outcome.model, "generation_ms": sum(times) if times else None}
    return told
