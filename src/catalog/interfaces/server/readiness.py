"""Whether a server should be sent requests, which a balancer asks."""

from __future__ import annotations

from catalog.core.errors import NotReadyError


class Readiness:
    """Say that a server is ready from when it is warm until it begins to stop."""

    def __init__(self, *, is_warm: bool = True) -> None:
        self._is_warm = is_warm
        self.is_draining = False

    @property
    def is_ready(self) -> bool:
        """Return whether it is warm, and not about to stop."""
        return self._is_warm and not self.is_draining

    def note_warm(self) -> None:
        """Note that model and indexes are loaded, or that this failed: queries tell why."""
        self._is_warm = True

    def drain(self) -> None:
        """Note that the server is about to stop, and goes on answering until then."""
        self.is_draining = True

    def require(self) -> None:
        """Raise :class:`NotReadyError` unless it is ready."""
        if self.is_draining:
            raise NotReadyError("the server is about to stop: send requests to another one")
        if not self._is_warm:
            raise NotReadyError("the server warms up: try again in a moment")
