"""The engine that asks the store's server whenever there is one. Light to import."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog.interfaces.server.announcement import Announcement, read_announcement
from catalog.interfaces.server.remote import Remote, ServerGoneError, TooLargeError

if TYPE_CHECKING:
    from catalog.core.settings import Settings
    from catalog.interfaces.calls import LocalEngine


_PASS_OVER_SECONDS = 10.0
_EXTRA_SECONDS = 2.0


class NearestEngine:
    """Ask the store's server while there is one with the same settings, else answer here.

    The local engine is made when first needed and let go when a server answers again. A server
    that is lost during a call costs that call nothing but time. Thread-safe.
    """

    def __init__(
        self,
        settings: Settings,
        home: Path,
        key: str,
        make_local: Callable[[], LocalEngine],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeout = settings.serve.timeout_seconds + _EXTRA_SECONDS
        self._home = home
        self._key = key
        self._make_local = make_local
        self._clock = clock
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._remote: Remote | None = None
        self._lost: tuple[Announcement, float] | None = None
        self._local: LocalEngine | None = None
        self._users = 0

    @classmethod
    def of(cls, settings: Settings, preset: str | None = None) -> NearestEngine:
        """Return the engine for settings that were loaded with that preset in this environment."""
        from catalog.core.home import settings_key

        def local() -> LocalEngine:
            from catalog.interfaces.calls import LocalEngine
            from catalog.library.library import Library
            from catalog.store.database import require_store

            require_store(settings)
            return LocalEngine(Library(settings))

        return cls(settings, settings.home, settings_key(settings.home, preset), local)

    def ask(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer as ``Engine.ask`` says."""
        remote = self._find_server()
        if remote is not None:
            try:
                answer = remote.ask(verb, arguments, self._timeout)
            except TooLargeError:
                pass
            except ServerGoneError:
                self._pass_over(remote)
            else:
                self._release_local()
                return answer
        with self._use_local() as engine:
            return engine.ask(verb, arguments)

    def warm(self) -> None:
        """Make the local engine ready, if it is the one that would answer."""
        if self._find_server() is None:
            with self._use_local() as engine:
                engine.warm()

    def close(self) -> None:
        """Release the local engine and the connections."""
        with self._lock:
            remote, self._remote = self._remote, None
            local, self._local = self._local, None
        if remote is not None:
            remote.close()
        if local is not None:
            local.close()

    def _find_server(self) -> Remote | None:
        """Return the server there is now; one that was lost is passed over for a while."""
        announcement = read_announcement(self._home)
        if announcement is None or announcement.key != self._key:
            return None
        with self._lock:
            if self._lost is not None:
                lost, lost_at = self._lost
                if lost == announcement and self._clock() - lost_at < _PASS_OVER_SECONDS:
                    return None
            before = self._remote
            if before is not None and before.announcement == announcement:
                return before
            self._remote = Remote(announcement)
            remote = self._remote
        if before is not None:
            before.close()
        return remote

    def _pass_over(self, remote: Remote) -> None:
        with self._lock:
            self._lost = (remote.announcement, self._clock())

    @contextmanager
    def _use_local(self) -> Iterator[LocalEngine]:
        """Yield the local engine, made if need be, which stays open for as long."""
        with self._making:
            with self._lock:
                engine = self._local
                self._users += engine is not None
            if engine is None:
                engine = self._make_local()
                with self._lock:
                    self._local = engine
                    self._users += 1
        try:
            yield engine
        finally:
            with self._lock:
                self._users -= 1

    def _release_local(self) -> None:
        with self._lock:
            if self._local is None or self._users:
                return
            local, self._local = self._local, None
        local.close()
