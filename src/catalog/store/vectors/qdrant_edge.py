"""Qdrant by path: one shard in the dataset's folder, in this process, open in one at a time."""

import errno
import json
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import qdrant_edge as edge
from filelock import FileLock, Timeout

from catalog.core.errors import EngineBlockedError, EngineError, EngineLockedError
from catalog.core.files import errno_of, make_folder
from catalog.store.database import POINTS_LOCK, EngineSetup
from catalog.store.engines import Vector
from catalog.store.vectors.points import Point, PointEngine

ROOM = 64 * 2**20  # bytes that must be free before anything is written
_COPIES = 3  # of the vectors: two while a segment is rewritten, and room for quantized ones
_PAYLOAD = 1_000  # bytes a point
_PAGE = 10_000  # ids read at a time
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
_TEMPORARY = _FULL | {errno.EACCES, errno.EPERM, errno.EROFS}  # may be gone at the next attempt
QUANTIZE_FROM = 20_000  # points

_log = logging.getLogger(__name__)


class QdrantEdgeEngine(PointEngine):
    """The points of a dataset in ``folder``.

    From :data:`QUANTIZE_FROM` points on, a search compares vectors of one byte a number, which are
    in memory, reads the full vectors of the nearest from disk and compares these. With fewer points
    it is exact. While another process has the folder open, calls raise
    :class:`EngineLockedError`; on a full disk or without rights, :class:`EngineBlockedError`.
    """

    name, is_shared = "qdrant-edge", False

    def __init__(self, setup: EngineSetup) -> None:
        super().__init__(setup)
        self._shard_folder = self.folder / "shard"
        # a file, so that a shard in any state can be recognised without opening it
        self._record = self.folder / "state.json"
        self._shard: edge.EdgeShard | None = None
        self._lock = FileLock(self.folder / POINTS_LOCK, mode=0o600, thread_local=False)

    @contextmanager
    def lock(self, *, wait: bool) -> Iterator[None]:  # noqa: ARG002  (another holds it for long)
        """Take the folder's lock, and keep it until :meth:`close`."""
        try:
            make_folder(self.folder)
            if not self._lock.is_locked:
                self._lock.acquire(timeout=0)
        except Timeout as error:
            raise EngineLockedError(
                f"another process, such as 'catalog serve', has the vectors of {self.dataset!r} "
                "open: IDX_RAG_V2__VECTOR_ENGINE=flat needs no lock"
            ) from error
        except OSError as error:
            message = f"cannot use the index folder {self.folder}: {error}"
            raise EngineBlockedError(message) from error
        self._check_room(0)
        yield

    def _open(self, *, anew: bool) -> dict[str, Any]:  # noqa: ARG002
        try:
            record = dict(json.loads(self._record.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, RecursionError):
            return {}
        if self._shard is None:
            try:
                with _translate_errors():
                    self._shard = edge.EdgeShard.load(str(self._shard_folder))
                if not self._find(np.full(self.dim, self.dim**-0.5), 1, None):
                    return {}
            except EngineBlockedError:
                raise
            except EngineError as error:
                _log.warning("filling the vector index of %r again: %s", self.dataset, error)
                return {}
        return record

    def _create(self, record: dict[str, Any]) -> None:
        self._release()
        quantized = edge.ScalarQuantizationConfig(edge.ScalarType.Int8, memory=edge.Memory.Pinned)
        # no graph: it would take longest to build, and it misses some of the nearest points
        no_graph = edge.HnswIndexConfig(m=0, ef_construct=1, full_scan_threshold=10**9, payload_m=0)
        vectors = edge.EdgeVectorParams(
            size=self.dim,
            distance=edge.Distance.Cosine,
            memory=edge.Memory.Cold,
            quantization_config=quantized,
            hnsw_config=no_graph,
        )
        kilobytes = max(1, QUANTIZE_FROM * self.dim * 4 // 1024)
        segments = edge.EdgeOptimizersConfig(indexing_threshold=kilobytes, default_segment_number=1)
        # no log: points are compared with the store after a crash
        config = edge.EdgeConfig(vectors=vectors, optimizers=segments, wal_enabled=False)
        self._write(record)
        with _translate_errors():
            shutil.rmtree(self._shard_folder, ignore_errors=True)
            self._shard_folder.mkdir(parents=True)
            self._shard = edge.EdgeShard.create(str(self._shard_folder), config)

    def _write(self, record: dict[str, Any]) -> None:
        if record.get("is_whole"):
            self._run("optimize")
            self._run("flush")
        draft = self._record.with_suffix(".new")
        with _translate_errors():
            with draft.open("w", encoding="utf-8") as handle:
                json.dump(record, handle)
                handle.flush()
                os.fsync(handle.fileno())
            draft.replace(self._record)

    def _ids(self) -> list[int]:
        found, following = list[int](), None
        while True:
            request = edge.ScrollRequest(offset=following, limit=_PAGE, with_payload=False)
            records, following = self._run("scroll", request)
            found += [int(one.id) for one in records]
            if following is None:
                return found

    def _add(self, points: Sequence[Point]) -> None:
        self._check_room(len(points))
        rows = [edge.Point(one.id, one.vector.tolist(), one.payload) for one in points]
        self._run("update", edge.UpdateOperation.upsert_points(rows))

    def _remove(self, ids: list[int]) -> None:
        self._run("update", edge.UpdateOperation.delete_points([*ids]))

    def _find(self, vector: Vector, limit: int, ids: list[int] | None) -> list[tuple[int, float]]:
        # 3 times as many finds the same, but reads more vectors from disk
        twice = edge.QuantizationSearchParams(rescore=True, oversampling=2.0)
        request = edge.QueryRequest(
            limit=limit,
            query=edge.Query.Nearest(vector.tolist()),
            filter=None if ids is None else edge.Filter(must=[edge.HasIdCondition({*ids})]),
            params=edge.SearchParams(quantization=twice),
        )
        try:
            return [(int(point.id), point.score) for point in self._run("query", request)]
        except EngineError:
            self.close()  # the next search opens the shard again, or builds it
            raise

    def close(self) -> None:
        """Flush, and release the shard and the lock."""
        with self._guard:
            super().close()
            self._release()
            self._lock.release()

    def _release(self) -> None:
        shard, self._shard = self._shard, None
        if shard is not None:
            with _translate_errors():
                shard.close()

    def _run(self, method: str, *args: Any) -> Any:
        if (shard := self._shard) is None:
            raise EngineError("the vector index was closed")
        with _translate_errors():
            return getattr(shard, method)(*args)

    def _check_room(self, points: int) -> None:
        """Raise :class:`EngineBlockedError` unless the disk has room for this many points.

        The engine maps sparse files. If the disk is full, a write to such a file ends the process,
        and no error can be reported.
        """
        needed = ROOM + points * (_COPIES * 4 * self.dim + _PAYLOAD)
        with _translate_errors():
            free = shutil.disk_usage(self.folder).free
        if free < needed:
            raise EngineBlockedError(
                f"the disk of {self.folder} has {free // 2**20} MB left, but the vector index "
                f"may need {needed // 2**20} MB: free some space"
            )


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Turn the engine's exceptions, and its panics (which are not ``Exception``), into ours."""
    try:
        yield
    except BaseException as error:
        is_ours = isinstance(error, Exception) or type(error).__name__ == "PanicException"
        if isinstance(error, EngineError) or not is_ours:
            raise
        kind = EngineBlockedError if errno_of(error) in _TEMPORARY else EngineError
        raise kind(f"the vector index failed: {error}") from error
