"""Whether a learned-sparse leg pays beside BM25 and the dense leg.

    python benchmarks/sparse_leg.py ../shared/data/scifact … --model FOLDER --home DIR

FOLDER holds a SPLADE model (a BERT with its masked-language-model head, as safetensors); torch and
transformers run it. The other two legs are the product's own, asked through its engines
for the same passages, 100 deep; documents are ranked by their best passage.

Printed are nDCG@10 of every leg and of their fusions, what the sparse leg adds to a fusion without
it (with its 95 % bootstrap interval), CPU milliseconds a query with the query's own encoding,
passages encoded a second on one thread, and the sizes of the indexes. In a fusion by ``adaptive``
the sparse list is one more of the lexical or of the vector leg, at the weight named.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, vstack
from sqlalchemy import select

from catalog.core.settings import load_settings
from catalog.embedding import get_model
from catalog.evaluation.golden_files import CORPUS, read_beir
from catalog.evaluation.significance import bootstrap_interval
from catalog.ingest.sync_report import Silent
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.retrieval.fusion import (
    DEPTH,
    FusedHit,
    Leg,
    RankedList,
    adaptive,
    relative_score,
    single,
)
from catalog.retrieval.parts import SearchParts
from catalog.store.chunks import load_chunks
from catalog.store.restriction import Restriction, Spread
from catalog.store.schema import chunks
from fusion import Query

SEED = 20261123
SPEED_SAMPLE = 64  # passages
BATCH = 4
WINDOW = 512  # tokens
Lists = tuple[RankedList, RankedList, RankedList]
"""Of BM25, the dense leg and the sparse one."""


class SparseModel:
    """A SPLADE model on one thread: a text becomes weights of its vocabulary."""

    def __init__(self, folder: Path) -> None:
        import torch
        from transformers import AutoModelForMaskedLM, AutoTokenizer

        torch.set_num_threads(1)
        self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = AutoModelForMaskedLM.from_pretrained(folder, local_files_only=True)
        self._model = model.eval()

    def encode(self, texts: Sequence[str]) -> csr_matrix:
        """Return a row of weights for each text: log(1 + max over its tokens), where positive.

        The logarithm grows with its argument, so the maximum is taken first, which spares most of
        the work. Texts of like length go together.
        """
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        rows = [
            self._encode_batch([texts[place] for place in order[start : start + BATCH]])
            for start in range(0, len(order), BATCH)
        ]
        return vstack(rows, format="csr", dtype=np.float32)[np.argsort(order)]

    def _encode_batch(self, texts: list[str]) -> csr_matrix:
        import torch

        tokens = self._tokenizer(
            texts, padding=True, truncation=True, max_length=WINDOW, return_tensors="pt"
        )
        with torch.inference_mode():
            logits = self._model(**tokens).logits
            logits.masked_fill_(tokens["attention_mask"].unsqueeze(-1) == 0, 0.0)
            return csr_matrix(logits.amax(dim=1).relu_().log1p_().numpy())


class SparseIndex:
    """Passages' weights by term: a query's score of a passage is the product of their rows."""

    def __init__(self, rows: csr_matrix, seqs: Sequence[int]) -> None:
        self._terms, self._seqs = rows.tocsc(), np.asarray(seqs)
        self.bytes = sum(
            part.nbytes for part in (self._terms.data, self._terms.indices, self._terms.indptr)
        )
        self.terms_each = rows.nnz / max(1, rows.shape[0])

    def search(self, query: csr_matrix) -> tuple[tuple[tuple[str, float], ...], Spread]:
        """Return the best passages with their scores, and the spread of all scores."""
        scores = self._terms[:, query.indices] @ query.data
        best = np.argsort(-scores, kind="stable")[:DEPTH]
        hits = tuple((str(self._seqs[at]), float(scores[at])) for at in best if scores[at] > 0)
        return hits, Spread(float(scores.mean()), float(scores.std()))


@dataclass(frozen=True)
class Asked:
    """A query's three lists and CPU seconds, which document each passage is of, and the grades."""

    lists: Lists
    seconds: tuple[float, float, float]
    query: Query


def main() -> None:
    options = _arguments()
    model = SparseModel(options.model)
    model.encode(["load the model"])
    settings = load_settings(overrides={"home": options.home}).settings
    with Library(settings) as library:
        for folder in options.folders:
            name = folder.resolve().name
            Indexer(library).build(folder / CORPUS, name, progress=Silent())
            _measure(library, model, folder, name, options.queries)


def _measure(library: Library, model: SparseModel, folder: Path, name: str, most: int) -> None:
    seqs, texts, document = _passages(library, name)
    started = time.process_time()
    index = SparseIndex(model.encode(texts), seqs)
    rate = len(texts) / (time.process_time() - started)
    queries = list(read_beir(folder, "test").answerable)
    random.Random(SEED).shuffle(queries)
    parts = SearchParts(library)
    parts.query_vectors.embed("load the model")
    asked = [
        _ask(parts, model, index, name, query.query, query.relevant, document)
        for query in queries[:most]
    ]
    _print_quality(name, len(texts), asked)
    cpu = [1000 * float(np.mean([one.seconds[leg] for one in asked])) for leg in range(3)]
    dense = len(texts) * 4 * library.wanted_model.dim
    print(
        f"CPU ms a query: BM25 {cpu[0]:.1f}, dense {cpu[1]:.1f}, sparse {cpu[2]:.1f}\n"
        f"passages a CPU second: dense {_dense_rate(library, texts):.1f}, sparse {rate:.1f}\n"
        f"index: dense {dense / 1e6:.1f} MB as floats, sparse {index.bytes / 1e6:.1f} MB "
        f"({index.terms_each:.0f} terms a passage)",
        flush=True,
    )


def _passages(library: Library, name: str) -> tuple[list[int], list[str], dict[str, str]]:
    """Return numbers, texts and documents of the passages."""
    with library.database.read() as connection:
        seqs = sorted(connection.scalars(select(chunks.c.seq).where(chunks.c.dataset == name)))
        stored = load_chunks(connection, name, set(seqs))
    seqs = [seq for seq in seqs if seq in stored]
    document = {str(seq): stored[seq].path for seq in seqs}
    return seqs, [stored[seq].text for seq in seqs], document


def _ask(
    parts: SearchParts,
    model: SparseModel,
    index: SparseIndex,
    name: str,
    text: str,
    grades: dict[str, int],
    document: dict[str, str],
) -> Asked:
    within, seconds = Restriction(name), [time.process_time()]
    words = parts.lexical(name).search(text, DEPTH, within)
    seconds.append(time.process_time())
    vector = parts.query_vectors.model.embed_query(text)
    nearest = parts.vector(name).search(vector, DEPTH, within)
    seconds.append(time.process_time())
    sparse, of_sparse = index.search(model.encode([text]))
    seconds.append(time.process_time())
    of_dense = parts.library.indexes.sample(name).spread(vector)[1]
    legs: tuple[tuple[Leg, tuple[tuple[str, float], ...], Spread], ...] = (
        ("lexical", tuple((str(hit.seq), hit.score) for hit in words), words.spread),
        ("vector", tuple((str(hit.seq), hit.score) for hit in nearest), of_dense),
        ("vector", sparse, of_sparse),
    )
    lists = tuple(
        RankedList(leg, leg, text, "original", 1.0, hits, spread) for leg, hits, spread in legs
    )
    spent = np.diff(seconds)
    return Asked(lists, tuple(spent), Query(lists[:2], document, grades))


def _third(leg: Leg, weight: float) -> Callable[[Lists], list[FusedHit]]:
    """Fuse by ``adaptive``, the sparse list one more of a leg."""

    def fuse(lists: Lists) -> list[FusedHit]:
        lexical, dense, sparse = lists
        more = replace(sparse, leg=leg, weight=weight, origin="expansion")
        return adaptive((lexical, dense, more))

    return fuse


def _instead(of: int) -> Callable[[Lists], list[FusedHit]]:
    """Fuse by ``adaptive``, the sparse list in the place of another."""

    def fuse(lists: Lists) -> list[FusedHit]:
        pair = list(lists[:2])
        pair[of] = replace(lists[2], leg=pair[of].leg)
        return adaptive(pair)

    return fuse


WAYS: dict[str, Callable[[Lists], list[FusedHit]]] = {
    "BM25": lambda lists: single(lists[0]),
    "dense": lambda lists: single(lists[1]),
    "sparse": lambda lists: single(lists[2]),
    "adaptive: BM25, dense": lambda lists: adaptive(lists[:2]),
    "adaptive: sparse, dense": _instead(0),
    "adaptive: BM25, sparse": _instead(1),
    "adaptive: BM25, dense + sparse .25": _third("vector", 0.25),
    "adaptive: BM25, dense + sparse .5": _third("vector", 0.5),
    "adaptive: BM25, dense + sparse 1": _third("vector", 1.0),
    "adaptive: BM25 + sparse .5, dense": _third("lexical", 0.5),
    "adaptive: BM25 + sparse 1, dense": _third("lexical", 1.0),
    "relative: BM25, dense": lambda lists: relative_score(lists[:2]),
    "relative: BM25, dense, sparse": relative_score,
}
BESIDE = {name: name.split(":")[0] + ": BM25, dense" for name in WAYS if ":" in name}


def _print_quality(name: str, passages: int, asked: Sequence[Asked]) -> None:
    scores = {
        way: np.array([one.query.ndcg([hit.chunk_id for hit in fuse(one.lists)]) for one in asked])
        for way, fuse in WAYS.items()
    }
    print(f"\n{name}, {passages} passages, {len(asked)} queries: nDCG@10")
    for way, values in scores.items():
        beside = BESIDE.get(way, "BM25")
        gain = "" if beside == way else f"   to {beside} {_gain(values - scores[beside])}"
        print(f"{way:36}{values.mean():.3f}{gain}")


def _gain(differences: np.ndarray) -> str:
    ends = bootstrap_interval(list(differences))
    return f"{differences.mean():+.3f} [{ends.low:+.3f}, {ends.high:+.3f}]"


def _dense_rate(library: Library, texts: Sequence[str]) -> float:
    """Return how many passages a CPU second the dense model embeds on one thread."""
    settings = library.settings.embedding.model_copy(update={"threads": 1})
    model = get_model(settings, rag=library.settings.rag_v2)
    model.embed(["load the model"])
    sample = random.Random(SEED).sample(list(texts), min(SPEED_SAMPLE, len(texts)))
    started = time.process_time()
    model.embed(sample)
    return len(sample) / (time.process_time() - started)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folders", nargs="+", type=Path, help="collections in BEIR layout")
    parser.add_argument("--model", type=Path, required=True, help="folder of the sparse model")
    parser.add_argument("--queries", type=int, default=300, help="of each, at most")
    parser.add_argument("--home", type=Path, required=True, help="folder of the store")
    return parser.parse_args()


if __name__ == "__main__":
    main()
