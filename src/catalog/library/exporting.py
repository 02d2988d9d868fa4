"""Write the datasets of a store as ``chunks.jsonl``, one document after another."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from catalog.core.errors import InputError, SourceError, StoreError
from catalog.core.files import describe_os_error
from catalog.core.portable_lines import EndLine, HeaderLine, Line, ModelLine, write_line
from catalog.ingest.sync_report import Progress, Silent
from catalog.store.backup import draft_beside
from catalog.store.chunks import StoredDataset, list_datasets, require_dataset
from catalog.store.embedding_cache import read_stored_model
from catalog.store.portable_rows import (
    count_documents_of,
    read_dataset_line,
    read_document_lines,
    read_file_lines,
)

if TYPE_CHECKING:
    from catalog.store import Database

FILE_NAME = "chunks.jsonl"


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The file that was written, and its counts."""

    file: str
    datasets: tuple[str, ...]
    documents: int
    chunks: int
    bytes: int


def portable_file(path: Path) -> Path:
    """Return the file itself, or ``chunks.jsonl`` in a folder."""
    return path / FILE_NAME if path.is_dir() else path


def require_portable(path: Path) -> None:
    """Raise :class:`SourceError` unless there is a file to import."""
    file = portable_file(path)
    if not file.is_file():
        raise SourceError(f"there is no file {file}: create one with 'catalog export'")


def export_chunks(
    database: Database,
    to: Path,
    *,
    datasets: Sequence[str] = (),
    vectors: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> ExportReport:
    """Write one snapshot of the named datasets, or of all.

    A name without an extension is that of a folder, which is made for ``chunks.jsonl``.
    Only the user can read the file (mode 0600), which appears when it is complete; equal states
    give equal bytes. Raises :class:`InputError` if it exists without ``force``, or if there is no
    dataset to write; :class:`DamagedDocumentError` for a document that changed since it was stored;
    :class:`StoreError` if the file cannot be written.
    """
    file = portable_file(to)
    if file.exists() and not force:
        raise InputError(f"{file} exists: choose another name, or --force to replace it")
    if not to.absolute().parent.is_dir():
        raise InputError(f"there is no folder {to.parent} for {to.name}")
    with database.snapshot():
        chosen = _chosen(database, datasets)
        if not file.exists() and not to.suffix:
            file = _make_folder(to) / FILE_NAME
        with draft_beside(file) as draft:
            with draft.open("wb") as stream:
                for line in _lines(database, chosen, progress or Silent(), vectors=vectors):
                    stream.write(write_line(line))
                stream.flush()
                os.fsync(stream.fileno())
            size = draft.stat().st_size
            draft.replace(file)
    assert isinstance(line, EndLine)
    names = tuple(dataset.name for dataset in chosen)
    return ExportReport(str(file), names, line.documents, line.chunks, size)


def _make_folder(path: Path) -> Path:
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make {describe_os_error(path, error)}") from error
    return path


def _chosen(database: Database, names: Sequence[str]) -> list[StoredDataset]:
    with database.read() as connection:
        for name in names:
            require_dataset(connection, name)
        stored = list_datasets(connection)
    chosen = [one for one in stored if not names or one.name in names]
    if not chosen:
        raise InputError("there is no dataset to export: create one with 'catalog index build'")
    return chosen


def _lines(
    database: Database, datasets: Sequence[StoredDataset], progress: Progress, *, vectors: bool
) -> Iterator[Line]:
    model = read_stored_model(database)
    if model is None:
        raise InputError("nothing to export: nothing was ever indexed in this store")
    known = ModelLine(model=model.model, fingerprint=model.fingerprint, dim=model.dim)
    documents = chunks = 0
    with database.read() as connection:
        yield HeaderLine(model=known, vectors=vectors)
        total = sum(count_documents_of(connection, one.name) for one in datasets)
        progress.start(total, "exporting")
        for dataset in datasets:
            yield read_dataset_line(connection, dataset)
            for document, passages in read_document_lines(
                connection, dataset.name, vectors=vectors
            ):
                yield document
                yield from passages
                documents, chunks = documents + 1, chunks + len(passages)
                progress.advance(1, document.path, f"{documents:,} of {total:,} documents")
            yield from read_file_lines(connection, dataset.name)
    yield EndLine(documents=documents, chunks=chunks)
