"""Work as tasks of a Ray cluster (https://docs.ray.io/en/latest/ray-core/tasks.html).

Each machine of the cluster has this library, the same models, and the documents in the same folder;
a file that is not on a worker's machine is read by the writer. The arguments of a task, including
keys of embedding servers, cross the cluster as Ray sends them.
"""

from __future__ import annotations

import os
import pickle
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from catalog.core.errors import ConfigError, MissingExtraError
from catalog.ingest.executors.base import Answer, ItemT, Lost, ResultT, attempt, map_ahead
from catalog.ingest.executors.processes import pack

_CONNECT_SECONDS = 10.0
_TRIES = 2
_opened: dict[str, Callable[[Any], Any]] = {}  # in a worker: the work that it does, by its name


def do(name: str, packed: bytes, item: Any) -> Answer:
    """Do the work called ``name`` on an item, in a worker; it is unpacked there once."""
    if name not in _opened:
        _opened.clear()
        _opened[name] = pickle.loads(packed)  # noqa: S301 - from the driver of this run
    return attempt(_opened[name], item)


class RayTasks:
    """Run up to ``workers`` tasks at once; 1 means as many as the cluster has processors.

    ``address`` is that of the cluster, ``auto`` for the one of this machine, ``local`` for one that
    is started here and ends with this object. Raises :class:`MissingExtraError` without Ray, and
    :class:`ConfigError` if no cluster answers.
    """

    def __init__(self, address: str, workers: int) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ModuleNotFoundError as error:
            raise MissingExtraError("work on Ray", "ray") from error
        self._ray = ray
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            _connect(ray, address)
        self.size = workers if workers > 1 else max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._task = ray.remote(max_retries=_TRIES - 1, num_cpus=1)(do)

    def map(
        self,
        work: Callable[[ItemT], ResultT],
        items: Iterable[ItemT],
        *,
        weigh: Callable[[ItemT], float] = lambda _: 1.0,
        room: float = 0.0,
    ) -> Iterator[ResultT | Lost]:
        """Yield the result of ``work`` for each item; see :class:`~.base.Executor`."""
        name, packed = uuid.uuid4().hex, self._ray.put(pack(work))

        def submit(item: ItemT) -> _Submitted:
            return _Submitted(self._ray, self._task.remote(name, packed, item))

        yield from map_ahead(submit, items, size=self.size, weigh=weigh, room=room)

    def close(self) -> None:
        """Leave the cluster, which ends this run's tasks."""
        if self._is_ours and self._ray.is_initialized():
            self._ray.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _connect(ray: Any, address: str) -> None:
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        if port.isdigit():  # Ray itself would try for minutes
            socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
        ray.init(
            address=address, include_dashboard=None, log_to_driver=False, logging_level="ERROR"
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"no Ray cluster answers at {address}: {error}") from error


class _Submitted:
    """A task that was submitted, and its result."""

    def __init__(self, ray: Any, reference: Any) -> None:
        self._ray, self._reference = ray, reference

    def result(self) -> Any:
        """Wait for the task; return its result or :class:`Lost`, or raise its error."""
        errors = self._ray.exceptions
        try:
            kind, value = self._ray.get(self._reference)
        except (
            errors.WorkerCrashedError,
            errors.ObjectLostError,
            errors.OutOfMemoryError,
            errors.NodeDiedError,
        ) as error:
            reason = str(error).partition("\n")[0]
            return Lost(f"the worker ended in each of {_TRIES} attempts: {reason}")
        if kind == "raised":
            raise value
        return value

    def cancel(self) -> None:
        """Cancel the work if it has not begun."""
        self._ray.cancel(self._reference)
