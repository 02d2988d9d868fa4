"""What becomes of a tried model: it is adopted in the place of the store's own, or dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, select, update

from catalog.core.errors import InputError, StoreBusyError
from catalog.store.checksums import seal_rows
from catalog.store.database import forget_indexes
from catalog.store.dataset_settings import DatasetSettings, note_dataset_settings
from catalog.store.embedding_cache import Adoption, bind_adopted, purge_unused, read_model
from catalog.store.engine_types import change_stamp
from catalog.store.schema import (
    chunk_windows,
    datasets,
    documents,
    embeddings,
    manifest,
    outbox,
    tried_models,
    tried_windows,
)
from catalog.store.tried_models import TriedModel, count_tried, describe_missing, list_tried
from catalog.store.vectors.outbox import set_index_token
from catalog.store.waiting import settle_waiting

_PIPELINE = 16  # characters of a pipeline's fingerprint, which others follow in rows


@dataclass(frozen=True, slots=True)
class NewWay:
    """How a dataset is embedded once a model is adopted: fingerprints of before and after.

    ``made_with`` is to be noted of it, if anything; ``token`` is the one that its vector index was
    filled under beforehand, if it was.
    """

    before: str
    after: str
    made_with: DatasetSettings | None = None
    token: str | None = None


def adopt_tried(
    connection: Connection,
    tried: TriedModel,
    ways: Mapping[str, NewWay],
    adoption: Adoption,
    *,
    incomplete: bool = False,
) -> None:
    """Put a tried model in the place of the store's, with its windows for every dataset.

    All of it is the caller's transaction: a search sees the one model or the other. Nothing is
    embedded and no passage gets another id. ``ways`` say by dataset how it is made from now on.
    What is used no more is left to :func:`drop_unused`. Raises :class:`InputError` for passages
    that lack a vector, unless ``incomplete``, and :class:`StoreBusyError` if datasets came or went.
    """
    if set(connection.scalars(select(datasets.c.name))) != ways.keys():
        raise StoreBusyError("datasets were added or removed meanwhile: adopt again")
    counts = count_tried(connection, tried)
    if counts.missing and not incomplete:
        raise InputError(describe_missing(tried, counts))
    windows = tried.windows
    columns = ["seq", "window", "embed_key"]
    connection.execute(delete(chunk_windows))
    tried_rows = select(*(windows.c[name] for name in columns))
    connection.execute(insert(chunk_windows).from_select(columns, tried_rows))
    connection.execute(delete(outbox))
    forget_indexes(connection)
    bind_adopted(connection, tried.model, adoption)
    connection.execute(update(documents).values(checksum=None))  # it is over the windows, too
    for name, way in ways.items():
        _rename_pipeline(connection, name, way)
        if way.made_with is not None:
            note_dataset_settings(connection, name, way.made_with)
        if way.token is not None:
            set_index_token(connection, name, way.token)
        settle_waiting(connection, name)
        change_stamp(connection, name, adoption.at)
    connection.execute(delete(tried_windows).where(tried_windows.c.model == tried.id))
    connection.execute(delete(tried_models).where(tried_models.c.id == tried.id))


def drop_tried(connection: Connection, tried: TriedModel) -> int:
    """Forget a tried model, and the vectors that nothing else uses; return how many these were."""
    connection.execute(delete(tried_windows).where(tried_windows.c.model == tried.id))
    connection.execute(delete(tried_models).where(tried_models.c.id == tried.id))
    return drop_unused(connection)


def drop_unused(connection: Connection) -> int:
    """Drop the vectors of models that are neither the store's nor tried; return their number.

    Of those that are, what no passage needs is dropped, and queries stay.
    """
    unused = purge_unused(connection)
    bound = read_model(connection)
    kept = {each.model.fingerprint for each in list_tried(connection)}
    kept |= {bound.fingerprint} if bound else set()
    is_other = embeddings.c.fingerprint.not_in(kept)
    return unused + connection.execute(delete(embeddings).where(is_other)).rowcount


def _rename_pipeline(connection: Connection, dataset: str, way: NewWay) -> None:
    """Have documents and files that were made in the old way count as made in the new one."""
    for table in (documents, manifest):
        column = table.c.pipeline
        is_old = func.substr(column, 1, _PIPELINE) == way.before
        renamed = way.after + func.substr(column, _PIPELINE + 1)
        of_dataset = table.c.dataset == dataset
        connection.execute(update(table).where(of_dataset, is_old).values(pipeline=renamed))
    seal_rows(connection, manifest, manifest.c.dataset == dataset)
