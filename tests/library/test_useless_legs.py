"""Vectors that have nothing to do with their texts are told by the words, and count for nothing."""

import hashlib
import json

import numpy as np
import pytest

from catalog.library.indexing import Indexer
from catalog.library.useless_legs import (
    LEAST_AGREEMENT,
    LEAST_PASSAGES,
    find_useless_leg,
    read_useless_leg,
    refresh_agreement,
)
from catalog.search_v2.service import SearchServiceV2
from catalog.store.restriction import Hits
from fakes import WordEncoder, open_library, write

TOPICS = ("walrus ice tusk", "oven bread flour", "sail harbour wind", "violin bow string")


class ChanceEncoder(WordEncoder):
    """A model whose vectors say nothing of the text, but which of two texts it is."""

    fingerprint = "chance-1"

    def encode(self, texts):
        seeds = [int.from_bytes(hashlib.blake2b(t.encode(), digest_size=8).digest()) for t in texts]
        vectors = [np.random.default_rng(seed).normal(size=self.dim) for seed in seeds]
        return [(each / np.linalg.norm(each)).astype(np.float32) for each in vectors]


def open_topics(tmp_path, encoder, documents=48):
    folder = tmp_path / "notes"
    for number in range(documents):
        topic = TOPICS[number % len(TOPICS)]
        write(folder, **{f"n{number}_dot_md": f"{topic} {topic} item{number} part{number % 7}"})
    library = open_library(tmp_path / "home", encoder, vector_engine="flat")
    return library, Indexer(library).build(folder, "notes")


def read_agreement(database, dataset):
    return json.loads(database.meta(f"agreement:{dataset}"))["agreement"]


@pytest.fixture
def by_chance(tmp_path):
    library, _ = open_topics(tmp_path, ChanceEncoder())
    with library:
        yield library


def test_vectors_that_carry_meaning_agree_with_the_words(tmp_path):
    library, report = open_topics(tmp_path, WordEncoder())
    with library:
        assert report.notes == ()
        assert read_agreement(library.database, "notes") > 1 > LEAST_AGREEMENT
        service = SearchServiceV2(library)
        assert service.parts.balance("notes").shift == 0.0


@pytest.mark.slow
def test_vectors_of_other_passages_do_not_agree(tmp_path):
    library, _ = open_topics(tmp_path, WordEncoder())
    with library:
        with library.database.read() as connection:
            rows = connection.exec_driver_sql("SELECT seq FROM chunks ORDER BY seq").scalars().all()
        others = dict(zip(rows, np.random.default_rng(1).permutation(rows).tolist(), strict=True))
        agreement, useless = find_useless_leg(library, "notes", others.__getitem__)
        assert agreement < LEAST_AGREEMENT
        assert useless == "vector"


def test_vectors_of_chance_do_not_change_what_words_find_first(by_chance):
    service = SearchServiceV2(by_chance)
    assert read_agreement(by_chance.database, "notes") < LEAST_AGREEMENT
    found = {
        mode: service.search("violin item3", dataset="notes", mode=mode, explain=True)
        for mode in ("hybrid", "lexical")
    }
    words = [one.path for one in found["lexical"].results]
    assert [one.path for one in found["hybrid"].results][: len(words)] == words
    assert found["hybrid"][0].certainty == "exact"
    assert service.search("violin", dataset="notes", mode="vector").results
    assert service.search("zebra", dataset="notes").results  # a word that no passage has
    [fuse] = [stage for stage in found["hybrid"].stages if stage.name == "fuse"]
    assert "vectors do not agree with their words" in fuse.note


class WordsOfOthers:
    """A keyword leg that takes every passage for the next one."""

    def __init__(self, lexical, count):
        self._lexical, self._count = lexical, count

    def __getattr__(self, name):
        return getattr(self._lexical, name)

    def search(self, query, limit, restriction):
        hits = self._lexical.search(query, limit, restriction)
        others = [hit._replace(seq=hit.seq % self._count + 1) for hit in hits]
        return Hits(others, hits.spread)


@pytest.mark.slow
def test_words_that_find_other_passages_count_for_nothing(tmp_path, monkeypatch):
    library, _ = open_topics(tmp_path, WordEncoder())
    with library:
        assert read_useless_leg(library.database, "notes") is None
        sound = library.indexes.lexical
        monkeypatch.setattr(
            library.indexes, "lexical", lambda *named: WordsOfOthers(sound(*named), 48)
        )
        library.database.set_meta("agreement:notes", "{}")
        refresh_agreement(library, "notes")
        assert read_agreement(library.database, "notes") < LEAST_AGREEMENT
        service = SearchServiceV2(library)
        found = {
            mode: service.search("violin bow item3", dataset="notes", mode=mode)
            for mode in ("hybrid", "vector")
        }
        paths = [[one.path for one in results.results] for results in found.values()]
        assert paths[0] == paths[1]
        assert "n3.md" in paths[0]
        [fuse] = [stage for stage in found["hybrid"].stages if stage.name == "fuse"]
        assert "only vectors count" in fuse.note


def test_few_passages_say_nothing_of_their_vectors(tmp_path):
    library, _ = open_topics(tmp_path, ChanceEncoder(), documents=LEAST_PASSAGES - 1)
    with library:
        assert library.database.meta("agreement:notes") is None
        assert SearchServiceV2(library).parts.balance("notes").shift == 0.0


def test_another_model_is_measured_again(tmp_path, by_chance):
    before = read_agreement(by_chance.database, "notes")
    by_chance.close()
    with open_library(tmp_path / "home", WordEncoder(), vector_engine="flat") as library:
        Indexer(library).rebuild()
        assert read_agreement(library.database, "notes") > LEAST_AGREEMENT > before


def test_a_few_other_passages_are_not_measured(tmp_path, monkeypatch):
    library, _ = open_topics(tmp_path, WordEncoder())
    measured = []
    module = "catalog.library.useless_legs.find_useless_leg"
    monkeypatch.setattr(module, lambda *of: measured.append(of) or (1.5, None))
    with library:
        for changed, times in ((3, 0), (16, 1)):
            for number in range(changed):
                (tmp_path / "notes" / f"n{number}.md").write_text(f"oven {changed}", "utf-8")
            Indexer(library).update("notes")
            assert len(measured) == times
