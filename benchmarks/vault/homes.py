"""Homes that the real command line fills, and what their stores hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catalog.core.documents import Chunk
from catalog.core.settings import load_settings
from catalog.embedding.model import EmbeddingModel
from catalog.library.library import Library
from catalog.store.chunks import load_chunks
from catalog.store.embedding_cache import decode

DATASET, PRESET = "vault", "vault"
OFFLINE = {"IDX_EMBEDDING__OFFLINE": "true", "HF_HUB_OFFLINE": "1"}


@dataclass(frozen=True)
class Told:
    """A command's JSON, its exit code, and its wall time in seconds."""

    answer: dict[str, Any]
    code: int
    seconds: float


def run(home: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Told:
    """``catalog --home HOME index …`` in a process of its own."""
    command = [str(Path(sys.executable).with_name("catalog")), "--home", str(home), "index"]
    options = [*arguments, "--preset", PRESET, "--json"]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, *options],
        env={**os.environ, **OFFLINE, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - started
    if not done.stdout:
        raise SystemExit(f"catalog index {' '.join(arguments)} failed:\n{done.stderr}")
    return Told(json.loads(done.stdout), done.returncode, seconds)


def build(home: Path, folder: Path, env: Mapping[str, str] | None = None) -> Told:
    """``catalog index build``."""
    return run(home, "build", str(folder), "--dataset", DATASET, env=env)


def open_home(home: Path, model: EmbeddingModel | None = None) -> Library:
    """Open the store with the settings that it was built with, and with a model of one's own."""
    return Library(load_settings(preset=PRESET, overrides={"home": home}).settings, model=model)


@dataclass(frozen=True)
class Held:
    """What a store holds: chunks in the order they were stored, and what belongs to each."""

    documents: int
    chunks: tuple[Chunk, ...]
    full_text: frozenset[int]
    windows: tuple[tuple[int, bytes | None], ...]
    document_vectors: int
    prose: tuple[tuple[int, int], ...]  # row number of the document, and size, of each text chunk

    @property
    def ids(self) -> list[str]:
        """Chunk ids in the order of their storing."""
        return [chunk.chunk_id for chunk in self.chunks]

    @property
    def texts(self) -> dict[str, str]:
        """Text by chunk id."""
        return {chunk.chunk_id: chunk.text for chunk in self.chunks}

    def vectors(self) -> list[Any]:
        """The vectors of all windows that have one, each of shape ``(dim,)``."""
        return [decode(blob) for _, blob in self.windows if blob is not None]


def held(library: Library) -> Held:
    """Read from the tables themselves."""
    with library.database.read() as connection:
        ask = connection.exec_driver_sql
        seqs = list(ask("SELECT seq FROM chunks ORDER BY seq").scalars())
        found = load_chunks(connection, DATASET, seqs)
        windows = ask(
            "SELECT w.seq, e.vector FROM chunk_windows w "
            "LEFT JOIN embeddings e ON e.embed_key = w.embed_key ORDER BY w.seq, w.window"
        )
        return Held(
            documents=ask("SELECT count(*) FROM documents").scalar_one(),
            chunks=tuple(found[seq] for seq in seqs),
            full_text=frozenset(ask("SELECT id FROM chunks_fts_docsize").scalars()),
            windows=tuple((seq, blob) for seq, blob in windows),
            document_vectors=ask(
                "SELECT count(*) FROM embeddings WHERE side = 'document'"
            ).scalar_one(),
            prose=tuple(
                (document, tokens)
                for document, tokens in ask(
                    "SELECT document_id, tokens FROM chunks "
                    "WHERE modality IN ('text', 'ocr', 'image_caption')"
                )
            ),
        )
