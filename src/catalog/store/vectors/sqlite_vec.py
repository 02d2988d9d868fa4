"""The sqlite-vec engine: one SQLite file in the dataset's folder.

    points         each point's number, id, chunk, document, pages as JSON, and payload tokens
    point_tokens   one row for each token of a point, so that filters use an index
    point_vectors  the ``vec0`` table, by the point's number; without vectors of zeros

``apsw`` has an SQLite that can load extensions; the SQLite of many Pythons cannot.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from catalog.core.errors import EngineBlockedError, EngineError, MissingExtraError
from catalog.core.files import make_folder
from catalog.store.database import EngineSetup
from catalog.store.vectors.folder_engine import FolderEngine
from catalog.store.vectors.point_search import PointCondition, PointHit
from catalog.store.vectors.points import CHUNK, DOC, PAGE, TOKENS, IndexPoint

if TYPE_CHECKING:
    import numpy.typing as npt

try:
    import apsw
    import sqlite_vec
except ImportError as error:
    raise MissingExtraError("the sqlite-vec engine", "sqlite-vec") from error

FILE = "points.db"
MOST_NEAREST = 4_096  # the largest ``k`` of a search in a vec0 table
_TABLES = """
create table points (
    number integer primary key, id text not null unique, chunk text not null,
    doc_id text not null, page text, is_zero integer not null, kv text not null
);
create index points_doc on points (doc_id);
create index points_zero on points (number) where is_zero;
create table point_tokens (
    token text not null, number integer not null, primary key (token, number)
) without rowid;
create index point_tokens_number on point_tokens (number);
create virtual table point_vectors using vec0(embedding float[{dim}] distance_metric=cosine);
"""
_BLOCKED = (
    apsw.FullError, apsw.CantOpenError, apsw.NoMemError, apsw.ReadOnlyError, apsw.PermissionsError,
    apsw.IOError,
)  # fmt: skip
_BOUNDS = {"gte": ">=", "lte": "<=", "gt": ">", "lt": "<"}


class SqliteVecIndex:
    """An open file of points. Every search compares all allowed points, in C.

    Calls from several threads run one after the other. Raises :class:`EngineError`, and
    :class:`EngineBlockedError` if space, memory or permission is missing.
    """

    def __init__(self, file: Path, dim: int, flags: int) -> None:
        self._dim = dim
        self._guard = threading.RLock()
        self._connection = apsw.Connection(str(file), flags=flags)
        self._connection.enable_load_extension(True)
        self._connection.load_extension(sqlite_vec.loadable_path())
        self._connection.enable_load_extension(False)
        self._run("pragma journal_mode = wal")
        self._run("pragma synchronous = normal")

    @classmethod
    def create(cls, folder: Path, dim: int) -> SqliteVecIndex:
        """Create an empty file; replace whatever is in the folder."""
        with _translate_errors("create"):
            make_folder(folder)
            for stale in folder.iterdir():
                stale.unlink()
            index = cls(folder / FILE, dim, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
            index._run(_TABLES.format(dim=dim))
        return index

    @classmethod
    def load(cls, folder: Path, dim: int) -> SqliteVecIndex:
        """Open the file in the folder; raise :class:`EngineError` if it must be rebuilt."""
        with _translate_errors("open"):
            if not (folder / FILE).exists():
                raise EngineError(f"the vector index lacks {FILE}")
            index = cls(folder / FILE, dim, apsw.SQLITE_OPEN_READWRITE)
            try:
                index.nearest(np.full(dim, dim**-0.5, dtype=np.float32), 1, None)
            except BaseException:
                index.close()
                raise
        return index

    @property
    def count(self) -> int:
        """Return the number of points."""
        with _translate_errors("read"):
            return int(self._run("select count(*) from points")[0][0])

    def upsert(self, points: Sequence[IndexPoint]) -> None:
        """Add points, or replace those of the same id."""
        with _translate_errors("write"), self._guard, self._connection:
            self._delete([point.id for point in points])
            self._add({point.id: point for point in points}.values())

    def delete(self, point_ids: Sequence[str]) -> None:
        """Remove points; ids that do not exist are ignored."""
        with _translate_errors("write"), self._guard, self._connection:
            self._delete(point_ids)

    def flush(self) -> None:
        """Return when everything done so far is on disk."""
        with _translate_errors("write"), self._guard:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)

    def optimize(self) -> bool:
        """Do nothing: space of deleted points is reused, and every search is exact."""
        return False

    def nearest(
        self, vector: npt.NDArray[np.float32], limit: int, condition: PointCondition | None
    ) -> list[PointHit]:
        """Return the nearest points that meet the condition, best first, at most ``limit``."""
        values: list[Any] = []
        allowed = "true" if condition is None else _clause(condition, values)
        some = f"and rowid in (select number from points where {allowed})" if condition else ""
        with _translate_errors("search"):
            if not vector.any():
                query = f"select chunk from points where {allowed} limit ?"
                return [PointHit(row[0], 0.0) for row in self._run(query, (*values, limit))]
            found = self._compared(vector.tobytes(), limit, some, values)
            query = f"select chunk from points where is_zero and {allowed} limit ?"
            found += [PointHit(row[0], 0.0) for row in self._run(query, (*values, limit))]
        return sorted(found, key=lambda hit: -hit.score)[:limit]

    def retrieve(self, point_ids: Sequence[str]) -> dict[str, tuple[Any, dict[str, Any]]]:
        """Return vector and payload of the points that exist, by id."""
        query = (
            "select p.id, p.chunk, p.doc_id, p.page, p.kv, v.embedding, p.is_zero "
            "from points p left join point_vectors v on v.rowid = p.number "
            "where p.id in (select value from json_each(?))"
        )
        with _translate_errors("read"):
            rows = self._run(query, (json.dumps(list(point_ids)),))
        found: dict[str, tuple[Any, dict[str, Any]]] = {}
        for id_, chunk, doc, page, kv, blob, is_zero in rows:
            payload = {CHUNK: chunk, DOC: doc, TOKENS: json.loads(kv)}
            payload |= {PAGE: json.loads(page)} if page is not None else {}
            vector = np.zeros(self._dim) if is_zero else np.frombuffer(blob or b"", "<f4")
            found[id_] = (vector, payload)
        return found

    def close(self) -> None:
        """Flush and release the file; may be called twice."""
        with _translate_errors("close"), self._guard:
            self._connection.close()

    def _compared(
        self, vector: bytes, limit: int, some: str, values: Sequence[Any]
    ) -> list[PointHit]:
        """Return the nearest of the points whose vectors are not zero."""
        if limit <= MOST_NEAREST:
            nearest = f"""select rowid as number, distance from point_vectors
                where embedding match ? and k = ? {some}"""
            given = (vector, limit, *values)
        else:  # about ten times slower
            nearest = f"""select rowid as number, vec_distance_cosine(embedding, ?) as distance
                from point_vectors where true {some} order by distance limit ?"""
            given = (vector, *values, limit)
        query = f"select chunk, distance from ({nearest}) join points using (number)"
        return [PointHit(chunk, 1.0 - distance) for chunk, distance in self._run(query, given)]

    def _delete(self, point_ids: Sequence[str]) -> None:
        ids = json.dumps(list(point_ids))
        query = "select number from points where id in (select value from json_each(?))"
        for (number,) in self._run(query, (ids,)):
            for table in ("points", "point_tokens", "point_vectors"):
                key = "rowid" if table == "point_vectors" else "number"
                self._run(f"delete from {table} where {key} = ?", (number,))

    def _add(self, points: Iterable[IndexPoint]) -> None:
        for point in points:
            payload, is_zero = point.payload, not point.vector.any()
            page = json.dumps(payload[PAGE]) if PAGE in payload else None
            kv = json.dumps(payload[TOKENS])
            ((number,),) = self._run(
                "insert into points (id, chunk, doc_id, page, is_zero, kv) "
                "values (?, ?, ?, ?, ?, ?) returning number",
                (
                    point.id,
                    payload[CHUNK],
                    payload[DOC],
                    page,
                    is_zero,
                    kv,
                ),
            )
            tokens = [(token, number) for token in payload[TOKENS]]
            self._connection.executemany("insert into point_tokens values (?, ?)", tokens)
            if not is_zero:
                row = (number, point.vector.astype("<f4").tobytes())
                self._run("insert into point_vectors (rowid, embedding) values (?, ?)", row)

    def _run(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._guard:
            return list(self._connection.execute(query, values))


def _clause(condition: PointCondition, values: list[Any]) -> str:
    """Return the condition as SQL on ``points``, and add its bound values to ``values``."""
    match condition:
        case {"has_id": point_ids}:
            values.append(json.dumps(list(point_ids)))
            return "id in (select value from json_each(?))"
        case {"key": key, "match": {"any": wanted}} if key == TOKENS:
            values.append(json.dumps(wanted))
            return """number in (select number from point_tokens
                where token in (select value from json_each(?)))"""
        case {"key": key, "match": {"any": wanted}} if key == DOC:
            values.append(json.dumps(wanted))
            return "doc_id in (select value from json_each(?))"
        case {"key": _, "range": bounds}:
            values.extend(bounds.values())
            tests = " and ".join(f"value {_BOUNDS[name]} ?" for name in bounds)
            return f"exists (select 1 from json_each(page) where {tests})"
    parts = []
    for kind, joint in (("must", "and"), ("should", "or"), ("must_not", "or")):
        if kind in condition:
            clauses = [_clause(part, values) for part in condition[kind]]
            parts.append("not " * (kind == "must_not") + _balanced(clauses, joint))
    return _balanced(parts, "and")


def _balanced(clauses: Sequence[str], joint: str) -> str:
    """Join clauses in a balanced tree, because SQLite limits the depth of an expression."""
    if len(clauses) == 1:
        return f"({clauses[0]})"
    half = len(clauses) // 2
    return f"({_balanced(clauses[:half], joint)} {joint} {_balanced(clauses[half:], joint)})"


@contextmanager
def _translate_errors(doing: str) -> Iterator[None]:
    """Turn errors of the file and the disk into ours."""
    try:
        yield
    except _BLOCKED as error:
        raise EngineBlockedError(f"the vector index cannot {doing}: {error}") from error
    except (apsw.Error, OSError) as error:
        raise EngineError(f"the vector index cannot {doing}: {error}") from error


class SqliteVecEngine(FolderEngine):
    """sqlite-vec in this process, in ``folder``: exact, without quantization or a graph."""

    name = "sqlite-vec"

    def _create_index(self, folder: Path) -> SqliteVecIndex:
        return SqliteVecIndex.create(folder, self._dim)

    def _load_index(self, folder: Path) -> SqliteVecIndex:
        return SqliteVecIndex.load(folder, self._dim)


def open_engine(setup: EngineSetup) -> SqliteVecEngine:
    """Return the engine ``sqlite-vec``."""
    of_dataset = (setup.database, setup.dataset, setup.folder)
    return SqliteVecEngine(*of_dataset, setup.dim, setup.fingerprint)
