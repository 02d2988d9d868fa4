"""The pgvector engine: vectors in the store's Postgres database, filtered by its SQL.

There is one table for each dataset and model. Vectors have length 1, so the inner product is the
cosine. Before a search, missing vectors are added in a separate transaction that does not wait for
writers. Up to :data:`GRAPH_FROM` vectors, and under any restriction, vectors are compared one by
one; otherwise an HNSW graph is searched (https://github.com/pgvector/pgvector#hnsw).
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Float,
    MetaData,
    Table,
    bindparam,
    cast,
    delete,
    func,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import UserDefinedType

from catalog.core.errors import (
    ConfigError,
    EmbeddingMismatchError,
    EngineError,
    EngineLockedError,
    StoreBusyError,
)
from catalog.core.ids import sha1_hex
from catalog.store.checksums import documents_of_vectors, is_whole_vector
from catalog.store.database import INDEX_TOKENS, Database, set_meta
from catalog.store.embedding_cache import decode
from catalog.store.engine_setup import EngineSetup
from catalog.store.engine_types import (
    Hit,
    Restriction,
    Stamp,
    best_first,
    read_stamp,
)
from catalog.store.filter_sql import among, among_bound, as_bound
from catalog.store.postgres_pool import begin_derived
from catalog.store.schema import chunk_windows, chunks, embedded_windows, embeddings, outbox
from catalog.store.vectors.point_search import MOST_TIES, check_dataset, round_score
from catalog.store.vectors.points import query_vector, unit

if TYPE_CHECKING:
    import numpy.typing as npt
    from sqlalchemy.engine import Dialect
GRAPH_FROM = 50_000  # vectors; with fewer, comparing all takes about as long as a graph
BUILD_WAIT_SECONDS = 600.0
APPLY_WAIT_SECONDS = 5.0
_MOST_NEAREST = 1_000  # results of the graph: the maximum of hnsw.ef_search
_BATCH = 1_000
_LIVE = select(chunks.c.seq).where(among_bound(chunks.c.seq, "seqs"))


class Vector(UserDefinedType[Any]):
    """pgvector's type ``vector`` with a fixed dimension, sent and received as text."""

    cache_ok = True

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def get_col_spec(self, **_: Any) -> str:
        """Return the type's name in SQL."""
        return f"vector({self.dim})"

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], str]:
        """Return the function that turns an array into text."""
        del dialect
        return as_vector

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Return the function that turns text into an array."""
        del dialect, coltype
        return lambda value: np.array(json.loads(value), dtype=np.float32)


def vector_table(dataset: str, fingerprint: str, dim: int) -> Table:
    """Return the table for a dataset's windows and a model.

    The names of a dataset's tables differ in the last part only.
    """
    name = f"vectors_{sha1_hex(dataset)[:16]}_{sha1_hex(f'{fingerprint} {dim}')[:8]}"
    return Table(
        name,
        MetaData(),
        Column("seq", BigInteger, primary_key=True, autoincrement=False),
        Column("window", BigInteger, primary_key=True),
        Column("embedding", Vector(dim), nullable=False),
    )


def as_vector(vector: npt.NDArray[np.float32] | str) -> str:
    """Return the numbers in the text form that pgvector reads."""
    return vector if isinstance(vector, str) else json.dumps(vector.tolist())


def distance_to(table: Table, query: ColumnElement[Any]) -> ColumnElement[float]:
    """Return the negative inner product with a query's vector (as text): small is near."""
    column = table.c.embedding
    return column.op("<#>", return_type=Float())(cast(query, column.type))


class PgVectorEngine:
    """Nearest vectors in the store's database; safe to share between threads and processes.

    Raises :class:`ConfigError` if the store is not in Postgres, :class:`EngineError` if the server
    has no pgvector, and :class:`EngineLockedError` while another process fills the table.
    """

    name = "pgvector"

    def __init__(
        self,
        database: Database,
        dataset: str,
        dim: int,
        fingerprint: str,
        *,
        graph_from: int = GRAPH_FROM,
    ) -> None:
        if database.engine.dialect.name != "postgresql":
            raise ConfigError(
                "the vector engine 'pgvector' needs a store in Postgres: set IDX_DATABASE_URL, "
                "or choose another engine"
            )
        self._database = database
        self._dataset = dataset
        self._dim = dim
        self._graph_from = graph_from
        self._table = vector_table(dataset, fingerprint, dim)
        self._guard = threading.RLock()
        self._stamp: Stamp | None = None  # of the dataset when the table was last updated
        self._has_graph = False
        self._damaged: frozenset[str] = frozenset()

    def search(
        self, vector: npt.NDArray[np.float32], k: int, restriction: Restriction
    ) -> list[Hit]:
        """Search as :class:`VectorEngine` says, after adding the vectors of new passages."""
        check_dataset(restriction, self._dataset)
        query = query_vector(vector, self._dim)
        if k <= 0 or restriction.scope.is_nothing:
            return []
        self._bring_up(APPLY_WAIT_SECONDS, wait=False)
        limit = 2 * k + 8
        while True:
            rows = self._nearest(query, limit, restriction)
            best: dict[int, float] = {}
            for seq, score in rows:
                best.setdefault(seq, round_score(score))  # the first window is the best
            hits = best_first(self._live(best, restriction).items(), k)
            is_enough = len(hits) == k and (
                round_score(rows[-1][1]) < hits[-1].score or limit >= MOST_TIES
            )
            if len(rows) < limit or is_enough:
                return hits
            limit *= 4

    @property
    def damaged(self) -> frozenset[str]:
        """Return the ids of documents with a damaged vector, which is skipped, as far as known."""
        return self._damaged

    def pop_defect(self) -> str:
        """Return "": the server takes care of its files."""
        return ""

    def refresh(self) -> int:
        """Add new vectors and empty the outbox; return the number of vectors changed.

        A table that has grown large gets its graph.
        """
        changed = self._bring_up(BUILD_WAIT_SECONDS, wait=True)
        self._ensure_graph()
        return changed

    def rebuild(self) -> int:
        """Fill the table again while searches use the old content; return the number of vectors."""
        with self._guard:
            with begin_derived(self._database, self._table.name, BUILD_WAIT_SECONDS) as connection:
                self._create(connection)
                connection.execute(delete(self._table))
                self._fill(connection)
            self._stamp = None
            self._bring_up(BUILD_WAIT_SECONDS, wait=True)
        self._ensure_graph()
        return self._count()

    def verify(self) -> int:
        """Return the number of vectors that are missing, superfluous or unlike the store's."""
        self._bring_up(BUILD_WAIT_SECONDS, wait=True)
        wrong = count = after = 0
        of_dataset = select(chunks.c.seq).where(chunks.c.dataset == self._dataset)
        of_dataset = of_dataset.order_by(chunks.c.seq).limit(_BATCH)
        table = self._table.c
        while True:
            with self._database.read() as connection:
                seqs = connection.scalars(of_dataset.where(chunks.c.seq > after)).all()
                truth = self._whole_vectors(connection, seqs)
                stored = connection.execute(select(self._table).where(among(table.seq, seqs))).all()
            if not seqs:
                return max(wrong, abs(self._count() - count))
            kept = {(row.seq, row.window): row.embedding for row in stored}
            for key, vector in truth.items():
                own = kept.get(key)
                wrong += own is None or not np.allclose(own, vector, atol=1e-5)
            count, after = count + len(truth), seqs[-1]

    def close(self) -> None:
        """Forget the state of the table; the next search reads it again."""
        with self._guard:
            self._stamp = None

    def _nearest(
        self, query: npt.NDArray[np.float32], limit: int, restriction: Restriction
    ) -> Sequence[Any]:
        """Return chunk and score of the nearest allowed vectors, best first."""
        distance = distance_to(self._table, bindparam("query"))
        joined = self._table.join(chunks, chunks.c.seq == self._table.c.seq)
        nearest = select(self._table.c.seq, (-distance).label("score")).select_from(joined)
        nearest = nearest.where(restriction.clause()).limit(limit)
        by_graph = self._has_graph and restriction.is_whole_dataset and limit <= _MOST_NEAREST
        order = (distance,) if by_graph else (distance, self._table.c.seq)
        with self._database.read(latest=True) as connection:
            if by_graph:
                size = {"size": str(min(_MOST_NEAREST, max(100, 2 * limit)))}
                connection.execute(text("SELECT set_config('hnsw.ef_search', :size, true)"), size)
            given = {"query": as_vector(query)}
            return connection.execute(nearest.order_by(*order), given).all()

    def _live(self, scores: dict[int, float], restriction: Restriction) -> dict[int, float]:
        """Return the chunks that this thread's snapshot has and that the restriction allows."""
        if not scores:
            return {}
        with self._database.read() as connection:
            allowed = _LIVE.where(restriction.clause())
            seqs = connection.scalars(allowed, {"seqs": as_bound(scores)}).all()
        return {seq: scores[seq] for seq in seqs}

    def _bring_up(self, seconds: float, *, wait: bool) -> int:
        """Add missing vectors and drop removed ones; return how many changed."""
        with self._guard:
            with self._database.read(latest=True) as connection:
                stamp = read_stamp(connection, self._dataset)
                of_dataset = select(outbox.c.id).where(outbox.c.dataset == self._dataset)
                rows = connection.scalars(of_dataset).all()
            changed = 0
            if self._stamp is None or stamp != self._stamp:
                changed = self._synchronise(seconds)
                self._stamp = stamp
            if rows:
                self._empty_outbox(rows, wait=wait)
            return changed

    def _synchronise(self, seconds: float) -> int:
        try:
            with begin_derived(self._database, self._table.name, seconds) as connection:
                self._create(connection)
                live = select(chunks.c.seq).where(chunks.c.dataset == self._dataset)
                gone = delete(self._table).where(self._table.c.seq.not_in(live))
                return connection.execute(gone).rowcount + self._fill(connection)
        except StoreBusyError as error:
            message = f"another process is filling the vector table of {self._dataset!r}"
            raise EngineLockedError(message) from error

    def _create(self, connection: Connection) -> None:
        """Create the table unless it exists, and drop those of other models."""
        names = inspect(connection).get_table_names()
        if self._table.name in names:
            self._has_graph = bool(inspect(connection).get_indexes(self._table.name))
            return
        try:
            connection.execute(text("CREATE EXTENSION IF NOT EXISTS vector"))
        except DBAPIError as error:
            raise EngineError(
                "the database has no pgvector: install it on the server, and run CREATE "
                "EXTENSION vector as a user with that right"
            ) from error
        family = self._table.name.rpartition("_")[0]
        for name in names:
            if name.rpartition("_")[0] == family:
                connection.execute(text(f'DROP TABLE "{name}"'))
        self._table.create(connection)
        self._has_graph = False

    def _fill(self, connection: Connection) -> int:
        """Add every vector that the table lacks; return how many."""
        table = self._table.c
        is_kept = (table.seq == chunk_windows.c.seq) & (table.window == chunk_windows.c.window)
        lacking = (
            select(chunk_windows.c.seq)
            .select_from(embedded_windows.outerjoin(self._table, is_kept))
            .where(chunks.c.dataset == self._dataset, table.seq.is_(None))
            .distinct()
            .order_by(chunk_windows.c.seq)
        )
        seqs = connection.scalars(lacking).all()
        self._damaged = frozenset()
        added = 0
        for start in range(0, len(seqs), _BATCH):
            vectors = self._whole_vectors(connection, seqs[start : start + _BATCH])
            rows = [
                {"seq": seq, "window": window, "embedding": vector}
                for (seq, window), vector in vectors.items()
            ]
            if rows:
                new = insert(self._table).on_conflict_do_nothing()
                connection.execute(new, rows)
            added += len(rows)
        return added

    def _whole_vectors(
        self, connection: Connection, seqs: Sequence[int]
    ) -> dict[tuple[int, int], npt.NDArray[np.float32]]:
        """Return the undamaged vectors of chunks, scaled to length 1, by chunk and window."""
        columns = (chunk_windows.c.seq, chunk_windows.c.window)
        stored = (embeddings.c.embed_key, embeddings.c.vector, embeddings.c.checksum)
        query = select(*columns, *stored).select_from(embedded_windows)
        vectors: dict[tuple[int, int], npt.NDArray[np.float32]] = {}
        damaged: set[str] = set()
        for seq, window, *blob in connection.execute(query.where(among(chunks.c.seq, seqs))):
            if not is_whole_vector(*blob):
                damaged.add(blob[0])
                continue
            vector = decode(blob[1])
            if vector.shape != (self._dim,):
                raise EmbeddingMismatchError(
                    f"the store has vectors of {vector.shape[0]} dimensions, but the index "
                    f"expects {self._dim}: rebuild the dataset with one embedding model"
                )
            vectors[seq, window] = unit(vector)
        if damaged:
            self._damaged |= frozenset(documents_of_vectors(connection, damaged))
        return vectors

    def _empty_outbox(self, rows: Sequence[int], *, wait: bool) -> None:
        """Remove rows that the table no longer needs; while another process writes, leave them."""
        try:
            with self._database.write(wait=wait) as connection:
                connection.execute(delete(outbox).where(among(outbox.c.id, rows)))
                # A new token: another engine did not see these rows and must start from scratch.
                set_meta(connection, f"{INDEX_TOKENS}{self._dataset}", uuid.uuid4().hex)
        except StoreBusyError:
            return

    def _ensure_graph(self) -> None:
        if self._has_graph or self._count() < self._graph_from:
            return
        with begin_derived(self._database, self._table.name, BUILD_WAIT_SECONDS) as connection:
            connection.execute(
                text(
                    f'CREATE INDEX IF NOT EXISTS "{self._table.name}_graph" '
                    f'ON "{self._table.name}" USING hnsw (embedding vector_ip_ops)'
                )
            )
        self._has_graph = True

    def _count(self) -> int:
        with self._database.read(latest=True) as connection:
            query = select(func.count()).select_from(self._table)
            return connection.scalar(query) or 0


def open_engine(setup: EngineSetup) -> PgVectorEngine:
    """Return the engine ``pgvector``."""
    return PgVectorEngine(setup.database, setup.dataset, setup.dim, setup.fingerprint)
