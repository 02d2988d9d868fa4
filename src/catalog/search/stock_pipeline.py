"""Turn a dataset's documents into v1's chunks: a stock LlamaIndex ``IngestionPipeline``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import BaseNode, Document, MetadataMode
from llama_index.core.utils import get_tokenizer

from catalog.ingest.sync_report import Progress, Silent
from catalog.search.fts_chunk import create_chunks_fts
from catalog.search.vector import VectorStoreManager
from catalog.store.chunks import StoredDocument

# LlamaIndex's own defaults: v1 stays what its documentation gives (docs/decisions/0007).
CHUNK_SIZE = 1024
CHUNK_OVERLAP = 200
FTS_FILE = "chunks.db"
VECTOR_FOLDER = "vectors"
MAX_METADATA_TOKENS = 256  # the splitter takes a chunk's metadata off its size, and must have some
_BATCH = 32  # documents between two reports of progress


class DatasetIngestPipeline:
    """Split and embed documents, and write both of v1's indexes."""

    def __init__(self, embed_model: BaseEmbedding) -> None:
        self._embed_model = embed_model

    def run(
        self, documents: Sequence[StoredDocument], folder: Path, progress: Progress | None = None
    ) -> int:
        """Fill the (empty) folder and return the number of chunks; progress counts characters.

        A text the model fails on, or the model being down, ends the run with its error.
        """
        nodes = list(self._nodes(documents, progress or Silent()))
        rows = (
            (node.node_id, node.metadata["title"], node.get_content(MetadataMode.NONE))
            for node in nodes
        )
        create_chunks_fts(folder / FTS_FILE, rows)
        VectorStoreManager(folder / VECTOR_FOLDER, self._embed_model).build(nodes)
        return len(nodes)

    def _nodes(self, documents: Sequence[StoredDocument], progress: Progress) -> Iterator[BaseNode]:
        splitter = SentenceSplitter(
            chunk_size=CHUNK_SIZE, chunk_overlap=CHUNK_OVERLAP, id_func=_node_ids(documents)
        )
        pipeline = IngestionPipeline(
            transformations=[splitter, self._embed_model], disable_cache=True
        )
        progress.start(sum(len(document.text) for document in documents))
        for start in range(0, len(documents), _BATCH):
            batch = documents[start : start + _BATCH]
            yield from pipeline.run(
                documents=[_to_llama(stored) for stored in batch if stored.text.strip()]
            )
            progress.advance(sum(len(stored.text) for stored in batch), batch[-1].path)


def _to_llama(stored: StoredDocument) -> Document:
    metadata = {
        "source_doc_id": stored.source_doc_id,
        "path": stored.path,
        "title": stored.title,
    }
    tokens = get_tokenizer()
    hidden = [key for key in metadata if len(tokens(metadata[key])) > MAX_METADATA_TOKENS]
    excluded = list(dict.fromkeys(["source_doc_id", *hidden]))
    return Document(
        id_=stored.source_doc_id,
        text=stored.text,
        metadata=metadata,
        excluded_embed_metadata_keys=excluded,
        excluded_llm_metadata_keys=excluded,
    )


def _node_ids(documents: Sequence[StoredDocument]) -> Callable[[int, BaseNode], str]:
    """Return a maker of node ids ``{content_hash}:{seq}``; equal contents continue the count."""
    hashes = {document.source_doc_id: document.content_hash for document in documents}
    counted: Counter[str] = Counter()

    def node_id(_: int, document: BaseNode) -> str:
        content = hashes[document.node_id]
        counted[content] += 1
        return f"{content}:{counted[content] - 1}"

    return node_id
