"""The conventions of each known model: prefixes, pooling, window, dimension and languages.

They come from the model cards. A model that is not listed gets no prefix.
"""

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

    ``max_tokens`` and ``dim`` are ``None`` if they are known only after the model is loaded.
    ``pooling`` is ``other`` for the last token, or for layers after the mean. ``languages`` are
    those of its training, by Snowball name; empty for a multilingual model, or if unknown. A vector
    may be cut to the lengths in ``shorter``, less the mean of its numbers if ``is_centred``.
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

        cut = []
        for vector in vectors:
            if len(vector) > dim:
                whole = np.asarray(vector, dtype=np.float64)
                first = (whole - whole.mean() if self.is_centred else whole)[:dim]
                length = max(float(np.linalg.norm(first)), 1e-12)
                cut.append((first / length).astype(np.float32))
            else:
                cut.append(vector)
        return cut


_LEAST_FOREIGN = 0.2  # share of passages: fewer may be short ones with a wrongly detected language

_BGE_QUERY = "Represent this sentence for searching relevant passages: "

_ENGLISH = ("english",)

_QWEN3_QUERY = (
    "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
)

_Of = EmbeddingProfile
PROFILES: Mapping[str, EmbeddingProfile] = {
    "BAAI/bge-small-en-v1.5": _Of(_BGE_QUERY, "", "cls", 512, 384, _ENGLISH),
    "BAAI/bge-base-en-v1.5": _Of(_BGE_QUERY, "", "cls", 512, 768, _ENGLISH),
    "BAAI/bge-large-en-v1.5": _Of(_BGE_QUERY, "", "cls", 512, 1024, _ENGLISH),
    "sentence-transformers/all-MiniLM-L6-v2": _Of("", "", "mean", 256, 384, _ENGLISH),
    "intfloat/e5-small-v2": _Of("query: ", "passage: ", "mean", 512, 384, _ENGLISH),
    "intfloat/multilingual-e5-small": _Of("query: ", "passage: ", "mean", 512, 384),
    "nomic-ai/nomic-embed-text-v1.5": _Of(
        "search_query: ",
        "search_document: ",
        "mean",
        8192,
        768,
        _ENGLISH,
        (512, 256, 128, 64),
        True,
    ),
    "nomic-ai/nomic-embed-text-v2-moe": _Of(
        "search_query: ", "search_document: ", "mean", 512, 768, shorter=(256,)
    ),
    "MongoDB/mdbr-leaf-ir": _Of(_BGE_QUERY, "", "other", 512, 768, _ENGLISH, (256,)),
    "Snowflake/snowflake-arctic-embed-s": _Of(_BGE_QUERY, "", "cls", 512, 384, _ENGLISH),
    "Snowflake/snowflake-arctic-embed-m-v1.5": _Of(
        _BGE_QUERY, "", "cls", 512, 768, _ENGLISH, (256,)
    ),
    "Alibaba-NLP/gte-modernbert-base": _Of("", "", "cls", 8192, 768, _ENGLISH),
    "ibm-granite/granite-embedding-small-english-r2": _Of("", "", "cls", 8192, 384, _ENGLISH),
    "ibm-granite/granite-embedding-97m-multilingual-r2": _Of("", "", "cls", 32768, 384),
    "google/embeddinggemma-300m": _Of(
        "task: search result | query: ",
        "title: none | text: ",
        "other",
        2048,
        768,
        (),
        (512, 256, 128),
    ),
    "Qwen/Qwen3-Embedding-0.6B": _Of(
        _QWEN3_QUERY, "", "other", 32768, 1024, shorter=range(32, 1024)
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
    """Return a known model's name on the hub for its name on a server, or that of its folder.

    An unknown name is returned as it was. A folder counts as the model that it is named after:
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


def chosen_dim(settings: EmbeddingSettings, full: int) -> int:
    """Return the length of the vectors: the set one, or that of the model.

    Raises :class:`ConfigError` for a length to which the model's vectors may not be cut.
    """
    wanted, shorter = settings.dim or full, profile_of(settings.model).shorter
    if wanted == full or wanted in shorter:
        return wanted
    allowed = f"{shorter[0]} to {full}" if isinstance(shorter, range) else [full, *shorter]
    raise ConfigError(
        f"IDX_EMBEDDING__DIM is {wanted}, but a vector of {settings.model} has "
        + (allowed if isinstance(allowed, str) else " or ".join(map(str, allowed)))
        + " numbers"
    )


def cut_mark(settings: EmbeddingSettings) -> tuple[int, ...]:
    """Return the set length for the fingerprint; nothing if it is the model's own, or unknown."""
    own = profile_of(settings.model).dim
    return () if settings.dim is None or own in (None, settings.dim) else (settings.dim,)


def foreign_share(passages: Mapping[str, int], known: Collection[str]) -> float:
    """Return the share of passages in languages other than the known ones, 0 if below a fifth.

    ``passages`` counts them by language, with ``""`` for an unknown one. An empty ``known`` means
    that the model knows all languages, or that its languages are unknown: then it is 0.
    """
    foreign = sum(count for name, count in passages.items() if name and name not in known)
    share = foreign / max(1, sum(passages.values()))
    return share if known and share >= _LEAST_FOREIGN else 0.0
