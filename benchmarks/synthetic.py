"""Made-up documents and vectors: Zipf words, clustered directions, the same at every run."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from catalog.core.tokens import CharTokenCounter
from catalog.embedding.model import EmbeddingModel
from given import body_of

WORDS_A_CHUNK = 200
CHUNKS_A_FILE = 10
VOCABULARY = 50_000
CLUSTERS = 200


class SyntheticEncoder:
    """Queries through the real model; documents as clustered random directions, at no cost."""

    counter = CharTokenCounter()

    def __init__(
        self,
        real: EmbeddingModel,
        given: Mapping[str, npt.NDArray[np.float32]] | None = None,
        bodies: Mapping[str, npt.NDArray[np.float32]] | None = None,
    ) -> None:
        """Embed queries by ``given`` alone, where it is: the real model is not loaded then.

        With ``bodies`` each document has the vector of its last line there; a part of one, as v1
        cuts them, has a made-up one.
        """
        self._real, self._given, self._bodies = real, given, bodies
        self.model = f"synthetic {real.encoder.model}"
        self.fingerprint = f"synthetic-{real.encoder.fingerprint}"
        self.dim, self.max_tokens = real.encoder.dim, 10_000
        self._centres = np.random.default_rng(1).normal(size=(CLUSTERS, self.dim))

    def encode(self, texts: Sequence[str]) -> list[Any]:
        """One vector a text."""
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> Any:
        if self._bodies is not None and (body := body_of(text)) in self._bodies:
            return self._bodies[body]
        prefix = self._real.query_prefix  # a model that has none takes what is left as a query
        if text.startswith(prefix):
            return self._query(text.removeprefix(prefix))
        return self._direction(text)

    def _query(self, text: str) -> Any:
        if self._given is None:
            return self._real.embed_query(text)
        return self._given[text] if text in self._given else self._direction(text)

    def _direction(self, text: str) -> Any:
        seed = zlib.crc32(text.encode())
        noise = np.random.default_rng(seed).normal(size=self.dim)
        vector = self._centres[seed % CLUSTERS] + 0.8 * noise
        return (vector / np.linalg.norm(vector)).astype(np.float32)


def write_corpus(folder: Path, chunks: int) -> None:
    """``chunks`` sections of 200 words, ten to a Markdown file."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng(7)
    for number in range(chunks // CHUNKS_A_FILE):
        sections = [
            f"# Section {number}-{part}\n\n{words(chance, WORDS_A_CHUNK)}."
            for part in range(CHUNKS_A_FILE)
        ]
        (folder / f"doc{number:05}.md").write_text("\n\n".join(sections), encoding="utf-8")


def queries(count: int) -> list[str]:
    """Queries of six to eight words from the same distribution."""
    chance = np.random.default_rng(11)
    return [words(chance, int(chance.integers(6, 9))) for _ in range(count)]


def words(chance: np.random.Generator, count: int) -> str:
    """Zipf-distributed words."""
    numbers = chance.zipf(1.25, size=count * 2)
    kept = [number for number in numbers if number <= VOCABULARY][:count]
    return " ".join(f"term{number:x}" for number in kept)
