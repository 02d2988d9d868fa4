"""Qdrant by path: one shard in the dataset's folder, in this process, open in one at a time."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import qdrant_edge as edge
from filelock import FileLock, Timeout

from catalog.core.errors import EngineBlockedError, EngineError, EngineLockedError
from catalog.core.files import errno_of, make_folder
from catalog.store.database import EngineSetup
from catalog.store.vectors.base import POINTS_LOCK
from catalog.store.vectors.points import CHUNK, SEQ, FoundPoint, Point, PointEngine

if TYPE_CHECKING:
    from catalog.store.vectors.base import Vector

ROOM = 64 * 2**20  # bytes that must be free before anything is written
_COPIES = 3  # of the vectors: two while a segment is rewritten, and room for quantized ones
_PAYLOAD = 1_000  # bytes a point
_PAGE = 10_000  # ids read at a time
_TEMPORARY = frozenset(  # errors that may be gone at the next attempt
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "ENOMEM", "EMFILE", "ENFILE", "EACCES", "EPERM", "EROFS")
    if hasattr(errno, name)
)
_SEARCH = edge.SearchParams(
    # 3 times as many finds the same, but reads more vectors from disk
    quantization=edge.QuantizationSearchParams(rescore=True, oversampling=2.0)
)
_NEVER = 10**9  # kilobytes of vectors from which a graph would be searched
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
        self._record = self.folder / "state.json"
        self._shard: edge.EdgeShard | None = None
        self._lock = FileLock(self.folder / POINTS_LOCK, mode=0o600, thread_local=False)

    @contextmanager
    def lock(self, *, wait: bool) -> Iterator[None]:  # noqa: ARG002  (another holds it for long)
        """Take the folder's lock, and keep it until :meth:`close`."""
        if not self._lock.is_locked:
            try:
                make_folder(self.folder)
                self._lock.acquire(timeout=0)
            except Timeout as error:
                raise EngineLockedError(
                    "another process, such as 'catalog serve', has the vectors of "
                    f"{self.dataset!r} open: IDX_RAG_V2__VECTOR_ENGINE=flat needs no lock"
                ) from error
            except OSError as error:
                message = f"cannot use the index folder {self.folder}: {error}"
                raise EngineBlockedError(message) from error
        yield

    def open(self, *, anew: bool = False) -> str:
        """Return the state in the record; create the shard if it is missing, damaged or another's.

        The record is a file, so that a shard in any state can be recognised without opening it.
        """
        try:
            record = json.loads(self._record.read_text(encoding="utf-8"))
            state = str(record.pop("state")) if record == self._made(record.get("state")) else ""
        except (OSError, ValueError, AttributeError, RecursionError):
            state = ""
        if self._shard is not None and not anew:
            return state
        self._check_room(0)
        if state and not anew and self._reopen():
            return state
        self.note("")
        self._release()
        with _translate_errors("create"):
            shutil.rmtree(self._shard_folder, ignore_errors=True)
            self._shard_folder.mkdir(parents=True)
            self._shard = edge.EdgeShard.create(str(self._shard_folder), self._config())
            index = edge.IntegerIndexParams(lookup=True, range=False, memory=edge.Memory.Cold)
            self._update(edge.UpdateOperation.create_field_index(SEQ, index))
        return ""

    def note(self, state: str) -> None:
        """Remove the record, or write all points to disk, quantized if they are many, then it."""
        if not state:
            self._record.unlink(missing_ok=True)
            return
        with _translate_errors("write"):
            self._opened.optimize()
            self._opened.flush()
        draft = self._record.with_suffix(".new")
        with draft.open("w", encoding="utf-8") as handle:
            json.dump(self._made(state), handle)
            handle.flush()
            os.fsync(handle.fileno())
        draft.replace(self._record)

    def count(self) -> int:
        """Return the number of points."""
        with _translate_errors("read"):
            return self._opened.count(edge.CountRequest(exact=True))

    def ids(self) -> dict[int, int]:
        """Return the row number of every point by its id."""
        found, following = dict[int, int](), None
        while True:
            request = edge.ScrollRequest(offset=following, limit=_PAGE, with_payload=[SEQ])
            with _translate_errors("read"):
                records, following = self._opened.scroll(request)
            found |= {int(one.id): (one.payload or {})[SEQ] for one in records}
            if following is None:
                return found

    def add(self, points: Sequence[Point]) -> None:
        """Add points, or replace those of the same id, if the disk has room for them."""
        self._check_room(len(points))
        rows = [edge.Point(one.id, one.vector.tolist(), one.payload) for one in points]
        self._update(edge.UpdateOperation.upsert_points(rows))

    def remove(self, seqs: list[int]) -> None:
        """Remove the points of these passages."""
        self._check_room(0)
        self._update(edge.UpdateOperation.delete_points_by_filter(_of_passages(seqs)))

    def find(self, vector: Vector, limit: int, seqs: list[int] | None) -> list[FoundPoint]:
        """Return the points of these passages nearest to a vector, best first."""
        try:
            return self._query(vector, limit, seqs)
        except EngineError:
            self.close()  # the next search opens the shard again, or builds it
            raise

    def _query(self, vector: Vector, limit: int, seqs: list[int] | None) -> list[FoundPoint]:
        request = edge.QueryRequest(
            limit=limit,
            query=edge.Query.Nearest(vector.tolist()),
            filter=None if seqs is None else _of_passages(seqs),
            with_payload=[SEQ, CHUNK],
            params=_SEARCH,
        )
        with _translate_errors("search"):
            answer = self._opened.query(request)
        payloads = [(one.payload or {}, one.score) for one in answer]
        return [FoundPoint(payload[SEQ], payload[CHUNK], score) for payload, score in payloads]

    def drop(self) -> None:
        """Close the shard; whoever removes the dataset removes the folder."""
        self.close()

    def close(self) -> None:
        """Flush, and release the shard and the lock."""
        with self._guard:
            super().close()
            self._release()
            self._lock.release()

    def _release(self) -> None:
        shard, self._shard = self._shard, None
        if shard is not None:
            with _translate_errors("close"):
                shard.close()

    @property
    def _opened(self) -> edge.EdgeShard:
        if (shard := self._shard) is None:
            raise EngineError("the vector index was closed")
        return shard

    def _reopen(self) -> bool:
        """Open the shard in the folder; return whether it can be used."""
        try:
            with _translate_errors("open"):
                self._shard = edge.EdgeShard.load(str(self._shard_folder), self._config())
            return len(self._query(_probe(self.dim), 1, None)) > 0
        except EngineBlockedError:
            raise
        except EngineError as error:
            _log.warning("filling the vector index of %r again: %s", self.dataset, error)
            return False

    def _update(self, operation: edge.UpdateOperation) -> None:
        with _translate_errors("write"):
            self._opened.update(operation)

    def _check_room(self, points: int) -> None:
        """Raise :class:`EngineBlockedError` unless the disk has room for this many points.

        The engine maps sparse files. If the disk is full, a write to such a file ends the process,
        and no error can be reported.
        """
        needed = ROOM + points * (_COPIES * 4 * self.dim + _PAYLOAD)
        try:
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise EngineBlockedError(f"cannot read {self.folder}: {error}") from error
        if free < needed:
            raise EngineBlockedError(
                f"the disk of {self.folder} has {free // 2**20} MB left, but the vector index "
                f"may need {needed // 2**20} MB: free some space"
            )

    def _made(self, state: object) -> dict[str, Any]:
        return {**self.made_by, "store": self.database.meta("store_id"), "state": state}

    def _config(self) -> edge.EdgeConfig:
        kilobytes = max(1, QUANTIZE_FROM * self.dim * 4 // 1024)
        return edge.EdgeConfig(
            vectors=edge.EdgeVectorParams(
                size=self.dim,
                distance=edge.Distance.Cosine,
                memory=edge.Memory.Cold,
                quantization_config=edge.ScalarQuantizationConfig(
                    edge.ScalarType.Int8, memory=edge.Memory.Pinned
                ),
                # no graph: it would take longest to build, and it misses some of the nearest points
                hnsw_config=edge.HnswIndexConfig(
                    m=0, ef_construct=1, full_scan_threshold=_NEVER, payload_m=0
                ),
            ),
            optimizers=edge.EdgeOptimizersConfig(
                indexing_threshold=kilobytes, default_segment_number=1
            ),
            wal_enabled=False,  # points are compared with the store after a crash
        )


def _of_passages(seqs: list[int]) -> edge.Filter:
    return edge.Filter(must=[edge.FieldCondition(key=SEQ, match=edge.MatchAny(any=seqs))])


def _probe(dim: int) -> Vector:
    import numpy as np

    return np.full(dim, dim**-0.5, dtype=np.float32)


@contextmanager
def _translate_errors(doing: str) -> Iterator[None]:
    """Turn the engine's exceptions, and its panics (which are not ``Exception``), into ours."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, EngineError):
            raise
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        kind = EngineBlockedError if errno_of(error) in _TEMPORARY else EngineError
        raise kind(f"the vector index cannot {doing}: {error}") from error
