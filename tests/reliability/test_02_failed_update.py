"""An update that cannot be finished leaves what was there, whole; the next one finishes it."""

import random
from dataclasses import replace
from functools import partial

import pytest

from catalog.ingest.sync import sync
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from fakes import WordEncoder, open_library
from reliability.chaos import seeds

NAMES = [f"{number}.md" for number in range(8)]


def write_all(folder, word):
    for name in NAMES:
        (folder / name).write_text(f"walrus {word} {name} {word * 3}")


def answers(library, query, mode):
    results = SearchServiceV2(library).search(query, dataset="notes", mode=mode, top_k=20)
    return {result.path: result.text for result in results}


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "notes"
    root.mkdir()
    return root


def test_the_new_texts_are_found_by_words_and_no_old_vector_answers_while_the_model_is_down(
    tmp_path, folder
):
    write_all(folder, "alpha")
    encoder = WordEncoder()
    with open_library(tmp_path / "home", encoder) as library:
        Indexer(library).build(folder, "notes")
        write_all(folder, "beta")
        encoder.down = True
        report = Indexer(library).update("notes")
        assert (report.incomplete, report.updated, report.removed) == (8, 8, 0)
        encoder.down = False
        assert answers(library, "walrus alpha", "vector") == {}
        assert answers(library, "alpha", "lexical") == {}
        assert set(answers(library, "beta", "lexical")) == set(NAMES)
        report = Indexer(library).update("notes")
        assert (report.updated, report.incomplete) == (0, 0)
        assert set(answers(library, "walrus beta", "vector")) == set(NAMES)


def test_an_update_whose_model_fails_at_a_random_call_is_finished_by_the_next(tmp_path, folder):
    """Each document is wholly the old one or wholly the new one at every moment."""
    for seed in seeds():
        chance, encoder = random.Random(seed), WordEncoder()
        write_all(folder, "alpha")
        with open_library(tmp_path / f"{seed}", encoder, ingest={"group_chars": 60}) as library:
            library.model = replace(library.model, batch_size=2)
            Indexer(library).build(folder, "notes")
            write_all(folder, "beta")
            encode, calls_left = encoder.encode, chance.randrange(4)

            def failing(texts, encode=encode):
                nonlocal calls_left
                calls_left -= 1
                if calls_left < 0:
                    raise ConnectionError("no answer")
                return encode(texts)

            encoder.encode = failing
            report = Indexer(library).update("notes")
            assert report.incomplete > 0, f"IDX_TEST_SEED={seed}"
            encoder.encode = encode
            texts = answers(library, "walrus", "lexical")
            assert set(texts) == set(NAMES), f"IDX_TEST_SEED={seed}"
            for text in texts.values():
                assert ("alpha" in text) != ("beta" in text), f"IDX_TEST_SEED={seed}"
            for path, text in answers(library, "walrus", "vector").items():
                assert "beta" in text, f"{path}; IDX_TEST_SEED={seed}"
            assert Indexer(library).update("notes").incomplete == 0
            assert set(answers(library, "beta", "lexical")) == set(NAMES), f"IDX_TEST_SEED={seed}"
            assert answers(library, "alpha", "lexical") == {}, f"IDX_TEST_SEED={seed}"


@pytest.mark.slow
def test_a_clock_that_jumps_hides_no_change_and_no_answer(tmp_path, folder, monkeypatch):
    """Files keep the times of a right clock; the run's own clock goes back and forth by years."""
    for seed in seeds():
        chance = random.Random(seed)
        with open_library(tmp_path / f"clock{seed}") as library:
            for word in ("alpha", "beta", "gamma", "delta"):
                now = 1_800_000_000 + chance.randrange(-(10**8), 10**8)
                clock = partial(sync, clock=lambda now=now: float(now))
                monkeypatch.setattr("catalog.library.indexing.sync", clock)
                write_all(folder, word)
                Indexer(library).build(folder, "notes")
                for mode in ("lexical", "vector"):
                    texts = answers(library, f"walrus {word}", mode)
                    assert set(texts) == set(NAMES), f"{mode}; IDX_TEST_SEED={seed}"
                    assert all(word in text for text in texts.values()), f"IDX_TEST_SEED={seed}"
