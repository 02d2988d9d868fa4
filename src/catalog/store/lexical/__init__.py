"""Keyword engines behind one protocol, chosen by name in one factory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog.core.errors import ConfigError

if TYPE_CHECKING:
    from catalog.core.settings import RAGv2Settings
    from catalog.store.database import Database
    from catalog.store.lexical.base import LexicalEngine

__all__ = ["LEXICAL_ENGINES", "get_lexical_engine", "join_lexical_engines"]

LEXICAL_ENGINES = ("bm25", "fts", "tsvector", "qdrant")


def get_lexical_engine(
    name: str,
    database: Database,
    dataset: str,
    folder: Path,
    *,
    rag: RAGv2Settings | None = None,
    **options: Any,
) -> LexicalEngine:
    """Return the engine of that name over one dataset; ``folder`` is for its derived files.

    ``rag`` has the settings of ``tsvector``, and the server of ``qdrant``. ``options`` go to the
    engine: ``analyzer``, ``k1`` and ``b`` for ``bm25``, ``language`` for ``fts``. Raises
    :class:`ConfigError` for a name that is not in :data:`LEXICAL_ENGINES`, a store that is
    elsewhere, or a server that is not set.
    """
    if name == "bm25":
        from catalog.store.lexical.bm25 import Bm25Engine

        return Bm25Engine(database, dataset, folder, **options)
    if name == "fts":
        from catalog.store.lexical.fts import FtsEngine

        return FtsEngine(database, dataset, **options)
    if name == "tsvector":
        from catalog.store.lexical.tsvector import TsvectorEngine

        return TsvectorEngine(database, dataset, rag.tsvector if rag else None, **options)
    if name == "qdrant":
        return _open_words(database, dataset, rag)
    raise ConfigError(f"unknown lexical engine {name!r}; engines: {', '.join(LEXICAL_ENGINES)}")


def _open_words(database: Database, dataset: str, rag: RAGv2Settings | None) -> LexicalEngine:
    if rag is None or rag.qdrant_url is None:
        raise ConfigError(
            "the keyword engine 'qdrant' is a Qdrant server's: set IDX_RAG_V2__QDRANT_URL, or "
            "choose another engine"
        )
    from catalog.store.lexical.qdrant_words import QdrantWordsEngine
    from catalog.store.vectors.qdrant_server import open_client

    options = rag.qdrant
    client = open_client(rag.qdrant_url, rag.qdrant_api_key, options.timeout_seconds)
    prefix = options.collection_prefix
    return QdrantWordsEngine(database, dataset, client, prefix, options=options, owns_client=True)


def join_lexical_engines(
    engines: Sequence[LexicalEngine], database: Database, datasets: tuple[str, ...]
) -> LexicalEngine:
    """Return one engine over several datasets, as though they were one, from those of each."""
    from catalog.store.lexical.bm25 import Bm25Engine

    ranked = [engine for engine in engines if isinstance(engine, Bm25Engine)]
    if len(ranked) == len(engines):
        from catalog.store.lexical.joined import JoinedBm25Engine

        return JoinedBm25Engine(ranked)
    if engines[0].name == "tsvector":
        from catalog.store.lexical.tsvector import TsvectorEngine

        own = [engine for engine in engines if isinstance(engine, TsvectorEngine)]
        return TsvectorEngine(database, datasets, own[0].settings)
    if engines[0].name == "qdrant":
        from catalog.store.lexical.qdrant_words import JoinedQdrantWords, QdrantWordsEngine

        return JoinedQdrantWords([one for one in engines if isinstance(one, QdrantWordsEngine)])
    from catalog.store.lexical.fts import FtsEngine

    return FtsEngine(database, datasets)
