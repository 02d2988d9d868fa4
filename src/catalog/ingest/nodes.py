"""Documents and chunks in LlamaIndex's clothes: what passes between the steps of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from llama_index.core.schema import Document, NodeRelationship, RelatedNodeInfo, TextNode
from pydantic import PrivateAttr

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
        """See :func:`catalog.store.revisions.content_hash`."""
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
    """A LlamaIndex ``Document`` that remembers what its reader found out (headings, tables …)."""

    _source: Source = PrivateAttr()

    @classmethod
    def of(cls, source: Source) -> SourceDocument:
        """Wrap a parsed document."""
        document = cls(id_=source.source_doc_id, text=source.parsed.text)
        document._source = source
        return document

    @property
    def source(self) -> Source:
        """The parsed document within its dataset."""
        return self._source


class ChunkNode(TextNode):
    """A LlamaIndex ``TextNode`` for one chunk: deterministic id, exact offsets.

    ``windows`` are the texts the model shall see, ``embed_keys`` the cache keys of their
    vectors; neither is part of the node's text or metadata, so no prefix can leak from here.
    """

    _source: Source = PrivateAttr()
    _span: ChunkSpan = PrivateAttr()
    _windows: tuple[str, ...] = PrivateAttr(default=())
    _embed_keys: tuple[str, ...] = PrivateAttr(default=())

    @classmethod
    def of(cls, source: Source, span: ChunkSpan) -> ChunkNode:
        """The node of one span of a document."""
        parsed = source.parsed
        node = cls(
            id_=ids.chunk_id(source.revision_id, span.modality, span.start),
            text=parsed.text[span.start : span.end],
            start_char_idx=span.start,
            end_char_idx=span.end,
            metadata=_metadata(source, span),
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=source.source_doc_id)},
        )
        node.excluded_embed_metadata_keys = list(node.metadata)
        node.excluded_llm_metadata_keys = list(node.metadata)
        node._source, node._span = source, span
        return node

    @property
    def source(self) -> Source:
        """The document it was cut from."""
        return self._source

    @property
    def span(self) -> ChunkSpan:
        """Where it stands in the document."""
        return self._span

    @property
    def windows(self) -> tuple[str, ...]:
        """The texts the model shall see, in order."""
        return self._windows

    @windows.setter
    def windows(self, texts: tuple[str, ...]) -> None:
        self._windows = texts

    @property
    def embed_keys(self) -> tuple[str, ...]:
        """Cache keys of the windows' vectors, in order."""
        return self._embed_keys

    @embed_keys.setter
    def embed_keys(self, keys: tuple[str, ...]) -> None:
        self._embed_keys = keys


def get_source(document: Any, dataset: str) -> Source:
    """The source behind a node; a plain LlamaIndex ``Document`` is taken as plain text."""
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


def _metadata(source: Source, span: ChunkSpan) -> dict[str, Any]:
    return {
        "source_doc_id": source.source_doc_id,
        "dataset": source.dataset,
        "path": source.parsed.path,
        "title": source.parsed.title,
        "heading_path": list(span.heading_path),
        "modality": span.modality,
        "line_start": span.locator.line_start,
        "line_end": span.locator.line_end,
    }
