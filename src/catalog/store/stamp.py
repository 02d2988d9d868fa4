"""One state of a dataset, to know whether what was derived from it still holds."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, select

from catalog.store.schema import datasets


class Stamp(NamedTuple):
    """One state of a dataset; equal stamps, equal chunks."""

    created_at: float
    generation: int
    updated_at: float


def read_stamp(connection: Connection, dataset: str) -> Stamp | None:
    """The dataset's present state, ``None`` when there is no such dataset."""
    columns = select(datasets.c.created_at, datasets.c.generation, datasets.c.updated_at)
    row = connection.execute(columns.where(datasets.c.name == dataset)).one_or_none()
    return None if row is None else Stamp(*row)
