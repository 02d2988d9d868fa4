"""Executors of an indexing run: in this process, in several processes, or on Ray.

A run has one writer. Work that can run in parallel (read and cut a file, embed a batch) is a
function of its arguments alone. An executor applies it to many items ahead of the writer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog.ingest.executors.base import Executor, InPlace, Lost

if TYPE_CHECKING:
    from catalog.core.settings import IngestSettings

__all__ = ["Executor", "InPlace", "Lost", "open_executor"]


def open_executor(settings: IngestSettings) -> Executor:
    """Return the executor of the settings; close it, or use ``with``.

    Raises :class:`MissingExtraError` if Ray is not installed, and :class:`ConfigError` if its
    cluster does not answer.
    """
    if settings.ray is not None:
        from catalog.ingest.executors.ray_tasks import RayTasks

        return RayTasks(settings.ray, settings.workers)
    if settings.workers > 1:
        from catalog.ingest.executors.processes import Processes

        return Processes(settings.workers)
    return InPlace()
