"""Stored chunks as LlamaIndex nodes, fused passages with their record, stages over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode
from pydantic import PrivateAttr

from catalog.core.documents import Chunk
from catalog.core.query import SubQueryKind
from catalog.core.results import Certainty, Evidence, Recency, Reranked
from catalog.search_v2.evidence import format_evidence
from catalog.search_v2.fusion import FusedHit

if TYPE_CHECKING:
    from catalog.search_v2.snippets import Snippet
    from catalog.store.engine_types import Restriction


class PassageNode(TextNode):
    """A LlamaIndex node of one stored chunk; ``node_id`` is the chunk id."""

    _chunk: Chunk = PrivateAttr()

    @classmethod
    def of(cls, chunk: Chunk) -> PassageNode:
        """Return the node of a chunk, with metadata as LlamaIndex users expect, free to change."""
        node = cls(
            id_=chunk.chunk_id,
            text=chunk.text,
            start_char_idx=chunk.start_offset,
            end_char_idx=chunk.end_offset,
            metadata={
                **{name: _copy_value(value) for name, value in chunk.metadata.items()},
                "dataset": chunk.source_doc_id.partition(":")[0],
                "source_doc_id": chunk.source_doc_id,
                "path": chunk.path,
                "title": chunk.title,
                "heading_path": list(chunk.heading_path),
                "unit": chunk.locator.unit,
                "line_start": chunk.locator.line_start,
                "line_end": chunk.locator.line_end,
            },
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=chunk.source_doc_id)},
        )
        node._chunk = chunk
        return node

    def with_metadata(self, *, is_read: bool = True, **more: str | list[str]) -> PassageNode:
        """Return the same node with more metadata, not to be embedded.

        A language model reads it, unless ``is_read`` says that it does elsewhere.
        """
        unread = () if is_read else more
        changed = {
            "metadata": {**self.metadata, **more},
            "excluded_embed_metadata_keys": [*self.excluded_embed_metadata_keys, *more],
            "excluded_llm_metadata_keys": [*self.excluded_llm_metadata_keys, *unread],
        }
        return self.model_copy(update=changed)

    def with_evidence(self, evidence: Evidence, *, is_read: bool) -> PassageNode:
        """Return the same node with what its recording holds around it, for a model to read."""
        return self.with_metadata(is_read=is_read, evidence=format_evidence(evidence))

    def with_copies(self, copies: Sequence[Chunk]) -> PassageNode:
        """Return the same node with the ids of the documents that have its text as well."""
        return self.with_metadata(is_read=False, also_in=[copy.source_doc_id for copy in copies])

    @property
    def chunk(self) -> Chunk:
        """The stored chunk."""
        return self._chunk


class Passage(NamedTuple):
    """A stored chunk that a search found, with its score and how that came about.

    What searches work on; :meth:`to_node` makes the LlamaIndex node of it.
    """

    chunk: Chunk
    score: float
    fused: FusedHit
    kinds_answered: frozenset[SubQueryKind] = frozenset()
    reranked: Reranked | None = None
    relevance: float | None = None
    certainty: Certainty | None = None
    restriction: Restriction | None = None
    snippet: Snippet | None = None
    evidence: Evidence | None = None
    repeats_evidence: bool = False  # of an earlier passage, where a language model reads it
    recency: Recency | None = None
    copies: tuple[Chunk, ...] = ()  # passages of the same text that it stands for

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The passage's chunk, then those of its copies."""
        return (self.chunk, *self.copies)

    def to_node(self) -> ScoredPassage:
        """Return a new LlamaIndex node of the passage, free to change."""
        node = PassageNode.of(self.chunk)
        if self.evidence is not None:
            node = node.with_evidence(self.evidence, is_read=not self.repeats_evidence)
        if self.copies:
            node = node.with_copies(self.copies)
        return ScoredPassage.of(node, self)


class ScoredPassage(NodeWithScore):
    """A :class:`PassageNode` with its score and how that came about."""

    _passage: Passage = PrivateAttr()

    @classmethod
    def of(cls, node: PassageNode, passage: Passage) -> ScoredPassage:
        """Pair a passage with its node."""
        scored = cls(node=node, score=passage.score)
        scored._passage = passage
        return scored

    @property
    def passage(self) -> Passage:
        """The passage under the score that the node has now."""
        score = self._passage.score if self.score is None else self.score
        return self._passage._replace(score=score)

    def with_rerank(self, score: float, record: Reranked) -> ScoredPassage:
        """Return the same passage under the score a reranker led to."""
        return self._copy(self._passage._replace(reranked=record), {"score": score})

    def with_relevance(self, judged: Passage) -> ScoredPassage:
        """Return the same passage with the relevance and the certainty of a judged one."""
        changed = self._passage._replace(relevance=judged.relevance, certainty=judged.certainty)
        return self._copy(changed)

    def with_snippet(self, snippet: Snippet) -> ScoredPassage:
        """Return the same passage with the part of it to show."""
        return self._copy(self._passage._replace(snippet=snippet))

    def with_evidence(self, evidence: Evidence, *, is_read: bool) -> ScoredPassage:
        """Return the same passage with what its recording holds around it."""
        node = self._node.with_evidence(evidence, is_read=is_read)
        told = self._passage._replace(evidence=evidence, repeats_evidence=not is_read)
        return self._copy(told, {"node": node})

    def with_copies(self, copies: Sequence[Chunk]) -> ScoredPassage:
        """Return the same passage, which also stands for these of the same text."""
        told = self._passage._replace(copies=(*self._passage.copies, *copies))
        return self._copy(told, {"node": self._node.with_copies(told.copies)})

    def _copy(self, passage: Passage, changes: Mapping[str, Any] | None = None) -> ScoredPassage:
        scored = self.model_copy(update=changes)
        scored._passage = passage
        return scored

    @property
    def _node(self) -> PassageNode:
        assert isinstance(self.node, PassageNode)
        return self.node

    @property
    def chunk(self) -> Chunk:
        """The stored chunk."""
        return self._node.chunk

    @property
    def fused(self) -> FusedHit:
        """Contributions and bonus that add up to the fused score."""
        return self._passage.fused

    @property
    def kinds_answered(self) -> frozenset[SubQueryKind]:
        """The kinds of the user's own sub-queries that were answered, by hits or by none."""
        return self._passage.kinds_answered

    @property
    def reranked(self) -> Reranked | None:
        """What a reranker made of the fused score, if one was asked."""
        return self._passage.reranked

    @property
    def relevance(self) -> float | None:
        """The estimated probability that the passage answers; ``None`` until it is judged."""
        return self._passage.relevance

    @property
    def certainty(self) -> Certainty | None:
        """The same in a word: exact, likely or possible; ``None`` until it is judged."""
        return self._passage.certainty

    @property
    def restriction(self) -> Restriction | None:
        """What the passage's search let answer, exclusions included; ``None`` if not known."""
        return self._passage.restriction

    @property
    def snippet(self) -> Snippet | None:
        """The part of it to show, around its best sentence; ``None`` until that is looked for."""
        return self._passage.snippet

    @property
    def evidence(self) -> Evidence | None:
        """What its recording holds around it; ``None`` unless it is timed and was expanded."""
        return self._passage.evidence


def chunk_of(passage: Passage | NodeWithScore) -> Chunk | None:
    """Return the stored chunk of a passage; ``None`` for the node of another retriever."""
    if isinstance(passage, Passage):
        return passage.chunk
    return passage.node.chunk if isinstance(passage.node, PassageNode) else None


class PassagePostprocessor(BaseNodePostprocessor):
    """A stage between fusion and answer; LlamaIndex serialises it under its class's name."""

    @classmethod
    def class_name(cls) -> str:
        """Return the name LlamaIndex serialises."""
        return cls.__name__


def _copy_value(value: Any) -> Any:
    """Return a copy that shares no list or mapping with the value."""
    if isinstance(value, list):
        return [_copy_value(item) for item in value]
    if isinstance(value, dict):
        return {name: _copy_value(item) for name, item in value.items()}
    return value
