"""v1's lexical leg: chunks in a separate FTS5 table, ranked by its ``bm25()``."""

from __future__ import annotations

import re
import sqlite3
import weakref
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from threading import Lock

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.storage.docstore import BaseDocumentStore

MAX_WORDS = 1000  # of a query; so many already take FTS5 milliseconds
_WORD = re.compile(r"\w+")
_SCHEMA = """
CREATE VIRTUAL TABLE chunks_fts USING fts5(
    node_id UNINDEXED, title, text, tokenize = 'porter unicode61'
)
"""
_SEARCH = """
SELECT node_id, -bm25(chunks_fts) AS score FROM chunks_fts
WHERE chunks_fts MATCH ? ORDER BY score DESC, rowid LIMIT ?
"""


def create_chunks_fts(path: Path, chunks: Iterable[tuple[str, str, str]]) -> None:
    """Write a new SQLite file holding these (node id, title, text) rows, searchable."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(_SCHEMA)
        connection.executemany("INSERT INTO chunks_fts VALUES (?, ?, ?)", chunks)


def match_text(query: str) -> str:
    """Return the query's words, quoted so that none is an operator, joined by OR; may be ""."""
    words = list(dict.fromkeys(_WORD.findall(query)))[:MAX_WORDS]
    return " OR ".join(f'"{word}"' for word in words)


class ChunksFTS:
    """The table, read into memory, so that its file may be replaced meanwhile.

    Safe to share between threads. Raises :class:`sqlite3.Error` for a file that
    :func:`create_chunks_fts` did not write.
    """

    def __init__(self, path: Path) -> None:
        self._lock = Lock()
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, self._connection.close)
        file = f"{path.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(file, uri=True)) as stored:
            stored.backup(self._connection)
        self._connection.execute("SELECT node_id, title, text FROM chunks_fts LIMIT 1").fetchall()

    def search(self, query: str, k: int) -> list[tuple[str, float]]:
        """Return the ``k`` best (node id, score), best first; scores are minus ``bm25()``."""
        match = match_text(query)
        if match == "":
            return []
        with self._lock:
            return self._connection.execute(_SEARCH, (match, k)).fetchall()


class FTSChunkRetriever(BaseRetriever):
    """A LlamaIndex retriever over the table; the nodes come from the document store."""

    def __init__(
        self, chunks: ChunksFTS, docstore: BaseDocumentStore, similarity_top_k: int
    ) -> None:
        self._chunks, self._docstore = chunks, docstore
        self._similarity_top_k = similarity_top_k
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = self._chunks.search(query_bundle.query_str, self._similarity_top_k)
        nodes = self._docstore.get_nodes([node_id for node_id, _ in hits])
        return [
            NodeWithScore(node=node, score=score)
            for node, (_, score) in zip(nodes, hits, strict=True)
        ]
