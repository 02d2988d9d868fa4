"""Documents and chunks as LlamaIndex nodes, and any LlamaIndex nodes as documents."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

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
from catalog.core.documents import ChunkSpan, MetadataValue, ParsedDocument, part_label
from catalog.core.errors import CatalogError, InputError, ReadError
from catalog.core.places import AS_IN_FILE
from catalog.core.text import storable
from catalog.ingest.chunking import DocumentChunker
from catalog.ingest.pipeline import Source, cut_document
from catalog.ingest.readers.base import choose_title, file_type
from catalog.ingest.readers.markdown import MarkdownReader
from catalog.ingest.readers.metadata import (
    check_no_level,
    is_level_name,
    is_web_address,
    normalise,
    take_title,
)
from catalog.ingest.reading import TOLD_BY_CONTENT, drop_claims
from catalog.store.revisions import NewRevision


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
    node's text or metadata, so no prefix can leak from here. The first chunk of a document carries
    the ``revision`` to publish.
    """

    source: InstanceOf[Source] = Field(exclude=True, repr=False)
    span: InstanceOf[ChunkSpan] = Field(exclude=True, repr=False)
    windows: tuple[str, ...] = Field((), exclude=True, repr=False)
    embed_keys: tuple[str, ...] = Field((), exclude=True, repr=False)
    vectors: dict[str, Any] = Field(default_factory=dict, exclude=True, repr=False)
    embedded_by: str = Field("", exclude=True, repr=False)
    revision: InstanceOf[NewRevision] | None = Field(None, exclude=True, repr=False)

    @classmethod
    def of(
        cls, source: Source, span: ChunkSpan, style: Mapping[str, Any] | None = None
    ) -> ChunkNode:
        """Make the node of one span; ``style`` are its metadata, templates and exclusion keys.

        Its source node is the document as the user names it.
        """
        made_of = RelatedNodeInfo(node_id=source.file, metadata={_ROW: source.source_doc_id})
        return cls(
            id_=source.chunk_id(span),
            text=source.parsed.text[span.start : span.end],
            start_char_idx=span.start,
            end_char_idx=span.end,
            relationships={NodeRelationship.SOURCE: made_of},
            source=source,
            span=span,
            **_copy_style(style or {}),
        )


_ROW = "source_doc_id"  # in the relationship of a chunk to its source: which stored document
_STYLE = (
    "metadata",
    "excluded_embed_metadata_keys",
    "excluded_llm_metadata_keys",
    "metadata_template",
    "metadata_separator",
)


def _copy_style(style: Mapping[str, Any]) -> dict[str, Any]:
    return {name: type(value)(value) for name, value in style.items()}


class PrefixedNode(TextNode):
    """A plain text node with ``lead`` before its text for the embedding model.

    It is stored as a ``TextNode``. Until it is embedded, the stored form keeps the lead in
    metadata that no language model reads, since LlamaIndex's cache restores only plain nodes.
    """

    lead: str = Field("", exclude=True)

    @classmethod
    def of(cls, node: TextNode, lead: str) -> PrefixedNode:
        """Return the same node, which a model sees with the lead."""
        fields = {name: getattr(node, name) for name in TextNode.model_fields}
        return cls.model_construct(**fields, lead=lead)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex stores it."""
        return TextNode.class_name()

    def get_content(self, metadata_mode: MetadataMode = MetadataMode.NONE) -> str:
        """Return the text to embed in that mode, else the node's own content.

        In the mode of all metadata, by which LlamaIndex's cache goes, the lead is included.
        """
        if metadata_mode == MetadataMode.EMBED:
            return self.lead + self.text
        if metadata_mode == MetadataMode.ALL:
            return self._stored_form().get_content(metadata_mode)
        return super().get_content(metadata_mode)

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Return the form for LlamaIndex's cache and document stores."""
        if self.embedding is not None:
            return super().to_dict(**kwargs)
        return self._stored_form().to_dict(**kwargs)

    def _stored_form(self) -> TextNode:
        """Return a plain node that a model reads with the lead, and a language model as before.

        Only white space between metadata and text may differ for the language model.
        """
        told = {"embedding_lead": self.lead.strip()}
        prompt = self.get_metadata_str(MetadataMode.LLM)
        more = told | ({"prompt_metadata": prompt} if prompt else {})
        own, space = list(self.metadata), self.lead[len(self.lead.rstrip()) :]
        fields = {name: getattr(self, name) for name in TextNode.model_fields}
        return TextNode.model_construct(
            **fields
            | {
                "metadata": self.metadata | more,
                "metadata_template": "{value}",
                "text_template": "{metadata_str}" + space + "{content}",
                "excluded_embed_metadata_keys": [*own, "prompt_metadata"],
                "excluded_llm_metadata_keys": [*own, "embedding_lead"],
            }
        )


@dataclass(frozen=True)
class GivenDocument:
    """A document to store: one text of a source, or its consecutive pages.

    ``style`` has metadata, templates and exclusion keys as they were given, for the chunks.
    """

    source: Source
    style: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class GivenDocuments:
    """The documents that nodes bring, by ``source_doc_id``, and the ``refused`` with the reason.

    ``sources`` are the names of all sources that may be stored or deleted, ``names`` the sources by
    the id of the LlamaIndex document. ``blank`` has the page numbers of sources that only bring
    pages without text.
    """

    documents: dict[str, GivenDocument] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    sources: dict[str, None] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    blank: dict[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, nodes: Iterable[BaseNode], dataset: str) -> GivenDocuments:
        """Return the documents behind nodes, in order.

        A source is named by the id that the user set, else by its full path or address, else by its
        file name, else by its text. Its texts are ``name``, ``name#2``, ``name#3`` …; a text that
        is repeated with the same metadata counts once. Consecutive pages (``page_label``) with the
        same metadata are one document, named by the first page unless that is 1. A text is Markdown
        if its path says so or has no suffix.
        """
        given = cls()
        texts: dict[str, list[_Text]] = {}
        for node in nodes:
            if isinstance(node, SourceDocument):
                source = node.source
                given.documents[source.source_doc_id] = GivenDocument(source)
                given.sources[source.file] = None
                continue
            text = _Text.of(node)
            given.names[node.ref_doc_id or node.node_id] = text.source
            texts.setdefault(text.source, []).append(text)
        for name, group in texts.items():
            given._add(name, group, dataset)
        return given

    def _add(self, name: str, group: list[_Text], dataset: str) -> None:
        try:
            made = [
                GivenDocument(Source(dataset, name, parsed), style)
                for parsed, style in _parse(name, group)
            ]
        except CatalogError as error:
            self.refused[name] = str(error)
            return
        self.sources[name] = None
        if not made and all(text.page is not None for text in group):
            self.blank[name] = frozenset(str(text.page) for text in group)
        self.documents |= {one.source.source_doc_id: one for one in made}


@dataclass(frozen=True)
class _Text:
    """The text of a plain node, the name of its source, its page, and its metadata.

    ``label`` is its page as written, "" without one: texts of one source differ in it. ``given``
    are the ids that the user set, as metadata.
    """

    source: str
    path: str
    text: str
    style: Mapping[str, Any]
    label: str = ""
    page: int | None = None
    given: Mapping[str, str] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, node: BaseNode) -> _Text:
        text = storable(node.get_content(metadata_mode=MetadataMode.NONE))
        style = {name: getattr(node, name) for name in _STYLE}
        address, bare = _find_address(node.metadata)
        name = _find_id(node, has_address=bool(address))
        source = storable(name or address or bare)
        label, page = part_label(node.metadata, has_id=bool(name)), None
        if "page_label" in node.metadata and label.isdecimal() and 0 < int(label) <= _MOST_PAGES:
            metadata = {key: it for key, it in node.metadata.items() if key != "page_label"}
            style, page = style | {"metadata": metadata}, int(label)
        path = storable(address or bare) or source
        given = {"doc_id": name} if name else {}
        if not isinstance(node, Document) and not _is_drawn(node.node_id):
            given["node_id"] = node.node_id
        return cls(source or _path_of(text), path, text, style, label, page, given)

    @property
    def is_markdown(self) -> bool:
        path = urlsplit(self.path).path if is_web_address(self.path) else self.path
        return PurePosixPath(path).suffix.lower() in _MARKDOWN


_MOST_PAGES = 100_000
_UNNAMED_TITLE = 80  # characters of the first line that name a text without a name
_MARKDOWN = ("", ".md", ".markdown", ".mdown", ".mkd", ".mdx")
_DATES = {"last_modified_date": "modified", "creation_date": "created"}  # of LlamaIndex readers
_ADDRESSES = ("source_url", "url", "permalink", "source", "link")


def _find_address(metadata: Mapping[str, Any]) -> tuple[str, str]:
    """Return the full path or address that metadata name, and the bare file name; "" if none."""
    paths = (metadata.get(key) for key in ("path", "file_path"))
    said = {str(key).casefold(): value for key, value in metadata.items()}
    addresses = (said.get(key) for key in _ADDRESSES)
    full = next(filter(None, paths), None) or next(filter(is_web_address, addresses), None)
    return str(full or ""), str(metadata.get("file_name") or "")


def _find_id(node: BaseNode, *, has_address: bool) -> str:
    """Return the id that a user gave the node's document; "" if LlamaIndex or a reader drew it.

    Drawn ids are random UUIDs. A user may set one too, for a document without path and address.
    """
    name = node.ref_doc_id or node.node_id
    is_set = isinstance(node, Document) and "id_" in node.model_fields_set
    return "" if _is_drawn(name) and (has_address or not is_set) else name


def _is_drawn(name: str) -> bool:
    """Return whether LlamaIndex drew an id."""
    try:
        return uuid.UUID(name).version == 4
    except ValueError:
        return False


def _path_of(text: str) -> str:
    """Return a path for a text without a name; equal texts give equal paths."""
    return f"text-{int(ids.sha1_hex(text)[:12], 16)}"


def _parse(name: str, group: list[_Text]) -> Iterator[tuple[ParsedDocument, Mapping[str, Any]]]:
    """Yield the documents of one source's texts, with their styles."""
    if all(text.page is not None for text in group):
        group = sorted(group, key=lambda text: text.page or 0)
    used: set[str] = set()
    for number, pages in enumerate(_join_pages(group), start=1):
        first = pages[0]
        if not any(text.text.strip() for text in pages):
            continue
        marks = [first.label or str(number), *(str(n) for n in range(number, len(group) + 2))]
        paths = (name if mark == "1" else f"{name}#{mark}" for mark in marks)
        path = next(path for path in paths if path not in used)
        used.add(path)
        yield _parse_pages(path, pages), first.style


def _join_pages(group: list[_Text]) -> list[list[_Text]]:
    """Return consecutive pages together, other texts one by one, without repetitions."""
    joined: list[list[_Text]] = []
    for text in group:
        last = joined[-1][-1] if joined else None
        is_next = last is not None and last.page is not None and text.page == last.page + 1
        if last is not None and is_next and text.style == last.style:
            joined[-1].append(text)
        elif text.page is not None or [text] not in joined:
            joined.append([text])
    return joined


def _given_ids(pages: list[_Text]) -> dict[str, str]:
    """Return the ids that all the pages share."""
    return {
        key: value
        for key, value in pages[0].given.items()
        if all(page.given.get(key) == value for page in pages)
    }


def _metadata_of(said: Mapping[str, Any]) -> dict[str, MetadataValue]:
    """Return the metadata as stored; fields that become first-class ones keep their names, too."""
    own = {
        key: value
        for key, value in said.items()
        if isinstance(value, str | int | float)
        and not is_level_name(key)
        and key.casefold() != "title"
    }
    return own | normalise({_DATES.get(key, key): value for key, value in said.items()})


def _parse_pages(path: str, pages: list[_Text]) -> ParsedDocument:
    """Return the document of these pages, or of a single text; its first page keeps its number."""
    first = pages[0]
    metadata = _metadata_of(first.style["metadata"] | _given_ids(pages))
    for name in TOLD_BY_CONTENT:
        metadata.pop(name, None)
    if metadata.get("path", first.source) != first.source:  # else the document's own path hides it
        metadata.setdefault("file_path", metadata.pop("path"))
    title = take_title(metadata)
    unnamed = "" if first.path else first.text.strip().partition("\n")[0][:_UNNAMED_TITLE]
    if first.is_markdown and first.page is None:
        parsed = drop_claims(MarkdownReader().parse(first.text, path))
        unnamed = parsed.title if parsed.headings or not unnamed else unnamed
    else:
        text = "\n\n".join(page.text for page in pages)
        parsed = ParsedDocument(path, text, "", file_type(first.path))
    if first.page is not None:
        lengths = [len(page.text) + 2 for page in pages]
        starts = accumulate(lengths[:-1], initial=0)
        parsed = replace(parsed, pages=(*[0] * (first.page - 1), *starts))
    return replace(
        parsed,
        title=choose_title(first.path or path, title, unnamed),
        source_type="llama_index",
        metadata={**parsed.metadata, **metadata},
    )


def collect_chunks(
    chunker: DocumentChunker, given: GivenDocument, nodes: Sequence[BaseNode]
) -> list[ChunkNode]:
    """Return the chunks of a document from the nodes that steps made of it, in their order.

    Added metadata become the chunk's own, and both legs search what templates and exclusion keys
    leave of metadata. Passages that follow each other in the document's text keep their place.
    Otherwise steps rewrote the text, and the document consists of the nodes' texts.
    """
    nodes = [node for node in nodes if node.get_content(metadata_mode=MetadataMode.NONE).strip()]
    source, spans = given.source, [node.span for node in nodes if isinstance(node, ChunkNode)]
    text = source.parsed.text
    is_same = len(spans) == len(nodes) and all(
        text[span.start : span.end] == node.get_content(metadata_mode=MetadataMode.NONE)
        for node, span in zip(nodes, spans, strict=True)
    )
    if not is_same:
        source, spans = _place(chunker, source, nodes)
    chunks = []
    for node, span in zip(nodes, spans, strict=True):
        own = _own_metadata(given, node)
        style = {name: getattr(node, name) for name in _STYLE}
        told = _excluding_title(node).get_metadata_str(MetadataMode.EMBED)
        lines = (" ".join(storable(line).split()) for line in told.splitlines())
        span = replace(span, context=(*span.context, *filter(None, lines)), metadata=own)
        chunks.append(ChunkNode.of(source, span, style))
    return chunks


def _excluding_title(node: BaseNode) -> BaseNode:
    """Return the node without a title in its metadata: the title is searched as such."""
    titles = [key for key in node.metadata if key.casefold() == "title"]
    excluded = [*node.excluded_embed_metadata_keys, *titles]
    return node.model_copy(update={"excluded_embed_metadata_keys": excluded}) if titles else node


def _own_metadata(given: GivenDocument, node: BaseNode) -> dict[str, MetadataValue]:
    known = given.style.get("metadata", {})
    added = {
        key: value
        for key, value in node.metadata.items()
        if key not in known or known[key] != value
    }
    try:
        check_no_level([added])
    except ReadError as error:
        raise InputError(f"{given.source.parsed.path}: a step adds a level: {error}") from error
    return normalise(added)


def _place(
    chunker: DocumentChunker, source: Source, nodes: Sequence[BaseNode]
) -> tuple[Source, list[ChunkSpan]]:
    """Return the document of the nodes, and the place of each in it."""
    texts = [node.get_content(metadata_mode=MetadataMode.NONE).strip() for node in nodes]
    ranges = find_passages(source.parsed, texts)
    if ranges is not None:
        return source, list(cut_document(chunker, replace(source, cut=None), ranges).spans)
    starts = accumulate((len(text) + 2 for text in texts), initial=0)
    ranges = [(start, start + len(text)) for start, text in zip(starts, texts, strict=False)]
    parsed = replace(
        source.parsed,
        text="\n\n".join(texts),
        headings=(),
        atomic=(),
        body_start=0,
        pages=(),
        segments=(),
        places=AS_IN_FILE,
    )
    rewritten = replace(source, parsed=parsed, cut=None)
    spans = cut_document(chunker, rewritten, ranges).spans
    return rewritten, [_as_before(span, node) for span, node in zip(spans, nodes, strict=True)]


def _as_before(span: ChunkSpan, node: BaseNode) -> ChunkSpan:
    """Return the span of a rewritten chunk with the headings, pages and times that it had."""
    if not isinstance(node, ChunkNode):
        return span
    before, length = node.span, span.end - span.start
    at = before.locator
    locator = replace(
        span.locator,
        page=at.page,
        page_end=at.page_end,
        time_start=at.time_start,
        time_end=at.time_end,
    )
    breaks = tuple(min(offset, length) for offset in before.page_breaks)
    headings = before.heading_path
    return replace(
        span,
        heading_path=headings,
        modality=before.modality,
        locator=locator,
        page_breaks=breaks,
    )


_SPACE = re.compile(r"\s*")


def find_passages(doc: ParsedDocument, texts: Sequence[str]) -> list[tuple[int, int]] | None:
    """Return the offsets of passages in ``doc.text``: ``[start, end)``; ``None`` if one is missing.

    Each begins after the one before. LlamaIndex searches for its offsets after the cut: in
    repetitive text they are too low, and with chained splitters they count from an inner node.
    """
    ranges: list[tuple[int, int]] = []
    for text in texts:
        start = _find(doc, text, *ranges[-1]) if ranges else doc.text.find(text, doc.body_start)
        if start < 0:
            return None
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
