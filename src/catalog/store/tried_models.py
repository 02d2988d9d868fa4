"""Embedding models that are tried: their windows and vectors, until one is adopted or dropped.

``tried_windows`` has the windows of each chunk for the tried model, cut by its own tokenizer and
with its own prefix. Their vectors are in the common cache. Searches do not change until
:func:`adopt_tried` replaces the live windows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import (
    Connection,
    FromClause,
    Select,
    delete,
    distinct,
    func,
    insert,
    select,
    true,
    update,
)

from catalog.core.errors import InputError, StoreBusyError
from catalog.store.checksums import seal_again, seal_rows
from catalog.store.database import forget_indexes
from catalog.store.embedding_cache import (
    Adoption,
    StoredModel,
    bind_adopted,
    purge_unused,
    read_model,
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
    outbox,
    tried_models,
    tried_windows,
)

_PIPELINE = 16  # characters of the fingerprint at the beginning of the column ``pipeline``
_WINDOW = ("seq", "window", "embed_key")


@dataclass(frozen=True, slots=True)
class TriedModel:
    """A model that is tried, and the ``settings`` that select it, by dotted name."""

    id: int
    model: StoredModel
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Return the model's name, under which it is tried."""
        return self.model.model

    @property
    def windows(self) -> FromClause:
        """Return the model's windows, with the columns of ``chunk_windows``."""
        columns = (tried_windows.c[name] for name in _WINDOW)
        return select(*columns).where(tried_windows.c.model == self.id).subquery("tried")


@dataclass(frozen=True, slots=True)
class TriedCounts:
    """How many passages a tried model has embedded, in one dataset or in all.

    ``bytes`` is the size of the vectors, without the rows of windows.
    """

    passages: int
    embedded: int
    vectors: int
    bytes: int

    @property
    def missing(self) -> int:
        """Return the number of passages that lack the vector of a window."""
        return self.passages - self.embedded


@dataclass(frozen=True, slots=True)
class NewWay:
    """The fingerprints with which a dataset is embedded before and after a model is adopted.

    ``made_with`` are new dataset settings, if they change.
    """

    before: str
    after: str
    made_with: DatasetSettings | None = None


def add_tried(
    connection: Connection, model: StoredModel, settings: Mapping[str, Any]
) -> TriedModel:
    """Record a model as tried and return it; a model that is tried already is returned.

    Raises :class:`InputError` if that name is tried with other settings or weights.
    """
    for present in list_tried(connection):
        if present.name == model.model:
            if (present.model, dict(present.settings)) == (model, dict(settings)):
                return present
            told = {name: value for name, value in present.settings.items() if value is not None}
            raise InputError(
                f"{model.model} is tried already, with {told} ({present.model.fingerprint}): "
                f"forget that with 'catalog index drop {model.model}'"
            )
    row = {"name": model.model, "fingerprint": model.fingerprint, "dim": model.dim}
    values = row | {"settings": json.dumps(dict(settings), sort_keys=True)}
    connection.execute(insert(tried_models).values(values))
    return require_tried(connection, model.model)


def list_tried(connection: Connection) -> list[TriedModel]:
    """Return the models that are tried, oldest first."""
    rows = connection.execute(select(tried_models).order_by("id"))
    return [
        TriedModel(it.id, StoredModel(it.name, it.fingerprint, it.dim), json.loads(it.settings))
        for it in rows
    ]


def require_tried(connection: Connection, name: str) -> TriedModel:
    """Return the model tried under that name; raise :class:`InputError` that lists the models."""
    by_name = {tried.name: tried for tried in list_tried(connection)}
    if name not in by_name:
        raise InputError(
            f"{name!r} is not tried; tried models: {', '.join(by_name) or 'none'}; try one: "
            "catalog index try-model NAME"
        )
    return by_name[name]


def list_untried(connection: Connection, tried: TriedModel, dataset: str) -> list[tuple[int, str]]:
    """Return row number and document id of the dataset's chunks that lack a window or a vector.

    They are in order of row number.
    """
    query = _untried(select(chunks.c.seq, documents.c.source_doc_id).distinct(), tried)
    query = query.join(documents, documents.c.id == chunks.c.document_id)
    rows = connection.execute(query.where(chunks.c.dataset == dataset).order_by(chunks.c.seq))
    return [(row[0], row[1]) for row in rows]


def draw_documents(
    connection: Connection, dataset: str, passages: float, first: Collection[str] = ()
) -> list[str]:
    """Return ids of random documents with at least ``passages`` passages in sum, or of all.

    Documents with their path in ``first`` are always included. The order depends on revision ids,
    which are hashes, so equal contents give equal documents.
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


def list_tried_documents(connection: Connection, tried: TriedModel, dataset: str) -> list[str]:
    """Return the sorted ids of the documents whose passages are all embedded."""
    lacking = {document for _, document in list_untried(connection, tried, dataset)}
    return sorted(set(draw_documents(connection, dataset, float("inf"))) - lacking)


def keep_windows(
    connection: Connection, tried: TriedModel, keys: Mapping[int, Collection[str]]
) -> None:
    """Store the keys of chunks' windows, by row number; skip chunks that are gone."""
    there = set(connection.scalars(select(chunks.c.seq).where(among(chunks.c.seq, keys))))
    of_these = (tried_windows.c.model == tried.id) & among(tried_windows.c.seq, keys)
    connection.execute(delete(tried_windows).where(of_these))
    rows = [
        {"seq": seq, "model": tried.id, "window": window, "embed_key": key}
        for seq, of_chunk in keys.items()
        if seq in there
        for window, key in enumerate(of_chunk)
    ]
    if rows:
        connection.execute(insert(tried_windows), rows)


def count_tried(
    connection: Connection, tried: TriedModel, dataset: str | None = None
) -> TriedCounts:
    """Count the passages that the model has embedded, of one dataset or of all."""
    of_dataset = true() if dataset is None else chunks.c.dataset == dataset
    total = connection.scalar(select(func.count()).select_from(chunks).where(of_dataset)) or 0
    lacking = _untried(select(func.count(distinct(chunks.c.seq))), tried).where(of_dataset)
    missing = connection.scalar(lacking) or 0
    keys = select(embeddings.c.embed_key, func.length(embeddings.c.vector).label("size"))
    sizes = keys.select_from(join_embedded(tried.windows)).where(of_dataset).distinct().subquery()
    columns = select(func.count(), func.coalesce(func.sum(sizes.c.size), 0)).select_from(sizes)
    vectors, size = connection.execute(columns).one()
    return TriedCounts(total, total - missing, int(vectors), int(size))


def list_trials(connection: Connection, dataset: str) -> list[dict[str, Any]]:
    """Return each tried model with its settings and counts for the dataset, ready for JSON."""
    return [
        {**asdict(tried.model), "name": tried.name, "settings": dict(tried.settings)}
        | asdict(count_tried(connection, tried, dataset))
        for tried in list_tried(connection)
    ]


def adopt_tried(
    connection: Connection, tried: TriedModel, ways: Mapping[str, NewWay], adoption: Adoption
) -> None:
    """Replace the store's model by a tried one, with its windows for every dataset.

    It all happens in the caller's transaction, so a search sees one model or the other. Nothing is
    embedded, and passages keep their ids; those without a vector wait for it. ``ways`` has the new
    fingerprints by dataset. Unused vectors stay until :func:`drop_unused`. Raises
    :class:`StoreBusyError` if datasets were added or removed meanwhile.
    """
    if set(connection.scalars(select(datasets.c.name))) != ways.keys():
        raise StoreBusyError("datasets were added or removed meanwhile: adopt again")
    connection.execute(delete(chunk_windows))
    connection.execute(insert(chunk_windows).from_select(_WINDOW, select(tried.windows)))
    connection.execute(delete(outbox))
    forget_indexes(connection)
    bind_adopted(connection, tried.model, adoption)
    for name, way in ways.items():
        for table in (documents, manifest):  # existing rows count as made in the new way
            column = table.c.pipeline
            is_old = func.substr(column, 1, _PIPELINE) == way.before
            renamed = way.after + func.substr(column, _PIPELINE + 1)
            of_dataset = table.c.dataset == name
            connection.execute(update(table).where(of_dataset, is_old).values(pipeline=renamed))
        seal_rows(connection, manifest, manifest.c.dataset == name)
        if way.made_with is not None:
            note_dataset_settings(connection, name, way.made_with)
        settle_waiting(connection, name)
        change_stamp(connection, name, adoption.at)
    seal_again(connection)  # digests cover windows and pipelines
    _forget(connection, tried)


def drop_tried(connection: Connection, tried: TriedModel) -> int:
    """Forget a tried model and drop the vectors that only it uses; return their number."""
    _forget(connection, tried)
    return drop_unused(connection)


def drop_unused(connection: Connection) -> int:
    """Drop the vectors of models that are neither the store's nor tried; return their number.

    For the remaining models, document vectors that no passage needs are dropped as well.
    """
    unused = purge_unused(connection)
    bound = read_model(connection)
    kept = {each.model.fingerprint for each in list_tried(connection)}
    kept |= {bound.fingerprint} if bound else set()
    is_other = embeddings.c.fingerprint.not_in(kept)
    return unused + connection.execute(delete(embeddings).where(is_other)).rowcount


def _forget(connection: Connection, tried: TriedModel) -> None:
    connection.execute(delete(tried_windows).where(tried_windows.c.model == tried.id))
    connection.execute(delete(tried_models).where(tried_models.c.id == tried.id))


def _untried(query: Select[*tuple[Any, ...]], tried: TriedModel) -> Select[*tuple[Any, ...]]:
    """Restrict a query of chunks to those that lack a window of the model, or its vector."""
    windows = tried.windows
    joined = chunks.outerjoin(windows, windows.c.seq == chunks.c.seq).outerjoin(
        embeddings, embeddings.c.embed_key == windows.c.embed_key
    )
    return query.select_from(joined).where(embeddings.c.embed_key.is_(None))
