"""A tiny real embedding model: words hashed into a vector. No files, no network, deterministic."""

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from catalog.core.settings import RAGv2Settings, Settings
from catalog.core.tokens import CharTokenCounter
from catalog.embedding.model import EmbeddingModel
from catalog.library.library import Library

DIM = 64
_WORD = re.compile(r"\w+")
_SETTINGS: dict[str, Settings] = {}


class WordEncoder:
    """Texts sharing words are near; ``poison`` in a text fails its batch, ``down`` fails all."""

    model = "words"
    fingerprint = "words-1"
    dim = DIM
    max_tokens = 128
    counter = CharTokenCounter()

    def __init__(self) -> None:
        self.poison = "POISON"
        self.down = False
        self.texts: list[str] = []

    def encode(self, texts: Sequence[str]) -> list[Any]:
        if self.down:
            raise ConnectionError("no answer")
        if any(self.poison in text for text in texts):
            raise ValueError("cannot embed this")
        self.texts += texts
        return [_vector(text) for text in texts]


def _vector(text: str) -> Any:
    vector = np.zeros(DIM, dtype=np.float32)
    vector[0] = 0.01
    for word in _WORD.findall(text.casefold()):
        digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
        vector[digest[0] % DIM] += 1.0 if digest[1] % 2 else -1.0
    return vector / np.linalg.norm(vector)


def open_library(
    home: Path, encoder: WordEncoder | None = None, *, database_url: str | None = None, **rag: Any
) -> Library:
    """A library with a :class:`WordEncoder`, small chunks and the exact vector engine.

    Documents of tests often say the same, so every passage is a result of its own. Qdrant's engine
    flushes files to disk at every build: :func:`open_qdrant_library` is for what needs it.
    """
    quick = {"chunk_size": 100, "chunk_overlap": 10, "chunk_min_size": 8, "vector_engine": "flat"}
    settings = _settings_with({**quick, "distinct_text": False, **rag})
    settings = settings.model_copy(update={"home": home, "database_url": database_url})
    return Library(settings, model=EmbeddingModel(encoder or WordEncoder()))


def _settings_with(rag: dict[str, Any]) -> Settings:
    """Read settings once for the same environment: it is an eighth of opening and building."""
    variables = {name: value for name, value in os.environ.items() if name.startswith("IDX_")}
    key = repr((rag, sorted(variables.items() - {("IDX_HOME", variables.get("IDX_HOME"))})))
    if key not in _SETTINGS:
        _SETTINGS[key] = Settings(rag_v2=RAGv2Settings(**rag))
    return _SETTINGS[key]


def open_qdrant_library(home: Path, encoder: WordEncoder | None = None, **rag: Any) -> Library:
    """As :func:`open_library`, with the vector engine that users have unless they say otherwise."""
    return open_library(home, encoder, **{"vector_engine": "qdrant", **rag})


def write(folder: Path, **files: str) -> None:
    """Write files named by keyword, ``__`` for a slash and ``_dot_`` for a dot (``a_dot_md``)."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
