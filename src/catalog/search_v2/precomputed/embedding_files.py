"""Reading a folder of embeddings, and the snapshot that makes the second reading instant.

    <64 hex digits>             a JSON array of numbers
    <64 hex digits>.meta.json   what is known of the chunk: a JSON object, or nothing
    .snapshot/                  all of it as arrays that are mapped, not read; made by us

The snapshot is of one state of the folder, known by the time of its last change: it is made anew
after files were added, removed or renamed. A file that was written over in place does not change
its folder; :func:`load_index` with ``fresh`` reads everything again.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from catalog.core.errors import SemanticIndexError
from catalog.core.files import make_folder
from catalog.search_v2.precomputed.embedding_index import EmbeddingIndex, Floats
from catalog.search_v2.precomputed.semantic_types import EmbeddingMetadata

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
    """Return the embeddings of a folder; an empty index, and a warning, where there is none.

    A file that is not a JSON array of finite numbers is left out, with a warning that names it.
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
    """Return the numbers of a file; ``None``, and a warning, if they are no vector."""
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
    return folder.stat().st_mtime_ns


def _make_room(cache_dir: Path) -> bool:
    """Make the snapshot's folder, which changes the folder around it; tell whether it is there."""
    try:
        make_folder(cache_dir / SNAPSHOT)
    except OSError as error:
        _log.info("no snapshot of %s: %s", cache_dir, error)
        return False
    if time.time_ns() - _changed_at(cache_dir) < _TICK * 1e9:
        time.sleep(_TICK)  # a change from now on has another time
    return True


def _write_snapshot(cache_dir: Path, index: EmbeddingIndex, changed_at: int) -> None:
    """Keep the index as arrays; its description is put in place last."""
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
    """Return the kept index if it is of the folder as it is, mapped and not read."""
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
        return None  # made anew
