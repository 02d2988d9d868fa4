"""Documents and chunks as LlamaIndex nodes: what passes between the steps of a pipeline."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from llama_index.core.schema import (
    BaseNode,
    Document,
    MetadataMode,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)
from pydantic import Field, InstanceOf

from catalog.core import ids
from catalog.core.documents import Chunk, ChunkSpan, ParsedDocument
from catalog.core.text import storable
from catalog.ingest.description import TOLD_BY_CONTENT, drop_claims
from catalog.ingest.readers.base import choose_title, file_type
from catalog.ingest.readers.markdown import MarkdownReader
from catalog.ingest.readers.metadata import normalise, take_title
from catalog.store.revisions import content_hash

if TYPE_CHECKING:
    from catalog.ingest.chunking.chunker import Cut

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """A document on its way into a dataset.

    ``file`` is the listed file it came from, ``modified`` that file's time where file and
    document are one (ISO 8601, UTC). ``cut`` are its passages where it is cut already.
    """

    dataset: str
    file: str
    parsed: ParsedDocument
    modified: str | None = None
    cut: Cut | None = None

    @cached_property
    def content_hash(self) -> str:
        """The hash of the document's content; see :mod:`catalog.store.revisions`."""
        return content_hash(self.parsed)

    def fingerprint(self, pipeline: str) -> str:
        """Name how the document was cut, and where its text stands in its file if that is mapped.

        So what moved in the file, with the same text, is noticed.
        """
        form = self.parsed.places.to_dict()
        return pipeline if form is None else f"{pipeline}:{ids.sha1_hex(json.dumps(form))[:8]}"

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

    @classmethod
    def of_stored(cls, chunk: Chunk) -> ChunkNode:
        """Make the node of a stored chunk: the text to embed is made of it as it was at first."""
        parsed = ParsedDocument(chunk.path, chunk.text, chunk.title, chunk.file_type)
        span = ChunkSpan(
            0,
            len(chunk.text),
            heading_path=chunk.heading_path,
            modality=chunk.modality,
            locator=chunk.locator,
            cues=chunk.cues,
            sections=chunk.sections,
        )
        node = cls.of(Source(chunk.dataset, chunk.file, parsed), span)
        node.id_ = chunk.chunk_id
        return node


class PrefixedNode(TextNode):
    """A plain text node that an embedding model sees with more before it than anybody else.

    ``embedded`` is what the model shall see. Stored, it is the ``TextNode`` that it was.
    """

    embedded: str = Field("", exclude=True, repr=False)

    @classmethod
    def of(cls, node: TextNode, embedded: str) -> PrefixedNode:
        """Return the same node for a model to see as ``embedded``."""
        fields = {name: getattr(node, name) for name in TextNode.model_fields}
        return cls.model_construct(**fields, embedded=embedded)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex stores it."""
        return TextNode.class_name()

    def get_content(self, metadata_mode: MetadataMode = MetadataMode.NONE) -> str:
        """Return what the model shall see for embedding, else the node's own content."""
        if metadata_mode == MetadataMode.EMBED:
            return self.embedded
        return super().get_content(metadata_mode)


def read_sources(nodes: Iterable[BaseNode], dataset: str) -> list[Source]:
    """Return the documents behind nodes, each once, in order.

    A plain LlamaIndex node is Markdown if its path says so or it has none, else plain text. Its
    path is its metadata ``path``, ``file_path`` or ``file_name``, else the id that it was given,
    else made of its text. Pages of one file (``page_label``) are one document; other texts under
    one path are ``path#2``, ``path#3`` …; a text that comes twice under its path counts once. A
    node without text holds nothing, and is logged.
    """
    sources: dict[str, Source] = {}
    texts: dict[str, list[_Text]] = {}
    for node in nodes:
        if isinstance(node, SourceDocument):
            sources[node.source.source_doc_id] = node.source
            continue
        text = _Text.of(node)
        if text.text.strip():
            texts.setdefault(text.path, []).append(text)
        else:
            _log.warning("left out, since it has no text: %s", text.path)
    for path, group in texts.items():
        for number, parsed in enumerate(_parse(group), start=1):
            name = path if number == 1 else f"{path}#{number}"
            source = Source(dataset, path, replace(parsed, path=name))
            sources[source.source_doc_id] = source
    return list(sources.values())


@dataclass(frozen=True)
class _Text:
    """The text of a plain node, where it belongs, and what is said of it."""

    path: str
    text: str
    metadata: Mapping[str, object]
    is_markdown: bool
    title: str = ""

    @classmethod
    def of(cls, node: BaseNode) -> _Text:
        text = storable(node.get_content(metadata_mode=MetadataMode.NONE))
        metadata = {_DATES.get(key, key): value for key, value in node.metadata.items()}
        named = (metadata.get(key) for key in ("path", "file_path", "file_name"))
        path = next((str(name) for name in named if name), "") or _given_id(node)
        is_markdown = PurePosixPath(path).suffix.lower() in _MARKDOWN
        title = "" if path else text.strip().partition("\n")[0][:_UNNAMED_TITLE]
        return cls(storable(path) or _path_of(text), text, metadata, is_markdown, title)


_UNNAMED_TITLE = 80  # characters of its first line that a text without a name is called by
_MARKDOWN = ("", ".md", ".markdown", ".mdown", ".mkd", ".mdx")
_DATES = {"last_modified_date": "modified", "creation_date": "created"}  # of LlamaIndex readers


def _given_id(node: BaseNode) -> str:
    """Return the id that somebody gave the node or its document; "" if LlamaIndex drew it."""
    name = node.ref_doc_id or node.node_id
    try:
        is_drawn = uuid.UUID(name).version == 4
    except ValueError:
        return name
    return "" if is_drawn else name


def _path_of(text: str) -> str:
    """Return a path for a text without a name: the same one for the same text."""
    return f"text-{int(ids.sha1_hex(text)[:12], 16)}"


def _parse(group: list[_Text]) -> Iterator[ParsedDocument]:
    """Yield the documents of the texts under one path."""
    distinct: dict[str, _Text] = {}
    for text in group:
        before = distinct.get(text.text)
        merged = text.metadata if before is None else {**before.metadata, **text.metadata}
        distinct[text.text] = replace(text, metadata=merged)
    if len(group) > 1 and all("page_label" in text.metadata for text in group):
        yield _join_pages(group)
        return
    for text in distinct.values():
        yield _parse_text(text)


def _join_pages(pages: list[_Text]) -> ParsedDocument:
    """Return the one document that pages make, in order, each beginning where it does."""
    metadata = {key: value for key, value in pages[0].metadata.items() if key != "page_label"}
    lengths = [len(page.text) + 2 for page in pages]
    starts = tuple(accumulate(lengths[:-1], initial=0))
    text = "\n\n".join(page.text for page in pages)
    parsed = _parse_text(_Text(pages[0].path, text, metadata, is_markdown=False))
    return replace(parsed, pages=starts)


def _parse_text(text: _Text) -> ParsedDocument:
    path, metadata = text.path, normalise(text.metadata)
    for name in TOLD_BY_CONTENT:
        metadata.pop(name, None)
    title = take_title(metadata)
    if text.is_markdown:
        parsed = drop_claims(MarkdownReader().parse(text.text, path))
    else:
        parsed = ParsedDocument(path, text.text, "", file_type(path))
    is_headed = text.is_markdown and (parsed.headings or not text.title)
    return replace(
        parsed,
        title=choose_title(path, title, parsed.title if is_headed else text.title),
        source_type="llama_index",
        metadata={**parsed.metadata, **metadata},
    )
