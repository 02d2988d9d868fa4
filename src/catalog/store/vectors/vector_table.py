"""A table of vectors in Postgres, by pgvector's type, without a package of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import BigInteger, Column, ColumnElement, Float, MetaData, Table, cast
from sqlalchemy.types import UserDefinedType

from catalog.core.ids import sha1_hex

if TYPE_CHECKING:
    import numpy.typing as npt
    from sqlalchemy.engine import Dialect


class Vector(UserDefinedType[Any]):
    """pgvector's ``vector`` of so many dimensions; it travels as text."""

    cache_ok = True

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def get_col_spec(self, **_: Any) -> str:
        """Return the type as SQL names it."""
        return f"vector({self.dim})"

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], str]:
        """Return what makes a text of an array."""
        del dialect
        return as_vector

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Return what makes an array of a text."""
        del dialect, coltype
        return lambda value: np.array(json.loads(value), dtype=np.float32)


def vector_table(dataset: str, fingerprint: str, dim: int) -> Table:
    """Return the table of a dataset's windows by one model; of others of the dataset the name
    differs in its last part alone.
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
    """Return the numbers as pgvector reads them."""
    return vector if isinstance(vector, str) else json.dumps(vector.tolist())


def distance_to(table: Table, query: ColumnElement[Any]) -> ColumnElement[float]:
    """Return the negative inner product with a query's vector, given as text: small is near."""
    column = table.c.embedding
    return column.op("<#>", return_type=Float())(cast(query, column.type))
