"""The chunks of a document from the nodes that steps made of it, and their texts to embed."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from pathlib import PurePosixPath
from typing import Any, Literal

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import (
    BaseNode,
    MetadataMode,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
    TransformComponent,
)
from pydantic import Field, PrivateAttr

from catalog.core.documents import ChunkSpan, ParsedDocument
from catalog.core.errors import InputError
from catalog.core.places import AS_IN_FILE, Places
from catalog.core.settings import get_settings
from catalog.core.text import storable
from catalog.embedding import EmbeddingModel, as_model, get_model
from catalog.ingest.chunking import DocumentChunker
from catalog.ingest.pipeline import (
    EmbeddedText,
    Pipeline,
    Source,
    cut_document,
    format_labels,
    format_place,
)
from catalog.ingest.readers.metadata import LEVEL, normalise
from catalog.search_v2.ingestion_nodes import GIVEN_STYLE, LEAD, ChunkNode, keep_given, lead_with
from catalog.search_v2.ingestion_storing import RUN, IngestionRun, OwnStep
from catalog.search_v2.nodes import ADDED, PARENT, OwnPart


def collect_chunks(
    chunker: DocumentChunker, source: Source, given: Mapping[str, Any], nodes: Sequence[BaseNode]
) -> list[ChunkNode]:
    """Return the chunks of a document from the nodes that steps made of it, in their order.

    ``given`` is the style of the document. Added metadata become the chunk's own, and both legs
    search what templates and exclusion keys leave of metadata. Passages of the document's text keep
    their place, whatever their order. Parents and children are those of the chunks.
    """
    nodes = [node for node in nodes if _text_of(node).strip()]
    path, known = source.parsed.path, given.get("metadata", {})
    made = nodes[0].source if nodes and isinstance(nodes[0], ChunkNode) else source
    cut = [node for node in nodes if isinstance(node, ChunkNode) and node.source is made]
    are_same = (made.parsed.text[it.span.start : it.span.end] == _text_of(it) for it in cut)
    if len(cut) == len(nodes) and all(are_same):
        source, spans = made, [node.span for node in cut]
    else:
        source, spans = _place(chunker, source, nodes)
    ids = {node.node_id: source.chunk_id(span) for node, span in zip(nodes, spans, strict=True)}
    chunks = []
    for node, span in zip(nodes, spans, strict=True):
        added = {key: it for key, it in node.metadata.items() if (key, it) not in known.items()}
        own = normalise(added) | (keep_given(ADDED, added) if added else {})
        if LEVEL in own:
            raise InputError(f"{path}: a step may not add a {LEVEL}")
        family = _family_of(node, ids)
        if (parent := family.get(NodeRelationship.PARENT)) is not None:
            own = own | {PARENT: parent.node_id}
        style = {name: getattr(node, name) for name in GIVEN_STYLE}
        titles = [key for key in node.metadata if key.casefold() == "title"]  # searched as such
        excluded = {"excluded_embed_metadata_keys": [*node.excluded_embed_metadata_keys, *titles]}
        told = node.model_copy(update=excluded).get_metadata_str(MetadataMode.EMBED)
        lines = (" ".join(storable(line).split()) for line in told.splitlines())
        span = replace(span, context=(*span.context, *filter(None, lines)), metadata=own)
        chunk = ChunkNode.of(source, span, style)
        chunk.relationships |= family
        chunks.append(chunk)
    return chunks


def _text_of(node: BaseNode) -> str:
    return node.get_content(metadata_mode=MetadataMode.NONE)


def _family_of(node: BaseNode, ids: Mapping[str, str]) -> dict[NodeRelationship, Any]:
    """Return the node's parent and children, by the ids of their chunks where they have one."""

    def renamed(related: RelatedNodeInfo) -> RelatedNodeInfo:
        return RelatedNodeInfo(node_id=ids.get(related.node_id, related.node_id))

    parent, children = node.parent_node, node.child_nodes
    return {
        **({NodeRelationship.PARENT: renamed(parent)} if parent else {}),
        **({NodeRelationship.CHILD: list(map(renamed, children))} if children else {}),
    }


def _place(
    chunker: DocumentChunker, source: Source, nodes: Sequence[BaseNode]
) -> tuple[Source, list[ChunkSpan]]:
    """Return the document of the nodes, and the place of each in it.

    If their texts follow each other in the source, it is the source. Otherwise it consists of their
    texts, as for nodes that overlap: those of the source keep their lines, headings and pages, and
    added ones are numbered after its last line. If a step changed a chunk, or no text is the
    source's, lines are those of the new text.
    """
    texts = [_AROUND.sub("", _text_of(node)) for node in nodes]
    found = find_passages(source.parsed, nodes, [text.strip() for text in texts])
    ranges = [one for one in found if one is not None]
    if len(ranges) == len(nodes) and all(a[0] < b[0] for a, b in pairwise(ranges)):
        return source, list(cut_document(chunker, source, ranges).spans)
    pairs = list(zip(nodes, found, strict=True))
    changed = (isinstance(node, ChunkNode) and one is None for node, one in pairs)
    keeps_lines = ranges and source.parsed.places == AS_IN_FILE and not any(changed)
    starts = accumulate((len(text) + 2 for text in texts), initial=0)
    new = [(start, start + len(text)) for start, text in zip(starts, texts, strict=False)]
    empty: dict[str, Any] = dict.fromkeys(("headings", "atomic", "pages", "segments"), ())
    lines = _lines_in_source(source.parsed.text, texts, found) if keeps_lines else AS_IN_FILE
    parsed = replace(source.parsed, text="\n\n".join(texts), body_start=0, places=lines, **empty)
    rewritten = replace(source, parsed=parsed)
    spans = cut_document(chunker, rewritten, new).spans
    before = iter(cut_document(chunker, source, ranges).spans)
    as_before = [
        next(before) if one is not None else node.span if isinstance(node, ChunkNode) else None
        for node, one in pairs
    ]
    return rewritten, [_as_before(*pair) for pair in zip(spans, as_before, strict=True)]


def _lines_in_source(
    text: str, texts: Sequence[str], found: Sequence[tuple[int, int] | None]
) -> Places:
    """Return the line in the source of each line of the texts, joined by empty lines."""
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    offsets, numbers, offset, added = [], [], 0, len(starts) + 1
    for one, place in zip(texts, found, strict=True):
        number = added if place is None else bisect_right(starts, place[0])
        lines = one.split("\n")
        for line in lines:
            offsets.append(offset)
            numbers.append(number)
            offset, number = offset + len(line) + 1, number + 1
        offset += 1
        added += len(lines) + 1 if place is None else 0
    return Places("line", tuple(offsets), tuple(numbers))


def _as_before(span: ChunkSpan, before: ChunkSpan | None) -> ChunkSpan:
    """Return the span of a rewritten chunk with the headings, pages and times that it had."""
    if before is None:
        return span
    length, of = span.end - span.start, ("page", "page_end", "time_start", "time_end")
    at = replace(span.locator, **{name: getattr(before.locator, name) for name in of})
    breaks = tuple(min(offset, length) for offset in before.page_breaks)
    kept = {name: getattr(before, name) for name in ("heading_path", "sections", "modality")}
    return replace(span, locator=at, page_breaks=breaks, **kept)


_SPACE = re.compile(r"\s*")
_AROUND = re.compile(r"\A(?:[^\S\n]*+\n)*+|(?<!\s)\s++\Z")  # blank lines above, and the end


def find_passages(
    doc: ParsedDocument, nodes: Sequence[BaseNode], texts: Sequence[str]
) -> list[tuple[int, int] | None]:
    """Return the offsets of nodes' texts in ``doc.text``: ``[start, end)``; ``None`` if missing.

    Each begins after its elder sibling, and the first child where its parent begins; if it is not
    there, it may be anywhere. LlamaIndex searches for its offsets after the cut: in repetitive text
    they are too low, and with chained splitters they count from an inner node.
    """
    found: list[tuple[int, int] | None] = []
    places: dict[str, tuple[int, int]] = {}
    elders: dict[str, tuple[int, int]] = {}
    for node, text in zip(nodes, texts, strict=True):
        parent = "" if node.parent_node is None else node.parent_node.node_id
        if parent in elders:
            start = _find(doc, text, *elders[parent])
        else:
            start = doc.text.find(text, places.get(parent, (doc.body_start,))[0])
        if start < 0:
            start = doc.text.find(text, doc.body_start)
        if start >= 0:
            places[node.node_id] = elders[parent] = (start, start + len(text))
        found.append((start, start + len(text)) if start >= 0 else None)
    return found


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


class EmbeddingPrefixTransform(OwnPart, TransformComponent):
    r"""Build the text to embed: document prefix, the passage's place and metadata, the passage.

    These windows are kept on the node, separate from its text; see
    :class:`~catalog.ingest.pipeline.EmbeddedText`, which also describes the arguments. In a
    pipeline that is not ours, put this step just before the embedding model: plain text nodes get
    the metadata ``embedding_lead``, which no language model reads. The prefix is that of
    ``model`` or the configured model, unless ``prefix`` is given, first or by its name.

    Examples:
        >>> from llama_index.core.schema import MetadataMode, TextNode
        >>> from catalog.search_v2 import EmbeddingPrefixTransform
        >>> node = TextNode(text="Every ninety days.", metadata={"title": "Rotating keys"})
        >>> EmbeddingPrefixTransform()([node])[0].get_content(MetadataMode.EMBED)
        'Rotating keys\nEvery ninety days.'
    """

    context: bool = True
    form: Literal["place", "labels"] = "place"
    part_seconds: float = Field(20.0, ge=0.0)
    prefix: str = ""
    _model: EmbeddingModel | None = PrivateAttr()

    def __init__(
        self,
        model: EmbeddingModel | BaseEmbedding | str | None = None,
        *,
        prefix: str | None = None,
        context: bool = True,
        form: Literal["place", "labels"] = "place",
        part_seconds: float = 20.0,
    ) -> None:
        model, prefix = (None, model) if isinstance(model, str) else (model, prefix)
        own = None if model is None else as_model(model)
        if prefix is None:  # else no model is needed for plain nodes
            own = own or get_model(rag=get_settings().rag_v2)
            prefix = own.document_prefix
        super().__init__(context=context, form=form, part_seconds=part_seconds, prefix=prefix)
        self._model = own

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Set ``windows`` on each :class:`ChunkNode`, and return text nodes with their prefix.

        Whole documents and other kinds of nodes are returned unchanged.
        """
        return [self._format(node) for node in nodes]

    def _format(self, node: BaseNode) -> BaseNode:
        if isinstance(node, ChunkNode):
            self._model = self._model or get_model(rag=get_settings().rag_v2)
            model = replace(self._model, document_prefix=self.prefix)
            embedded = EmbeddedText(model, self.context, self.form, self.part_seconds)
            node.windows = embedded.windows(node.source.parsed, node.span)
        elif isinstance(node, TextNode) and LEAD not in node.metadata:
            place, told = "", node.get_metadata_str(MetadataMode.EMBED)
            if self.context:
                place = _describe_place(node, self.form)
                excluded = [*node.excluded_embed_metadata_keys, *_OF_PLACE]
                rest = node.model_copy(update={"excluded_embed_metadata_keys": excluded})
                told = rest.get_metadata_str(MetadataMode.EMBED)
            told = f"{told.strip()}\n\n" if told.strip() else ""
            return lead_with(node, self.prefix + place + told)
        return node


class ChunkPrefixTransform(OwnStep, EmbeddingPrefixTransform):
    """The same for a dataset: takes over what steps after the splitter changed, and other nodes.

    Raises :class:`InputError` for a node of no document of this run.
    """

    _chunker: DocumentChunker = PrivateAttr()

    def __init__(self, made: Pipeline) -> None:
        it, own = made.embedded, EmbeddingPrefixTransform.__init__
        own(self, it.model, context=it.context, form=it.form, part_seconds=it.part_seconds)
        self._chunker = made.chunker

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Return the nodes of each document as its chunks, with their windows."""
        documents = (RUN.get() or IngestionRun()).documents
        owned: dict[str, list[BaseNode]] = {}
        for node in nodes:
            made_of = node.source_node
            name = "" if made_of is None else str(made_of.metadata.get("source_doc_id") or "")
            if name not in documents:
                raise InputError(
                    f"a step returned the node {node.node_id} of no document of this run: keep the "
                    f"node's relationship {NodeRelationship.SOURCE.name}, and give a splitter as "
                    "build_pipeline(splitter=…)"
                )
            owned.setdefault(name, []).append(node)
        made = (collect_chunks(self._chunker, *documents[name], owned[name]) for name in owned)
        return super().__call__(list(chain.from_iterable(made)))


_OF_PLACE = ("path", "file_name", "file_path", "file_type", "title", "heading_path", "header_path")


def _describe_place(node: TextNode, form: Literal["place", "labels"]) -> str:
    """Return the place of a plain node from its metadata."""
    said = node.metadata
    paths = (said.get(key) for key in ("path", "file_name", "file_path"))
    path = next((str(path) for path in paths if path), "")
    given = said.get("heading_path") or str(said.get("header_path") or "").split("/")
    headings = [str(name).strip() for name in ([given] if isinstance(given, str) else given)]
    title = str(said.get("title") or "")
    if form == "place":
        return format_place(path, (title.strip(), *headings), node.text)
    named = PurePosixPath(path)
    kind = str(said.get("file_type") or named.suffix[1:])
    return format_labels(title or named.name, kind, headings)
