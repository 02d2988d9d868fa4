"""The sqlite-vec engine: one SQLite file in the dataset's folder, which compares all vectors in C.

``apsw`` has an SQLite that can load extensions; the SQLite of many Pythons cannot.
"""

import json
from collections.abc import Sequence
from threading import RLock
from typing import Any

import numpy as np

from catalog.core.errors import EngineBlockedError, EngineError, MissingExtraError
from catalog.core.files import make_folder
from catalog.store.database import EngineSetup
from catalog.store.engines import Vector
from catalog.store.vectors.points import Point, PointEngine

try:
    import apsw
    import sqlite_vec
except ImportError as error:
    raise MissingExtraError("the sqlite-vec engine", "sqlite-vec") from error

FILE = "points.db"
MOST_NEAREST = 4_096  # the largest ``k`` of a search in a vec0 table
_TABLES = """
create table record (json text not null);
create virtual table points using vec0(embedding float[{width}] distance_metric=l2);
"""
_BLOCKED = (
    apsw.FullError, apsw.CantOpenError, apsw.NoMemError, apsw.ReadOnlyError, apsw.PermissionsError,
    apsw.IOError,
)  # fmt: skip


class SqliteVecEngine(PointEngine):
    """sqlite-vec in this process, in ``folder``: exact, without quantization or a graph.

    Vectors have length 1 or 0. One more number makes every length 1, so that the Euclidean distance
    gives the cosine of both. Calls from several threads run one after the other.
    """

    name = "sqlite-vec"

    def __init__(self, setup: EngineSetup) -> None:
        super().__init__(setup)
        self._connection: apsw.Connection | None = None
        self._alone = RLock()

    def _open(self, *, anew: bool) -> dict[str, Any]:  # noqa: ARG002
        try:
            ((record,),) = self._run("select json from record")
            return dict(json.loads(record))
        except EngineBlockedError:
            raise
        except (EngineError, ValueError, TypeError):
            return {}  # it is created again

    def _create(self, record: dict[str, Any]) -> None:
        tables = _TABLES.format(width=self.dim + 1)
        try:  # another process may have the file open
            self._run(f"drop table if exists points; drop table if exists record; {tables}")
        except EngineBlockedError:
            raise
        except EngineError:  # no SQLite file
            self.close()
            for stale in self.folder.glob(f"{FILE}*"):
                stale.unlink()
            self._run(tables)
        self._write(record)

    def _write(self, record: dict[str, Any]) -> None:
        self._run("delete from record; insert into record values (?)", (json.dumps(record),))

    def _ids(self) -> list[int]:
        return [number for (number,) in self._run("select rowid from points")]

    def _add(self, points: Sequence[Point]) -> None:
        self._remove([one.id for one in points])  # vec0 replaces none
        rows = [(one.id, _lengthen(one.vector, 0.0 if one.vector.any() else 1.0)) for one in points]
        self._run("insert into points (rowid, embedding) values (?, ?)", *rows)

    def _remove(self, ids: list[int]) -> None:
        self._run("delete from points where rowid = ?", *[(number,) for number in ids])

    def _find(self, vector: Vector, limit: int, ids: list[int] | None) -> list[tuple[int, float]]:
        given = {"vector": _lengthen(vector, 0.0), "k": limit, "ids": json.dumps(ids)}
        some = "" if ids is None else "and rowid in (select value from json_each(:ids))"
        query = (
            f"select rowid, distance from points where embedding match :vector and k = :k {some}"
        )
        if limit > MOST_NEAREST:  # about ten times slower
            query = f"""select rowid, vec_distance_l2(embedding, :vector) as distance from points
                where true {some} order by distance limit :k"""
        squared = float(vector @ vector)
        found = self._run(query, given)
        return [(number, (squared + 1 - distance**2) / 2) for number, distance in found]

    def close(self) -> None:
        super().close()
        with self._alone:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _run(self, query: str, *values: Any) -> list[Any]:
        """Return the rows of statements, run once for each of ``values`` in one transaction."""
        try:
            with self._alone, self._opened() as connection:
                found = [*connection.executemany(query, values or [()])]
        except (apsw.Error, OSError) as error:
            kind = EngineBlockedError if isinstance(error, _BLOCKED) else EngineError
            raise kind(f"the vector index cannot use its file: {error}") from error
        return found

    def _opened(self) -> apsw.Connection:
        if self._connection is None:
            make_folder(self.folder)
            self._connection = connection = apsw.Connection(str(self.folder / FILE))
            connection.set_busy_timeout(60_000)
            connection.enable_load_extension(True)
            connection.load_extension(sqlite_vec.loadable_path())
            connection.enable_load_extension(False)
            connection.execute("pragma journal_mode = wal")
        return self._connection


def _lengthen(vector: Vector, number: float) -> bytes:
    return np.array((*vector, number), "<f4").tobytes()
