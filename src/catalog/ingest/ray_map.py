"""The ``map`` that a run embeds with: the builtin, or the same as tasks of a Ray cluster.

Each machine of the cluster has this library and the same model. The arguments of a task, including
keys of embedding servers, cross the cluster as Ray sends them
(https://docs.ray.io/en/latest/ray-core/tasks.html).
"""

from __future__ import annotations

import os
import pickle
import socket
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from catalog.core.errors import ConfigError, EmbeddingServerError, MissingExtraError

if TYPE_CHECKING:
    from catalog.core.settings import IngestSettings

Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]

_CONNECT_SECONDS = 10.0
_TRIES = 2  # of an item that ends its worker
_opened: dict[str, Callable[[Any], Any]] = {}  # in a worker: the work that it does, by its name


@contextmanager
def open_map(settings: IngestSettings) -> Iterator[Map]:
    """Give the map of the settings; leave the cluster at the end.

    On Ray, an item that ends its worker twice gives an outage as its :data:`~.embedding.Answer`.
    Raises :class:`MissingExtraError` if Ray is not installed, and :class:`ConfigError` if its
    cluster does not answer.
    """
    if settings.ray is None:
        yield map
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtraError("work on Ray", "ray") from error
    is_ours = not ray.is_initialized()
    if is_ours:
        _connect(ray, settings.ray)
    try:
        yield lambda work, items: _map_on(ray, work, items)
    finally:
        if is_ours:
            ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        if port.isdigit():  # Ray itself would try for minutes
            socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
        ray.init(address, include_dashboard=None, log_to_driver=False, logging_level="ERROR")
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"no Ray cluster answers at {address}: {error}") from error


def _map_on(ray: Any, work: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    """Yield the results in the order of the items, with a task in work for each processor."""
    size = max(1, int(ray.cluster_resources().get("CPU", 1)))
    task = ray.remote(max_retries=_TRIES - 1, num_cpus=1)(do)
    name, pending = uuid.uuid4().hex, deque[Any]()
    try:
        packed = ray.put(pickle.dumps(work))
    except Exception as error:
        told = "leave --ray out, or name the model in the settings"
        raise ConfigError(f"the model cannot be sent to Ray ({error}): {told}") from error
    try:
        for item in items:
            pending.append(task.remote(name, packed, item))
            if len(pending) > size:
                yield _result(ray, pending.popleft())
        while pending:
            yield _result(ray, pending.popleft())
    finally:
        for left in pending:
            ray.cancel(left)


def do(name: str, packed: bytes, item: Any) -> Any:
    """Do the work called ``name`` on an item, in a worker; it is unpacked there once."""
    if name not in _opened:
        _opened.clear()
        _opened[name] = pickle.loads(packed)  # noqa: S301 - from the driver of this run
    return _opened[name](item)


def _result(ray: Any, reference: Any) -> Any:
    lost = ("WorkerCrashedError", "ObjectLostError", "OutOfMemoryError", "NodeDiedError")
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except tuple(getattr(ray.exceptions, name) for name in lost) as error:
        reason = str(error).partition("\n")[0]
        ended = f"the worker ended in each of {_TRIES} attempts: {reason}"
        return EmbeddingServerError(ended), 0.0, None
