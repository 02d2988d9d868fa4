"""The answers' JSON, described: what HTTP and MCP publish as their schemas."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from catalog.core.results import Comparison, Mode, SearchResult, StageReport


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SearchShape(_Shape):
    """Passages, best first, and how the search went; see ``docs/scoring.md`` for the numbers."""

    query: str
    dataset: str
    mode: Mode
    results: tuple[SearchResult, ...]
    elapsed_ms: float
    confidence: float | None
    low_confidence: bool | None
    stages: tuple[StageReport, ...]
    comparison: Comparison | None = None
    notes: tuple[str, ...] = ()


class DocumentShape(_Shape):
    """A document's lines ``line_start`` to ``line_end`` (both included) of ``lines_total``."""

    source_doc_id: str
    path: str
    docid: str
    title: str
    metadata: dict[str, Any]
    line_start: int
    line_end: int
    lines_total: int
    text: str
    notes: tuple[str, ...] = ()


class SkippedShape(_Shape):
    """A document that is named but not given."""

    source_doc_id: str
    path: str
    reason: str


class DocumentsShape(_Shape):
    """Several documents, by path."""

    documents: tuple[DocumentShape, ...]
    skipped: tuple[SkippedShape, ...]
    notes: tuple[str, ...] = ()


class StatusShape(_Shape):
    """What the store holds, and which model and engines are set; ``datasets`` in full counts."""

    home: str
    model: str | None
    fingerprint: str | None
    dim: int | None
    lexical_engine: str
    vector_engine: str
    query_cache: dict[str, int]
    datasets: tuple[dict[str, Any], ...]
