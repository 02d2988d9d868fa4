"""Documents and chunks as LlamaIndex nodes, and any LlamaIndex nodes as documents."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
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
from catalog.core.documents import ChunkSpan, MetadataValue, ParsedDocument
from catalog.core.errors import InputError
from catalog.core.text import storable
from catalog.ingest.pipeline import Source
from catalog.ingest.readers.base import choose_title, file_type
from catalog.ingest.readers.markdown import MarkdownReader
from catalog.ingest.readers.metadata import is_level_name, normalise, take_title
from catalog.ingest.reading import TOLD_BY_CONTENT, drop_claims

if TYPE_CHECKING:
    from llama_index.core.node_parser import NodeParser

_log = logging.getLogger(__name__)


class SourceDocument(Document):
    """A LlamaIndex ``Document`` that keeps what its reader found (headings, tables …)."""

    source: InstanceOf[Source] = Field(exclude=True, repr=False)

    @classmethod
    def of(cls, source: Source) -> SourceDocument:
        """Wrap a parsed document."""
        return cls(id_=source.source_doc_id, text=source.parsed.text, source=source)


class ChunkNode(TextNode):
    """A LlamaIndex ``TextNode`` for one chunk: deterministic id, exact offsets.

    ``windows`` are the texts for the model, ``embed_keys`` the cache keys of their vectors,
    ``vectors`` the known vectors by key, ``embedded_by`` the model's fingerprint. None is in the
    node's text or metadata, so no prefix can leak from here.
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
            id_=source.chunk_id(span),
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


class PrefixedNode(TextNode):
    """A plain text node with a longer text for the embedding model.

    ``embedded`` is the text for the model. It is stored as the original ``TextNode``.
    """

    embedded: str = Field("", exclude=True, repr=False)

    @classmethod
    def of(cls, node: TextNode, embedded: str) -> PrefixedNode:
        """Return the same node, which a model sees as ``embedded``."""
        fields = {name: getattr(node, name) for name in TextNode.model_fields}
        return cls.model_construct(**fields, embedded=embedded)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex stores it."""
        return TextNode.class_name()

    def get_content(self, metadata_mode: MetadataMode = MetadataMode.NONE) -> str:
        """Return the text to embed in that mode, else the node's own content."""
        if metadata_mode == MetadataMode.EMBED:
            return self.embedded
        return super().get_content(metadata_mode)


def read_sources(nodes: Iterable[BaseNode], dataset: str) -> list[Source]:
    """Return the documents behind nodes, without repetitions, in order.

    A plain LlamaIndex node is Markdown if its path says so or it has no path, else plain text. Its
    path is its metadata ``path``, ``file_path`` or ``file_name``, else the id that it was given,
    else derived from its text. Pages of one file (``page_label``) are one document; other texts
    with the same path are ``path#2``, ``path#3`` …; a repeated text with the same path counts once.
    A node without text is skipped and logged.
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
    """The text of a plain node, its place, and its metadata."""

    path: str
    text: str
    metadata: Mapping[str, object]
    is_markdown: bool
    title: str = ""

    @classmethod
    def of(cls, node: BaseNode) -> _Text:
        text = storable(node.get_content(metadata_mode=MetadataMode.NONE))
        metadata = dict(node.metadata)
        if given := _given_id(node):
            metadata["doc_id"] = given
        if not isinstance(node, Document) and not _is_drawn(node.node_id):
            metadata["node_id"] = node.node_id
        named = (metadata.get(key) for key in ("path", "file_path", "file_name"))
        path = next((str(name) for name in named if name), "") or given
        is_markdown = PurePosixPath(path).suffix.lower() in _MARKDOWN
        title = "" if path else text.strip().partition("\n")[0][:_UNNAMED_TITLE]
        return cls(storable(path) or _path_of(text), text, metadata, is_markdown, title)


_PAGE_NUMBER = re.compile(r"[1-9][0-9]{0,3}")
_UNNAMED_TITLE = 80  # characters of the first line that name a text without a name
_MARKDOWN = ("", ".md", ".markdown", ".mdown", ".mkd", ".mdx")
_DATES = {"last_modified_date": "modified", "creation_date": "created"}  # of LlamaIndex readers


def _given_id(node: BaseNode) -> str:
    """Return the id given to the node or its document; "" if LlamaIndex drew it."""
    name = node.ref_doc_id or node.node_id
    return "" if _is_drawn(name) else name


def _is_drawn(name: str) -> bool:
    """Return whether LlamaIndex drew an id."""
    try:
        return uuid.UUID(name).version == 4
    except ValueError:
        return False


def _path_of(text: str) -> str:
    """Return a path for a text without a name; equal texts give equal paths."""
    return f"text-{int(ids.sha1_hex(text)[:12], 16)}"


def _parse(group: list[_Text]) -> Iterator[ParsedDocument]:
    """Yield the documents of the texts with one path."""
    distinct: dict[str, _Text] = {}
    for text in group:
        before = distinct.get(text.text)
        merged = text.metadata if before is None else {**before.metadata, **text.metadata}
        distinct[text.text] = replace(text, metadata=merged)
    if all("page_label" in text.metadata for text in group):
        yield _join_pages(group)
        return
    for text in distinct.values():
        yield _parse_text(text)


def _join_pages(pages: list[_Text]) -> ParsedDocument:
    """Return the document of these pages, in order, with the start of each.

    A page has the number in its label, else its place in the order.
    """
    of_page = ("page_label",) if len(pages) == 1 else ("page_label", "doc_id", "node_id")
    metadata = {key: value for key, value in pages[0].metadata.items() if key not in of_page}
    lengths = [len(page.text) + 2 for page in pages]
    starts: list[int] = []
    for number, start in zip(_numbers(pages), accumulate(lengths, initial=0), strict=False):
        starts += [start] * (number - len(starts))
    text = "\n\n".join(page.text for page in pages)
    parsed = _parse_text(_Text(pages[0].path, text, metadata, is_markdown=False))
    return replace(parsed, pages=tuple(starts))


def _numbers(pages: list[_Text]) -> list[int]:
    labels = [str(page.metadata["page_label"]) for page in pages]
    numbers = [int(label) for label in labels if _PAGE_NUMBER.fullmatch(label)]
    is_numbered = len(numbers) == len(labels) and numbers == sorted(set(numbers))
    return numbers if is_numbered else list(range(1, len(pages) + 1))


def _parse_text(text: _Text) -> ParsedDocument:
    path, metadata = text.path, _metadata_of(text)
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


def _metadata_of(text: _Text) -> dict[str, MetadataValue]:
    """Return the metadata as stored; fields that become first-class ones keep their names, too."""
    said = {_DATES.get(key, key): value for key, value in text.metadata.items()}
    own = {
        key: value
        for key, value in text.metadata.items()
        if isinstance(value, str | int | float)
        and not is_level_name(key)
        and key.casefold() != "title"
    }
    return own | normalise(said)


_SPACE = re.compile(r"\s*")


def split_text(splitter: NodeParser, doc: ParsedDocument) -> list[tuple[int, int]]:
    """Return the offsets of the splitter's passages in ``doc.text``: ``[start, end)``, in order.

    LlamaIndex searches for its offsets after the cut: in repetitive text they are too low, and with
    chained splitters they count from an inner node. So passages are found again in the text. Raises
    :class:`InputError` for a splitter that rewrites its text, or cuts the same text twice: its
    passages could not be cited.
    """
    body = doc.text[doc.body_start :]
    nodes = splitter([Document(text=body, id_=doc.path)])
    texts = [node.get_content(metadata_mode=MetadataMode.NONE).strip() for node in nodes]
    ranges: list[tuple[int, int]] = []
    for text in filter(None, texts):
        start = _find(doc, text, *ranges[-1]) if ranges else doc.text.find(text, doc.body_start)
        if start < 0:
            name = type(splitter).__name__
            raise InputError(
                f"{name} gives passages of {doc.path} that do not follow each other in its text: "
                "take a splitter that only cuts"
            )
        ranges.append((start, start + len(text)))
    return ranges


def _find(doc: ParsedDocument, text: str, before: int, end: int) -> int:
    """Return the start of the passage that follows ``[before, end)``; -1 if not found.

    It is directly after it, else where the two share as little as possible, else anywhere after it.
    """
    space = _SPACE.match(doc.text, end)
    behind = end if space is None else space.end()
    if doc.text.startswith(text, behind):
        return behind
    shared = doc.text.rfind(text, before + 1, end + len(text) - 1)
    return shared if shared >= 0 else doc.text.find(text, behind)
