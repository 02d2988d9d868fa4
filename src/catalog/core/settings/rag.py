"""``IDX_RAG_V2__*``: every knob of the v2 pipeline."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import BaseSettings

from catalog.core.entry_points import Group, find_engine
from catalog.core.settings.variables import (
    V2_PREFIX,
    ApiKey,
    SettingsSection,
    Share,
    read_environment,
    refuse_unknown_variables,
    setting,
    shaping,
)


def _engine(group: Group) -> AfterValidator:
    return AfterValidator(lambda name: find_engine(group, name).name)


class IngestSettings(SettingsSection):
    """``IDX_RAG_V2__INGEST__*``: how documents are read and stored."""

    max_file_bytes: int = setting(
        20_000_000, "Larger text files are skipped and reported.", (1, 2_000_000_000)
    )
    max_document_bytes: int = setting(
        200_000_000, "Larger files of other formats are skipped and reported.", (1, 2_000_000_000)
    )
    max_unpacked_bytes: int = setting(
        500_000_000, "Maximum size of an unpacked archive.", (1, 10_000_000_000)
    )
    max_pages: int = setting(
        20_000, "Maximum number of pages, slides or chapters of a file.", (1, 1_000_000)
    )
    read_seconds: float = setting(600.0, "Time limit to read such a file.", gt=0.0, le=86_400.0)
    read_memory_bytes: int = setting(
        2_000_000_000, "Memory limit to read such a file.", (100_000_000, 100_000_000_000)
    )
    group_chars: int = setting(
        64_000, "Characters of new text that are published in one group.", (1, 50_000_000)
    )
    max_missing_fraction: Share = setting(
        0.5, "If more than this share of the files disappeared, the sync stops."
    )
    lock_seconds: float = setting(
        30.0, "Time to wait for another indexing run to end.", (0.0, 3600.0)
    )
    ray: str | None = setting(None, "Ray cluster that embeds: its address, auto, or local.")


class QdrantSettings(SettingsSection):
    """``IDX_RAG_V2__QDRANT__*``: our collections on a Qdrant server."""

    collection_prefix: str = setting(
        "catalog_",
        "Prefix of every collection's name. Stores that share a server need different ones.",
        pattern=r"^[\w.-]{1,100}$",
    )
    timeout_seconds: float = setting(
        30.0, "Time limit of one request to the server.", (1.0, 3_600.0)
    )


class RAGv2Settings(BaseSettings):
    """``IDX_RAG_V2__*``: every knob of the v2 pipeline."""

    model_config = read_environment(V2_PREFIX)

    chunk_size: int = shaping(800, "Largest chunk, in the embedding model's tokens.", (16, 8192))
    chunk_overlap: int = shaping(
        120, "Maximum number of tokens that neighbouring chunks of a section share.", (0, 4096)
    )
    chunk_min_size: int = shaping(
        64, "Least size of a chunk: shorter sections are merged.", (0, 4096)
    )
    transcript_window_seconds: float = shaping(
        60.0,
        "Approximate length of a transcript's passages; 0: cut by size, like text.",
        (0.0, 3600.0),
    )
    transcript_part_seconds: float = shaping(
        20.0, "Length of its parts that have vectors of their own as well; 0: none.", (0.0, 3600.0)
    )
    embed_prefix_query: str | None = setting(
        None, "Text before a query when it is embedded; unset: the model's own."
    )
    embed_prefix_doc: str | None = shaping(
        None, "Text before a passage when it is embedded; unset: the model's own."
    )
    embed_context: bool = shaping(
        True, "Embed a passage together with its path, title and headings."
    )
    embed_context_form: Literal["place", "labels"] = shaping(
        "place",
        "Form of that first line: 'path > Title > Heading', or '[doc: Title] [type: pdf] "
        "[section: Heading > Heading]'.",
    )
    lexical_engine: Annotated[str, _engine("catalog.lexical")] = setting(
        "bm25", "Keyword engine: bm25, fts (the store's own full text), or another package's."
    )
    vector_engine: Annotated[str, _engine("catalog.vectors")] = setting(
        "flat",
        "Vector engine: flat, qdrant (faster from about 100,000 passages; the default with a "
        "qdrant_url), sqlite-vec, or another package's.",
    )
    qdrant_url: str | None = setting(
        None, "Address of a Qdrant server; unset: Qdrant in this process."
    )
    qdrant_api_key: ApiKey = setting(None, "API key for that server.", repr=False)
    top_k: int = setting(10, "Number of passages, unless the call sets it.", (1, 1000))
    vector_top_k: int = setting(
        20, "Depth of the vector leg, before overfetch; adaptive: at least 100.", (1, 1000)
    )
    fts_top_k: int = setting(20, "Depth of the lexical leg, likewise.", (1, 1000))
    bm25_k1: float = setting(1.2, "Higher: a repeated word counts more (bm25).", (0.1, 10.0))
    bm25_b: Share = setting(0.75, "Higher: words of long passages count less (bm25).")
    overfetch: int = setting(
        5, "Factor on both depths, so that fusion and the limit per document have enough.", (1, 100)
    )
    fusion_top_k: int = setting(30, "Candidates kept after fusion.", (1, 2000))
    fusion_mode: Literal["adaptive", "rrf", "relative_score"] = setting(
        "adaptive", "How both lists are fused."
    )
    rrf_k: int = setting(60, "The constant k of 1 / (k + rank), of fusion_mode rrf.", (1, 1000))
    original_weight: float = setting(2.0, "Weight of lists for the user's own query.", (0.0, 100.0))
    expansion_weight: float = setting(1.0, "Weight of lists for expanded queries.", (0.0, 100.0))
    lexical_weight: float = setting(1.0, "Factor on the weight of lexical lists.", (0.0, 100.0))
    vector_weight: float = setting(1.0, "Factor on the weight of vector lists.", (0.0, 100.0))
    bonus_first: float = setting(0.05, "Added by rrf to the first of an own list.", (0.0, 10.0))
    bonus_second: float = setting(0.02, "Added by rrf to its second and third.", (0.0, 10.0))
    max_chunks_per_doc: int = setting(
        3, "Passages of one document in the results; 0: no limit.", (0, 1000)
    )
    max_query_chars: int = setting(2000, "A longer query is cut, with a note.", (16, 100_000))
    snippet_chars: int = setting(300, "Length of a snippet.", (40, 10_000))
    baseline: str = setting(
        "catalog.search:search", "Another search for compare_with_v1: module:function."
    )
    query_cache_size: int = setting(
        2048, "Query embeddings kept in memory; 0: none.", (0, 1_000_000)
    )
    router_enabled: bool = setting(False, "First choose documents by title, summary and metadata.")
    router_documents: int = setting(20, "Number of documents that the router chooses.", (1, 1000))
    expansion_enabled: bool = setting(
        False, "Ask a language model for other words of a query; see IDX_LLM__*."
    )
    expansion_timeout_ms: int = setting(10_000, "Time limit of a query's expansion.", (1, 600_000))
    strong_signal_score: Share = setting(
        0.85, "Skip expansion if the best lexical hit has at least this score …"
    )
    strong_signal_gap: Share = setting(0.15, "… and the second one is this far behind.")
    recency_half_life_days: float = setting(
        0.0, "Age in days at which passages have half their score; 0: no decay.", (0.0, 100_000.0)
    )
    chunk_selection: Literal["fused", "keyword"] = setting(
        "fused", "keyword: only the passage of each document with most query words."
    )
    distinct_text: bool = setting(
        True, "Show passages with the same text once, and list the other places."
    )
    rerank_enabled: bool = setting(False, "Let a second model rerank the best passages.")
    rerank_provider: Literal["fastembed", "sentence_transformers", "llm", "http"] = setting(
        "fastembed", "Where the reranker runs."
    )
    rerank_model: str = setting(
        "cross-encoder/ms-marco-MiniLM-L-12-v2",
        "Name of the reranker: on the hub, of a folder, or on its server.",
    )
    rerank_candidates: int = setting(3, "Passages that are reranked.", (1, 1000))
    rerank_top_n: int = setting(
        0, "Passages kept after reranking; 0: as many as asked for.", (0, 1000)
    )
    rerank_blend: Literal["position", "linear", "replace"] = setting(
        "linear", "How its scores and the fused ones are joined."
    )
    rerank_weight: Share = setting(0.3, "The reranker's share of a linear blend.")
    rerank_budget_ms: int = setting(
        0, "Time budget; fewer passages are reranked to keep it. 0: no limit.", (0, 600_000)
    )
    rerank_url: str | None = setting(None, "Address of a rerank server (Cohere's form of request).")
    rerank_api_key: ApiKey = setting(None, "API key for that server.", repr=False)
    similarity_threshold: Share = setting(0.0, "Least relevance of a passage; 0: no limit.")
    low_confidence_below: Share = setting(0.2, "Results whose best relevance is lower are flagged.")
    token_budget: int = setting(
        0, "Maximum number of tokens of all passages together; 0: no limit.", (0, 10_000_000)
    )
    temporal_enabled: bool = setting(
        True, "Show the rest of a recording around a passage that was found."
    )
    temporal_transcript_seconds: float = setting(
        15.0, "Seconds shown before and after a passage of a transcript.", (0.0, 600.0)
    )
    temporal_frame_seconds: float = setting(
        10.0, "Seconds shown before and after a frame of a video.", (0.0, 600.0)
    )
    cache_ttl_seconds: int = setting(
        7 * 24 * 3600, "How long answers of models are kept, in seconds; 0: not at all.", (0, None)
    )
    ingest: IngestSettings = Field(default_factory=IngestSettings)
    qdrant: QdrantSettings = Field(default_factory=QdrantSettings)

    def __init__(self, **values: Any) -> None:
        refuse_unknown_variables(V2_PREFIX, type(self))
        super().__init__(**values)

    @model_validator(mode="after")
    def _fit_together(self) -> RAGv2Settings:
        if self.qdrant_url is not None and "vector_engine" not in self.model_fields_set:
            object.__setattr__(self, "vector_engine", "qdrant")
        if self.chunk_overlap * 2 >= self.chunk_size:
            raise ValueError(f"chunk_overlap must be under half of chunk_size {self.chunk_size}")
        if self.chunk_min_size >= self.chunk_size:
            raise ValueError(f"chunk_min_size must be less than chunk_size {self.chunk_size}")
        return self
