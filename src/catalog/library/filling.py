"""Deriving what a dataset lacks that was filled from elsewhere than its folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from catalog.core.errors import CatalogError
from catalog.ingest.embedding import EmbeddingReport, embed_waiting
from catalog.ingest.sync_report import Progress
from catalog.library.agreement import refresh_agreement
from catalog.library.document_cards import make_cards
from catalog.library.indexing_settings import IndexingSettings
from catalog.library.library import Library
from catalog.store.waiting import settle_waiting


def complete_dataset(library: Library, dataset: str, progress: Progress) -> EmbeddingReport:
    """Embed what waits, and bring words, cards, vectors and agreement up to date.

    The caller holds the dataset's lock. What cannot be derived now is told in a note.
    """
    database, indexes = library.database, library.indexes
    failed: dict[str, list[str]] = {}  # what cannot be derived, by the reason

    def attempt(name: str, derive: Callable[[], object]) -> None:
        try:
            derive()
        except CatalogError as error:
            failed.setdefault(str(error), []).append(name)

    attempt("lexical index", lambda: indexes.lexical(dataset).refresh())
    attempt("catalog", partial(make_cards, database, dataset))
    with database.write() as connection:
        is_waiting = settle_waiting(connection, dataset)
    embedding = EmbeddingReport()
    if is_waiting:
        pipeline = IndexingSettings(library, dataset).build()
        embedding = embed_waiting(database, dataset, pipeline, progress=progress)
    attempt("vector index", lambda: indexes.vector(dataset).refresh())
    attempt("agreement of vectors and words", partial(refresh_agreement, library, dataset))
    notes = (
        f"not up to date before a search, the {', the '.join(names)}: {reason}"
        for reason, names in failed.items()
    )
    return replace(embedding, notes=(*embedding.notes, *notes))
