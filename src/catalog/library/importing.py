"""Fill datasets from ``chunks.jsonl``, and bring what is derived of them up to date."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from catalog.core.errors import SourceError
from catalog.ingest.embedding import embed_waiting
from catalog.ingest.summaries import summarise
from catalog.ingest.sync_report import Failure, Progress, Silent
from catalog.library.indexing import Indexer, derive_vectors, derive_words
from catalog.library.indexing_settings import IndexingSettings
from catalog.library.library import Library
from catalog.store.embedding_cache import count_waiting, is_noted_waiting, settle_waiting
from catalog.store.portable import Import, portable_file


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The counts of an import: of documents, of their chunks, and of texts that were embedded.

    ``replaced`` documents had another content. ``waiting`` passages have no vector and are found
    by words.
    """

    datasets: tuple[str, ...]
    added: int
    replaced: int
    unchanged: int
    chunks: int
    embedded: int
    waiting: int
    failed: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()


def import_chunks(
    library: Library,
    source: Path,
    *,
    datasets: Sequence[str] = (),
    root: Path | None = None,
    progress: Progress | None = None,
) -> ImportReport:
    """Import the named datasets, or all, from a file or a folder's ``chunks.jsonl``.

    Documents in the file replace stored ones with the same path; the rest stay. If run again, it
    continues where it ended. Passages without a vector in the file are embedded. ``root`` is the
    folder for updates; without it, that in the file is used if one of the dataset's files is there
    unchanged. Raises :class:`InputError` with the line for a damaged, invalid or newer record: all
    documents before it are imported. Raises :class:`EmbeddingMismatchError` for vectors of another
    model than the store's, and the errors of ``Indexer.build``.
    """
    progress, indexer = progress or Silent(), Indexer(library)
    file = portable_file(source)
    if not file.is_file():
        raise SourceError(f"there is no file {file}: create one with 'catalog export'")
    run = Import(
        library.database,
        file,
        most=2 * library.settings.rag_v2.ingest.max_document_bytes,
        wanted=library.wanted_model,
        summarise=summarise,
        hold=lambda dataset: indexer.hold(dataset, progress),
        advance=lambda size: progress.advance(size, "", f"{run.counts['documents']:,} documents"),
    )
    progress.start(file.stat().st_size, "importing")
    notes = run.run(datasets, root)
    embedded = waiting = 0
    failed: tuple[Failure, ...] = ()
    for dataset in run.opened:
        later: dict[str, str] = {}
        with indexer.hold(dataset, progress):
            library.require_dataset(dataset)  # it may have been removed since
            derive_words(library, dataset, later)
            with library.database.write() as connection:
                settle_waiting(connection, dataset)
                is_waiting = is_noted_waiting(connection, dataset)
            if is_waiting:
                pipeline = IndexingSettings(library, dataset).build()
                report = embed_waiting(library.database, dataset, pipeline, progress=progress)
                embedded += report.embedded
                failed += report.failed
                notes += report.notes
            derive_vectors(library, dataset, later)
        notes += later.values()
        with library.database.read() as connection:
            waiting += count_waiting(connection, dataset)[1]
    names = ("added", "replaced", "unchanged", "chunks")
    added, replaced, unchanged, chunks = (run.counts[name] for name in names)
    once = tuple(dict.fromkeys(notes))  # several datasets may have the same
    counts = (added, replaced, unchanged, chunks, embedded, waiting)
    return ImportReport(tuple(run.opened), *counts, failed, once)
