"""The embedded Qdrant engine: one shard in the dataset's folder, in this process."""

from __future__ import annotations

import errno
import json
import shutil
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import qdrant_edge as edge

from catalog.core.errors import EngineBlockedError, EngineError
from catalog.core.files import errno_of
from catalog.store.database import Database
from catalog.store.vectors.folder_engine import FolderEngine
from catalog.store.vectors.point_search import PointCondition, PointHit
from catalog.store.vectors.points import CHUNK, DOC, PAGE, TOKENS, IndexPoint

if TYPE_CHECKING:
    import numpy.typing as npt

EdgeCondition: TypeAlias = edge.FieldCondition | edge.HasIdCondition | edge.Filter

_TEMPORARY = frozenset(  # errors that may be gone at the next attempt
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "ENOMEM", "EMFILE", "ENFILE", "EACCES", "EPERM", "EROFS")
    if hasattr(errno, name)
)
_INDEXES = (  # read from disk: in memory they take more than the quantized vectors
    (TOKENS, edge.KeywordIndexParams(memory=edge.Memory.Cold)),
    (DOC, edge.KeywordIndexParams(memory=edge.Memory.Cold)),
    (PAGE, edge.FloatIndexParams(memory=edge.Memory.Cold)),
)
_OVERSAMPLING = 2.0  # 3 finds the same, but reads more vectors from disk
_SEARCH = edge.SearchParams(
    quantization=edge.QuantizationSearchParams(rescore=True, oversampling=_OVERSAMPLING)
)
_NEVER = 10**9  # kilobytes of vectors from which a graph would be searched
QUANTIZE_FROM = 20_000  # points


class EdgeIndex:
    """An open shard. Searches may run in several threads while one thread writes.

    From ``quantize_from`` points on, :meth:`optimize` makes the index quantized. A search then
    compares all vectors of one byte a number, which are in memory. Of the nearest ones,
    :data:`_OVERSAMPLING` times as many as wanted, it reads the full vectors from disk and compares
    again. With fewer points every search is exact. The owner ensures that no other process has the
    folder open. Raises :class:`EngineError`, and :class:`EngineBlockedError` if space, memory or
    permission is missing.
    """

    def __init__(self, shard: edge.EdgeShard, folder: Path) -> None:
        self._shard, self._folder = shard, folder

    @classmethod
    def create(cls, folder: Path, dim: int, quantize_from: int) -> EdgeIndex:
        """Create an empty shard; replace whatever is in the folder."""
        with _translate_errors("create"):
            if folder.exists():
                shutil.rmtree(folder)
            folder.mkdir(parents=True)
            _noted_mappings(folder).unlink(missing_ok=True)
            index = cls(edge.EdgeShard.create(str(folder), _config(dim, quantize_from)), folder)
            for field, schema in _INDEXES:
                index._shard.update(edge.UpdateOperation.create_field_index(field, schema))
        return index

    @classmethod
    def load(cls, folder: Path, dim: int, quantize_from: int) -> EdgeIndex:
        """Open the shard in the folder."""
        with _translate_errors("open"):
            _check_mappings(folder)
            _check_counts(folder)
            index = cls(edge.EdgeShard.load(str(folder), _config(dim, quantize_from)), folder)
        try:
            index._check(dim)
        except EngineError:
            index.close()
            raise
        return index

    @property
    def count(self) -> int:
        """Return the number of points."""
        with _translate_errors("read"):
            return self._shard.count(edge.CountRequest(exact=True))

    def _check(self, dim: int) -> None:
        """Raise :class:`EngineError` for damage that shows at once, to have the index rebuilt."""
        with _translate_errors("open"):
            missing = {field for field, _ in _INDEXES} - set(self._shard.info().payload_schema)
        if missing:
            raise EngineError(f"the vector index lacks its payload indexes: {sorted(missing)}")
        probe = np.full(dim, dim**-0.5, dtype=np.float32)
        if len(self.nearest(probe, 1, None)) < min(1, self.count):
            raise EngineError("the vector index has points but finds none")

    def upsert(self, points: Sequence[IndexPoint]) -> None:
        """Add points, or replace those of the same id."""
        edge_points = [
            edge.Point(point.id, point.vector.tolist(), point.payload) for point in points
        ]
        with _translate_errors("write"):
            self._shard.update(edge.UpdateOperation.upsert_points(edge_points))

    def delete(self, point_ids: Sequence[str]) -> None:
        """Remove points; ids that do not exist are ignored."""
        with _translate_errors("write"):
            self._shard.update(edge.UpdateOperation.delete_points(list(point_ids)))

    def flush(self) -> None:
        """Return when everything is on disk."""
        with _translate_errors("write"):
            self._shard.flush()
            _note_mappings(self._folder)

    def optimize(self) -> bool:
        """Remove the remains of many deleted points, and quantize a large index.

        Return whether anything was done.
        """
        with _translate_errors("optimize"):
            if is_changed := self._shard.optimize():
                _note_mappings(self._folder)
            return is_changed

    def nearest(
        self, vector: npt.NDArray[np.float32], limit: int, condition: PointCondition | None
    ) -> list[PointHit]:
        """Return the nearest points that meet the condition, best first, at most ``limit``."""
        with _translate_errors("search"):
            answer = self._shard.query(
                edge.QueryRequest(
                    limit=limit,
                    query=edge.Query.Nearest(vector.tolist()),
                    filter=None if condition is None else edge.Filter(must=[_condition(condition)]),
                    with_payload=[CHUNK],
                    params=_SEARCH,
                )
            )
        return [PointHit((point.payload or {})[CHUNK], point.score) for point in answer]

    def retrieve(self, point_ids: Sequence[str]) -> dict[str, tuple[Any, dict[str, Any]]]:
        """Return vector and payload of the points that exist, by id."""
        with _translate_errors("read"):
            records = self._shard.retrieve(list(point_ids), True, True)
        return {str(record.id): (record.vector, record.payload or {}) for record in records}

    def close(self) -> None:
        """Flush and release the shard; may be called twice."""
        with _translate_errors("close"):
            self._shard.close()


def _condition(condition: PointCondition) -> EdgeCondition:
    """Return the condition in the engine's own classes."""
    match condition:
        case {"has_id": point_ids}:
            return edge.HasIdCondition(set(point_ids))
        case {"key": key, "match": {"any": values}}:
            return edge.FieldCondition(key=key, match=edge.MatchAny(any=values))
        case {"key": key, "range": bounds}:
            return edge.FieldCondition(key=key, range=edge.RangeFloat(**bounds))
    clauses: dict[str, Any] = {
        kind: [_condition(part) for part in parts] for kind, parts in condition.items()
    }
    return edge.Filter(**clauses)


def _config(dim: int, quantize_from: int) -> edge.EdgeConfig:
    kilobytes = max(1, quantize_from * dim * 4 // 1024)
    return edge.EdgeConfig(
        vectors=edge.EdgeVectorParams(
            size=dim,
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
        wal_enabled=False,  # the outbox serves as a log: its rows are removed after the flush
    )


def _noted_mappings(folder: Path) -> Path:
    """Return the file next to the shard with sizes and checksums of its mappings."""
    return folder.with_name(f"{folder.name}-mappings.json")


def _find_mappings(folder: Path) -> Iterator[Path]:
    """Yield the files that map ids of points to positions, one for each segment."""
    yield from folder.glob("segments/*/*id_tracker.mappings")


def _note_mappings(folder: Path) -> None:
    """Record size and checksum of the mappings; between two flushes the files only grow."""
    noted = {}
    for file in _find_mappings(folder):
        content = file.read_bytes()
        noted[str(file.relative_to(folder))] = [len(content), zlib.crc32(content)]
    target = _noted_mappings(folder)
    draft = target.with_suffix(".new")
    draft.write_text(json.dumps(noted), encoding="utf-8")
    draft.replace(target)


def _check_mappings(folder: Path) -> None:
    """Raise :class:`EngineError` for mappings that changed since they were written.

    The engine allocates a table as long as the largest position in them. A single changed bit can
    ask for 26 GB, which ends the process.
    """
    try:
        noted = json.loads(_noted_mappings(folder).read_text(encoding="utf-8"))
        for file in _find_mappings(folder):
            if (of_file := noted.get(str(file.relative_to(folder)))) is None:
                continue  # a segment that was being written when the process died
            size, checksum = of_file
            content = file.read_bytes()[:size]
            if (len(content), zlib.crc32(content)) != (size, checksum):
                raise EngineError(f"{file.name} has changed since it was written")
    except FileNotFoundError:
        return  # the process ended before its first flush
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise EngineError(f"{_noted_mappings(folder).name} cannot be read") from error


def _check_counts(folder: Path) -> None:
    """Raise :class:`EngineError` for a count of entries that cannot be right.

    The first eight bytes of a ``status.dat`` count the flags or vectors in the files next to it,
    and the engine visits each. A single changed bit there can keep it busy for hours. Eight
    entries take a byte at least.
    """
    for file in folder.glob("segments/*/**/status.dat"):
        count = int.from_bytes(file.read_bytes()[:8], "little")
        room = sum(one.stat().st_size for one in file.parent.iterdir() if one != file)
        if count > 8 * room:
            raise EngineError(f"{file.relative_to(folder)} counts more entries than it has")


@contextmanager
def _translate_errors(doing: str) -> Iterator[None]:
    """Turn the engine's exceptions, and its panics (which are not ``Exception``), into ours."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        if isinstance(error, EngineError):
            raise
        kind = EngineBlockedError if errno_of(error) in _TEMPORARY else EngineError
        raise kind(f"the vector index cannot {doing}: {error}") from error


class EdgeEngine(FolderEngine):
    """Qdrant in this process, in ``folder``; quantized from ``quantize_from`` points on."""

    name = "qdrant-edge"

    def __init__(
        self,
        database: Database,
        dataset: str,
        folder: Path,
        dim: int,
        fingerprint: str,
        *,
        quantize_from: int = QUANTIZE_FROM,
    ) -> None:
        super().__init__(database, dataset, folder, dim, fingerprint)
        self._quantize_from = quantize_from

    def _create_index(self, folder: Path) -> EdgeIndex:
        return EdgeIndex.create(folder, self._dim, self._quantize_from)

    def _load_index(self, folder: Path) -> EdgeIndex:
        return EdgeIndex.load(folder, self._dim, self._quantize_from)
