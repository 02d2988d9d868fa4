"""The embedding model on trial: its windows and vectors, until it is adopted or dropped.

A store has at most one. ``trial_windows`` holds the windows that it would read of each chunk, cut
by its own tokenizer and with its own prefix. Their vectors are in the cache with all others.
Searches stay as they are until :func:`put_in_place` replaces the live windows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, Select, delete, distinct, func, insert, select, true, update

from catalog.core.errors import InputError, StoreBusyError
from catalog.store.checksums import seal_again, seal_rows
from catalog.store.database import forget_indexes, set_meta
from catalog.store.embedding_cache import (
    TRIAL,
    Adoption,
    Trial,
    bind_adopted,
    purge_unused,
    read_model,
    read_trial,
    settle_waiting,
)
from catalog.store.engine_types import change_stamp
from catalog.store.filter_sql import among
from catalog.store.manifest import DatasetSettings, note_dataset_settings
from catalog.store.schema import (
    chunk_windows,
    chunks,
    datasets,
    documents,
    embeddings,
    join_embedded,
    manifest,
    meta,
    outbox,
    trial_windows,
)

Way = tuple[str, str, DatasetSettings | None]
"""A pipeline's fingerprint before and after an adoption, and the settings to note, if any."""
_PIPELINE = 16  # characters of a pipeline's fingerprint, which others follow in rows


@dataclass(frozen=True, slots=True)
class TrialCounts:
    """The part of a dataset, or of all, that the model on trial has embedded.

    ``bytes`` counts only its ``vectors``.
    """

    passages: int
    embedded: int
    vectors: int
    bytes: int

    @property
    def missing(self) -> int:
        """Return the number of passages that lack the vector of a window."""
        return self.passages - self.embedded


def begin(connection: Connection, trial: Trial) -> None:
    """Note the model as on trial; raise :class:`InputError` while there is another."""
    present = read_trial(connection)
    if present not in (None, trial):
        assert present is not None
        told = {name: value for name, value in present.settings.items() if value is not None}
        raise InputError(
            f"{present.model.model} is on trial already, with {told} "
            f"({present.model.fingerprint}): end this with 'catalog index adopt' or 'catalog "
            "index drop'"
        )
    set_meta(connection, TRIAL, json.dumps(asdict(trial), sort_keys=True))


def require_trial(connection: Connection) -> Trial:
    """Return the model on trial; raise :class:`InputError` where there is none."""
    trial = read_trial(connection)
    if trial is None:
        raise InputError("no model is on trial: start with 'catalog index try-model NAME'")
    return trial


def list_missing(connection: Connection, dataset: str) -> list[tuple[int, str]]:
    """Return row number and document id of the chunks that lack a window or a vector, in order."""
    query = _missing(select(chunks.c.seq, documents.c.source_doc_id).distinct())
    query = query.join(documents, documents.c.id == chunks.c.document_id)
    rows = connection.execute(query.where(chunks.c.dataset == dataset).order_by(chunks.c.seq))
    return [(row[0], row[1]) for row in rows]


def draw_documents(
    connection: Connection, dataset: str, passages: float, first: Collection[str] = ()
) -> list[str]:
    """Return ids of documents that together have so many passages, or of all documents.

    The documents with the paths in ``first`` are among them. The others are drawn by chance, the
    same ones for the same contents: revision ids are hashes.
    """
    query = (
        select(documents.c.source_doc_id, documents.c.path, func.count(chunks.c.seq))
        .join(chunks, chunks.c.document_id == documents.c.id)
        .where(documents.c.dataset == dataset)
        .group_by(documents.c.id)
        .order_by(documents.c.revision_id)
    )
    rows = connection.execute(query).all()
    drawn, total = [], 0
    for source, path, count in sorted(rows, key=lambda row: row.path not in first):
        if path in first or total < passages:
            drawn.append(source)
            total += count
    return drawn


def list_trial_documents(connection: Connection, dataset: str) -> list[str]:
    """Return the sorted ids of the documents whose passages are all embedded."""
    lacking = {document for _, document in list_missing(connection, dataset)}
    return sorted(set(draw_documents(connection, dataset, float("inf"))) - lacking)


def keep_windows(connection: Connection, keys: Mapping[int, Collection[str]]) -> None:
    """Keep the keys of the windows of chunks, by row number; chunks that are gone are left out."""
    there = set(connection.scalars(select(chunks.c.seq).where(among(chunks.c.seq, keys))))
    connection.execute(delete(trial_windows).where(among(trial_windows.c.seq, keys)))
    rows = [
        {"seq": seq, "window": window, "embed_key": key}
        for seq, of_chunk in keys.items()
        if seq in there
        for window, key in enumerate(of_chunk)
    ]
    if rows:
        connection.execute(insert(trial_windows), rows)


def count_trial(connection: Connection, dataset: str | None = None) -> TrialCounts:
    """Count the passages that the model has embedded, of one dataset or of all."""
    of_dataset = true() if dataset is None else chunks.c.dataset == dataset
    total = connection.scalar(select(func.count()).select_from(chunks).where(of_dataset)) or 0
    lacking = _missing(select(func.count(distinct(chunks.c.seq)))).where(of_dataset)
    missing = connection.scalar(lacking) or 0
    keys = select(embeddings.c.embed_key, func.length(embeddings.c.vector).label("size"))
    sizes = keys.select_from(join_embedded(trial_windows)).where(of_dataset).distinct().subquery()
    columns = select(func.count(), func.coalesce(func.sum(sizes.c.size), 0)).select_from(sizes)
    vectors, size = connection.execute(columns).one()
    return TrialCounts(total, total - missing, int(vectors), int(size))


def put_in_place(
    connection: Connection,
    trial: Trial,
    ways: Mapping[str, Way],
    adoption: Adoption,
) -> None:
    """Make the model on trial the store's, with its windows for every dataset.

    All of it is the caller's transaction: a search sees the one model or the other. Nothing is
    embedded and no passage gets another id; passages that lack a vector wait for it. ``ways`` say
    by dataset how it is made from now on. Old vectors are left to :func:`drop_unused`. Raises
    :class:`StoreBusyError` if datasets came or went.
    """
    if set(connection.scalars(select(datasets.c.name))) != ways.keys():
        raise StoreBusyError("datasets were added or removed meanwhile: run adopt again")
    connection.execute(delete(chunk_windows))
    columns = ("seq", "window", "embed_key")
    windows = select(*(trial_windows.c[name] for name in columns))
    connection.execute(insert(chunk_windows).from_select(columns, windows))
    connection.execute(delete(outbox))
    forget_indexes(connection)
    bind_adopted(connection, trial.model, adoption)
    for name, (before, after, made_with) in ways.items():
        for table in (documents, manifest):  # what was made in the old way counts as in the new
            column = table.c.pipeline
            is_old = func.substr(column, 1, _PIPELINE) == before
            renamed = after + func.substr(column, _PIPELINE + 1)
            of_dataset = table.c.dataset == name
            connection.execute(update(table).where(of_dataset, is_old).values(pipeline=renamed))
        seal_rows(connection, manifest, manifest.c.dataset == name)
        if made_with is not None:
            note_dataset_settings(connection, name, made_with)
        settle_waiting(connection, name)
        change_stamp(connection, name, adoption.at)
    seal_again(connection)  # digests cover windows and pipelines
    forget(connection)


def forget(connection: Connection) -> None:
    """Forget the model on trial and its windows; :func:`drop_unused` drops the vectors."""
    connection.execute(delete(trial_windows))
    connection.execute(delete(meta).where(meta.c.key == TRIAL))


def drop_unused(connection: Connection) -> int:
    """Drop vectors of models that are neither the store's nor on trial; return their number.

    Of those two models, vectors that no passage needs are dropped, and those of queries stay.
    """
    unused = purge_unused(connection)
    bound, trial = read_model(connection), read_trial(connection)
    kept = [each.fingerprint for each in (bound, trial and trial.model) if each]
    is_other = embeddings.c.fingerprint.not_in(kept)
    return unused + connection.execute(delete(embeddings).where(is_other)).rowcount


def _missing(query: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    """Confine a query of chunks to those that lack a window of the model, or the vector of one."""
    joined = chunks.outerjoin(trial_windows, trial_windows.c.seq == chunks.c.seq).outerjoin(
        embeddings, embeddings.c.embed_key == trial_windows.c.embed_key
    )
    return query.select_from(joined).where(embeddings.c.embed_key.is_(None))
