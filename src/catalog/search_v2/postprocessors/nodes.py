"""What the selection stages read of a node, whichever retriever it came from."""

from __future__ import annotations

from llama_index.core.schema import MetadataMode, NodeWithScore

from catalog.search_v2.passages import PassageNode


def document_of(node: NodeWithScore) -> str:
    """The document a node was cut from; a node that names none stands for itself."""
    named = node.node.metadata.get("source_doc_id") or node.node.ref_doc_id
    return str(named or node.node.node_id)


def text_of(node: NodeWithScore) -> str:
    """The node's text alone, without its metadata."""
    return node.node.get_content(metadata_mode=MetadataMode.NONE)


def is_frame(node: NodeWithScore) -> bool:
    """Whether it is a described frame of a video; a node of others says so in ``modality``."""
    if isinstance(node.node, PassageNode):
        return node.node.chunk.modality == "video_frame"
    return bool(node.node.metadata.get("modality") == "video_frame")
