"""The conventions of known models, from their cards: prefixes, pooling, sizes and languages."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from catalog.core.errors import ConfigError

if TYPE_CHECKING:
    from catalog.core.settings import EmbeddingSettings
    from catalog.embedding.encoder import Vector

Pooling = Literal["cls", "mean", "other"]


@dataclass(frozen=True, slots=True)
class EmbeddingProfile:
    """A model's conventions; ``max_tokens`` includes special tokens, ``dim`` is the vector size.

    Both are ``None`` if they are known only after the model is loaded. ``pooling`` is ``other`` for
    the last token, or for layers after the mean. ``languages`` are those of its training, by
    Snowball name; empty for a multilingual model, or if unknown. A vector may be cut to the lengths
    in ``shorter``, less the mean of its numbers if ``is_centred``.
    """

    query_prefix: str = ""
    document_prefix: str = ""
    pooling: Pooling = "mean"
    max_tokens: int | None = None
    dim: int | None = None
    languages: tuple[str, ...] = ()
    shorter: Sequence[int] = ()
    is_centred: bool = False

    def cut(self, vectors: Sequence[Vector], dim: int) -> list[Vector]:
        """Return the first ``dim`` numbers of each vector at length 1; whole vectors unchanged."""
        import numpy as np

        cut = list(vectors)
        for index, vector in enumerate(vectors):
            if len(vector) > dim:
                whole = np.asarray(vector, dtype=np.float64)
                first = (whole - whole.mean() if self.is_centred else whole)[:dim]
                length = max(float(np.linalg.norm(first)), 1e-12)
                cut[index] = (first / length).astype(np.float32)
        return cut


_ENGLISH = ("english",)
_BGE = ("Represent this sentence for searching relevant passages: ", "")
_E5 = ("query: ", "passage: ")
_NOMIC = ("search_query: ", "search_document: ")
_GEMMA = ("task: search result | query: ", "title: none | text: ")
_QWEN3 = "Given a web search query, retrieve relevant passages that answer the query"

_Of = EmbeddingProfile
PROFILES: Mapping[str, EmbeddingProfile] = {
    "BAAI/bge-small-en-v1.5": _Of(*_BGE, "cls", 512, 384, _ENGLISH),
    "BAAI/bge-base-en-v1.5": _Of(*_BGE, "cls", 512, 768, _ENGLISH),
    "BAAI/bge-large-en-v1.5": _Of(*_BGE, "cls", 512, 1024, _ENGLISH),
    "sentence-transformers/all-MiniLM-L6-v2": _Of("", "", "mean", 256, 384, _ENGLISH),
    "intfloat/e5-small-v2": _Of(*_E5, "mean", 512, 384, _ENGLISH),
    "intfloat/multilingual-e5-small": _Of(*_E5, "mean", 512, 384),
    "nomic-ai/nomic-embed-text-v1.5": _Of(
        *_NOMIC, "mean", 8192, 768, _ENGLISH, (512, 256, 128, 64), is_centred=True
    ),
    "nomic-ai/nomic-embed-text-v2-moe": _Of(*_NOMIC, "mean", 512, 768, (), (256,)),
    "MongoDB/mdbr-leaf-ir": _Of(*_BGE, "other", 512, 768, _ENGLISH, (256,)),
    "Snowflake/snowflake-arctic-embed-s": _Of(*_BGE, "cls", 512, 384, _ENGLISH),
    "Snowflake/snowflake-arctic-embed-m-v1.5": _Of(*_BGE, "cls", 512, 768, _ENGLISH, (256,)),
    "Alibaba-NLP/gte-modernbert-base": _Of("", "", "cls", 8192, 768, _ENGLISH),
    "ibm-granite/granite-embedding-small-english-r2": _Of("", "", "cls", 8192, 384, _ENGLISH),
    "ibm-granite/granite-embedding-97m-multilingual-r2": _Of("", "", "cls", 32768, 384),
    "google/embeddinggemma-300m": _Of(*_GEMMA, "other", 2048, 768, (), (512, 256, 128)),
    "Qwen/Qwen3-Embedding-0.6B": _Of(
        f"Instruct: {_QWEN3}\nQuery:", "", "other", 32768, 1024, shorter=range(32, 1024)
    ),
    # on servers only; Cohere's distinguish queries and passages by a field of the request
    "embed-english-v3.0": _Of(max_tokens=512, dim=1024, languages=_ENGLISH),
    "embed-english-light-v3.0": _Of(max_tokens=512, dim=384, languages=_ENGLISH),
    "embed-multilingual-v3.0": _Of(max_tokens=512, dim=1024),
    "embed-multilingual-light-v3.0": _Of(max_tokens=512, dim=384),
    "text-embedding-3-small": _Of(max_tokens=8191, dim=1536, shorter=(512,)),
    "text-embedding-3-large": _Of(max_tokens=8191, dim=3072, shorter=(1024, 256)),
    "text-embedding-ada-002": _Of(max_tokens=8191, dim=1536),
}

_BY_LAST_PART = {name.rpartition("/")[2].casefold(): name for name in PROFILES} | {
    "nomic-embed-text": "nomic-ai/nomic-embed-text-v1.5",  # this and the rest: of Ollama
    "nomic-embed-text:v1.5": "nomic-ai/nomic-embed-text-v1.5",
    "embeddinggemma": "google/embeddinggemma-300m",
    "embeddinggemma:300m": "google/embeddinggemma-300m",
    "qwen3-embedding:0.6b": "Qwen/Qwen3-Embedding-0.6B",
}


def published_name(model: str) -> str:
    """Return the name on the hub of a model that a server or a folder names; else the name.

    ``/models/mdbr-leaf-ir`` becomes ``MongoDB/mdbr-leaf-ir``, and so does
    ``text-embedding-mdbr-leaf-ir`` of LM Studio.
    """
    name = model.removeprefix("hf:")
    if name in PROFILES:
        return name
    last = re.split(r"[/\\]", name.rstrip("/\\"))[-1].casefold().removesuffix(":latest")
    known = _BY_LAST_PART.get(last) or _BY_LAST_PART.get(last.removeprefix("text-embedding-"))
    return known or name


def profile_of(model: str) -> EmbeddingProfile:
    """Return the profile of a model by its name; a plain one for a model not listed."""
    return PROFILES.get(published_name(model), EmbeddingProfile())


class ProfiledEncoder:
    """What encoders of a named model share: its settings and profile, and how to pickle them."""

    def __init__(self, settings: EmbeddingSettings) -> None:
        self.model, self._settings = settings.model, settings
        self._profile = profile_of(settings.model)

    def __reduce__(self) -> tuple[type[ProfiledEncoder], tuple[EmbeddingSettings]]:
        """Return how to pickle the encoder: by its settings, without the loaded model."""
        return type(self), (self._settings,)

    def _chosen_dim(self, full: int) -> int:
        """Return the set length of the vectors, or that of the model; raise ``ConfigError``."""
        wanted, shorter = self._settings.dim or full, self._profile.shorter
        if wanted == full or wanted in shorter:
            return wanted
        is_range = isinstance(shorter, range)
        allowed = f"{shorter[0]} to {full}" if is_range else " or ".join(map(str, (full, *shorter)))
        raise ConfigError(
            f"IDX_EMBEDDING__DIM is {wanted}, but a vector of {self.model} has {allowed} numbers"
        )

    def _cut_mark(self) -> tuple[int, ...]:
        """Return the set length for the fingerprint; nothing if it is the model's, or unknown."""
        wanted, own = self._settings.dim, self._profile.dim
        return () if wanted is None or own in (None, wanted) else (wanted,)


def foreign_share(passages: Mapping[str, int], known: Collection[str]) -> float:
    """Return the share of passages in languages other than the known ones, 0 if below a fifth.

    ``passages`` counts them by language, ``""`` for an unknown one. An empty ``known`` gives 0.
    """
    foreign = sum(count for name, count in passages.items() if name and name not in known)
    share = foreign / max(1, sum(passages.values()))
    # fewer may be short passages with a wrongly detected language
    return share if known and share >= 0.2 else 0.0
