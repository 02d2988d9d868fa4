"""``IDX_RAG_V2__*``: every knob of the v2 pipeline."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from catalog.core.entry_points import Group, find_engine
from catalog.core.errors import UnknownEngineError
from catalog.core.settings.qdrant import QdrantSettings
from catalog.core.settings.text_search import TsvectorSettings
from catalog.core.settings.variables import V2_PREFIX, ApiKey, refuse_unknown_variables

# Of a setting whose change re-cuts or re-embeds the documents.
NEEDS_REBUILD: dict[str, JsonValue] = {"rebuild": True}


def acts_only_with(**choice: JsonValue) -> dict[str, JsonValue]:
    """Mark a setting that does something only while another one of v2 has this value."""
    return {"acts_only_with": dict(choice)}


def _name_of_engine(group: Group) -> AfterValidator:
    def check(name: str) -> str:
        try:
            return find_engine(group, name).name
        except UnknownEngineError as error:
            raise PydanticCustomError("unknown_engine", "{why}", {"why": str(error)}) from error

    return AfterValidator(check)


_ONLY_RRF = acts_only_with(fusion_mode="rrf")


class IngestSettings(BaseModel):
    """``IDX_RAG_V2__INGEST__*``: how documents are read and stored."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    max_file_bytes: int = Field(
        20_000_000,
        ge=1,
        le=2_000_000_000,
        description="Larger text files are skipped and reported.",
    )
    max_document_bytes: int = Field(
        200_000_000,
        ge=1,
        le=2_000_000_000,
        description="Larger PDF, Word, PowerPoint, e-book and notebook files are skipped and "
        "reported.",
    )
    max_unpacked_bytes: int = Field(
        500_000_000, ge=1, le=10_000_000_000, description="Maximum size of an unpacked archive."
    )
    max_pages: int = Field(
        20_000,
        ge=1,
        le=1_000_000,
        description="Maximum number of pages, slides or chapters of a file.",
    )
    read_seconds: float = Field(
        600.0, gt=0.0, le=86_400.0, description="Time limit to read such a file."
    )
    read_memory_bytes: int = Field(
        2_000_000_000,
        ge=100_000_000,
        le=100_000_000_000,
        description="Memory limit to read such a file.",
    )
    group_chars: int = Field(
        64_000,
        ge=1,
        le=50_000_000,
        description="Characters of new text that are published in one group.",
    )
    max_missing_fraction: float = Field(
        0.5,
        ge=0.0,
        le=1.0,
        description="If more than this share of the files disappeared, the sync stops.",
    )
    lock_seconds: float = Field(
        30.0, ge=0.0, le=3600.0, description="Time to wait for another indexing run to end."
    )
    ray: str | None = Field(
        None,
        description="Ray cluster that embeds: its address, auto, or local (docs/how-to/ray.md).",
    )


class RAGv2Settings(BaseSettings):
    """``IDX_RAG_V2__*``: every knob of the v2 pipeline."""

    model_config = SettingsConfigDict(
        env_prefix=V2_PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    chunk_size: int = Field(
        800,
        ge=16,
        le=8192,
        description="Largest chunk, in the embedding model's tokens.",
        json_schema_extra=NEEDS_REBUILD,
    )
    chunk_overlap: int = Field(
        120,
        ge=0,
        le=4096,
        description="Maximum number of tokens that neighbouring chunks of a section share.",
        json_schema_extra=NEEDS_REBUILD,
    )
    chunk_min_size: int = Field(
        64,
        ge=0,
        le=4096,
        description="Least size of a chunk: shorter sections are merged.",
        json_schema_extra=NEEDS_REBUILD,
    )
    transcript_window_seconds: float = Field(
        60.0,
        ge=0.0,
        le=3600.0,
        description="Approximate length of a transcript's passages; 0: cut by size, like text.",
        json_schema_extra=NEEDS_REBUILD,
    )
    transcript_part_seconds: float = Field(
        20.0,
        ge=0.0,
        le=3600.0,
        description="Parts of such a passage with a vector of their own, in addition to the "
        "passage's; 0: none.",
        json_schema_extra=NEEDS_REBUILD,
    )
    embed_prefix_query: str | None = Field(
        None, description="Text before a query when it is embedded; unset: the model's own."
    )
    embed_prefix_doc: str | None = Field(
        None,
        description="Text before a passage when it is embedded; unset: the model's own.",
        json_schema_extra=NEEDS_REBUILD,
    )
    embed_context: bool = Field(
        True,
        description="Embed a passage together with its path, title and headings.",
        json_schema_extra=NEEDS_REBUILD,
    )
    embed_context_form: Literal["place", "labels"] = Field(
        "place",
        description="Form of that first line: 'path > Title > Heading', or '[doc: Title] [type: "
        "pdf] [section: Heading > Heading]'.",
        json_schema_extra=NEEDS_REBUILD,
    )
    lexical_engine: Annotated[str, _name_of_engine("catalog.lexical")] = Field(
        "bm25",
        description="Keyword engine: bm25, fts (the store's own full text), or another package's "
        "(docs/how-to/write-an-engine.md).",
    )
    vector_engine: Annotated[str, _name_of_engine("catalog.vectors")] = Field(
        "qdrant",
        description="Vector engine: qdrant, sqlite-vec, exact, or another package's.",
    )
    qdrant_url: str | None = Field(
        None, description="Address of a Qdrant server; unset: Qdrant in this process."
    )
    qdrant_api_key: ApiKey = Field(None, description="API key for that server.", repr=False)
    top_k: int = Field(
        10, ge=1, le=1000, description="Number of passages, unless the call sets it."
    )
    vector_top_k: int = Field(
        20,
        ge=1,
        le=1000,
        description="Depth of the vector leg, before overfetch. Adaptive fusion reads at least "
        "100.",
    )
    fts_top_k: int = Field(20, ge=1, le=1000, description="Depth of the lexical leg, likewise.")
    overfetch: int = Field(
        5,
        ge=1,
        le=100,
        description="Factor on both depths, so that fusion and the limit per document have enough.",
    )
    fusion_top_k: int = Field(30, ge=1, le=2000, description="Candidates kept after fusion.")
    fusion_mode: Literal["adaptive", "rrf", "relative_score"] = Field(
        "adaptive", description="How both lists are fused; see docs/explanation/scoring.md."
    )
    rrf_k: int = Field(
        60,
        ge=1,
        le=1000,
        description="The constant k of 1 / (k + rank).",
        json_schema_extra=_ONLY_RRF,
    )
    original_weight: float = Field(
        2.0, ge=0.0, le=100.0, description="Weight of lists for the user's own query."
    )
    expansion_weight: float = Field(
        1.0, ge=0.0, le=100.0, description="Weight of lists for expanded queries."
    )
    lexical_weight: float = Field(
        1.0, ge=0.0, le=100.0, description="Factor on the weight of every lexical list."
    )
    vector_weight: float = Field(
        1.0, ge=0.0, le=100.0, description="Factor on the weight of every vector list."
    )
    bonus_first: float = Field(
        0.05,
        ge=0.0,
        le=10.0,
        description="Added once to a passage that is first in a list of the user's own query.",
        json_schema_extra=_ONLY_RRF,
    )
    bonus_second: float = Field(
        0.02,
        ge=0.0,
        le=10.0,
        description="Added once to a passage that is second or third there.",
        json_schema_extra=_ONLY_RRF,
    )
    max_chunks_per_doc: int = Field(
        3, ge=0, le=1000, description="Passages of one document in the results; 0: no limit."
    )
    max_query_chars: int = Field(
        2000, ge=16, le=100_000, description="A longer query is cut, with a note."
    )
    snippet_chars: int = Field(300, ge=40, le=10_000, description="Length of a snippet.")
    baseline: str = Field(
        "catalog.search:search",
        description="Another search for compare_with_v1: module:function, called with the query.",
    )
    query_cache_size: int = Field(
        2048, ge=0, le=1_000_000, description="Query embeddings kept in memory; 0: none."
    )
    router_enabled: bool = Field(
        False, description="First choose documents by title, summary and metadata."
    )
    router_documents: int = Field(
        20, ge=1, le=1000, description="Number of documents that the router chooses."
    )
    expansion_enabled: bool = Field(
        False, description="Ask a language model for other words of a query; see IDX_LLM__*."
    )
    expansion_source: Literal["lines", "hyde"] = Field(
        "lines", description="Ask for lex:, vec: and hyde: lines, or for one HyDE passage."
    )
    expansion_lex_max: int = Field(3, ge=0, le=10, description="lex: lines of one expansion.")
    expansion_vec_max: int = Field(3, ge=0, le=10, description="vec: lines of one expansion.")
    expansion_hyde_max: int = Field(1, ge=0, le=5, description="hyde: passages of one expansion.")
    expansion_timeout_ms: int = Field(
        10_000, ge=1, le=600_000, description="Time limit of a query's expansion."
    )
    strong_signal_score: float = Field(
        0.85,
        ge=0.0,
        le=1.0,
        description="Skip expansion if the best lexical hit has at least this score …",
    )
    strong_signal_gap: float = Field(
        0.15, ge=0.0, le=1.0, description="… and the second one is this far behind."
    )
    recency_half_life_days: float = Field(
        0.0,
        ge=0.0,
        le=100_000.0,
        description="Age of a document in days at which its passages have half their score; 0: "
        "no decay.",
    )
    chunk_selection: Literal["fused", "keyword"] = Field(
        "fused",
        description="keyword: only the passage of each document with most query words.",
    )
    distinct_text: bool = Field(
        True, description="Show passages with the same text once, and list the other places."
    )
    rerank_enabled: bool = Field(False, description="Let a second model rerank the best passages.")
    rerank_provider: Literal["fastembed", "sentence_transformers", "llm", "http"] = Field(
        "fastembed", description="Where the reranker runs."
    )
    rerank_model: str = Field(
        "cross-encoder/ms-marco-MiniLM-L-12-v2",
        description="Name of the reranker: on the hub, of a folder, or on its server.",
    )
    rerank_candidates: int = Field(3, ge=1, le=1000, description="Passages that are reranked.")
    rerank_top_n: int = Field(
        0, ge=0, le=1000, description="Passages kept after reranking; 0: as many as asked for."
    )
    rerank_blend: Literal["position", "linear", "replace"] = Field(
        "linear",
        description="How the reranker's scores and the fused ones are joined; see "
        "docs/explanation/scoring.md.",
    )
    rerank_weight: float = Field(
        0.3,
        ge=0.0,
        le=1.0,
        description="The reranker's share of a linear blend.",
        json_schema_extra=acts_only_with(rerank_blend="linear"),
    )
    rerank_max_tokens: int = Field(
        256, ge=32, le=8192, description="Tokens of query and passage that the reranker reads."
    )
    rerank_budget_ms: int = Field(
        0,
        ge=0,
        le=600_000,
        description="Time budget; fewer passages are reranked to keep it. 0: no limit.",
    )
    rerank_url: str | None = Field(
        None, description="Address of a rerank server (Cohere's form of request)."
    )
    rerank_api_key: ApiKey = Field(None, description="API key for that server.", repr=False)
    similarity_threshold: float = Field(
        0.0, ge=0.0, le=1.0, description="Least relevance of a passage; 0: no limit."
    )
    low_confidence_below: float = Field(
        0.2, ge=0.0, le=1.0, description="Results whose best relevance is lower are flagged."
    )
    token_budget: int = Field(
        0,
        ge=0,
        le=10_000_000,
        description="Maximum number of tokens of all passages together; 0: no limit.",
    )
    temporal_enabled: bool = Field(
        True, description="Show the rest of a recording around a passage that was found."
    )
    temporal_transcript_seconds: float = Field(
        15.0,
        ge=0.0,
        le=600.0,
        description="Seconds shown before and after a passage of a transcript.",
    )
    temporal_frame_seconds: float = Field(
        10.0, ge=0.0, le=600.0, description="Seconds shown before and after a frame of a video."
    )
    temporal_max_chars: int = Field(
        6000,
        ge=0,
        le=1_000_000,
        description="Characters shown of one recording, nearest to the best sentence.",
    )
    cache_ttl_seconds: int = Field(
        7 * 24 * 3600,
        ge=0,
        description="How long expansions, rerank scores and the answers of a stopped 'eval "
        "answers' are kept; 0: not at all.",
    )
    ingest: IngestSettings = Field(default_factory=IngestSettings)
    qdrant: QdrantSettings = Field(default_factory=QdrantSettings)
    tsvector: TsvectorSettings = Field(default_factory=TsvectorSettings)

    def __init__(self, **values: Any) -> None:
        refuse_unknown_variables(V2_PREFIX, type(self))
        super().__init__(**values)

    @model_validator(mode="after")
    def _sizes_fit(self) -> RAGv2Settings:
        if self.chunk_overlap * 2 >= self.chunk_size:
            raise ValueError(
                f"chunk_overlap must be less than half of chunk_size {self.chunk_size}"
            )
        if self.chunk_min_size >= self.chunk_size:
            raise ValueError(f"chunk_min_size must be less than chunk_size {self.chunk_size}")
        return self
