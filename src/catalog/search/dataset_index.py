"""v1's index of one dataset on disk: its stamp, its lock, and its replacement."""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock
from llama_index.core import VectorStoreIndex

from catalog.core.errors import EngineError
from catalog.ingest.sync_report import Progress
from catalog.search.embed_model import ResilientEmbedding
from catalog.search.fts_chunk import ChunksFTS
from catalog.search.stock_pipeline import FTS_FILE, VECTOR_FOLDER, DatasetIngestPipeline
from catalog.search.vector import VectorStoreManager
from catalog.store import Database
from catalog.store.chunks import StoredDocument, list_datasets, read_documents, require_dataset
from catalog.store.restriction import read_stamp

FORMAT = 1  # of the folder: what is in it, and how it is cut and embedded
_STAMP = "stamp.json"
_DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, sqlite3.Error)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BaselineStamp:
    """The state of the store and the model from which an index was built."""

    store: str | None
    dataset: str
    created_at: float
    generation: int
    embedding: str
    state: str = ""
    format: int = FORMAT


@dataclass(frozen=True)
class LoadedIndex:
    """Both legs of a dataset, completely in memory."""

    stamp: BaselineStamp
    chunks: ChunksFTS
    vectors: VectorStoreIndex


class DatasetIndex:
    """The folder ``root/dataset``, which may be deleted at any time.

    One process at a time builds or loads it; the folder of a killed build is removed by the next
    one.
    """

    def __init__(
        self, database: Database, root: Path, dataset: str, embed_model: ResilientEmbedding
    ) -> None:
        self._database = database
        self._dataset = dataset
        self._embed_model = embed_model
        self._folder = root / dataset
        # No dataset's name starts with a dot.
        self._building = root / f".{dataset}.building"
        self._replaced = root / f".{dataset}.replaced"
        self._lock = root / f".{dataset}.lock"

    def stamp(self) -> BaselineStamp:
        """Return the current stamp of the dataset; raises ``UnknownDatasetError``."""
        with self._database.read() as connection:
            require_dataset(connection, self._dataset)
            stored = next(one for one in list_datasets(connection) if one.name == self._dataset)
            now = read_stamp(connection, self._dataset)
        model = self._embed_model
        return BaselineStamp(
            store=self._database.meta("store_id"),
            dataset=self._dataset,
            created_at=stored.created_at,
            generation=stored.generation,
            state="" if now is None else now.state,
            embedding=f"{model.encoder.fingerprint} {model.model.document_prefix}".strip(),
        )

    def load(self, progress: Progress | None = None) -> LoadedIndex:
        """Load the current index of the dataset; build it if there is no current one."""
        with self._engine_errors():
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self._lock):
                with self._database.snapshot():
                    stamp = self.stamp()
                    loaded = self._load_current(stamp)
                    documents = [] if loaded else self._documents()
                return loaded or self._build(stamp, documents, progress)

    def _documents(self) -> list[StoredDocument]:
        with self._database.read() as connection:
            return list(read_documents(connection, self._dataset))

    def _build(
        self, stamp: BaselineStamp, documents: list[StoredDocument], progress: Progress | None
    ) -> LoadedIndex:
        for leftover in (self._building, self._replaced):
            shutil.rmtree(leftover, ignore_errors=True)
        self._building.mkdir()
        try:
            DatasetIngestPipeline(self._embed_model).run(documents, self._building, progress)
            (self._building / _STAMP).write_text(json.dumps(asdict(stamp)), encoding="utf-8")
            if self._folder.exists():
                self._folder.rename(self._replaced)
            self._building.rename(self._folder)
        finally:
            for leftover in (self._building, self._replaced):
                shutil.rmtree(leftover, ignore_errors=True)
        return self._read(stamp)

    def _load_current(self, stamp: BaselineStamp) -> LoadedIndex | None:
        """Load the index on disk, if it has this stamp and is complete."""
        try:
            stored = BaselineStamp(
                **json.loads((self._folder / _STAMP).read_text(encoding="utf-8"))
            )
            return self._read(stamp) if stored == stamp else None
        except FileNotFoundError:
            return None
        except _DAMAGE as error:
            _log.warning("v1's index of %s is damaged and is rebuilt: %r", self._dataset, error)
            return None

    def _read(self, stamp: BaselineStamp) -> LoadedIndex:
        vectors = VectorStoreManager(self._folder / VECTOR_FOLDER, self._embed_model).load()
        return LoadedIndex(stamp, ChunksFTS(self._folder / FTS_FILE), vectors)

    @contextmanager
    def _engine_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise EngineError(f"cannot keep v1's index in {self._folder}: {error}") from error
