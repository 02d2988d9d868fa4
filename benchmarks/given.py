"""The texts and vectors that every measured system is given, as files that need no project.

``texts.jsonl`` has path and text of each passage, ``vectors.npy`` their vectors in that order;
``queries.json`` has the queries, ``query_vectors.npy`` theirs. All vectors have length 1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
ASKED_EXACTLY = 20  # queries


@dataclass(frozen=True)
class Given:
    """What lies in such a folder; vectors are mapped, texts are read when they are asked for."""

    folder: Path

    def passages(self) -> Iterator[tuple[str, str]]:
        """Yield path and text of each passage."""
        with (self.folder / "texts.jsonl").open(encoding="utf-8") as lines:
            for line in lines:
                path, text = json.loads(line)
                yield path, text

    @property
    def vectors(self) -> Vectors:
        """Return those of the passages, one a row."""
        return np.asarray(np.load(self.folder / "vectors.npy", mmap_mode="r"))

    def queries(self) -> dict[str, Vectors]:
        """Return the vector of each query, in the order in which they are asked."""
        texts = json.loads((self.folder / "queries.json").read_text(encoding="utf-8"))
        return dict(zip(texts, np.load(self.folder / "query_vectors.npy"), strict=True))

    def recall(self, find: Callable[[Vectors], Sequence[int]]) -> float:
        """Return the share of the ten nearest that is among the rows found for a vector."""
        vectors, shares = self.vectors, []
        for query in list(self.queries().values())[:ASKED_EXACTLY]:
            nearest = set(np.argsort(-(vectors @ query))[:10].tolist())
            shares.append(len(nearest & {*find(query)[:10]}) / len(nearest))
        return float(np.mean(shares))


def write_given(
    folder: Path,
    passages: Iterable[tuple[str, str]],
    queries: Sequence[str],
    encode: Callable[[list[str]], list[Any]],
    encode_query: Callable[[str], Any],
) -> Given:
    """Write the files, if they are not there with as many queries; return them."""
    known = folder / "queries.json"
    if known.exists() and len(json.loads(known.read_text(encoding="utf-8"))) >= len(queries):
        return Given(folder)
    folder.mkdir(parents=True, exist_ok=True)
    vectors = []
    with (folder / "texts.jsonl").open("w", encoding="utf-8") as lines:
        for path, text in passages:
            lines.write(json.dumps([path, text]) + "\n")
            vectors.append(encode([text])[0])
    np.save(folder / "vectors.npy", np.array(vectors, dtype=np.float32))
    of_queries = [encode_query(text) for text in queries]
    np.save(folder / "query_vectors.npy", np.array(of_queries, dtype=np.float32))
    known.write_text(json.dumps(list(queries)), encoding="utf-8")
    return Given(folder)
