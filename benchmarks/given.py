"""The texts and vectors that every measured system is given, as files that need no project.

    python benchmarks/given.py HOME FOLDER --queries scifact/queries.jsonl nfcorpus/queries.jsonl

writes the passages of a store with their vectors, and questions with theirs, for
``speed.py --real FOLDER``.

    IDX_PRESET=fast python benchmarks/given.py --cut 65 scifact/corpus.jsonl … FOLDER --queries …

cuts texts at so many words, for more passages than whole texts give, and embeds them by the model
that is set: the table of word vectors of the preset ``fast`` takes seconds for 50,000, and
``speed.py`` wants the same preset.

``texts.jsonl`` has path and text of each passage, ``vectors.npy`` their vectors in that order;
``queries.json`` has the queries, ``query_vectors.npy`` theirs. All vectors have length 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
ASKED_EXACTLY = 20  # queries
PASSAGES_A_FILE = 10
_ALONE = """
    SELECT chunks.text, embeddings.vector FROM chunk_windows
    JOIN chunks USING (seq) JOIN embeddings USING (embed_key)
    GROUP BY seq HAVING count(*) = 1"""


def main() -> None:
    """Write passages with one vector each, in a drawn order, and questions."""
    from catalog.core.settings import load_settings
    from catalog.embedding import get_model

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("sources", type=Path, nargs="+", help="a home, or with --cut texts")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cut", type=int, help="words of a passage of texts in BEIR layout")
    parser.add_argument("--queries", type=Path, nargs="+", required=True)
    parser.add_argument("--count", type=int, default=210, help="questions, an equal part a file")
    options = parser.parse_args()
    model = get_model(load_settings().settings.embedding)
    if options.cut:
        texts = [text for file in options.sources for text in _cut(file, options.cut)]
        rows = [(text, model.encoder.encode([text])[0].tobytes()) for text in texts]
    else:
        with sqlite3.connect(options.sources[0] / "catalog.db") as store:
            rows = store.execute(_ALONE).fetchall()
    random.Random(7).shuffle(rows)
    known = {np.frombuffer(vector, "<f4").tobytes(): text for text, vector in rows}
    lines = [file.read_text(encoding="utf-8").splitlines() for file in options.queries]
    drawn = [random.Random(7).sample(one, options.count // len(lines)) for one in lines]
    questions = [json.loads(line)["text"] for group in zip(*drawn, strict=True) for line in group]
    named = zip(_names(), known.values(), strict=False)
    vectors = iter(np.frombuffer(vector, "<f4") for vector in known)
    write_given(
        options.folder,
        ((path, f"{heading}\n\n{' '.join(text.split())}") for (path, heading), text in named),
        questions,
        lambda texts: [next(vectors) for _ in texts],
        model.embed_query,
    )


def _cut(file: Path, words: int) -> Iterator[str]:
    """Yield the passages of so many words of each text, without rests of less than half."""
    for line in file.read_text(encoding="utf-8").splitlines():
        said = json.loads(line)["text"].split()
        for at in range(0, max(1, len(said) - words // 2), words):
            yield " ".join(said[at : at + words])


def _names() -> Iterator[tuple[str, str]]:
    """Yield file and heading of each passage, as those of the made-up corpus are named."""
    number = 0
    while True:
        for part in range(PASSAGES_A_FILE):
            yield f"doc{number:05}.md", f"Section {number}-{part}"
        number += 1


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

    @property
    def is_real(self) -> bool:
        """Return whether the vectors are a model's, not made up."""
        return (self.folder / "real").exists()

    def bodies(self) -> dict[str, Vectors]:
        """Return the vector of each passage by its last line, which is all but the heading."""
        texts = (text for _, text in self.passages())
        return dict(zip(map(body_of, texts), self.vectors, strict=True))

    def recall(self, find: Callable[[Vectors], Sequence[int]]) -> float:
        """Return the share of the ten nearest that is among the rows found for a vector."""
        vectors, shares = self.vectors, []
        for query in list(self.queries().values())[:ASKED_EXACTLY]:
            nearest = set(np.argsort(-(vectors @ query))[:10].tolist())
            shares.append(len(nearest & {*find(query)[:10]}) / len(nearest))
        return float(np.mean(shares))

    def first(self, count: int, folder: Path) -> Given:
        """Write a folder with the first passages, and the Markdown files that have them."""
        corpus, kept = folder / "corpus", list(islice(self.passages(), count))
        corpus.mkdir(parents=True)
        files: dict[str, list[str]] = {}
        for path, text in kept:
            files.setdefault(path, []).append(f"# {text}")
        for path, texts in files.items():
            (corpus / path).write_text("\n\n".join(texts), encoding="utf-8")
        rows, asked = iter(self.vectors), self.queries()
        (folder / "given").mkdir(exist_ok=True)
        (folder / "given" / "real").touch()
        return write_given(
            folder / "given",
            kept,
            list(asked),
            lambda texts: [next(rows) for _ in texts],
            asked.__getitem__,
        )


def body_of(text: str) -> str:
    """Return the last line of a passage, however its heading is written."""
    return text.rstrip().rpartition("\n")[2]


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


if __name__ == "__main__":
    main()
