"""One corpus in every store, under every engine of words and of vectors: the same ten passages."""

import json
import os
import time
from itertools import cycle, product
from pathlib import Path

import pytest

import postgres
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from conftest import DATA
from fakes import open_library
from qdrant_protocol import qdrant_protocol
from tables import read_cases

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore:Payload indexes have no effect in the local Qdrant:UserWarning"
    ),
]
DECISIONS = sorted((Path(__file__).parents[2] / "docs" / "decisions").glob("*.md"))
PAGES = [page.stem for page in DECISIONS]
QUERIES = read_cases(__file__)["queries"]
WORDS = ("bm25", "fts")
ALONE = WORDS
VECTORS = {
    "sqlite": ("flat", "qdrant", "sqlite-vec", "qdrant server"),
    "postgres": ("flat", "qdrant", "sqlite-vec", "qdrant server"),
}
ROUNDING = 1.5e-6  # sums of numbers of 32 bits, in another order, and scores of six digits


class Corpus:
    """A folder that is built once into a file and once into Postgres, and asked in each way."""

    def __init__(self, home, url, server_url, queries, restrictions):
        self.home, self.queries, self.restrictions = home, queries, restrictions
        self._addresses = {"sqlite": None, "postgres": url.render_as_string(hide_password=False)}
        self._server_url = server_url

    def open(self, store, words="bm25", vectors="flat"):
        name, _, is_server = vectors.partition(" ")
        # one index of vectors for each store, whatever the engine of words
        told = {"qdrant_url": self._server_url} if is_server else {}
        prefix = {"qdrant": {"collection_prefix": f"{store}_"}} if is_server else {}
        return open_library(
            self.home / store,
            database_url=self._addresses[store],
            chunk_size=160,
            lexical_engine=words,
            vector_engine=name,
            **told,
            **prefix,
        )

    def build(self, folder):
        for store in VECTORS:
            with self.open(store) as library:
                report = Indexer(library).build(folder, "d")
                assert (report.failed, report.incomplete) == ((), 0)
        return report.chunks

    def ask(self, mode, *combination, part=slice(None)):
        """The best ten for each query, or for a part of them; restrictions take turns."""
        turns = list(zip(self.queries, cycle(self.restrictions), strict=False))
        with self.open(*combination) as library:
            service = SearchServiceV2(library)
            return [
                [
                    (result.chunk_id, result.score)
                    for result in service.search(
                        query, dataset="d", mode=mode, top_k=10, strict=True, **restriction
                    )
                ]
                for query, restriction in turns[part]
            ]


def is_alike(found, expected):
    """Whether the same passages stand in the same places, or scores that differ by rounding do."""
    return len(found) == len(expected) and all(
        one == other or abs(first - second) <= ROUNDING
        for (one, first), (other, second) in zip(found, expected, strict=True)
    )


def recall(found, expected):
    """The share of the passages that should be there which are."""
    pairs = zip(found, expected, strict=True)
    there = sum(len(dict(one).keys() & dict(other).keys()) for one, other in pairs)
    return there / sum(map(len, expected))


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Open a corpus over a fresh file, a fresh database and a fresh Qdrant server."""
    with postgres.removed_after(postgres.stores()) as _, qdrant_protocol(monkeypatch) as server:
        url = postgres.stores().new_url(empty=False)
        yield lambda *asked: Corpus(tmp_path / "homes", url, server.url, *asked)


def alike(words, store):
    """The store whose passages these words are to find: the full text is each store's own."""
    return store if words == "fts" else "sqlite"


def check_all(corpus, step=1):
    """Hold every combination to the first one's passages, in its order; return these.

    With a ``step`` each of them is asked every so many queries, from one further on each time.
    """
    expected = {
        (mode, words, store): corpus.ask(mode, store, words, "flat")
        for mode, words in (
            *product(["lexical"], ALONE),
            *product(["hybrid"], WORDS),
            ("vector", "bm25"),
        )
        for store in sorted({alike(words, store) for store in VECTORS})
    }
    assert all(map(any, expected.values()))
    combinations = [
        *(("lexical", store, words, "flat") for store, words in product(VECTORS, ALONE)),
        *(("vector", store, "bm25", one) for store, every in VECTORS.items() for one in every),
        *(
            ("hybrid", store, words, one)
            for words, (store, every) in product(WORDS, VECTORS.items())
            for one in every
        ),
    ]
    for number, (mode, *combination) in enumerate(combinations):
        part = slice(number % step, None, step)
        found = corpus.ask(mode, *combination, part=part)
        store, words, _ = combination
        wanted = expected[mode, words, alike(words, store)][part]
        assert all(map(is_alike, found, wanted)), (mode, *combination)
    return expected


def test_one_corpus_gives_the_same_passages_under_every_store_and_engine(
    opened, tmp_path, monkeypatch
):
    folder = tmp_path / "pages"
    folder.mkdir()
    for number, name in enumerate(PAGES):
        text = (DECISIONS[0].parent / f"{name}.md").read_text(encoding="utf-8")
        tag = "even" if number % 2 == 0 else "odd"
        (folder / f"{name}.md").write_text(f"---\ntags: [{tag}]\n---\n{text}", encoding="utf-8")
    restrictions = (
        {},
        {"filters": {"tags": "even"}},
        {"docs": [f"{one}.md" for one in PAGES[1:4]]},
    )
    corpus = opened(QUERIES[::2], restrictions)
    assert corpus.build(folder) > 100
    check_all(corpus, step=3)


def test_scifact_gives_the_same_passages_under_every_store_and_engine(
    opened, tmp_path, monkeypatch, capsys
):
    """Some five thousand abstracts: with ``IDX_TEST_CHAOS_SECONDS``, for it takes minutes."""
    source = DATA / "scifact"
    if not os.environ.get("IDX_TEST_CHAOS_SECONDS"):
        pytest.skip("NOT COMPARED on SciFact: set IDX_TEST_CHAOS_SECONDS")
    if not source.is_dir():
        pytest.skip(f"NOT COMPARED on SciFact: there is no {source}")
    folder = tmp_path / "abstracts"
    folder.mkdir()
    with (folder / "abstracts.jsonl").open("w", encoding="utf-8") as written:
        for line in (source / "corpus.jsonl").read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            half = "even" if int(record["_id"]) % 2 == 0 else "odd"
            told = {"id": record["_id"], "title": record["title"], "text": record["text"]}
            written.write(json.dumps(told | {"metadata": {"half": half}}) + "\n")
    queries = (source / "queries.jsonl").read_text(encoding="utf-8").splitlines()[:60]
    restrictions = ({}, {"filters": {"half": "even"}})
    corpus = opened([json.loads(line)["text"] for line in queries], restrictions)
    started = time.monotonic()
    passages = corpus.build(folder)
    check_all(corpus)
    with capsys.disabled():
        print(
            f"\nSciFact: {passages} passages, {len(queries)} queries; every exact combination "
            f"alike; {time.monotonic() - started:.0f} s"
        )
