"""haiku.rag as a system to measure, on a Python of its own, without what cuts documents.

    pip install --no-deps haiku.rag==0.6.0
    pip install sqlite-vec pydantic python-dotenv httpx rich packaging ollama psutil numpy

It needs a Python whose ``sqlite3`` loads extensions. Its module for cutting asks ``tiktoken`` for a
vocabulary when it is imported, which is fetched from the network, and needs ``docling``. Passages
are given here, as its ``create_document`` takes them, so that nothing is cut and both are stood in
for. Storing, searching and fusing are its own code. No reranker is set, and vectors are given in
place of Ollama's.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from given import Given, Vectors
from step import WARM_UP, latency, memory, seconds

ANSWERS = 10
LEG = 20  # passages that a single leg is asked for, as of the stock stack
UPDATED = "doc00003.md"
NOT_RUN = (
    "docling",
    "docling.chunking",
    "docling.document_converter",
    "docling_core.transforms.chunker.tokenizer.openai",
    "docling_core.types.doc.document",
    "docling_core.types.io",
    "tiktoken",
)


def build(folder: Path) -> dict[str, float]:
    """Store the passages, a transaction a document as it does."""
    given = Given(folder / "given")
    client = _client(folder, {})
    vectors = given.vectors

    async def index() -> None:
        numbered = enumerate(given.passages())
        for path, passages in groupby(numbered, key=lambda item: item[1][0]):
            await _store(client, path, [(text, vectors[row]) for row, (_, text) in passages])

    return {"build s": seconds(lambda: asyncio.run(index()))}


def serve(folder: Path, count: int) -> dict[str, float]:
    """Open what was built, query it, then replace one document."""
    given = Given(folder / "given")
    known = given.queries()
    texts = list(known)[: count + WARM_UP]
    loop = asyncio.new_event_loop()
    opened: list[Any] = []

    def start() -> None:
        opened.append(_client(folder, known))
        loop.run_until_complete(opened[0].search(texts[0], ANSWERS))

    def ask(search: Any, limit: int) -> Any:
        return lambda text: loop.run_until_complete(search(text, limit))

    found = {"open s": seconds(start)}
    client, chunks = opened[0], opened[0].chunk_repository
    found |= latency("lexical", ask(chunks.search_chunks_fts, LEG), texts)
    found |= latency("vector", ask(chunks.search_chunks, LEG), texts)
    found |= latency("hybrid", ask(client.search, ANSWERS), texts)
    found |= memory()
    names = {vector.tobytes(): text for text, vector in known.items()}
    nearest = ask(chunks.search_chunks, ANSWERS)
    found["recall@10"] = given.recall(
        lambda vector: [chunk.id - 1 for chunk, _ in nearest(names[vector.tobytes()])]
    )  # its ids count from 1 in the order given
    rows = [
        (text, given.vectors[row])
        for row, (path, text) in enumerate(given.passages())
        if path == UPDATED
    ]

    async def update_one_file() -> None:
        documents = await client.list_documents()
        mine = next(one for one in documents if one.uri == UPDATED)
        await client.delete_document(mine.id)
        await _store(client, UPDATED, rows)

    return found | {"one file s": seconds(lambda: loop.run_until_complete(update_one_file()))}


def _client(folder: Path, known: Mapping[str, Vectors]) -> Any:
    """Open its store, made if absent; a text is embedded as what is known of it."""
    dim = Given(folder / "given").vectors.shape[1]
    os.environ |= {"EMBEDDINGS_VECTOR_DIM": str(dim), "RERANK_PROVIDER": "none"}
    sys.modules |= {name: MagicMock() for name in NOT_RUN}
    from haiku.rag.client import HaikuRAG

    class Known:
        async def embed(self, text: str) -> list[float]:
            return list(known[text].tolist())

    client = HaikuRAG(folder / "haiku.sqlite")
    client.chunk_repository.embedder = Known()
    client.document_repository.chunk_repository.embedder = Known()
    return client


async def _store(client: Any, path: str, rows: Sequence[tuple[str, Vectors]]) -> None:
    from haiku.rag.store.models.chunk import Chunk

    chunks = [Chunk(content=text, embedding=vector.tolist()) for text, vector in rows]
    text = "\n\n".join(text for text, _ in rows)
    await client.create_document(text, uri=path, chunks=chunks)
