"""The conventions of each known model: prefixes, pooling, window and dimension.

Prefixes come from the model cards. A model that is not listed gets no prefix.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class EmbeddingProfile:
    """A model's conventions; ``max_tokens`` includes special tokens, ``dim`` is the vector size.

    ``max_tokens`` and ``dim`` are ``None`` if they are known only after the model is loaded.
    ``languages`` are those of its training, by Snowball name; empty for a multilingual model, or if
    unknown.
    """

    query_prefix: str = ""
    document_prefix: str = ""
    pooling: Literal["cls", "mean"] = "mean"
    max_tokens: int | None = None
    dim: int | None = None
    languages: tuple[str, ...] = ()


_LEAST_FOREIGN = 0.2  # share of passages: fewer may be short ones with a wrongly detected language

_BGE_QUERY = "Represent this sentence for searching relevant passages: "

_ENGLISH = ("english",)

PROFILES: Mapping[str, EmbeddingProfile] = {
    "BAAI/bge-small-en-v1.5": EmbeddingProfile(_BGE_QUERY, "", "cls", 512, 384, _ENGLISH),
    "BAAI/bge-base-en-v1.5": EmbeddingProfile(_BGE_QUERY, "", "cls", 512, 768, _ENGLISH),
    "BAAI/bge-large-en-v1.5": EmbeddingProfile(_BGE_QUERY, "", "cls", 512, 1024, _ENGLISH),
    "sentence-transformers/all-MiniLM-L6-v2": EmbeddingProfile("", "", "mean", 256, 384, _ENGLISH),
    "intfloat/e5-small-v2": EmbeddingProfile("query: ", "passage: ", "mean", 512, 384, _ENGLISH),
    "intfloat/multilingual-e5-small": EmbeddingProfile("query: ", "passage: ", "mean", 512, 384),
    "nomic-ai/nomic-embed-text-v1.5": EmbeddingProfile(
        "search_query: ", "search_document: ", "mean", 8192, 768, _ENGLISH
    ),
    # on servers only; Cohere's distinguish queries and passages by a field of the request
    "embed-english-v3.0": EmbeddingProfile(max_tokens=512, dim=1024, languages=_ENGLISH),
    "embed-english-light-v3.0": EmbeddingProfile(max_tokens=512, dim=384, languages=_ENGLISH),
    "embed-multilingual-v3.0": EmbeddingProfile(max_tokens=512, dim=1024),
    "embed-multilingual-light-v3.0": EmbeddingProfile(max_tokens=512, dim=384),
    "text-embedding-3-small": EmbeddingProfile(max_tokens=8191, dim=1536),
    "text-embedding-3-large": EmbeddingProfile(max_tokens=8191, dim=3072),
    "text-embedding-ada-002": EmbeddingProfile(max_tokens=8191, dim=1536),
}

_NOMIC = "nomic-ai/nomic-embed-text-v1.5"
_ALIASES = {
    "nomic-embed-text-v1.5": _NOMIC,
    "nomic-embed-text:v1.5": _NOMIC,
    "nomic-embed-text": _NOMIC,
    "nomic-embed-text:latest": _NOMIC,
    "text-embedding-nomic-embed-text-v1.5": _NOMIC,
}


def published_name(model: str) -> str:
    """Return a model's name on the hub for its name on a server; other names unchanged.

    ``hf:nomic-ai/nomic-embed-text-v1.5`` becomes ``nomic-ai/nomic-embed-text-v1.5``.
    """
    name = model.removeprefix("hf:")
    return _ALIASES.get(name, name)


def profile_of(model: str) -> EmbeddingProfile:
    """Return the profile of a model by its name; a plain one for a model not listed."""
    return PROFILES.get(published_name(model), EmbeddingProfile())


def foreign_share(passages: Mapping[str, int], known: Collection[str]) -> float:
    """Return the share of passages in languages other than the known ones, 0 if below a fifth.

    ``passages`` counts them by language, with ``""`` for an unknown one. An empty ``known`` means
    that the model knows all languages, or that its languages are unknown: then it is 0.
    """
    foreign = sum(count for name, count in passages.items() if name and name not in known)
    share = foreign / max(1, sum(passages.values()))
    return share if known and share >= _LEAST_FOREIGN else 0.0
