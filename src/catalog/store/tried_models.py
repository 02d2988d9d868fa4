"""Models that are tried beside the store's own: their windows and vectors, until one is adopted.

A tried model has for each chunk the windows that it would read, cut by its own tokenizer and with
its own prefix, in ``tried_windows``; their vectors lie in the cache with all others. Nothing that
is searched changes until ``store.model_adoption`` puts them in the place of the live ones.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import (
    Connection,
    FromClause,
    Select,
    delete,
    distinct,
    exists,
    func,
    insert,
    select,
    true,
    update,
)

from catalog.core.errors import InputError
from catalog.store.checksums import find_damaged_vectors
from catalog.store.embedding_cache import (
    StoredModel,
)
from catalog.store.filter_sql import among
from catalog.store.schema import (
    chunks,
    documents,
    embeddings,
    tried_models,
    tried_windows,
)
from catalog.store.window_rows import join_embedded

_PIPELINE = 16  # characters of a pipeline's fingerprint, which others follow in rows
_OPTIONS = {"embed_prefix_query": "--query-prefix", "embed_prefix_doc": "--document-prefix"}


@dataclass(frozen=True, slots=True)
class TriedModel:
    """A model that is tried, and the ``settings`` that make it, by dotted name.

    ``whole_at`` is when a run over all passages last ended, ``None`` if none did.
    """

    id: int
    model: StoredModel
    settings: Mapping[str, Any]
    created_at: float
    whole_at: float | None

    @property
    def name(self) -> str:
        """Return the name it is tried under, which is the model's."""
        return self.model.model

    @property
    def windows(self) -> FromClause:
        """Return its windows, with the columns of ``chunk_windows``."""
        columns = (tried_windows.c.seq, tried_windows.c.window, tried_windows.c.embed_key)
        return select(*columns).where(tried_windows.c.model == self.id).subquery("tried")


@dataclass(frozen=True, slots=True)
class TriedCounts:
    """How much of a dataset, or of all, a tried model has embedded.

    ``vectors`` take ``bytes`` in the store, the windows' rows left out.
    """

    passages: int
    embedded: int
    vectors: int
    bytes: int

    @property
    def missing(self) -> int:
        """Return the number of passages that lack the vector of a window."""
        return self.passages - self.embedded


def add_tried(
    connection: Connection, model: StoredModel, settings: Mapping[str, Any], now: float
) -> TriedModel:
    """Note a model as tried, and return it; the same one again is the one there is.

    Raises :class:`InputError` where that name is tried with other settings or weights.
    """
    present = find_tried(connection, model.model)
    if present is None:
        row = {"name": model.model, "fingerprint": model.fingerprint, "dim": model.dim}
        values = row | {"settings": json.dumps(dict(settings), sort_keys=True), "created_at": now}
        connection.execute(insert(tried_models).values(values))
        return require_tried(connection, model.model)
    if (present.model, dict(present.settings)) != (model, dict(settings)):
        raise InputError(
            f"{model.model} is tried already, with {describe_settings(present.settings)} "
            f"({present.model.fingerprint}): forget that with 'catalog index drop {model.model}'"
        )
    return present


def note_whole(connection: Connection, tried: TriedModel, now: float) -> None:
    """Note that a run over all passages ended."""
    is_it = tried_models.c.id == tried.id
    connection.execute(update(tried_models).where(is_it).values(whole_at=now))


def list_tried(connection: Connection) -> list[TriedModel]:
    """Return the models that are tried, the first one first."""
    return [_tried(row) for row in connection.execute(select(tried_models).order_by("id"))]


def find_tried(connection: Connection, name: str) -> TriedModel | None:
    """Return the model tried under that name, ``None`` if there is none."""
    row = connection.execute(select(tried_models).where(tried_models.c.name == name)).one_or_none()
    return None if row is None else _tried(row)


def require_tried(connection: Connection, name: str) -> TriedModel:
    """Return the model tried under that name; raise :class:`InputError` naming those there are."""
    tried = find_tried(connection, name)
    if tried is None:
        known = ", ".join(each.name for each in list_tried(connection)) or "none"
        raise InputError(
            f"{name!r} is not tried; tried models: {known}; try one: catalog index try-model NAME"
        )
    return tried


def _tried(row: Any) -> TriedModel:
    model = StoredModel(row.name, row.fingerprint, row.dim)
    return TriedModel(row.id, model, json.loads(row.settings), row.created_at, row.whole_at)


def describe_settings(settings: Mapping[str, Any]) -> str:
    """Return ``provider static, embed_prefix_doc "passage: "``: what is set, without sections."""
    told = {name.rpartition(".")[2]: value for name, value in settings.items() if value is not None}
    told.pop("model", None)
    return ", ".join(f"{name} {value}" for name, value in told.items()) or "no settings"


def list_untried(connection: Connection, tried: TriedModel, dataset: str) -> list[tuple[int, str]]:
    """Return row number and document of the dataset's chunks that lack a window or a vector.

    They are in the order of their rows.
    """
    query = _untried(select(chunks.c.seq, documents.c.source_doc_id).distinct(), tried)
    query = query.join(documents, documents.c.id == chunks.c.document_id)
    rows = connection.execute(query.where(chunks.c.dataset == dataset).order_by(chunks.c.seq))
    return [(row[0], row[1]) for row in rows]


def keep_windows(
    connection: Connection, tried: TriedModel, keys: Mapping[int, Collection[str]]
) -> None:
    """Keep the keys of the windows of chunks, by row number; chunks that are gone are left out."""
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
    """Count what the model has embedded of a dataset, or of all of them."""
    of_dataset = true() if dataset is None else chunks.c.dataset == dataset
    total = connection.scalar(select(func.count()).select_from(chunks).where(of_dataset)) or 0
    lacking = _untried(select(func.count(distinct(chunks.c.seq))), tried).where(of_dataset)
    missing = connection.scalar(lacking) or 0
    keys = select(embeddings.c.embed_key, func.length(embeddings.c.vector).label("size"))
    keys = keys.select_from(join_embedded(tried.windows)).where(of_dataset).distinct()
    sizes = keys.subquery()
    columns = select(func.count(), func.coalesce(func.sum(sizes.c.size), 0)).select_from(sizes)
    vectors, size = connection.execute(columns).one()
    return TriedCounts(total, total - missing, int(vectors), int(size))


def list_trials(connection: Connection, dataset: str) -> list[dict[str, Any]]:
    """Return what each tried model is, and has of the dataset, ready for JSON."""
    return [
        {**asdict(tried.model), "name": tried.name, "settings": dict(tried.settings)}
        | asdict(count_tried(connection, tried, dataset))
        for tried in list_tried(connection)
    ]


def list_tried_documents(connection: Connection, tried: TriedModel, dataset: str) -> list[str]:
    """Return the ids of the documents of which every passage is embedded, sorted."""
    lacking = _untried(select(chunks.c.document_id), tried).where(chunks.c.dataset == dataset)
    has_chunks = exists().where(chunks.c.document_id == documents.c.id)
    query = select(documents.c.source_doc_id).where(documents.c.dataset == dataset, has_chunks)
    query = query.where(documents.c.id.not_in(lacking))
    return sorted(connection.scalars(query))


def draw_documents(
    connection: Connection, dataset: str, passages: int, first: Collection[str]
) -> set[str]:
    """Return ids of documents with together so many passages at least, or of all.

    The documents with the paths in ``first`` are among them, the others drawn by chance, which is
    the same for the same contents: revision ids are hashes.
    """
    size = func.count(chunks.c.seq)
    query = (
        select(documents.c.source_doc_id, documents.c.path, size)
        .join(chunks, chunks.c.document_id == documents.c.id)
        .where(documents.c.dataset == dataset)
        .group_by(documents.c.id)
        .order_by(documents.c.revision_id)
    )
    rows = connection.execute(query).all()
    drawn = {source for source, path, _ in rows if path in first}
    total = sum(count for _, path, count in rows if path in first)
    for source, path, count in rows:
        if total >= passages:
            break
        if path not in first:
            drawn.add(source)
            total += count
    return drawn


def drop_damaged_of(connection: Connection, tried: TriedModel) -> int:
    """Drop damaged vectors of the model, so that they are embedded again; return their number."""
    fingerprint = tried.model.fingerprint
    damaged = find_damaged_vectors(connection, tried.model.dim, fingerprint=fingerprint)
    is_wrong = (embeddings.c.fingerprint == fingerprint) & among(embeddings.c.embed_key, damaged)
    return connection.execute(delete(embeddings).where(is_wrong)).rowcount


def describe_missing(tried: TriedModel, counts: TriedCounts) -> str:
    """Say how many passages a tried model lacks, and how to go on."""
    return (
        f"{tried.name} has embedded {counts.embedded} of {counts.passages} passages, "
        f"{counts.missing} are missing: `{_command(tried)}`, without --sample and "
        "--dataset, embeds them; or adopt with --incomplete, and 'catalog index update' does"
    )


def _command(tried: TriedModel) -> str:
    """Return the command that goes on with the try, with each setting as it was given.

    A query of the address, in which a key may stand, is left to whoever gave it.
    """
    words = ["catalog", "index", "try-model", tried.name]
    for name, value in tried.settings.items():
        option = name.rpartition(".")[2]
        if value is not None and option != "model":
            address, query, _ = str(value).partition("?" if option == "url" else "\0")
            words += [_OPTIONS.get(option, f"--{option.replace('_', '-')}"), address + query]
    return shlex.join(words)


def _untried(query: Select[*tuple[Any, ...]], tried: TriedModel) -> Select[*tuple[Any, ...]]:
    """Confine a query of chunks to those that lack a window of the model, or the vector of one."""
    windows = tried.windows
    joined = chunks.outerjoin(windows, windows.c.seq == chunks.c.seq).outerjoin(
        embeddings, embeddings.c.embed_key == windows.c.embed_key
    )
    return query.select_from(joined).where(embeddings.c.embed_key.is_(None))
