"""Passages as LlamaIndex nodes, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self
from uuid import NAMESPACE_OID, uuid5

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import (
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.storage.docstore import SimpleDocumentStore
from pydantic import BaseModel, Field, PrivateAttr

from catalog.core.arguments import check_names
from catalog.core.documents import UNLISTED, Chunk, Locator, find_columns, listed
from catalog.core.filters import parse_filters
from catalog.core.results import TIMED_MODALITIES, Evidence
from catalog.retrieval.citations import format_citation, format_headings, format_place
from catalog.retrieval.fusion import FusedHit
from catalog.retrieval.legs import Question
from catalog.retrieval.recordings import format_evidence
from catalog.retrieval.shape import find_link
from catalog.retrieval.shared import shared_service
from catalog.retrieval.snippets import Passage
from catalog.store import Database
from catalog.store.chunks import find_neighbours, load_chunks
from catalog.store.derived import live_seqs
from catalog.store.restriction import Restriction, allowed_seqs
from catalog.store.vectors.flat import read_windows

if TYPE_CHECKING:
    from catalog.core.params import DatasetChoice
    from catalog.retrieval.search import Searcher

FOR_MODELS = ("title", "section", "place")  # the metadata that language models read
TEMPLATES = ("text_template", "metadata_template", "metadata_separator")
GIVEN = f"{UNLISTED}metadata"  # a document's metadata as given, in JSON
ADDED = f"{UNLISTED}added"  # what steps added for one chunk, in JSON
PARENT = f"{UNLISTED}parent"  # the id of the chunk above, by a splitter of several levels


class OwnPart:
    """A part under its class's name, whose copies ask the same store, models and clients."""

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex knows and stores it."""
        return cls.__name__

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return copy(self)


class PassageNode(TextNode):
    """A LlamaIndex node of one stored chunk; ``node_id`` is the chunk id.

    Its source node is the document under the id that its LlamaIndex user gave, else under
    ``source_doc_id``. Prompts contain the text with title, section and place; embeddings title and
    section; both as the templates and excluded keys of the given document say. All other metadata
    is excluded from both. Except for ``title``, ``path``, ``heading_path`` and what names the
    document, a key that the document had keeps its value.
    """

    _chunk: Chunk = PrivateAttr()
    _told: frozenset[str] = PrivateAttr(default=frozenset())  # metadata of one search

    __setstate__ = BaseModel.__setstate__  # LlamaIndex's would lose the chunk

    @classmethod
    def of(cls, chunk: Chunk) -> PassageNode:
        """Return the node of a chunk, with the usual metadata of LlamaIndex; it may be changed."""
        at, page = chunk.locator, chunk.locator.page
        found = {
            "title": chunk.title,
            "section": format_headings(
                chunk.heading_path, (*chunk.sections, *find_columns(chunk.context))
            ),
            "place": format_place(chunk),
            "citation": format_citation(chunk),
            "link": find_link(chunk, at) or chunk.metadata.get("source_url"),
            "page": page,
            "page_label": None if page is None else str(page),
            "time_start": at.time_start,
            "time_end": at.time_end,
            "line_start": at.line_start,
            "line_end": at.line_end,
            "unit": at.unit,
        }
        given, style = _given_of(chunk.metadata)
        metadata = {
            **{name: value for name, value in found.items() if value not in (None, "")},
            **given,
            "title": given.get("title") or chunk.title,
            "dataset": chunk.source_doc_id.partition(":")[0],
            "source_doc_id": chunk.source_doc_id,
            "path": chunk.path,
            "heading_path": list(chunk.heading_path),
        }
        unread = style.pop("excluded_llm_metadata_keys", ())
        unembedded = (FOR_MODELS[-1], *style.pop("excluded_embed_metadata_keys", ()))
        document = str(given.get("doc_id") or chunk.source_doc_id)
        related = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)}
        if (parent := chunk.metadata.get(PARENT)) is not None:
            related[NodeRelationship.PARENT] = RelatedNodeInfo(node_id=str(parent))
        node = cls(
            id_=chunk.chunk_id,
            text=chunk.text,
            start_char_idx=chunk.start_offset,
            end_char_idx=chunk.end_offset,
            metadata=metadata,
            excluded_llm_metadata_keys=_unless_read(metadata, unread),
            excluded_embed_metadata_keys=_unless_read(metadata, unembedded),
            relationships=related,
            **style,
        )
        node._chunk = chunk
        return node

    @property
    def hash(self) -> str:
        """The same for every search that finds the passage, so that fusions of LlamaIndex merge it.

        It is LlamaIndex's hash of the node without what a search told, such as the relevance. So a
        node from ``pipeline.run`` has it too, also after a docstore returned it.
        """
        own = {name: it for name, it in self.metadata.items() if name not in self._told}
        return TextNode(text=self.text, metadata=own).hash

    @property
    def chunk(self) -> Chunk:
        """The stored chunk."""
        return self._chunk

    def telling(self, passage: Passage) -> PassageNode:
        """Return the node with its relevance, the evidence around it, and the places of copies.

        A language model reads the evidence here unless an earlier passage has it.
        """
        unread: dict[str, Any] = {}
        read: dict[str, Any] = {}
        if passage.relevance is not None:
            unread["relevance"] = passage.relevance
        if passage.evidence is not None:
            told = unread if passage.repeats_evidence else read
            told["evidence"] = format_evidence(passage.evidence)
        if passage.copies:
            unread["also_in"] = [copy.source_doc_id for copy in passage.copies]
        return self.with_metadata(unread, read)

    def with_metadata(
        self, unread: Mapping[str, Any], read: Mapping[str, Any] | None = None
    ) -> PassageNode:
        """Return the node with more metadata; language models see only those in ``read``.

        Keys that the document had keep its values.
        """
        read = {} if read is None else read
        own = self.metadata.keys() - self._told
        more = {name: it for name, it in {**read, **unread}.items() if name not in own}
        if not more:
            return self
        changed = {
            "metadata": {**self.metadata, **more},
            "excluded_embed_metadata_keys": _joined(self.excluded_embed_metadata_keys, more),
            "excluded_llm_metadata_keys": _joined(
                self.excluded_llm_metadata_keys, more.keys() - read.keys()
            ),
        }
        copy = self.model_copy(update=changed)
        copy._told = self._told | more.keys()
        return copy


_TOLD = attrgetter("relevance", "evidence", "copies")


class ScoredPassage(NodeWithScore):
    """A :class:`PassageNode` with its score and the parts of the score."""

    found: Any = Field(exclude=True, repr=False)  # a Passage, which pydantic must not copy

    @classmethod
    def of(cls, passage: Passage, node: PassageNode | None = None) -> ScoredPassage:
        """Return a passage as a node: a new one, or the given one, which may be changed."""
        node = node or PassageNode.of(passage.chunk).telling(passage)
        return cls(node=node, score=passage.score, found=passage)

    def changed(self, passage: Passage) -> ScoredPassage:
        """Return the node with a changed passage."""
        before, node = self.found, self.node
        assert isinstance(node, PassageNode)
        if _TOLD(passage) != _TOLD(before):
            node = node.telling(passage)
        return ScoredPassage.of(passage, node)

    @property
    def passage(self) -> Passage:
        """The passage with the node's present score."""
        found: Passage = self.found
        return found if self.score is None else found._replace(score=self.score)

    @property
    def fused(self) -> FusedHit:
        """Contributions and bonus that add up to the fused score."""
        return self.passage.fused

    @property
    def relevance(self) -> float | None:
        """The estimated probability that the passage answers; ``None`` until it is judged."""
        return self.passage.relevance

    @property
    def evidence(self) -> Evidence | None:
        """The evidence around it; ``None`` unless it is timed and was expanded."""
        return self.passage.evidence


def to_nodes(passages: Sequence[Passage], database: Database) -> list[NodeWithScore]:
    """Return new LlamaIndex nodes of passages, which may be changed."""
    return link_neighbours([ScoredPassage.of(passage) for passage in passages], database)


def link_neighbours(nodes: Sequence[NodeWithScore], database: Database) -> list[NodeWithScore]:
    """Give the nodes of chunks the ids of the chunks before and after them."""
    ours = [node.node for node in nodes if isinstance(node.node, PassageNode)]
    with database.read() as connection:
        found = find_neighbours(connection, [node.chunk.seq for node in ours])
    for node in ours:
        sides = (NodeRelationship.PREVIOUS, NodeRelationship.NEXT)
        for side, chunk_id in zip(sides, found[node.chunk.seq], strict=True):
            if chunk_id is not None:
                node.relationships[side] = RelatedNodeInfo(node_id=chunk_id)
    return list(nodes)


_AT_ONCE = 500  # passages in memory, with their vectors


def read_nodes(
    service: Searcher, dataset: DatasetChoice, *, filters: object = None, for_stores: bool = False
) -> Iterator[list[PassageNode]]:
    """Yield the passages that the settings' role may see as linked nodes, some at a time.

    ``for_stores`` adds the vectors, and UUIDs as ids.
    """
    database = service.library.database
    names, seen = service.library.seen_datasets(None, dataset)
    restriction = Restriction(names, seen, parse_filters(filters))
    with database.read() as connection:
        allowed = allowed_seqs(connection, restriction)
        whole = (live_seqs(connection, one) for one in restriction.datasets)
        seqs = [seq for one in (whole if allowed is None else [allowed]) for seq in one.tolist()]
    for start in range(0, len(seqs), _AT_ONCE):
        with database.snapshot(), database.read() as connection:
            found = load_chunks(connection, names, seqs[start : start + _AT_ONCE])
            nodes = {seq: PassageNode.of(chunk) for seq, chunk in sorted(found.items())}
            link_neighbours([NodeWithScore(node=node) for node in nodes.values()], database)
            windows = read_windows(connection, nodes if for_stores else ())
        for seq, place, row in zip(windows.seqs, windows.places, windows.rows, strict=True):
            if place == 0:
                nodes[seq].embedding = row.tolist()
        for node in nodes.values() if for_stores else ():
            node.id_ = _uuid_of(node.id_)
            for kind, related in node.relationships.items():
                if kind != NodeRelationship.SOURCE and isinstance(related, RelatedNodeInfo):
                    related.node_id = _uuid_of(related.node_id)
        yield [*nodes.values()]


def _uuid_of(chunk_id: str) -> str:
    return str(uuid5(NAMESPACE_OID, chunk_id))


def docstore(
    dataset: DatasetChoice = None, *, service: Searcher | None = None
) -> SimpleDocumentStore:
    """Return all passages of datasets as they are now, as a LlamaIndex document store.

    Nodes know their neighbours, parents and children, as ``PrevNextNodePostprocessor`` and
    ``AutoMergingRetriever`` need. Raises :class:`UnknownDatasetError`.

    Examples:
        >>> from catalog import search_v2
        >>> nodes = search_v2.docstore("notes").docs.values()
        >>> sorted({node.metadata["path"] for node in nodes})[0]
        'guides/backup.md'
    """
    service = service or shared_service()
    with service.library.database.snapshot():
        nodes = {one.node_id: one for some in read_nodes(service, dataset) for one in some}
    for node in nodes.values():
        if (above := node.parent_node) is not None and above.node_id in nodes:
            below = nodes[above.node_id].relationships.setdefault(NodeRelationship.CHILD, [])
            assert isinstance(below, list)
            below.append(RelatedNodeInfo(node_id=node.node_id))
    made = SimpleDocumentStore()
    made.add_documents([*nodes.values()])
    return made


def to_question(bundle: QueryBundle) -> Question:
    """Return the query in a LlamaIndex bundle."""
    return Question(bundle.query_str, bundle.embedding, tuple(bundle.custom_embedding_strs or ()))


def to_passage(node: NodeWithScore) -> Passage:
    """Return a node as a passage; another retriever's node has no place in a file.

    Its document is ``source_doc_id`` or ``file_path`` in its metadata, else its source node, else
    the node itself. Its place in the lists that were fused is the node's ``fused``.
    """
    text = node.node.get_content(metadata_mode=MetadataMode.NONE)
    if isinstance(node, ScoredPassage):
        passage = node.passage
        chunk = passage.chunk
        return passage if text == chunk.text else passage._replace(chunk=_with_text(chunk, text))
    score, inner = node.score or 0.0, node.node
    chunk = inner.chunk if isinstance(inner, PassageNode) else _foreign_chunk(inner, text)
    if text != chunk.text:
        chunk = _with_text(chunk, text)
    fused = getattr(node, "fused", None) or FusedHit(chunk.chunk_id, score, (), 0.0)
    return Passage(chunk, score, fused)


def _with_text(chunk: Chunk, text: str) -> Chunk:
    return replace(chunk, text=text, cues=())


def _foreign_chunk(node: Any, text: str) -> Chunk:
    metadata: Mapping[str, Any] = node.metadata
    headings = metadata.get("heading_path")
    if isinstance(headings, str):
        headings = [headings]
    elif not isinstance(headings, list | tuple):
        headings = []
    names = (metadata.get("source_doc_id"), metadata.get("file_path"), node.ref_doc_id)
    document = str(next(filter(None, names), node.node_id))
    offset = getattr(node, "start_char_idx", None) or 0
    modality: Any = metadata.get("modality")
    return Chunk(
        seq=-1,
        chunk_id=node.node_id,
        source_doc_id=document,
        dataset="",
        path=document,
        docid="",
        title=str(metadata.get("title") or ""),
        position=0,
        start_offset=offset,
        end_offset=offset + len(text),
        heading_path=tuple(str(name) for name in headings if name),
        modality=modality if modality in TIMED_MODALITIES else "text",
        locator=Locator(),
        text=text,
    )


class PassagePostprocessor(OwnPart, BaseNodePostprocessor):
    """A stage between fusion and answer.

    Raises :class:`InputError` for an argument that it does not have.
    """

    def __init__(self, **settings: Any) -> None:
        check_names(settings, dict.fromkeys(type(self).model_fields, ()))
        super().__init__(**settings)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        query = None if query_bundle is None else query_bundle.query_str
        passages = [to_passage(node) for node in nodes]
        given = {id(one.chunk): node for one, node in zip(passages, nodes, strict=True)}
        before = {id(one.chunk): one for one in passages}
        return [
            _to_node(one, before[id(one.chunk)], given[id(one.chunk)])
            for one in self._process(passages, query)
        ]

    def _process(self, passages: list[Passage], query: str | None) -> list[Passage]:
        """Return the remaining passages, in order; each keeps its chunk."""
        raise NotImplementedError


def _to_node(after: Passage, before: Passage, given: NodeWithScore) -> NodeWithScore:
    """Return the given node with the changes of a stage; without changes, the same object."""
    if after is before or after == before:
        return given
    if isinstance(given, ScoredPassage):
        return given.changed(after)
    node = given.node
    if isinstance(node, PassageNode) and after.evidence is not None:
        node = node.telling(after)
    is_same = node is given.node and after.score == before.score
    return given if is_same else given.model_copy(update={"node": node, "score": after.score})


def _joined(names: Sequence[str], more: Iterable[str]) -> list[str]:
    return list(dict.fromkeys((*names, *more)))


def _unless_read(metadata: Iterable[str], unread: Sequence[str]) -> list[str]:
    """Return the keys that a model does not read."""
    return [name for name in metadata if name not in FOR_MODELS or name in unread]


def _given_of(stored: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return metadata as they were given, and the templates and excluded keys among them."""
    if GIVEN in stored:
        given = json.loads(stored[GIVEN]) | json.loads(stored.get(ADDED, "{}"))
    else:
        given = deepcopy(listed(stored))  # callers may change a node's metadata
    names = stored.keys() - (GIVEN, ADDED, PARENT)
    style = {
        name.removeprefix(UNLISTED): stored[name] for name in names if name.startswith(UNLISTED)
    }
    return given, style
