"""Making indexes anew from the store: nothing is read from folders, and no model is asked."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from catalog.core.errors import StoreError
from catalog.core.files import describe_os_error
from catalog.ingest.sync_report import Progress, Silent
from catalog.library.indexes import Indexes
from catalog.library.indexing import Indexer
from catalog.store.damage import rebuild_row_indexes
from catalog.store.embedding_cache import StoredModel, read_stored_model
from catalog.store.full_text import rebuild_full_text
from catalog.store.vectors import VECTOR_ENGINES

if TYPE_CHECKING:
    from catalog.library.library import Library


def rebuild_indexes(
    library: Library,
    datasets: Sequence[str] = (),
    *,
    vectors: bool = True,
    lexical: bool = True,
    progress: Progress | None = None,
) -> dict[str, dict[str, int]]:
    """Make the indexes of these datasets anew, of all if none is named.

    With ``lexical`` the indexes of the database's own rows, too.

    Return of each dataset the points of its ``vectors`` index, and 1 for ``lexical``. The model
    is the store's: its files are not needed. Raises :class:`UnknownDatasetError`,
    :class:`StoreBusyError` while a dataset is being updated, and :class:`EngineError` kinds.
    """
    for name in datasets:
        library.require_dataset(name)
    progress, indexer = progress or Silent(), Indexer(library)
    if lexical:
        with library.database.write() as connection:
            rebuild_row_indexes(connection)
    stored = read_stored_model(library.database)
    library.indexes.close()  # what this process holds of them
    indexes = Indexes(library.settings, library.database, lambda: stored or _no_model())
    done: dict[str, dict[str, int]] = {}
    try:
        for name in datasets or library.datasets():
            progress.start(0, f"making the indexes of {name} anew")
            with indexer.hold(name, progress):
                made = done.setdefault(name, {})
                if lexical:
                    _rebuild_lexical(library, indexes, name)
                    made["lexical"] = 1
                if vectors and stored is not None:
                    made["vectors"] = indexes.vector(name).rebuild()
    finally:
        indexes.close()
    return done


def _rebuild_lexical(library: Library, indexes: Indexes, dataset: str) -> None:
    with library.database.write() as connection:
        rebuild_full_text(connection)
    engine = indexes.lexical(dataset)
    engine.verify()  # what is on a server, or in the database, is forgotten where it is wrong
    folder = indexes.folder(dataset) / engine.name
    try:
        if engine.name not in VECTOR_ENGINES:  # else the folder is of vectors
            shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise StoreError(f"cannot remove {describe_os_error(folder, error)}") from error
    engine.refresh()


def _no_model() -> StoredModel:
    raise StoreError("nothing was ever embedded in this store")
