"""Embeddings in memory: all are compared with a query at once."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from catalog.core.errors import SemanticIndexError, SemanticQueryError
from catalog.core.files import make_folder
from catalog.search_v2.precomputed.semantic_types import EmbeddingMetadata, EmbeddingVector

Floats = npt.NDArray[np.float32]


class EmbeddingIndex:
    """Chunk ids with their embeddings and metadata, in order of the ids.

    ``matrix`` has shape ``(chunks, dim)``, as stored, not scaled; ``norms`` has the lengths of its
    rows. Immutable, and safe to share between threads.
    """

    def __init__(
        self,
        ids: Sequence[str],
        matrix: Floats,
        metadata: Mapping[str, EmbeddingMetadata] | None = None,
        *,
        norms: Floats | None = None,
    ) -> None:
        if matrix.ndim != 2 or len(ids) != len(matrix):
            raise SemanticIndexError(f"{len(ids)} ids and a matrix of shape {matrix.shape}")
        self.ids = tuple(ids)
        self.matrix = matrix
        self.norms = np.linalg.norm(matrix, axis=1) if norms is None else norms
        self.metadata = dict(metadata or {})
        self._row_of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, chunk_id: object) -> bool:
        return chunk_id in self._rows

    @property
    def dim(self) -> int:
        """The number of dimensions; 0 in an empty index."""
        return int(self.matrix.shape[1]) if len(self.ids) > 0 else 0

    def embedding(self, chunk_id: str) -> Floats:
        """Return the embedding of a chunk, shape ``(dim,)``; raise ``KeyError`` if unknown."""
        row: Floats = self.matrix[self._rows[chunk_id]]
        return row

    def similarities(self, query_embeddings: npt.NDArray[np.float32]) -> Floats:
        """Return the cosines of all chunks with queries, shape ``(queries, chunks)``, -1 to 1.

        ``query_embeddings`` has shape ``(queries, dim)``. Vectors of zeros have the cosine 0.
        """
        products = np.dot(query_embeddings, self.matrix.T)
        lengths = np.linalg.norm(query_embeddings, axis=1)[:, None] * self.norms
        cosines: Floats = np.zeros_like(products)
        np.divide(products, lengths, out=cosines, where=lengths > 0)
        np.clip(cosines, -1.0, 1.0, out=cosines)
        return cosines

    def check(self, query_embedding: EmbeddingVector) -> Floats:
        """Return a query's vector, shape ``(dim,)``, after checking that it can be searched.

        Raises :class:`SemanticQueryError` for another shape, NaN, infinity or a non-number.
        """
        vector = as_vector(query_embedding)
        if vector.shape != (self.dim,):
            raise SemanticQueryError(
                f"the query vector has shape {vector.shape}, the index holds vectors of "
                f"{self.dim} dimensions: embed the query with the model that embedded the chunks"
            )
        return vector

    @property
    def _rows(self) -> dict[str, int]:
        if not self._row_of:
            self._row_of = {chunk_id: row for row, chunk_id in enumerate(self.ids)}
        return self._row_of


def as_vector(query_embedding: Any) -> Floats:
    """Return numbers as an array; raise :class:`SemanticQueryError` for anything else."""
    try:
        vector = np.asarray(query_embedding, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise SemanticQueryError(f"the query vector is not a list of numbers: {error}") from error
    if not np.isfinite(vector).all():
        raise SemanticQueryError("the query vector holds NaN, infinity or a number beyond float32")
    return vector


Progress = Callable[[int, int], None]
"""Told how many files of how many are read."""

SNAPSHOT: Final = ".snapshot"
SIDECAR: Final = ".meta.json"
_FORMAT: Final = 1
_STEP: Final = 500  # files between two words of progress
_TICK: Final = 0.05  # seconds, more than the grain of a folder's time of change
_NAME = re.compile(r"[0-9a-f]{64}")

_log = logging.getLogger(__name__)


def load_index(
    cache_dir: Path, *, progress: Progress | None = None, fresh: bool = False
) -> EmbeddingIndex:
    """Return the embeddings of a folder; for a missing folder an empty index, with a warning.

    The folder contains::

        <64 hex digits>             a JSON array of numbers
        <64 hex digits>.meta.json   metadata of the chunk: a JSON object; may be missing
        .snapshot/                  all of it as memory-mapped arrays, written by this function

    The snapshot belongs to one state of the folder, identified by the time of its last change. It
    is written again after files were added, removed or renamed. Overwriting a file does not change
    its folder: use ``fresh`` to read everything again.

    A file that is not a JSON array of finite numbers is skipped, with a warning that names it.
    Raises :class:`SemanticIndexError` for vectors of different dimensions, and for a folder that
    cannot be listed.
    """
    if not cache_dir.is_dir():
        _log.warning("no embeddings: there is no folder %s", cache_dir)
        return EmbeddingIndex((), np.empty((0, 0), dtype=np.float32))
    if not fresh and (kept := _read_snapshot(cache_dir)) is not None:
        return kept
    try:
        can_keep = _make_room(cache_dir)
        changed_at = _changed_at(cache_dir)
        index = _read_files(cache_dir, progress)
    except OSError as error:
        raise SemanticIndexError(f"cannot read the folder {cache_dir}: {error}") from error
    if can_keep and _changed_at(cache_dir) == changed_at:
        _write_snapshot(cache_dir, index, changed_at)
    return index


def _read_files(cache_dir: Path, progress: Progress | None) -> EmbeddingIndex:
    with os.scandir(cache_dir) as entries:
        there = {entry.name for entry in entries if entry.is_file()}
    names = sorted(name for name in there if _NAME.fullmatch(name))
    rows: list[Floats] = []
    ids: list[str] = []
    metadata: dict[str, EmbeddingMetadata] = {}
    for done, name in enumerate(names, start=1):
        vector = _read_vector(cache_dir / name)
        if vector is not None:
            ids.append(name)
            rows.append(vector)
            if name + SIDECAR in there:
                metadata[name] = _read_sidecar(cache_dir / (name + SIDECAR))
        if progress is not None and (done % _STEP == 0 or done == len(names)):
            progress(done, len(names))
    _check_dimensions(ids, rows)
    matrix = np.stack(rows) if rows else np.empty((0, 0), dtype=np.float32)
    return EmbeddingIndex(ids, matrix, metadata)


def _read_vector(file: Path) -> Floats | None:
    """Return the numbers in a file; ``None`` with a warning if they are not a vector."""
    try:
        numbers = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        _log.warning("left out: %s is not JSON: %s", file.name, error)
        return None
    is_array = isinstance(numbers, list) and len(numbers) > 0
    if not is_array or not all(type(number) in (int, float) for number in numbers):
        _log.warning("left out: %s is not an array of numbers", file.name)
        return None
    try:
        with np.errstate(over="ignore"):
            vector = np.asarray(numbers, dtype=np.float64).astype(np.float32)
            is_finite = bool(np.isfinite(vector).all() and np.isfinite(np.linalg.norm(vector)))
    except OverflowError:
        is_finite = False
    if not is_finite:
        _log.warning("left out: %s holds NaN, infinity or a number too large", file.name)
        return None
    return vector


def _read_sidecar(file: Path) -> EmbeddingMetadata:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        _log.warning("no metadata: %s is not JSON: %s", file.name, error)
        return {}
    if not isinstance(found, dict):
        _log.warning("no metadata: %s is not a JSON object", file.name)
        return {}
    return cast("EmbeddingMetadata", found)


def _check_dimensions(ids: list[str], rows: list[Floats]) -> None:
    counts = Counter(len(row) for row in rows)
    if len(counts) <= 1:
        return
    usual = counts.most_common(1)[0][0]
    others = [name for name, row in zip(ids, rows, strict=True) if len(row) != usual]
    told = ", ".join(f"{count} of {dim}" for dim, count in counts.most_common())
    raise SemanticIndexError(
        f"the folder holds vectors of different dimensions ({told}), which no query can be "
        f"compared with: remove those of another model, such as {others[0]}"
    )


def _changed_at(folder: Path) -> int:
    # Not of each file: to ask 100,000 files takes .36 s, more than the whole load may.
    return folder.stat().st_mtime_ns


def _make_room(cache_dir: Path) -> bool:
    """Make the snapshot's folder, which changes its parent; return whether it exists."""
    try:
        make_folder(cache_dir / SNAPSHOT)
    except OSError as error:
        _log.info("no snapshot of %s: %s", cache_dir, error)
        return False
    if time.time_ns() - _changed_at(cache_dir) < _TICK * 1e9:
        time.sleep(_TICK)  # a change from now on has another time
    return True


def _write_snapshot(cache_dir: Path, index: EmbeddingIndex, changed_at: int) -> None:
    """Save the index as arrays, and its description last."""
    folder = cache_dir / SNAPSHOT
    described = {"format": _FORMAT, "changed_at": changed_at, "shape": index.matrix.shape}
    described |= {"ids": index.ids, "metadata": index.metadata}
    stem = f"{changed_at:x}-{os.getpid():x}"
    try:
        np.save(folder / f"{stem}.vectors.npy", index.matrix)
        np.save(folder / f"{stem}.norms.npy", index.norms)
        draft = folder / f"{stem}.json.new"
        draft.write_text(json.dumps({**described, "stem": stem}), encoding="utf-8")
        draft.replace(folder / "index.json")
        for stale in folder.glob("*.npy"):
            if not stale.name.startswith(stem):
                stale.unlink()
    except OSError as error:
        _log.info("no snapshot of %s: %s", cache_dir, error)


def _read_snapshot(cache_dir: Path) -> EmbeddingIndex | None:
    """Return the saved index, memory-mapped, if the folder has not changed."""
    folder = cache_dir / SNAPSHOT
    try:
        kept: dict[str, Any] = json.loads((folder / "index.json").read_bytes())
        if (kept["format"], kept["changed_at"]) != (_FORMAT, _changed_at(cache_dir)):
            return None
        stem = kept["stem"]
        matrix, norms = (
            np.lib.format.open_memmap(folder / f"{stem}.{part}.npy", mode="r")
            for part in ("vectors", "norms")
        )
        if list(matrix.shape) != kept["shape"] or len(norms) != len(matrix):
            return None
        return EmbeddingIndex(kept["ids"], matrix, kept["metadata"], norms=norms)
    except (OSError, EOFError, ValueError, KeyError, TypeError, RecursionError):
        return None  # rebuilt
