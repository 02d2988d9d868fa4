"""Known models that are not part of a package: how to run them, and what is published of them.

Size, licence, languages and quality are those of each model's card, or of its publisher's pages;
an empty field was not found there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from catalog.models.packaged import Kind


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A known model: the provider that runs it from the hub, and what its publisher says."""

    kind: Kind
    provider: str
    parameters: str
    licence: str
    languages: str
    quality: str = ""


_EN, _MANY, _APACHE = "English", "over 100", "Apache-2.0"
_ONNX, _TORCH, _CROSS = "fastembed", "huggingface", "sentence_transformers"

PUBLISHED: Mapping[str, PublishedModel] = {
    "MongoDB/mdbr-leaf-ir": PublishedModel(
        "embedding", _TORCH, "23 M", _APACHE, _EN, "BEIR-15 nDCG@10 .536, its card"
    ),
    "Snowflake/snowflake-arctic-embed-s": PublishedModel(
        "embedding", _ONNX, "33 M", _APACHE, _EN, "MTEB retrieval nDCG@10 .520, its card"
    ),
    "ibm-granite/granite-embedding-small-english-r2": PublishedModel(
        "embedding", _ONNX, "47 M", _APACHE, _EN, "MTEB v2 retrieval .539, its publisher"
    ),
    "ibm-granite/granite-embedding-97m-multilingual-r2": PublishedModel(
        "embedding",
        _TORCH,
        "97 M",
        _APACHE,
        "over 200",
        "multilingual MTEB retrieval .596, its card",
    ),
    "Snowflake/snowflake-arctic-embed-m-v1.5": PublishedModel(
        "embedding", _TORCH, "109 M", _APACHE, _EN, "MTEB retrieval nDCG@10 .551, its card"
    ),
    "nomic-ai/nomic-embed-text-v1.5": PublishedModel(
        "embedding", _ONNX, "137 M", _APACHE, _EN, "MTEB mean .623, its card"
    ),
    "Alibaba-NLP/gte-modernbert-base": PublishedModel(
        "embedding", _TORCH, "149 M", _APACHE, _EN, "BEIR nDCG@10 .553, its card"
    ),
    "google/embeddinggemma-300m": PublishedModel(
        "embedding",
        _ONNX,
        "308 M",
        "Gemma terms",
        _MANY,
        "multilingual MTEB v2 mean .612, its card",
    ),
    "nomic-ai/nomic-embed-text-v2-moe": PublishedModel(
        "embedding", "openai", "475 M", _APACHE, "about 100", "BEIR nDCG@10 .529, its card"
    ),
    "Qwen/Qwen3-Embedding-0.6B": PublishedModel(
        "embedding", _ONNX, "600 M", _APACHE, _MANY, "multilingual MTEB mean .643, its card"
    ),
    "cross-encoder/ettin-reranker-17m-v1": PublishedModel(
        "reranker",
        _CROSS,
        "17 M",
        _APACHE,
        _EN,
        "MTEB v2 retrieval .558 over 6 embedders, its blog",
    ),
    "cross-encoder/ettin-reranker-32m-v1": PublishedModel(
        "reranker",
        _CROSS,
        "32 M",
        _APACHE,
        _EN,
        "MTEB v2 retrieval .578 over 6 embedders, its blog",
    ),
    "mixedbread-ai/mxbai-rerank-xsmall-v1": PublishedModel(
        "reranker", _CROSS, "70 M", _APACHE, _EN, "11 of BEIR nDCG@10 .439, its publisher"
    ),
    "mixedbread-ai/mxbai-rerank-base-v1": PublishedModel(
        "reranker", _CROSS, "184 M", _APACHE, _EN, "11 of BEIR nDCG@10 .469, its publisher"
    ),
    "mixedbread-ai/mxbai-rerank-base-v2": PublishedModel(
        "reranker", "http", "494 M", _APACHE, _MANY, "BEIR nDCG@10 .556, its publisher"
    ),
    "BAAI/bge-reranker-v2-m3": PublishedModel("reranker", _ONNX, "568 M", _APACHE, "multilingual"),
}
