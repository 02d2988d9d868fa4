"""Which fusion wins: every formula on every collection.

    python benchmarks/fusion.py ../shared/data/scifact ../shared/data/tutorialvqa … --home DIR
    python benchmarks/fusion.py … --golden golden_queries/python-docs.jsonl --dataset python

Both legs are asked once a query, 100 deep, through the product's own engines; every fusion then
orders the same two lists. Documents are ranked by their best passage. From each collection two
more sets of queries are made, without looking at any result:

exact   120 tokens that at most 3 documents hold (a digit and a letter, an underscore, a capital
        inside), and each again between two words of its sentence; relevant: those documents
weak    300 training queries whose lexical text has lost most of the words that the relevant
        documents hold: a lexical leg that is much weaker than the vector leg
mixed   the real test queries and as many exact ones
vec~    the real test queries, each passage with the vector of another: a useless vector leg
lex~    the real test queries, each passage with the words of another: a useless lexical leg

Printed are nDCG@10 and the gain over the better leg of each set, with its 95 % bootstrap interval
for the default and its neighbours. In the end, over the real queries of all collections: the mean
gain of every fusion, of the share that is best for each set in hindsight, and of the one among
the neighbours that is best on the other collections; and the worst difference to the better leg.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from sqlalchemy import select

from catalog.core.settings import load_settings
from catalog.evaluation.golden import GoldenSet
from catalog.evaluation.golden_files import read_golden
from catalog.evaluation.significance import bootstrap_interval
from catalog.ingest.sync_report import Silent
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.library.useless_legs import find_useless_leg
from catalog.retrieval.fusion import (
    BY_MEANING,
    BY_WORDS,
    DEPTH,
    NO_WORDS,
    PRIOR,
    Balance,
    FusedHit,
    RankedList,
    adaptive,
    relative_score,
    rrf,
    single,
)
from catalog.retrieval.parts import SearchParts
from catalog.retrieval.query_words import find_words
from catalog.store.chunks import load_chunks, read_documents
from catalog.store.restriction import Restriction
from catalog.store.schema import chunks
from question_sets import CORPUS, read_beir

SEED = 20261122
OWN = 10  # more hits than are fused: a query that is itself a document is left out of its answer
Lists = tuple[RankedList, RankedList]
Fusion = Callable[[Lists], list[FusedHit]]


def _fixed(share: float) -> Balance:
    return Balance(base=share, known=0.0)


FUSIONS: dict[str, Fusion] = {
    "lexical": lambda lists: single(lists[0]),
    "vector": lambda lists: single(lists[1]),
    "rrf 60": rrf,
    "relative": relative_score,
    "fixed .6": partial(adaptive, balance=_fixed(0.6)),
    "fixed .75": partial(adaptive, balance=_fixed(0.75)),
    "base .6": partial(adaptive, balance=Balance(base=0.6)),
    "base .7": partial(adaptive, balance=Balance(base=0.7)),
    "prior": adaptive,
    "adaptive": adaptive,  # by the balance of the dataset
}
NEIGHBOURS: Mapping[str, Fusion] = {
    f"base {base:.2f} power {2 * known:.1f}": partial(
        adaptive, balance=Balance(base=base, known=known)
    )
    for base in (0.55, 0.6, 0.65, 0.7, 0.75)
    for known in (0.5, 0.75, 1.0, 1.25)
}
SHARES: Mapping[str, Fusion] = {
    f"fixed {share:.2f}": partial(adaptive, balance=_fixed(share))
    for share in (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)
}
REAL = ("test", "golden")


@dataclass(frozen=True)
class Query:
    """Two ranked lists of chunks, which document each chunk is of, and the documents' grades."""

    lists: Lists
    document: Mapping[str, str]
    grades: Mapping[str, int]

    def ndcg(self, ranked: Sequence[str]) -> float:
        """nDCG@10 of chunks in this order, each document at its first chunk."""
        documents = list(dict.fromkeys(self.document[chunk] for chunk in ranked))[:10]
        gains = [self.grades.get(document, 0) for document in documents]
        best = sorted(self.grades.values(), reverse=True)[:10]
        return _discounted(gains) / _discounted(best)


@dataclass(frozen=True)
class QuerySet:
    """Queries of one collection and kind; ``fitted`` says whether the fit may see them."""

    collection: str
    kind: str
    fitted: bool
    queries: list[Query]
    balance: Balance = PRIOR

    @property
    def name(self) -> str:
        """Collection and kind."""
        return f"{self.collection} {self.kind}"


def main() -> None:
    options = _arguments()
    sets: list[QuerySet] = []
    for folder in options.folders:
        with _opened(options.home, folder.resolve().name) as library:
            parts = SearchParts(library)
            of_folder = list(_of_collection(parts, folder.resolve(), options))
            if options.real:
                sets += of_folder
                continue
            test = next(one for one in of_folder if one.kind == "test")
            sets += [*of_folder, _mixed(of_folder), *_useless_legs(parts, test)]
    if options.golden:
        with _opened(options.home, options.dataset) as library:
            parts = SearchParts(library)
            library.require_dataset(options.dataset)
            golden = read_golden(options.golden)
            texts = _texts(golden, options.queries)
            asked = _asked(parts, options.dataset, "golden", True, texts, golden)
            sets += [asked] if options.real else [asked, *_useless_legs(parts, asked)]
    _print_table(sets)


def _opened(home: str, collection: str) -> Library:
    return Library(load_settings(overrides={"home": home.format(collection)}).settings)


def _of_collection(
    parts: SearchParts, folder: Path, options: argparse.Namespace
) -> Iterator[QuerySet]:
    most = options.queries
    Indexer(parts.library).build(folder / CORPUS, folder.name, progress=Silent())
    splits = sorted(path.stem for path in (folder / "qrels").glob("*.tsv"))
    for split in splits:
        golden = read_beir(folder, split)
        yield _asked(parts, folder.name, split, split != "test", _texts(golden, most), golden)
    if options.real:
        return
    train = read_beir(folder, "train" if "train" in splits else splits[0])
    fitted = "train" in splits  # a collection with a test split alone is never fitted on
    with parts.database.read() as connection:
        texts = {d.path: f"{d.title} {d.text}" for d in read_documents(connection, folder.name)}
    exact = exact_queries(texts)
    queries = {text: text for text in exact}
    yield _asked(parts, folder.name, "exact", fitted, queries, exact)
    weakened = _weakened(train, texts, min(300, most))
    some = GoldenSet("weak", tuple(query for query in train if query.id in weakened))
    yield _asked(parts, folder.name, "weak", fitted, weakened, some)


def _mixed(sets: Sequence[QuerySet]) -> QuerySet:
    """As many exact queries as real ones of the test split; never fitted on."""
    by_kind = {one.kind: one for one in sets}
    pair = (by_kind["test"].queries, by_kind["exact"].queries)
    size = min(map(len, pair))
    chance = random.Random(SEED)
    queries = [query for listed in pair for query in chance.sample(listed, size)]
    return QuerySet(sets[0].collection, "mixed", False, queries)


def _useless_legs(parts: SearchParts, test: QuerySet) -> Iterator[QuerySet]:
    """Yield the queries with the vectors of other passages, and with their words."""
    with parts.database.read() as connection:
        seqs = sorted(
            connection.scalars(select(chunks.c.seq).where(chunks.c.dataset == test.collection))
        )
        stored = load_chunks(connection, test.collection, set(seqs))
    others = random.Random(SEED).sample(seqs, len(seqs))
    owner = dict(zip(others, seqs, strict=True))  # by the chunk whose vector, or words, it has
    document = {chunk.chunk_id: chunk.path for chunk in stored.values()}
    owner_of = {stored[one].chunk_id: stored[two].chunk_id for one, two in owner.items()}
    library, name = parts.library, test.collection
    other = dict(zip(seqs, others, strict=True))
    balance = _left(find_useless_leg(library, name, other.__getitem__)[1], test.balance)
    shuffled = [
        Query((query.lists[0], _rename(query.lists[1], owner_of)), document, query.grades)
        for query in test.queries
    ]
    yield QuerySet(name, "vec~", False, shuffled, balance)
    useless = find_useless_leg(library, name, words_of=owner.__getitem__)[1]
    shuffled = [
        Query((_rename(query.lists[0], owner_of), query.lists[1]), document, query.grades)
        for query in test.queries
    ]
    yield QuerySet(name, "lex~", False, shuffled, _left(useless, test.balance))


def _left(useless: str | None, usual: Balance) -> Balance:
    """The balance where this leg is of no use."""
    return {"vector": BY_WORDS, "lexical": BY_MEANING}.get(useless or "", usual)


def _rename(ranked: RankedList, owner: Mapping[str, str]) -> RankedList:
    return replace(ranked, hits=tuple((owner[name], score) for name, score in ranked.hits))


def _texts(golden: GoldenSet, most: int) -> dict[str, str]:
    """The texts of at most so many queries that can be asked of the whole collection, by id."""
    asked = [query for query in golden.answerable if query.filters is None]
    if len(asked) > most:
        asked = random.Random(SEED).sample(asked, most)
    return {query.id: query.query for query in asked}


def exact_queries(texts: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Queries made of rare tokens, with the documents that hold them."""
    holding: dict[str, set[str]] = defaultdict(set)
    for path, text in texts.items():
        for token in re.findall(r"[A-Za-z0-9][\w.-]*[A-Za-z0-9]", text):
            holding[token].add(path)
    looks_exact = re.compile(r"(?=.*\d)(?=.*[A-Za-z])|_|[a-z][A-Z]").search
    rare = [t for t, paths in sorted(holding.items()) if len(paths) <= 3 and len(t) > 3]
    tokens = [token for token in rare if looks_exact(token)] or rare
    chance = random.Random(SEED)
    queries: dict[str, dict[str, int]] = {}
    for token in chance.sample(tokens, min(120, len(tokens))):
        grades = dict.fromkeys(sorted(holding[token]), 1)
        words = texts[min(holding[token])].split()
        at = next((n for n, word in enumerate(words) if token in word), 0)
        near = [w.strip(".,;:()") for w in (*words[max(0, at - 6) : at], *words[at + 1 : at + 7])]
        long = [word for word in near if len(word) > 4][:2]
        queries[token] = queries[" ".join([*long[:1], token, *long[1:]])] = grades
    return queries


def _weakened(golden: GoldenSet, texts: Mapping[str, str], most: int) -> dict[str, str]:
    """Lexical texts by query id, most words of the relevant documents left out."""
    chance = random.Random(SEED)
    chosen = chance.sample(golden.answerable, min(most, len(golden.answerable)))
    weak: dict[str, str] = {}
    for query in chosen:
        relevant = " ".join(texts.get(path, "") for path in query.relevant).casefold()
        kept = [
            word
            for word in query.query.split()
            if word.casefold().strip(".,?")[:5] not in relevant or chance.random() < 0.45
        ]
        weak[query.id] = " ".join(kept) or query.query
    return weak


def _asked(
    parts: SearchParts,
    dataset: str,
    kind: str,
    fitted: bool,
    lexical_texts: Mapping[str, str],
    golden: GoldenSet | Mapping[str, Mapping[str, int]],
) -> QuerySet:
    """Ask both legs; the vector leg gets the query as it is, the lexical one ``lexical_texts``."""
    lexical, vector = parts.lexical(dataset), parts.vector(dataset)
    within = Restriction(dataset)
    texts, grades = _questions(golden)
    queries = []
    print(f"{dataset} {kind}: {len(lexical_texts)} queries", file=sys.stderr, flush=True)
    for name, lexical_text in lexical_texts.items():
        embedded, _ = parts.query_vectors.embed(texts[name])
        found = (
            lexical.search(lexical_text, DEPTH + OWN, within),
            vector.search(embedded, DEPTH + OWN, within),
        )
        spreads = found[0].spread, parts.library.indexes.sample(dataset).spread(embedded)[1]
        with parts.database.read() as connection:
            stored = load_chunks(connection, dataset, {hit.seq for hits in found for hit in hits})
        hits_of = {
            leg: [hit for hit in hits if hit.seq in stored and stored[hit.seq].path != name]
            for leg, hits in zip(("lexical", "vector"), found, strict=True)
        }
        words = find_words(parts.database, lexical, within, lexical_text, hits_of["lexical"])
        lists = tuple(
            RankedList(
                leg,
                leg,
                lexical_text,
                "original",
                1.0,
                tuple((stored[hit.seq].chunk_id, hit.score) for hit in hits_of[leg])[:DEPTH],
                of_all,
                of_leg,
            )
            for leg, of_all, of_leg in zip(
                ("lexical", "vector"), spreads, (words, NO_WORDS), strict=True
            )
        )
        document = {chunk.chunk_id: chunk.path for chunk in stored.values()}
        queries.append(Query((lists[0], lists[1]), document, grades[name]))
    return QuerySet(dataset, kind, fitted, queries, parts.balance(dataset))


def _questions(
    golden: GoldenSet | Mapping[str, Mapping[str, int]],
) -> tuple[dict[str, str], dict[str, Mapping[str, int]]]:
    if isinstance(golden, GoldenSet):
        return {q.id: q.query for q in golden}, {q.id: q.relevant for q in golden}
    return {text: text for text in golden}, dict(golden)


def _print_table(sets: Sequence[QuerySet]) -> None:
    print(f"{'nDCG@10':22}{'n':>5}" + "".join(f"{name:>11}" for name in FUSIONS))
    real: list[tuple[str, dict[str, float]]] = []
    for one in sets:
        scores = _score(one, FUSIONS | {"adaptive": partial(adaptive, balance=one.balance)})
        means = {name: float(np.mean(values)) for name, values in scores.items()}
        print(f"{one.name:22}{len(one.queries):5}" + "".join(f"{m:11.4f}" for m in means.values()))
        leg = max(("lexical", "vector"), key=means.__getitem__)
        for name in ("rrf 60", "fixed .75", "base .6", "base .7", "prior", "adaptive"):
            gains = np.subtract(scores[name], scores[leg])
            ends = bootstrap_interval(list(gains))
            share = means[name] / means[leg] - 1
            print(
                f"    {name} − {leg}: {gains.mean():+.4f} [{ends.low:+.4f}, {ends.high:+.4f}], "
                f"{share:+.1%}{'' if one.fitted else '   held out'}",
                flush=True,
            )
        if one.kind in REAL:
            more = _score(one, {**NEIGHBOURS, **SHARES}).items()
            real.append((one.collection, means | {name: float(np.mean(v)) for name, v in more}))
    _print_summary(real)


def _score(one: QuerySet, fusions: Mapping[str, Fusion]) -> dict[str, list[float]]:
    """nDCG@10 of every query, by fusion."""
    return {
        name: [q.ndcg([hit.chunk_id for hit in fuse(q.lists)]) for q in one.queries]
        for name, fuse in fusions.items()
    }


def _print_summary(real: Sequence[tuple[str, Mapping[str, float]]]) -> None:
    rows: dict[str, list[float]] = {name: [m[name] for _, m in real] for name in FUSIONS}
    rows["best share in hindsight"] = [max(m[name] for name in SHARES) for _, m in real]
    for label, family in (("neighbour", NEIGHBOURS), ("share", SHARES)):
        rows[f"{label} chosen on the others"] = [
            means[max(family, key=lambda name: _mean_gain(name, real, without=collection))]
            for collection, means in real
        ]
    better = [max(means["lexical"], means["vector"]) for _, means in real]
    print(
        f"\nreal queries of {len(real)} sets: mean gain on the better leg, worst difference to it"
    )
    for name, values in rows.items():
        gains = np.divide(values, better) - 1
        print(f"    {name:30}{gains.mean():+7.1%}{np.subtract(values, better).min():+8.3f}")


def _mean_gain(
    name: str, real: Sequence[tuple[str, Mapping[str, float]]], without: str = ""
) -> float:
    others = [means for collection, means in real if collection != without]
    gains = [means[name] / max(means["lexical"], means["vector"]) - 1 for means in others]
    return float(sum(gains) / max(1, len(gains)))


def _discounted(gains: Sequence[int]) -> float:
    return sum(gain / np.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folders", nargs="*", type=Path, help="collections in BEIR layout")
    parser.add_argument("--golden", type=Path)
    parser.add_argument("--dataset", default="python", help="of the golden set, indexed already")
    parser.add_argument("--queries", type=int, default=800, help="of one set, at most")
    parser.add_argument("--real", action="store_true", help="the collections' own queries alone")
    parser.add_argument("--home", default=".bench-home", help="of all, or DIR/{} for one each")
    return parser.parse_args()


if __name__ == "__main__":
    main()
