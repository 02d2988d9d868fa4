"""The chunks of a document from the nodes that steps made of it, at their place in the text."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

from llama_index.core.schema import BaseNode, MetadataMode, NodeRelationship, RelatedNodeInfo

from catalog.core.documents import ChunkSpan, MetadataValue, ParsedDocument
from catalog.core.errors import InputError
from catalog.core.places import AS_IN_FILE, Places
from catalog.core.text import storable
from catalog.ingest.chunking import DocumentChunker
from catalog.ingest.pipeline import Source, cut_document
from catalog.ingest.readers.metadata import LEVEL, normalise
from catalog.search_v2.ingestion_nodes import GIVEN_STYLE, ChunkNode, keep_given
from catalog.search_v2.nodes import ADDED, PARENT


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
    spans = [node.span for node in nodes if isinstance(node, ChunkNode)]
    made = nodes[0].source if nodes and isinstance(nodes[0], ChunkNode) else source
    if len(spans) == len(nodes) and all(_is_unchanged(node, made) for node in nodes):
        source = made
    else:
        source, spans = _place(chunker, source, nodes)
    ids = {node.node_id: source.chunk_id(span) for node, span in zip(nodes, spans, strict=True)}
    chunks = []
    for node, span in zip(nodes, spans, strict=True):
        own = _own_metadata(path, known, node)
        family = _family_of(node, ids)
        if (parent := family.get(NodeRelationship.PARENT)) is not None:
            own = own | {PARENT: parent.node_id}
        style = {name: getattr(node, name) for name in GIVEN_STYLE}
        told = _excluding_title(node).get_metadata_str(MetadataMode.EMBED)
        lines = (" ".join(storable(line).split()) for line in told.splitlines())
        span = replace(span, context=(*span.context, *filter(None, lines)), metadata=own)
        chunk = ChunkNode.of(source, span, style)
        chunk.relationships |= family
        chunks.append(chunk)
    return chunks


def _text_of(node: BaseNode) -> str:
    return node.get_content(metadata_mode=MetadataMode.NONE)


def _is_unchanged(node: BaseNode, source: Source) -> bool:
    """Return whether a chunk still has the text of its place in the source."""
    if not isinstance(node, ChunkNode) or node.source is not source:
        return False
    return source.parsed.text[node.span.start : node.span.end] == _text_of(node)


def _family_of(node: BaseNode, ids: Mapping[str, str]) -> dict[NodeRelationship, Any]:
    """Return the node's parent and children, by the ids of their chunks where they have one."""

    def renamed(related: RelatedNodeInfo) -> RelatedNodeInfo:
        return RelatedNodeInfo(node_id=ids.get(related.node_id, related.node_id))

    parent, children = node.parent_node, node.child_nodes
    return {
        **({NodeRelationship.PARENT: renamed(parent)} if parent else {}),
        **({NodeRelationship.CHILD: list(map(renamed, children))} if children else {}),
    }


def _excluding_title(node: BaseNode) -> BaseNode:
    """Return the node without a title in its metadata: the title is searched as such."""
    titles = [key for key in node.metadata if key.casefold() == "title"]
    excluded = [*node.excluded_embed_metadata_keys, *titles]
    return node.model_copy(update={"excluded_embed_metadata_keys": excluded}) if titles else node


def _own_metadata(path: str, known: Mapping[str, Any], node: BaseNode) -> dict[str, MetadataValue]:
    added = {key: it for key, it in node.metadata.items() if key not in known or known[key] != it}
    fields = normalise(added)
    if LEVEL in fields:
        raise InputError(f"{path}: a step may not add a {LEVEL}")
    return fields | keep_given(ADDED, added) if added else {}


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
