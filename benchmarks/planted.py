"""Plant faults into searches that find a document, and count how often ``why`` names the right one.

    python benchmarks/planted.py HOME scifact.jsonl nfcorpus.jsonl --each 20

``HOME`` has a dataset for each golden file, named like it. A case is a query whose labelled
document is among the first ten, and no longer after one fault. Its cause is known, so the step
that ``catalog why`` names is right or wrong; then its change is applied to the faulty search, and
the document must be among the results again. The draws have a fixed seed.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from catalog.core.params import SearchParams
from catalog.core.settings import Settings, load_settings
from catalog.core.settings.loading import with_section
from catalog.evaluation.golden import Span
from catalog.evaluation.golden_files import read_golden
from catalog.evaluation.losses import Loss
from catalog.evaluation.why import explain_loss
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.retrieval.parts import SearchParts
from catalog.retrieval.rerank import Reranker
from catalog.retrieval.search import find_passages
from catalog.store.chunks import find_by_path, list_paths
from catalog.store.restriction import Hit, Hits

TRIES = 60  # queries for each case that is wanted
COMMON = 8  # passages with a word that the long stop list has


@dataclass(frozen=True)
class Fault:
    """A fault: the right steps (a, b), params, settings, and a broken part.

    ``usual`` are params of the search before the fault, too.
    """

    name: str
    right: str
    params: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    broken: str = ""
    usual: dict[str, Any] = field(default_factory=dict)


FAULTS = [
    Fault("meaning is noise", "meaning", broken="vectors"),
    Fault("meaning alone is noise", "meaning", {"mode": "vector"}, broken="vectors"),
    Fault("words are noise", "words", broken="words"),
    Fault("words alone are noise", "words", {"mode": "lexical"}, broken="words"),
    Fault("stop words too many", "words", {"mode": "lexical"}, broken="stop words"),
    Fault("scope", "filter", {"docs": ["*1*"]}),
    Fault("dates", "filter", {"before": "1990"}),
    Fault("reversed reranker", "rerank", {"rerank": True}, broken="reranker"),
    Fault("words weigh nothing", "fusion", settings={"lexical_weight": 0.01}),
    Fault("meaning weighs nothing", "fusion", settings={"vector_weight": 0.01}),
    Fault(
        "shallow legs",
        "words, meaning, words and meaning",
        settings={"fusion_mode": "rrf", "fts_top_k": 1, "vector_top_k": 1, "overfetch": 1},
    ),
    Fault("threshold", "threshold", {"similarity_threshold": 0.97}),
    Fault("token budget", "token budget", settings={"token_budget": 400}),
    Fault("few results", "top_k", {"top_k": 1}),
    Fault(
        "router",
        "route",
        settings={"router_enabled": True, "router_documents": 2},
        usual={"top_k": 2},
    ),
    Fault("abbreviated words", "words, top_k", {"mode": "lexical"}, broken="abbreviation"),
    Fault("another word", "words, top_k", {"mode": "lexical"}, broken="another word"),
]
# Words of the collections as others say them, chosen before any was tried.
SAID = """
cancer=carcinoma tumor=neoplasm children=kids doctors=physicians mice=rodents drug=medication
drugs=medications heart=cardiac diet=nutrition death=mortality mortality=deaths risk=danger
pregnancy=gestation obesity=overweight kidney=renal liver=hepatic brain=cerebral bone=skeletal
salt=sodium protein=polypeptide exercise=workout fat=lipid cells=tissue infection=contagion
remove=delete button=key photo=picture image=picture folder=directory phone=mobile video=movie
screen=display knot=loop car=automobile paint=dye hair=locks nose=nostrils
"""
OTHERS = dict(pair.split("=") for pair in SAID.split())


class FaultyParts(SearchParts):
    """Parts of which one is broken, whatever the settings."""

    broken = ""

    def with_settings(self, changes: Mapping[str, Any]) -> SearchParts:
        """Return parts with the same fault."""
        return plant(super().with_settings(changes), self.broken)

    def lexical(self, dataset: Any) -> Any:
        """Return the keyword engine, or one that leaves out words, or finds others."""
        engine = super().lexical(dataset)
        wrong = {"words": NoisyWords, "stop words": FewWords}.get(self.broken)
        return engine if wrong is None else wrong(engine)

    @cached_property
    def query_vectors(self) -> Any:
        """Return what embeds queries, perhaps as noise."""
        real = super().query_vectors
        return Noise(real) if self.broken == "vectors" else real


class Around:
    """Pass everything on to another object."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class Noise(Around):
    """Embed every text as a vector that has nothing to do with it."""

    def embed(self, query: str, side: Any = "query") -> tuple[Any, bool]:
        """Return a random vector, the same for the same text."""
        vector, cached = self.real.embed(query, side)
        drawn = np.random.default_rng(sum(query.encode())).normal(size=vector.shape)
        return np.asarray(drawn / np.linalg.norm(drawn), dtype=np.float32), cached


class NoisyWords(Around):
    """Find random passages."""

    def search(self, text: str, k: int, restriction: Any) -> Hits:
        """Return hits for other words than the query's."""
        found = self.real.search("results method analysis study data use time", 20 * k, restriction)
        drawn = random.Random(text).sample(list(found), min(k, len(found)))
        return Hits((Hit(hit.seq, 1 / n) for n, hit in enumerate(drawn, 1)), found.spread)


class FewWords(Around):
    """Leave out the words that more than a few passages have, as too long a stop list would."""

    def _stopped(self, words: list[str]) -> set[str]:
        counts = self.real.document_counts(words)[1]
        return {word for count, word in zip(counts, words, strict=True) if count > COMMON}

    def search(self, text: str, k: int, restriction: Any) -> Hits:
        """Search without them."""
        words = text.split()
        stopped = self._stopped(words)
        return self.real.search(" ".join(w for w in words if w not in stopped), k, restriction)

    def document_counts(self, words: Any) -> tuple[int, list[int]]:
        """Return 0 for them."""
        total, counts = self.real.document_counts(words)
        stopped = self._stopped(list(words))
        return total, [0 if w in stopped else c for w, c in zip(words, counts, strict=True)]


class Reversed(Reranker):
    """Score the passage with most words of the query lowest."""

    name = fingerprint = "reversed"
    batch_size = 64

    def fit(self, query: str, passage: str, *, head: str = "") -> tuple[str, bool]:  # noqa: ARG002
        """Read the passage alone."""
        return passage, False

    def relevance(self, score: float) -> float:
        """Return a share that rises with the score."""
        return float(1 / (1 + np.exp(-score)))

    def scores(self, query: str, texts: Any) -> list[float]:
        """Return minus the number of words shared."""
        asked = set(query.lower().split())
        return [-float(len(asked & set(text.lower().split()))) for text in texts]


def plant(parts: SearchParts, broken: str) -> SearchParts:
    """Break a part."""
    parts.__class__ = FaultyParts
    parts.broken = broken  # type: ignore[attr-defined]
    if broken == "reranker":
        parts._make_reranker = Reversed  # type: ignore[assignment]
    return parts


def is_found(parts: SearchParts, params: SearchParams, path: str) -> bool:
    """Return whether the document is among the results, also as a copy."""
    passages = find_passages(parts, params).passages
    return any(chunk.path == path for one in passages for chunk in one.chunks)


def said_otherwise(parts: SearchParts, how: str, query: str, path: str) -> str:
    """Return the query with two of the document's words abbreviated, or one said otherwise."""
    dataset, _, name = path.rpartition(":")
    with parts.database.read() as connection:
        document = find_by_path(connection, dataset, name)
    assert document is not None
    words, text = query.split(), " ".join(document.text.casefold().split())
    for one, two in pairwise(words):
        pair = f"{one} {two}".strip(".,?")
        if how == "abbreviation" and min(len(one), len(two)) > 3 and pair.casefold() in text:
            return query.replace(pair, f"{one[0]}{two[0]}".upper())
    for one in words if how == "another word" else ():
        if (other := OTHERS.get(one.casefold().strip(".,?"))) and one.casefold() in text:
            return query.replace(one, other)
    return query


def try_fault(
    parts: SearchParts, fault: Fault, params: SearchParams, path: str
) -> tuple[bool, bool, Loss] | None:
    """Return whether step and change are right, and what was said; ``None`` if nothing is lost."""
    params = replace(params, **fault.usual)
    if not is_found(parts, params, path):
        return None
    settings = dict(fault.settings)
    if fault.broken == "reranker":
        settings |= {"rerank_blend": "replace", "rerank_candidates": 50}
    faulty = plant(parts.with_settings(settings), fault.broken)
    query = said_otherwise(parts, fault.broken, params.query, f"{params.dataset}:{path}")
    wrong = replace(params, **fault.params, query=query)
    usual = replace(params, **fault.params)
    if is_found(faulty, wrong, path) or (
        query != params.query and not is_found(parts, usual, path)
    ):
        return None
    loss = explain_loss(faulty, wrong, path)
    helped = False
    if (change := loss.change) is not None and change.rank is not None:
        after = faulty.with_settings(change.settings)
        after.synonyms = [change.synonym] if change.synonym else []
        helped = is_found(after, replace(wrong, **change.params), path)
    return (loss.step or "") in fault.right.split(", "), helped, loss


def cut_and_missing(
    parts: SearchParts, dataset: str, pairs: list[tuple[str, str]], each: int
) -> Iterator[tuple[str, bool, bool, Loss]]:
    """Yield the same for an answer that is cut, a document not indexed, and a limit of one."""
    with tempfile.TemporaryDirectory() as folder:
        files, home = Path(folder) / "files", Path(folder) / "home"
        files.mkdir()
        with parts.database.read() as connection:
            wanted = dict.fromkeys(path for _, path in pairs[: 3 * each])
            others = dict.fromkeys(list_paths(connection, dataset)[:300])
            for path in {**wanted, **others}:
                document = find_by_path(connection, dataset, path)
                assert document is not None
                (files / path.replace("/", "_")).write_text(document.text, encoding="utf-8")
        small = {"chunk_size": 48, "chunk_overlap": 0, "chunk_min_size": 0}
        settings = with_section(parts.settings, "rag_v2", small).model_copy(update={"home": home})
        with Library(settings) as library:
            Indexer(library).build(files, "cut")
            here = SearchParts(library)
            pairs = pairs[: 3 * each]
            yield from cut_cases(here, pairs, each, files, settings)
            yield from limited_cases(here, pairs, each)
            yield from missing_cases(library, here, pairs, each, files)


def cut_cases(
    parts: SearchParts,
    pairs: list[tuple[str, str]],
    each: int,
    files: Path,
    settings: Settings,
) -> Iterator[tuple[str, bool, bool, Loss]]:
    """Quote words on both sides of a cut; apply the change to a new index."""
    done, wider = 0, dict[tuple[Any, ...], SearchParts]()
    for query, path in pairs:
        span = across(parts, path)
        if span is None or done == each:
            continue
        loss = explain_loss(parts, SearchParams(query, dataset="cut", top_k=10), path, span)
        if loss.step is None:
            continue
        done += 1
        helped = False
        if loss.change is not None and loss.change.settings:
            key = tuple(loss.change.settings.items())
            if key not in wider:
                home = settings.home.with_name(f"home{len(wider)}")
                again = with_section(settings, "rag_v2", dict(key)).model_copy(
                    update={"home": home}
                )
                library = Library(again)
                Indexer(library).build(files, "cut")
                wider[key] = SearchParts(library)
            now = SearchParams(query, dataset="cut", top_k=10)
            helped = explain_loss(wider[key], now, path, span).step != "passage"
        yield "answer cut in two", loss.step == "passage", helped, loss
    for one in wider.values():
        one.close()


def across(parts: SearchParts, path: str) -> Span | None:
    """Return words on both sides of the end of a document's first passage."""
    found = find_passages(
        parts, SearchParams("the of and", dataset="cut", docs=[path], top_k=100, mode="vector")
    ).passages
    first = next((one.chunk for one in found if one.chunk.position == 0), None)
    if first is None or len(found) < 2:
        return None
    with parts.database.read() as connection:
        document = find_by_path(connection, "cut", path)
    assert document is not None
    text, end = document.text, first.end_offset
    return Span(text=text[max(0, end - 40) : end + 40])


def limited_cases(
    parts: SearchParts, pairs: list[tuple[str, str]], each: int
) -> Iterator[tuple[str, bool, bool, Loss]]:
    """Want a document's second-best passage with one passage per document."""
    done = 0
    one_each = parts.with_settings({"max_chunks_per_doc": 1})
    for query, path in pairs:
        params = SearchParams(query, dataset="cut", top_k=10)
        mine = [
            one.chunk for one in find_passages(parts, params).passages if one.chunk.path == path
        ]
        if len(mine) < 2 or done == each:
            continue
        span = Span(text=mine[1].text.strip())
        loss = explain_loss(one_each, params, path, span)
        if loss.step is None:
            continue
        done += 1
        helped = False
        if loss.change is not None:
            after = one_each.with_settings(loss.change.settings)
            again = replace(params, **loss.change.params)
            helped = explain_loss(after, again, path, span).step is None
        yield "one passage per document", loss.step == "limit", helped, loss


def missing_cases(
    library: Library, parts: SearchParts, pairs: list[tuple[str, str]], each: int, files: Path
) -> Iterator[tuple[str, bool, bool, Loss]]:
    """Take documents out of the index while their files stay; apply the change: update."""
    paths = {
        path: query
        for query, path in pairs
        if is_found(parts, SearchParams(query, dataset="cut", top_k=10), path)
    }
    chosen = list(paths)[:each]
    away = files.with_name("away")
    away.mkdir()
    for path in chosen:
        (files / path).rename(away / path)
    Indexer(library).update("cut", allow_mass_deletion=True)
    for path in chosen:
        (away / path).rename(files / path)
    said = []
    for path in chosen:
        params = SearchParams(paths[path], dataset="cut", top_k=10)
        said.append((params, path, explain_loss(parts, params, path)))
    Indexer(library).update("cut")
    for params, path, loss in said:
        helped = loss.change is not None and is_found(parts, params, path)
        yield "not indexed", loss.step == "index", helped, loss


def main() -> None:
    """Print for each fault how often the step and the change were right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("home", type=Path)
    parser.add_argument("golden", type=Path, nargs="+")
    parser.add_argument("--each", type=int, default=20, help="cases of each fault")
    parser.add_argument("--fault", action="append", help="only this one; may be repeated")
    parser.add_argument("--verbose", action="store_true", help="print wrong ones")
    options = parser.parse_args()
    settings = load_settings(overrides={"home": options.home}).settings
    cases, right, helped, lines = (Counter[str]() for _ in range(4))

    def count(name: str, is_right: bool, helps: bool, loss: Loss) -> None:
        cases[name] += 1
        right[name] += is_right
        helped[name] += helps
        lines[name] += loss.change is not None and bool(loss.change.synonym)
        if options.verbose and not (is_right and helps):
            print("--", name, loss.step, loss.query[:60], loss.document, loss.change)

    with Library(settings) as library:
        parts = SearchParts(library)
        share = -(-options.each // len(options.golden))
        for golden in options.golden:
            queries = list(read_golden(golden).answerable)
            random.Random(0).shuffle(queries)
            pairs = [(one.query, path) for one in queries for path in one.relevant]
            for fault in FAULTS:
                if fault.name not in (options.fault or [fault.name]):
                    continue
                done = 0
                for query, path in pairs[: TRIES * share]:
                    if done == share:
                        break
                    params = SearchParams(query, dataset=golden.stem, top_k=10)
                    tried = try_fault(parts, fault, params, path)
                    if tried is not None:
                        done += 1
                        count(fault.name, *tried)
            for told in () if options.fault else cut_and_missing(parts, golden.stem, pairs, share):
                count(*told)
    print(f"{'fault':26} cases  step right  change helps  of them a synonym")
    for name, total in cases.items():
        print(f"{name:26} {total:5} {right[name]:11} {helped[name]:13} {lines[name]:18}")
    total = cases.total()
    print(f"{'all':26} {total:5} {right.total() / total:11.1%} {helped.total() / total:13.1%}")


if __name__ == "__main__":
    main()
