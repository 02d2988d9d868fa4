"""The BM25 engine as LlamaIndex's own ``BM25Retriever``, without that class's traps.

What is replaced: the snapshot index (ours follows the truth), the tokenizer (the same for
documents and queries, kept over a reload), filters (per query, and never leaking), the
zero-score filler, and the second copy of every text (nodes are joined when they are found).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle
from llama_index.retrievers.bm25 import BM25Retriever

from catalog.core.errors import EngineError
from catalog.store.database import Database
from catalog.store.engine_types import Restriction
from catalog.store.lexical.analysis import Analyzer
from catalog.store.lexical.bm25 import Bm25Engine

Join = Callable[[Sequence[int]], Mapping[int, BaseNode]]
_SETTINGS = "retriever.json"


class ChunkBM25Retriever(BM25Retriever):
    """Retrieves the nodes that ``join`` makes of the engine's hits; what it leaves out is left out.

    ``join`` maps row numbers to nodes. Only what ``restriction`` allows is returned; a query
    without an indexable word and an empty corpus answer ``[]``.
    """

    def __init__(
        self,
        engine: Bm25Engine,
        restriction: Restriction,
        *,
        join: Join,
        similarity_top_k: int = 10,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
    ) -> None:
        # Not BM25Retriever's own: it would tokenize a corpus, and fail on an empty one.
        BaseRetriever.__init__(self, callback_manager=callback_manager, verbose=verbose)
        self.bm25 = engine
        self.restriction = restriction
        self.similarity_top_k = similarity_top_k
        self.corpus = None
        self.corpus_weight_mask = None
        self.skip_stemming = not engine.analyzer.stemming
        self._join = join

    @classmethod
    def from_defaults(cls, *_args: object, **_options: object) -> NoReturn:
        """Always raises ``TypeError``: chunks come from the store, not from nodes."""
        raise TypeError("make a Bm25Engine and pass it: ChunkBM25Retriever(engine, restriction, …)")

    @classmethod
    def from_persist_dir(  # type: ignore[override]  # a restriction is never left to a default
        cls,
        path: str,
        encoding: str = "utf-8",
        *,
        database: Database,
        restriction: Restriction,
        join: Join,
        **options: Any,
    ) -> ChunkBM25Retriever:
        """The retriever that :meth:`persist` saved, with its tokenizer and BM25 settings.

        Who may see what is never read from a file: ``restriction`` is given anew. Raises
        :class:`EngineError` when the folder holds no saved retriever.
        """
        settings = _read_settings(Path(path) / _SETTINGS, encoding)
        engine = Bm25Engine(
            database,
            settings["dataset"],
            Path(path),
            analyzer=Analyzer(**settings["analyzer"]),
            k1=settings["k1"],
            b=settings["b"],
        )
        options.setdefault("similarity_top_k", settings["similarity_top_k"])
        return cls(engine, restriction, join=join, **options)

    def persist(self, path: str, encoding: str = "utf-8", **_options: object) -> None:
        """Save settings and index in a folder, made if absent."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        self.bm25.copy_to(folder)
        unfinished = folder / f"{_SETTINGS}.unfinished"
        unfinished.write_text(json.dumps(self.get_persist_args(), indent=2), encoding)
        unfinished.replace(folder / _SETTINGS)

    def get_persist_args(self) -> dict[str, Any]:
        """The settings that a reload needs."""
        analyzer = self.bm25.analyzer
        return {
            "dataset": self.bm25.dataset,
            "similarity_top_k": self.similarity_top_k,
            "k1": self.bm25.k1,
            "b": self.bm25.b,
            "analyzer": {
                "language": analyzer.language,
                "stop_words": analyzer.stop_words,
                "stemming": analyzer.stemming,
            },
        }

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = self.bm25.search(query_bundle.query_str, self.similarity_top_k, self.restriction)
        nodes = self._join([hit.seq for hit in hits])
        return [
            NodeWithScore(node=nodes[hit.seq], score=hit.score) for hit in hits if hit.seq in nodes
        ]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


def _read_settings(file: Path, encoding: str) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = json.loads(file.read_text(encoding))
    except (OSError, ValueError) as error:
        raise EngineError(f"{file.parent} holds no saved retriever: {error}") from error
    return settings
