"""This project as a system to measure: its steps, over the corpus of a size."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from catalog.core.settings import load_settings
from catalog.embedding import get_model
from catalog.embedding.model import EmbeddingModel
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.search_v2.service import SearchServiceV2
from catalog.store.engines import nearest as nearest_to
from catalog.store.restriction import Restriction
from given import ASKED_EXACTLY, Given
from step import WARM_UP, latency, memory, seconds
from synthetic import SyntheticEncoder, queries

DATASET = "bench"
MODES = ("lexical", "vector", "hybrid")
SIZES = {"chunk_size": 2000, "chunk_overlap": 0, "chunk_min_size": 0, "query_cache_size": 0}


def build(folder: Path) -> dict[str, float]:
    """Index the corpus."""
    with open_library(folder / "ours", given=Given(folder / "given"), asks_model=True) as library:
        corpus = folder / "corpus"
        return {"build s": seconds(lambda: Indexer(library).build(corpus, DATASET))}


def serve(folder: Path, count: int, *, is_given: bool = False) -> dict[str, float]:
    """Open the store, query it, then update it."""
    given = Given(folder / "given")
    texts = questions(given, count)
    with open_library(folder / "ours", given=given, asks_model=not is_given) as library:
        ask = asker(library)
        found = {"open s": seconds(lambda: ask("hybrid")(texts[0]))}
        for mode in MODES:
            found |= latency(mode, ask(mode), texts)
        inside = latency("filtered", ask("hybrid", filters="path~doc0001"), texts)
        found["filtered p95"] = inside["filtered p95"]
        found |= memory()
        found["recall@10"] = recall(library, texts)
        return found | _update(library, folder / "corpus" / "doc00003.md")


def asker(library: Library) -> Callable[..., Callable[[str], Any]]:
    """Return what makes a function of a query, for a mode and more params of a search."""
    service = SearchServiceV2(library)

    def ask(mode: str, **search: Any) -> Callable[[str], Any]:
        return lambda query: service.search(query, dataset=DATASET, mode=mode, **search)

    return ask


def recall(library: Library, texts: Sequence[str]) -> float:
    """Return the share of the ten nearest that the vector index finds."""
    index, exact = library.indexes.vector(DATASET), library.indexes.vector(DATASET, "flat")
    shares = []
    for query in texts[:ASKED_EXACTLY]:
        vector = library.model.embed_query(query)
        found, nearest = (
            {hit.seq for hit in nearest_to(one, library.database, vector, 10, Restriction(DATASET))}
            for one in (index, exact)
        )
        shares.append(len(found & nearest) / len(nearest))
    return float(np.mean(shares))


def sections(folder: Path) -> Sequence[tuple[str, str]]:
    """Return path and text of each section of the corpus: what the others get as passages."""
    return [
        (file.name, section)
        for file in sorted((folder / "corpus").glob("*.md"))
        for section in file.read_text().split("\n\n# ")
    ]


def questions(given: Given, count: int) -> list[str]:
    """Return so many queries and those that are not counted: people's, or made-up ones."""
    asked = list(given.queries()) if given.is_real else queries(count + WARM_UP)
    return asked[: count + WARM_UP]


def open_library(
    home: Path,
    *,
    given: Given | None = None,
    asks_model: bool = False,
    url: str | None = None,
    **rag: Any,
) -> Library:
    """Open a store of the corpus, made if absent; ``rag`` are more settings of its searches."""
    overrides: dict[str, Any] = {"home": home, "rag_v2": SIZES | rag}
    if url is not None:
        overrides["database_url"] = url
    settings = load_settings(overrides=overrides).settings
    return Library(settings, model=model(given, asks_model=asks_model))


def model(given: Given | None = None, *, asks_model: bool = False) -> EmbeddingModel:
    """Return the model of the corpus, which has the vectors of queries unless it is asked."""
    real = get_model(load_settings().settings.embedding)
    is_real = given is not None and given.is_real
    known = None if given is None or asks_model else given.queries()
    encoder = SyntheticEncoder(real, known, given.bodies() if given and is_real else None)
    return EmbeddingModel(encoder, query_prefix=real.query_prefix)


def _update(library: Library, file: Path) -> dict[str, float]:
    """Update with nothing changed, then with one file changed, until that is found."""
    unchanged = seconds(lambda: Indexer(library).update(DATASET))
    word = f"zanzibar{uuid.uuid4().hex[:8]}"
    text = re.sub("^# Section 3-4.*", f"# Section 3-4 {word}", file.read_text(), flags=re.M)
    file.write_text(text)

    def update_and_find() -> None:
        Indexer(library).update(DATASET)
        assert file.name in [hit.path for hit in asker(library)("hybrid")(word)]

    return {"no change s": unchanged, "one file s": seconds(update_and_find)}
