"""What each dataset was made with: its preset, and the settings that shape its passages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from catalog.store.checksums import row_checksum, seal_rows
from catalog.store.schema import dataset_settings, documents


@dataclass(frozen=True, slots=True)
class DatasetSettings:
    """The settings that shape a dataset's passages, by name, and the preset they came from."""

    preset: str | None
    values: Mapping[str, Any]


def read_dataset_settings(connection: Connection, dataset: str) -> DatasetSettings | None:
    """Return what the dataset was made with; ``None`` if that is not noted, or damaged."""
    table = dataset_settings.c
    query = select(table.dataset, table.preset, table.settings, table.checksum)
    row = connection.execute(query.where(table.dataset == dataset)).one_or_none()
    if row is None or row_checksum(row[:-1]) != row.checksum:
        return None
    return DatasetSettings(row.preset, json.loads(row.settings))


def note_dataset_settings(connection: Connection, dataset: str, settings: DatasetSettings) -> None:
    """Note what the dataset is made with from now on."""
    is_it = dataset_settings.c.dataset == dataset
    connection.execute(delete(dataset_settings).where(is_it))
    text = json.dumps(dict(settings.values), sort_keys=True)
    row = {"dataset": dataset, "preset": settings.preset, "settings": text}
    connection.execute(insert(dataset_settings).values(row))
    seal_rows(connection, dataset_settings, is_it)


def count_pipelines(connection: Connection, dataset: str) -> Counter[str]:
    """Count the dataset's documents by the fingerprint of how they were cut and embedded."""
    query = select(documents.c.pipeline, func.count()).where(documents.c.dataset == dataset)
    rows = connection.execute(query.group_by(documents.c.pipeline))
    return Counter({row[0]: row[1] for row in rows})
