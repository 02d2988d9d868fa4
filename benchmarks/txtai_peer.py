"""txtai as a system to measure, on a Python of its own: ``pip install txtai==9.14 psutil``.

Its defaults for hybrid search with content: Faiss, BM25 in SQLite, the texts in SQLite. Vectors are
given through its ``external`` method, which is a function from texts to vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from given import Given, Vectors
from step import WARM_UP, latency, memory, seconds

ANSWERS = 10
LEG = 20  # passages that a single leg is asked for, as of the stock stack
UPDATED = "doc00003.md"


def build(folder: Path) -> dict[str, float]:
    """Index the passages."""
    given = Given(folder / "given")
    passages = list(given.passages())
    known = dict(zip((text for _, text in passages), given.vectors, strict=True))
    embeddings = _embeddings(known)

    def index() -> None:
        embeddings.index((number, text, None) for number, (_, text) in enumerate(passages))
        _save(embeddings, folder / "txtai")

    return {"build s": seconds(index)}


def serve(folder: Path, count: int) -> dict[str, float]:
    """Open what was built, query it, then replace the passages of one file."""
    given = Given(folder / "given")
    known = given.queries()
    texts = list(known)[: count + WARM_UP]
    embeddings = _embeddings(known)

    def start() -> None:
        embeddings.load(str(folder / "txtai"))
        embeddings.config["transform"] = lambda asked: np.array([known[text] for text in asked])
        embeddings.model = embeddings.loadvectors()
        embeddings.search(texts[0], ANSWERS)

    def nearest(vector: Vectors) -> list[int]:
        return [row for row, _ in embeddings.ann.search(vector[None], LEG)[0]]

    found = {"open s": seconds(start)}
    found |= latency("lexical", lambda text: embeddings.scoring.search(text, LEG), texts)
    found |= latency("vector", lambda text: nearest(known[text]), texts)
    found |= latency("hybrid", lambda text: embeddings.search(text, ANSWERS), texts)
    found |= memory()
    found["recall@10"] = given.recall(nearest)
    rows = [
        (number, text) for number, (path, text) in enumerate(given.passages()) if path == UPDATED
    ]
    known |= {text: given.vectors[number] for number, text in rows}

    def update_one_file() -> None:
        embeddings.upsert([(number, text, None) for number, text in rows])
        _save(embeddings, folder / "txtai-updated")

    return found | {"one file s": seconds(update_one_file)}


def _embeddings(known: Mapping[str, Vectors]) -> Any:
    from txtai import Embeddings

    def transform(texts: list[str]) -> Vectors:
        return np.array([known[text] for text in texts])

    return Embeddings(method="external", transform=transform, hybrid=True, content=True)


def _save(embeddings: Any, folder: Path) -> None:
    """Save without the function, which is not data."""
    transform = embeddings.config.pop("transform")
    embeddings.save(str(folder))
    embeddings.config["transform"] = transform
