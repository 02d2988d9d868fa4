"""The sqlite-vec engine: one SQLite file in the dataset's folder, which compares all vectors in C.

    points         number and id of the point, row number and id of the passage
    point_vectors  the ``vec0`` table, by the point's number; ``vec0`` compares no larger rowids
    record         who made the file, and the state of its points

``apsw`` has an SQLite that can load extensions; the SQLite of many Pythons cannot.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from catalog.core.errors import EngineBlockedError, EngineError, MissingExtraError
from catalog.core.files import make_folder
from catalog.store.database import EngineSetup
from catalog.store.vectors.points import CHUNK, SEQ, FoundPoint, Point, PointEngine

if TYPE_CHECKING:
    from catalog.store.vectors.base import Vector

try:
    import apsw
    import sqlite_vec
except ImportError as error:
    raise MissingExtraError("the sqlite-vec engine", "sqlite-vec") from error

FILE = "points.db"
MOST_NEAREST = 4_096  # the largest ``k`` of a search in a vec0 table
_DROP = "".join(f"drop table if exists {name};" for name in ("points", "record", "point_vectors"))
_TABLES = """
create table points (
    number integer primary key, id integer not null unique,
    seq integer not null, chunk text not null
);
create index points_seq on points (seq);
create table record (made_by text not null);
create virtual table point_vectors using vec0(embedding float[{width}] distance_metric=l2);
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

    def open(self, *, anew: bool = False) -> str:
        """Return the state in the record; create the file if it is missing or damaged."""
        if not anew:
            try:
                ((text,),) = self._run("select made_by from record")
                state = str((record := json.loads(text)).pop("state"))
                if record == self._made():
                    return state
            except EngineBlockedError:
                raise
            except (EngineError, ValueError):
                pass  # it is created again
        try:
            self._run(_DROP + _TABLES.format(width=self.dim + 1))
        except EngineBlockedError:
            raise
        except EngineError:  # a file that SQLite cannot read
            self._release()
            for stale in self.folder.glob(f"{FILE}*"):
                stale.unlink()
            self._run(_TABLES.format(width=self.dim + 1))
        return ""

    def note(self, state: str) -> None:
        """Replace the record."""
        made_by = json.dumps(self._made() | {"state": state})
        self._run("delete from record")
        self._run("insert into record values (?)", (made_by,))

    def count(self) -> int:
        """Return the number of points."""
        return int(self._run("select count(*) from points")[0][0])

    def ids(self) -> dict[int, int]:
        """Return the row number of every point by its id."""
        joined = "points join point_vectors on point_vectors.rowid = number"
        return dict(self._run(f"select id, seq from {joined}"))

    def add(self, points: Sequence[Point]) -> None:
        """Add points, or replace those of the same id."""
        with self._transaction() as connection:
            self._delete(connection, "id", [one.id for one in points])
            for one in points:
                row = (one.id, one.payload[SEQ], one.payload[CHUNK])
                connection.execute("insert into points (id, seq, chunk) values (?, ?, ?)", row)
                vector = (connection.last_insert_rowid(), _lengthen(one.vector))
                connection.execute(
                    "insert into point_vectors (rowid, embedding) values (?, ?)", vector
                )

    def remove(self, seqs: list[int]) -> None:
        """Remove the points of these passages."""
        with self._transaction() as connection:
            self._delete(connection, "seq", seqs)

    def _delete(self, connection: apsw.Connection, column: str, values: list[int]) -> None:
        chosen, given = f"{column} in (select value from json_each(?))", (json.dumps(values),)
        numbers = f"select number from points where {chosen}"
        connection.execute(f"delete from point_vectors where rowid in ({numbers})", given)
        connection.execute(f"delete from points where {chosen}", given)

    def find(self, vector: Vector, limit: int, seqs: list[int] | None) -> list[FoundPoint]:
        """Return the points of these passages nearest to a vector, best first."""
        blob = np.array((*vector, 0.0), "<f4").tobytes()
        values = () if seqs is None else (json.dumps(seqs),)
        chosen = "select number from points where seq in (select value from json_each(?))"
        some = "" if seqs is None else f"and rowid in ({chosen})"
        if limit <= MOST_NEAREST:
            nearest = f"""select rowid as number, distance from point_vectors
                where embedding match ? and k = ? {some}"""
            given = (blob, limit, *values)
        else:  # about ten times slower
            nearest = f"""select rowid as number, vec_distance_l2(embedding, ?) as distance
                from point_vectors where true {some} order by distance limit ?"""
            given = (blob, *values, limit)
        query = f"select seq, chunk, distance from ({nearest}) join points using (number)"
        squared = float(vector @ vector)
        found = [
            FoundPoint(seq, chunk, (squared + 1 - distance**2) / 2)
            for seq, chunk, distance in self._run(query, given)
        ]
        return sorted(found, key=lambda one: -one.score)

    def drop(self) -> None:
        """Close the file; whoever removes the dataset removes the folder."""
        self.close()

    def close(self) -> None:
        """Release the file."""
        super().close()
        self._release()

    def _made(self) -> dict[str, Any]:
        return {**self.made_by, "store": self.database.meta("store_id")}

    def _release(self) -> None:
        with self._alone:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        with self._alone, _translate_errors("use its file"):
            if self._connection is None:
                make_folder(self.folder)
                self._connection = connection = apsw.Connection(str(self.folder / FILE))
                connection.set_busy_timeout(60_000)
                connection.enable_load_extension(True)
                connection.load_extension(sqlite_vec.loadable_path())
                connection.enable_load_extension(False)
                connection.execute("pragma journal_mode = wal")
            with self._connection:
                yield self._connection

    def _run(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._transaction() as connection:
            return list(connection.execute(query, values))


def _lengthen(vector: Vector) -> bytes:
    return np.array((*vector, 0.0 if vector.any() else 1.0), "<f4").tobytes()


@contextmanager
def _translate_errors(doing: str) -> Iterator[None]:
    """Turn errors of the file and the disk into ours."""
    try:
        yield
    except _BLOCKED as error:
        raise EngineBlockedError(f"the vector index cannot {doing}: {error}") from error
    except (apsw.Error, OSError) as error:
        raise EngineError(f"the vector index cannot {doing}: {error}") from error
