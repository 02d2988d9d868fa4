"""Documents and chunks as LlamaIndex nodes: what passes between the steps of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from llama_index.core.schema import Document, NodeRelationship, RelatedNodeInfo, TextNode
from pydantic import Field, InstanceOf

from catalog.core import ids
from catalog.core.documents import ChunkSpan, ParsedDocument
from catalog.store.revisions import content_hash


@dataclass(frozen=True)
class Source:
    """A document on its way into a dataset.

    ``file`` is the listed file it came from, ``modified`` that file's time where file and
    document are one (ISO 8601, UTC).
    """

    dataset: str
    file: str
    parsed: ParsedDocument
    modified: str | None = None

    @cached_property
    def content_hash(self) -> str:
        """The hash of the document's content; see :mod:`catalog.store.revisions`."""
        return content_hash(self.parsed)

    @cached_property
    def source_doc_id(self) -> str:
        """The stable id ``dataset:path``."""
        return ids.source_doc_id(self.dataset, self.parsed.path)

    @cached_property
    def revision_id(self) -> str:
        """The id of this content of the document."""
        return ids.revision_id(self.source_doc_id, self.content_hash)


class SourceDocument(Document):
    """A LlamaIndex ``Document`` that remembers what its reader found (headings, tables …)."""

    source: InstanceOf[Source] = Field(exclude=True, repr=False)

    @classmethod
    def of(cls, source: Source) -> SourceDocument:
        """Wrap a parsed document."""
        return cls(id_=source.source_doc_id, text=source.parsed.text, source=source)


class ChunkNode(TextNode):
    """A LlamaIndex ``TextNode`` for one chunk: deterministic id, exact offsets.

    ``windows`` are the texts the model shall see, ``embed_keys`` the cache keys of their
    vectors, ``vectors`` those there are by key, ``embedded_by`` the model's fingerprint; none is
    part of the node's text or metadata, so no prefix can leak from here.
    """

    source: InstanceOf[Source] = Field(exclude=True, repr=False)
    span: InstanceOf[ChunkSpan] = Field(exclude=True, repr=False)
    windows: tuple[str, ...] = Field((), exclude=True, repr=False)
    embed_keys: tuple[str, ...] = Field((), exclude=True, repr=False)
    vectors: dict[str, Any] = Field(default_factory=dict, exclude=True, repr=False)
    embedded_by: str = Field("", exclude=True, repr=False)

    @classmethod
    def of(cls, source: Source, span: ChunkSpan) -> ChunkNode:
        """Make the node of one span of a document."""
        parsed = source.parsed
        metadata = {
            "source_doc_id": source.source_doc_id,
            "dataset": source.dataset,
            "path": parsed.path,
            "title": parsed.title,
            "heading_path": list(span.heading_path),
            "modality": span.modality,
            "line_start": span.locator.line_start,
            "line_end": span.locator.line_end,
        }
        return cls(
            id_=ids.chunk_id(source.revision_id, span.modality, span.start),
            text=parsed.text[span.start : span.end],
            start_char_idx=span.start,
            end_char_idx=span.end,
            metadata=metadata,
            excluded_embed_metadata_keys=list(metadata),
            excluded_llm_metadata_keys=list(metadata),
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=source.source_doc_id)},
            source=source,
            span=span,
        )


def get_source(document: Any, dataset: str) -> Source:
    """Return the source behind a node; a plain LlamaIndex ``Document`` is taken as plain text."""
    if isinstance(document, SourceDocument):
        return document.source
    path = str(document.metadata.get("file_path") or document.metadata.get("path") or document.id_)
    parsed = ParsedDocument(
        path=path,
        text=document.get_content(),
        title=str(document.metadata.get("title") or PurePosixPath(path).stem),
        file_type=PurePosixPath(path).suffix.lstrip(".") or "txt",
        source_type="llama_index",
        metadata={
            key: value
            for key, value in document.metadata.items()
            if isinstance(value, str | int | float | bool)
        },
    )
    return Source(dataset, path, parsed)
