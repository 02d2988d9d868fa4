"""BM25 keyword search, exact and incremental: the default lexical engine.

The index is a large segment read from files, a small segment of later changes, and masks of removed
rows. Every search first compares the dataset's stamp with the last one it saw, and adds what
changed. So no rebuild is needed to find new passages or to stop finding removed ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from threading import RLock

import numpy as np
from filelock import FileLock, Timeout
from sqlalchemy import Connection

from catalog.core.errors import ConfigError, EngineError
from catalog.core.files import make_folder
from catalog.store.database import Database
from catalog.store.engine_setup import EngineSetup
from catalog.store.engine_types import (
    Hits,
    Restriction,
    Stamp,
    allowed_seqs,
    read_stamp,
)
from catalog.store.lexical.analysis import TextAnalyzer, raw_words
from catalog.store.lexical.base import JoinedEngines, LexicalEngine
from catalog.store.lexical.fts import FtsEngine
from catalog.store.lexical.languages import LANGUAGES
from catalog.store.lexical.postings import Int64, Mask, SegmentBuilder
from catalog.store.lexical.segment_files import SegmentFiles, StoredSnapshot
from catalog.store.lexical.snapshot import (
    LexicalSnapshot,
    LiveSegment,
    analyse_rows,
    compact,
    find_missing_rows,
    limit_parts,
    read_rows,
)
from catalog.store.lexical.spelling import correct_words
from catalog.store.locks import WORDS_LOCK

K1 = 1.2
B = 0.75
_WORTH_SAVING = 1_000  # a search without files that analysed this many chunks saves them


class Bm25Engine:
    """Keyword search over one dataset, with its derived files in ``folder``.

    ``k1`` (at least 0) sets how much the repetition of a term counts, ``b`` (0 to 1) how much long
    chunks are penalized; both apply at search time and may change freely. With another analyzer the
    index is built again. Safe to share between threads; any number of processes may use one folder.
    Raises :class:`ConfigError` for numbers out of range.
    """

    name = "bm25"

    def __init__(
        self,
        database: Database,
        dataset: str,
        folder: Path,
        *,
        analyzer: TextAnalyzer | None = None,
        k1: float = K1,
        b: float = B,
    ) -> None:
        if not (k1 >= 0 and 0 <= b <= 1):
            raise ConfigError(f"BM25 needs k1 >= 0 and 0 <= b <= 1, not k1={k1}, b={b}")
        self.database = database
        self.dataset = dataset
        self.folder = folder
        self.analyzer = TextAnalyzer() if analyzer is None else analyzer
        self.k1 = k1
        self.b = b
        self._files = SegmentFiles(folder, dataset, self.analyzer.fingerprint)
        self._lock = RLock()
        self._loaded: StoredSnapshot | None = None
        self._snapshot: LexicalSnapshot | None = None

    def search(self, text: str, k: int, restriction: Restriction) -> Hits:
        """Search as :class:`LexicalEngine` says; a restriction to another dataset finds nothing."""
        if k <= 0 or restriction.dataset != self.dataset:
            return Hits()
        with self.database.read() as connection:
            state = self.read_state(connection, restriction)
        if state is None:
            return Hits()
        snapshot, masks = state
        terms = self.analyzer.query_terms(text, snapshot.languages)
        if len(terms) == 0:  # the full-text index has stop words
            return FtsEngine(self.database, self.dataset).search(text, k, restriction)
        return snapshot.rank(terms, k, masks)

    def read_state(
        self, connection: Connection, restriction: Restriction
    ) -> tuple[LexicalSnapshot, tuple[Mask, ...]] | None:
        """Return the index as ``connection`` sees it, and for each part the rows that may answer.

        ``None`` if the dataset does not exist.
        """
        stamp = read_stamp(connection, self.dataset)
        if stamp is None:
            return None
        snapshot = self._snapshot_at(connection, stamp)
        if restriction.is_whole_dataset:
            return snapshot, snapshot.live_masks()
        load = partial(allowed_seqs, connection, restriction)
        return snapshot, snapshot.masks(restriction, stamp, load)

    def is_searchable(self, text: str) -> bool:
        """Return whether the text has a word that is not a stop word."""
        return len(self.analyzer.query_terms(text, self.languages())) > 0

    def document_counts(self, words: Sequence[str]) -> tuple[int, list[int]]:
        """Return the number of passages, and for each word the number of passages with it."""
        with self.database.read() as connection:
            state = self.read_state(connection, Restriction(self.dataset))
        return (0, [0] * len(words)) if state is None else state[0].count_rows(words, self.analyzer)

    def correct(self, text: str, restriction: Restriction) -> dict[str, str]:
        """Return words that may be misspelt, each with a suggested word."""
        with self.database.read() as connection:
            state = self.read_state(connection, restriction)
            if state is None:
                return {}
            return correct_words(connection, raw_words(text), *state, self.analyzer)

    def languages(self) -> dict[str, int]:
        """Return the number of passages by language, with ``""`` for unknown.

        The numbers are those of the last search, or of the saved files before the first search.
        """
        snapshot = self._snapshot
        return self._files.languages() if snapshot is None else snapshot.languages

    def join(self, others: Sequence[LexicalEngine]) -> LexicalEngine:
        """Return one engine for this dataset and the other engines', with joint statistics."""
        ranked = [one for one in others if isinstance(one, Bm25Engine)]
        assert len(ranked) == len(others)
        return JoinedBm25Engine([self, *ranked])

    def refresh(self) -> None:
        """Add what changed and save it; do nothing while another process is saving.

        Raises :class:`EngineError` if the folder cannot be written.
        """
        with self.database.read() as connection, self._lock:
            stamp = read_stamp(connection, self.dataset)
            if stamp is None:
                return
            self._snapshot_at(connection, stamp)
            try:
                self._save(connection, stamp)
            except OSError as error:
                raise EngineError(f"cannot write the index {self.folder}: {error}") from error

    def verify(self) -> int:
        """Return the number of files that changed since they were written."""
        return self._files.count_damaged()

    def close(self) -> None:
        """Release files and memory; the next search opens them again."""
        with self._lock:
            self._snapshot = None
            self._loaded = None

    def _snapshot_at(self, connection: Connection, stamp: Stamp) -> LexicalSnapshot:
        """Return a snapshot at least as new as ``stamp``, which ``connection`` sees."""
        snapshot = self._snapshot
        if snapshot is not None and self._covers(snapshot, stamp):
            return snapshot
        with self._lock:
            snapshot = self._snapshot
            if snapshot is None or not self._covers(snapshot, stamp):
                snapshot = self._sync(connection, stamp)
            return snapshot

    def _covers(self, snapshot: LexicalSnapshot, stamp: Stamp) -> bool:
        """Return whether the snapshot has this state or a newer one."""
        if snapshot.stamp == stamp:
            return True
        with self.database.read(latest=True) as connection:
            return snapshot.stamp == read_stamp(connection, self.dataset)

    def _sync(self, connection: Connection, stamp: Stamp) -> LexicalSnapshot:
        """Add what changed up to ``stamp``."""
        last_stamp, parts = self._last_state()
        added = 0
        if last_stamp != stamp:
            seqs, keys = read_rows(connection, self.dataset)
            parts = tuple(part.within(seqs, keys) for part in parts)
            new = find_missing_rows(parts, seqs)
            added = len(new)
            if added > 0:
                parts = limit_parts((*parts, self._analyse(connection, new)))
        self._snapshot = LexicalSnapshot(stamp, parts, self.k1, self.b)
        if self._loaded is None and added >= _WORTH_SAVING:
            with suppress(OSError):  # optional: it only saves the next process the work
                self._save(connection, stamp)
        return self._snapshot

    def _last_state(self) -> tuple[Stamp | None, tuple[LiveSegment, ...]]:
        """Return the state to sync from: files if another process saved newer ones, else memory."""
        current = self._files.token()
        if self._snapshot is not None and current == (self._loaded and self._loaded.token):
            return self._snapshot.stamp, self._snapshot.parts
        self._loaded = self._files.load()
        if self._loaded is not None:
            return self._loaded.stamp, self._loaded.parts
        return None, () if self._snapshot is None else self._snapshot.parts

    def _analyse(self, connection: Connection, seqs: Int64) -> LiveSegment:
        builder = SegmentBuilder()
        for row in analyse_rows(connection, self.dataset, seqs, self.analyzer):
            builder.add(row.seq, row.key, row.tokens, LANGUAGES.index(row.language or ""))
        return LiveSegment(builder.build(), np.ones(len(seqs), dtype=np.bool_))

    def _save(self, connection: Connection, stamp: Stamp) -> None:
        if self._is_saved() or self._is_removed():
            return
        make_folder(self.folder)
        try:
            with FileLock(self.folder / WORDS_LOCK, timeout=0, mode=0o600):
                if self._is_removed():  # removed during this search
                    return
                if self._files.token() != (self._loaded and self._loaded.token):
                    self._sync(connection, stamp)
                if not self._is_saved():
                    self._write()
        except Timeout:
            return

    def _is_removed(self) -> bool:
        with self.database.read(latest=True) as connection:
            return read_stamp(connection, self.dataset) is None

    def _write(self) -> None:
        snapshot = self._snapshot
        assert snapshot is not None
        assert snapshot.stamp is not None
        self._loaded = self._files.save(snapshot.stamp, compact(snapshot.parts), snapshot.languages)
        self._snapshot = LexicalSnapshot(snapshot.stamp, self._loaded.parts, self.k1, self.b)

    def _is_saved(self) -> bool:
        snapshot, loaded = self._snapshot, self._loaded
        return (
            snapshot is not None
            and loaded is not None
            and snapshot.stamp == loaded.stamp
            and self._files.token() == loaded.token
        )


class JoinedBm25Engine(JoinedEngines):
    """Keyword search over the datasets of ``engines`` with joint statistics.

    The engines must share one store and the same settings. Rarity of words and average length of
    chunks are counted over all of them, so they rank like one dataset with the same chunks. Nothing
    is stored; closing this object leaves the engines open. Safe to share between threads.
    """

    def __init__(self, engines: Sequence[Bm25Engine]) -> None:
        super().__init__(engines)
        self._parts = tuple(engines)
        self._joined: tuple[tuple[LexicalSnapshot, ...], LexicalSnapshot] | None = None

    def search(self, text: str, k: int, restriction: Restriction) -> Hits:
        """Search as :class:`LexicalEngine` says; a restriction to other datasets finds nothing."""
        first = self._parts[0]
        if k <= 0 or restriction.dataset != self.dataset:
            return Hits()
        snapshot, masks = self._read_state(restriction)
        terms = first.analyzer.query_terms(text, snapshot.languages)
        if len(terms) == 0:  # the full-text index has stop words
            return FtsEngine(first.database, self.dataset).search(text, k, restriction)
        return snapshot.rank(terms, k, masks)

    def document_counts(self, words: Sequence[str]) -> tuple[int, list[int]]:
        """Return the number of passages, and for each word the number of passages with it."""
        snapshot, _ = self._read_state(Restriction(self.dataset))
        return snapshot.count_rows(words, self._parts[0].analyzer)

    def correct(self, text: str, restriction: Restriction) -> dict[str, str]:
        """Return words that may be misspelt, each with a suggested word."""
        first = self._parts[0]
        snapshot, masks = self._read_state(restriction)
        with first.database.read() as connection:
            return correct_words(connection, raw_words(text), snapshot, masks, first.analyzer)

    def is_searchable(self, text: str) -> bool:
        """Return whether the text has a word that is not a stop word."""
        analyzer = self._parts[0].analyzer
        return len(analyzer.query_terms(text, self.languages())) > 0

    def close(self) -> None:
        """Release memory; the engines stay open."""
        self._joined = None

    def _read_state(self, restriction: Restriction) -> tuple[LexicalSnapshot, list[Mask]]:
        with self._parts[0].database.read() as connection:
            states = [
                engine.read_state(connection, restriction.of(engine.dataset))
                for engine in self._parts
            ]
        there = [state for state in states if state is not None]
        snapshot = self._join(tuple(snapshot for snapshot, _ in there))
        return snapshot, list(chain.from_iterable(masks for _, masks in there))

    def _join(self, snapshots: tuple[LexicalSnapshot, ...]) -> LexicalSnapshot:
        """Return the snapshots as one; the last result is reused while none of them changes."""
        joined = self._joined
        if joined is None or joined[0] != snapshots:
            parts = tuple(part for snapshot in snapshots for part in snapshot.parts)
            first = self._parts[0]
            joined = snapshots, LexicalSnapshot(None, parts, first.k1, first.b)
            self._joined = joined
        return joined[1]


def open_engine(setup: EngineSetup) -> Bm25Engine:
    """Return the engine ``bm25``."""
    return Bm25Engine(setup.database, setup.dataset, setup.folder)
