"""What is particular to the BM25 engine: its scores, its files, and how it keeps them."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import log, log1p
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from builders import drop, make_database, put
from catalog.core.errors import EngineError
from catalog.core.scope import Scope
from catalog.store import derived
from catalog.store.database import Database
from catalog.store.derived import NO_DATASET
from catalog.store.embedding_cache import save
from catalog.store.lexical import analysis, bm25
from catalog.store.lexical.analysis import indexed_text
from catalog.store.lexical.bm25 import (
    MAX_COUNT,
    Bm25Engine,
    Part,
    WordIndex,
    Words,
    build_part,
    merge_parts,
)
from catalog.store.restriction import Restriction
from catalog.store.schema import datasets

TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

WHOLE = Restriction("notes")
BEGUN = ("Administrator", "administration", "4fa5254e728ab0c1d2", "mad men", "minister")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = make_database(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "index"


def engine_at(database: Database, folder: Path) -> Bm25Engine:
    return Bm25Engine(WordIndex(database, "notes", folder))


# Scores


def test_scores_are_those_of_the_formula(database: Database, folder: Path) -> None:
    # Two chunks of 2 and 4 tokens: average 3. "flour" stands in one of them, twice:
    #   idf  = ln(1 + (2 - 1 + 0.5) / (1 + 0.5)) = ln 2
    #   norm = 1.2 * (1 - 0.75 + 0.75 * 4 / 3) = 1.5
    #   score = ln 2 * 2 / (2 + 1.5)
    put(database, "notes", "a.md", "yeast water")
    [seq] = put(database, "notes", "b.md", "flour flour salt oil")
    engine = engine_at(database, folder)
    [hit] = engine.search("flour", 5, WHOLE)
    assert hit.seq == seq
    assert hit.score == pytest.approx(log(2) * 2 / 3.5, rel=1e-12)
    # with other constants, the norm is 0.6 * (1 - 0.3 + 0.3 * 4 / 3) = 0.66
    other = engine.weighted(0.6, 0.3)
    assert other.search("flour", 5, WHOLE)[0].score == pytest.approx(log(2) * 2 / 2.66, rel=1e-12)
    assert (engine.weighted(1.2, 0.75), engine.weighted(0.6, 0.3)) == (engine, other)
    put(database, "notes", "c.md", "flour")  # norm 0.6 * (1 - 0.3 + 0.3 / (7 / 3))
    assert {
        round(one.score / log(1 + 1.5 / 2.5), 6) for one in other.search("flour", 5, WHOLE)
    } == {
        round(2 / (2 + 0.6 * (0.7 + 0.3 * 12 / 7)), 6),
        round(1 / (1 + 0.6 * (0.7 + 0.3 * 3 / 7)), 6),
    }


def test_a_word_said_twice_in_the_query_counts_twice(database: Database, folder: Path) -> None:
    put(database, "notes", "a.md", "flour water")
    put(database, "notes", "b.md", "salt")
    engine = engine_at(database, folder)
    [once], [twice] = engine.search("flour", 5, WHOLE), engine.search("flour flour", 5, WHOLE)
    assert twice.score == pytest.approx(2 * once.score)


@pytest.mark.parametrize("query", ["admin*", "4fa5254e", "Admin* zebra"])
def test_a_beginning_finds_what_begins_with_it(
    query: str, database: Database, folder: Path
) -> None:
    found = [put(database, "notes", f"{n}.md", f"{text} of it")[0] for n, text in enumerate(BEGUN)]
    hits = engine_at(database, folder).search(query, 5, WHOLE)
    assert [found.index(hit.seq) for hit in hits] == ([2] if query[0] == "4" else [0, 1])


@pytest.mark.parametrize(
    ("query", "text"), TABLES["a number is found however its groups are parted"]
)
def test_a_number_is_found_however_its_groups_are_parted(
    query: str, text: str, database: Database, folder: Path
) -> None:
    put(database, "notes", "b.md", "It is 31 or 300 or 4,090,001; 12 of 345.")
    [seq] = put(database, "notes", "a.md", text)
    assert [hit.seq for hit in engine_at(database, folder).search(query, 5, WHOLE)] == [seq]


def test_a_word_repeated_beyond_all_measure_is_still_counted(
    database: Database, folder: Path
) -> None:
    [seq] = put(database, "notes", "a.md", "flour " * (MAX_COUNT + 10))
    put(database, "notes", "b.md", "flour " + "salt " * (MAX_COUNT + 9))
    assert engine_at(database, folder).search("flour", 1, WHOLE)[0].seq == seq


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("k", [1, 10, 100])
def test_the_best_of_many_have_scores_of_double_precision_in_their_order(
    k: int, parts: int
) -> None:
    chance = np.random.default_rng(3)
    words, shares = ("the", "of", "flour", "yeast"), (0.99, 0.6, 0.2, 0.001)
    counts = chance.poisson(np.array(shares) * 2, size=(6_000, len(words)))
    lengths = chance.integers(40, 60, size=len(counts))  # few, so that many scores nearly tie
    built = [
        build_part(
            (
                row,
                0,
                [
                    *np.repeat(words, counts[row]).tolist(),
                    *["x"] * int(lengths[row] - sum(counts[row])),
                ],
                [],
            )
            for row in some.tolist()
        )
        for some in np.array_split(np.arange(len(counts)), parts)
    ]
    norms = 1.2 * (1 - 0.75 + 0.75 * lengths / lengths.mean())
    expected = np.zeros(len(counts))
    for word in range(len(words)):
        holds = counts[:, word] > 0
        weight = log1p((len(counts) - holds.sum() + 0.5) / (holds.sum() + 0.5))
        expected += weight * (counts[:, word] / (counts[:, word] + norms))
    best = np.lexsort((np.arange(len(counts)), -expected))[:k]
    index = Words(NO_DATASET, built)
    hits = index.rank([(word,) for word in words], k)
    assert [hit.seq for hit in hits] == best.tolist()
    assert [hit.score for hit in hits] == pytest.approx(expected[best].tolist(), rel=1e-12)
    assert hits.spread == pytest.approx((expected.mean(), expected.std()))


@pytest.mark.parametrize(("query", "found"), TABLES["a stop word in capitals is a name"])
def test_a_stop_word_in_capitals_is_a_name(
    database: Database, folder: Path, query: str, found: list[str]
) -> None:
    texts = {
        "it": "Ask the IT desk when it is broken.",
        "us": "The US office tells us.",
        "dotted": "Shipped to the U.S. last week.",
        "gate": "An OR gate is on when either input is on, or both.",
        "harbour": "It is the harbour.",
        "shouted": "DO IT OR TELL US WHO IS THE OWNER",
    }
    names = {put(database, "notes", f"{name}.md", text)[0]: name for name, text in texts.items()}
    hits = engine_at(database, folder).search(query, 10, WHOLE)
    assert [names[hit.seq] for hit in hits] == found


# Spelling


@pytest.mark.parametrize(("typed", "meant"), TABLES["a misspelt word is corrected"])
def test_a_misspelt_word_is_corrected_to_one_that_a_passage_spells(
    database: Database, folder: Path, typed: str, meant: str
) -> None:
    text = "Of ordinary bread: sourdough, unused, copied, with mayonnaise. That E4012."
    put(database, "notes", "a.md", text)
    text = "The parental leave runs parallel to expenses. Frau Müller: Kündigung."
    put(database, "notes", "b.md", text)
    engine = engine_at(database, folder)
    corrected = engine.correct(f"about {typed} bread", WHOLE)
    assert corrected == ({typed: meant} if meant else {})


def test_the_more_frequent_of_two_equally_near_words_is_suggested(
    database: Database, folder: Path
) -> None:
    put(database, "notes", "a.md", ["a marten", "martin sang", "martin slept"])
    assert engine_at(database, folder).correct("martxn", WHOLE) == {"martxn": "martin"}


def test_a_word_is_found_among_many_passages_with_names_that_begin_like_it(
    database: Database, folder: Path
) -> None:
    names = ["CondenseQuestionChatEngine"] * 20
    put(database, "notes", "a.md", [*names, "condensation", *names])
    corrected = engine_at(database, folder).correct("condesation", WHOLE)
    assert corrected == {"condesation": "condensation"}


def test_no_word_of_a_passage_out_of_reach_is_suggested(database: Database, folder: Path) -> None:
    put(database, "notes", "secret.md", "project sourdough")
    put(database, "notes", "open.md", "project bread")
    put(database, "notes", "gone.md", "project sourdouhg")
    drop(database, "notes", "gone.md")
    engine = engine_at(database, folder)
    within = Restriction("notes", Scope.of(["notes:open.md"]))
    assert engine.correct("sourdoguh", within) == {}
    assert engine.correct("sourdoguh", WHOLE) == {"sourdoguh": "sourdough"}
    assert engine.correct("bred", Restriction("notes", without=("bread",))) == {}
    # nor does a word that is out of reach count as there
    put(database, "notes", "open.md", "sourdouhg")
    assert engine.correct("sourdough", within) == {"sourdough": "sourdouhg"}


def test_a_word_as_near_as_a_short_stem_allows_is_not_suggested(
    database: Database, folder: Path
) -> None:
    put(database, "notes", "a.md", "a minority of datas, ready to restore")
    engine = engine_at(database, folder)
    assert engine.correct("inoring sataings readinaes", WHOLE) == {}


def test_a_word_is_found_after_capitals_that_are_longer_in_small_letters(
    database: Database, folder: Path
) -> None:
    put(database, "notes", "a.md", "\u0130\u0130\u0130\u0130\u0130\u0130\u0130 kebabs are good")
    corrected = engine_at(database, folder).correct("kebasb", WHOLE)
    assert corrected == {"kebasb": "kebabs"}


def test_a_long_text_is_not_corrected(database: Database, folder: Path) -> None:
    put(database, "notes", "a.md", "sourdough")
    assert engine_at(database, folder).correct("sourdoguh " * 50, WHOLE) == {}


# An index kept up to date equals one built afresh

WORDS = ("flour", "yeast", "water", "salt", "oil")
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "put", "drop", "refresh", "reopen"]), TEXTS),
    min_size=3,
    max_size=25,
)


@pytest.mark.slow
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS, churn=st.sampled_from([0, 3, 1000]))
def test_scores_after_any_history_are_bit_for_bit_those_of_a_fresh_index(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    steps: list[tuple[str, str]],
    churn: int,
) -> None:
    monkeypatch.setattr(bm25, "CHURN_ROWS", churn)
    monkeypatch.setattr(bm25, "MOST_PARTS", 3)
    home = tmp_path_factory.mktemp("history")
    database = make_database(home)
    engine = engine_at(database, home / "index")
    for number, (step, text) in enumerate(steps):
        path = f"{number % 6}.md"
        if step == "put":
            put(database, "notes", path, [text, text[::-1]])
        elif step == "drop":
            drop(database, "notes", path)
        elif step == "refresh":
            engine.refresh()
        else:
            engine.close()
            engine = engine_at(database, home / "index")
        engine.search("flour", 1, WHOLE)
    fresh = engine_at(database, home / "fresh")
    for query in (*WORDS, "flour water salt", "oil oil yeast"):
        assert engine.search(query, 100, WHOLE) == fresh.search(query, 100, WHOLE)
    database.close()


def test_parts_merge_into_what_a_fresh_build_gives() -> None:
    texts = {1: "flour salt", 2: "salt salt", 3: "oil", 4: "flour", 5: "water salt oil"}

    def built(*seqs: int) -> Part:
        return build_part((seq, 0, texts[seq].split(), [f"{seq}"]) for seq in seqs)

    merged = merge_parts([built(1, 2), built(3)._replace(live=np.array([False])), built(4, 5)])
    for one, other in zip(merged, built(1, 2, 4, 5), strict=True):
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()


def test_the_passages_with_a_token_are_known_without_reading_them(
    database: Database, folder: Path
) -> None:
    seqs = [put(database, "notes", f"{n}.md", text)[0] for n, text in enumerate(["flour", "salt"])]
    engine = engine_at(database, folder)
    engine.search("flour", 1, WHOLE)
    seqs += [
        put(database, "notes", f"{n}.md", text)[0] for n, text in enumerate(["oil flour", "oil"], 2)
    ]
    drop(database, "notes", "0.md")
    with database.read() as connection:
        words = engine.at(connection)
    has = words.finder(np.array([*seqs, 10_000]))
    assert has(["flour"]).tolist() == [False, False, True, False, False]
    assert has(["oil"]).tolist() == [False, False, True, True, False]
    assert has(["oil flour"]).tolist() == [False, False, True, False, False]
    assert has(["yeast", "oil"]).tolist() == [False, False, True, True, False]
    assert not has(["yeast"]).any()


# Files


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The row numbers of passages that are analysed from now on."""
    seen: list[int] = []

    def noted(passages: Iterable[tuple[int, int, Sequence[str], Sequence[str]]]) -> Part:
        found = list(passages)
        seen.extend(seq for seq, *_ in found)
        return build_part(found)

    monkeypatch.setattr(bm25, "build_part", noted)
    return seen


def test_a_new_process_reads_only_what_changed_since_the_last_save(
    database: Database, folder: Path, read: list[int]
) -> None:
    for index in range(10):
        put(database, "notes", f"{index}.md", "flour")
    engine_at(database, folder).refresh()
    read.clear()
    assert len(engine_at(database, folder).search("flour", 20, WHOLE)) == 10
    assert read == []
    [seq] = put(database, "notes", "3.md", "flour again")
    later = engine_at(database, folder)
    assert len(later.search("flour", 20, WHOLE)) == 10
    assert read == [seq]
    later.refresh()
    assert len(engine_at(database, folder).search("flour", 20, WHOLE)) == 10
    assert read == [seq]


def test_an_engine_takes_over_what_another_process_saved(
    database: Database, folder: Path, read: list[int]
) -> None:
    put(database, "notes", "a.md", "flour")
    reader, writer = engine_at(database, folder), engine_at(database, folder)
    reader.search("flour", 5, WHOLE)
    put(database, "notes", "b.md", "flour")
    writer.refresh()
    read.clear()
    assert len(reader.search("flour", 5, WHOLE)) == 2
    assert read == []


def test_vectors_that_arrive_change_no_words(
    database: Database, folder: Path, read: list[int]
) -> None:
    put(database, "notes", "a.md", "flour", embed_keys=["k"])
    engine = engine_at(database, folder)
    with database.read() as connection:
        before = engine.at(connection)
    with database.write() as connection:
        vectors = {"k": np.ones(4, dtype=np.float32)}
        save(connection, vectors, fingerprint="toy", now=0.0)
    with database.read() as connection:
        assert engine.at(connection) is before


def test_a_lost_index_is_saved_again_by_the_search_that_had_to_rebuild_it(
    database: Database, folder: Path, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived, "WORTH_SAVING", 3)
    put(database, "notes", "a.md", ["flour", "salt", "water"])
    engine_at(database, folder).search("flour", 5, WHOLE)
    read.clear()
    assert len(engine_at(database, folder).search("flour", 5, WHOLE)) == 1
    assert read == []


@pytest.mark.parametrize("how", ["gone", "empty", "cut", "garbage", "one byte", "another index"])
def test_a_damaged_file_costs_time_and_nothing_else(
    database: Database, folder: Path, how: str
) -> None:
    for index in range(5):
        put(database, "notes", f"{index}.md", f"flour {'water ' * index}")
    whole = engine_at(database, folder)
    whole.refresh()
    expected = whole.search("flour water", 9, WHOLE)
    file = folder / bm25.FILE
    content = file.read_bytes()
    damaged = {
        "empty": b"",
        "cut": content[:-5],
        "garbage": b"\xff" * len(content),
        "one byte": content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
        "another index": None,
        "gone": None,
    }[how]
    if damaged is not None:
        file.write_bytes(damaged)
    elif how == "gone":
        file.unlink()
    else:
        put(database, "other", "a.md", "oil")
        other = WordIndex(database, "other", folder)
        other.save()
    assert whole.verify() == (damaged is not None)
    engine = engine_at(database, folder)
    assert engine.search("flour water", 9, WHOLE) == expected
    engine.refresh()
    assert engine.verify() == 0
    again = WordIndex(database, "notes", folder).load()
    assert again is not None
    assert len(again) == 5


def test_an_index_of_other_rules_of_words_is_replaced(
    database: Database, folder: Path, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    [seq] = put(database, "notes", "a.md", "flour")
    engine_at(database, folder).refresh()
    read.clear()
    monkeypatch.setattr(analysis, "RULES", 999)
    assert len(engine_at(database, folder).search("flour", 5, WHOLE)) == 1
    assert read == [seq]


def test_an_older_copy_of_the_database_with_the_same_row_numbers_is_noticed(
    tmp_path: Path, folder: Path
) -> None:
    database = make_database(tmp_path / "home")
    put(database, "notes", "a.md", "flour")
    database.close()
    shutil.copytree(tmp_path / "home", tmp_path / "copy")
    lost = put(database, "notes", "b.md", "salt")
    engine_at(database, folder).refresh()
    database.close()

    restored = make_database(tmp_path / "copy")
    kept = put(restored, "notes", "c.md", "yeast")
    assert kept == lost
    engine = engine_at(restored, folder)
    assert [hit.seq for hit in engine.search("yeast", 5, WHOLE)] == kept
    assert engine.search("salt", 5, WHOLE) == []
    restored.close()


def test_an_index_far_behind_is_built_anew_and_right(
    database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.store.restriction._REMEMBERED", 3)
    engine = engine_at(database, folder)
    for index in range(4):
        put(database, "notes", f"{index}.md", "flour")
    assert len(engine.search("flour", 9, WHOLE)) == 4
    for index in range(6):
        put(database, "notes", f"{index % 3}.md", f"salt {index}")
    assert len(engine.search("salt", 9, WHOLE)) == 3
    assert len(engine.search("flour", 9, WHOLE)) == 1


def test_an_older_snapshot_finds_its_own_passages_and_no_later_ones(
    database: Database, folder: Path
) -> None:
    put(database, "notes", "a.md", "flour")
    engine = engine_at(database, folder)
    with database.read() as connection:
        older = engine.at(connection)  # the transaction begins here
        with ThreadPoolExecutor(1) as pool:

            def change() -> None:
                put(database, "notes", "a.md", "salt")
                assert len(engine.search("salt", 9, WHOLE)) == 1

            pool.submit(change).result()
        assert len(engine.at(connection).find("flour")[0]) == 1
        assert len(engine.at(connection).find("salt")[0]) == 0
    assert len(older.find("flour")[0]) == 1
    assert engine.search("flour", 9, WHOLE) == []


@pytest.mark.slow
def test_refreshing_forever_leaves_one_file_and_no_draft_of_a_killed_process(
    database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bm25, "CHURN_ROWS", 10)
    folder.mkdir()
    (folder / "0123.new").write_bytes(b"half an index")
    os.utime(folder / "0123.new", (0, 0))
    engine = engine_at(database, folder)
    for index in range(40):
        put(database, "notes", f"{index % 20}.md", f"flour number{index}")
        engine.refresh()
    assert [file.name for file in folder.iterdir()] == [bm25.FILE]
    assert len(engine_at(database, folder).search("flour", 50, WHOLE)) == 20


def test_the_file_of_a_removed_dataset_is_not_left_by_a_search_that_saves_it(
    database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(database, "notes", "a.md", "flour")
    engine = engine_at(database, folder)
    pack = WordIndex.pack

    def removed_meanwhile(self: WordIndex, state: Words) -> Any:
        with database.write() as connection:
            connection.execute(delete(datasets))
        return pack(self, state)

    monkeypatch.setattr(WordIndex, "pack", removed_meanwhile)
    monkeypatch.setattr(derived, "WORTH_SAVING", 1)
    engine.search("flour", 5, WHOLE)
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_fails_a_refresh_and_no_search(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived, "WORTH_SAVING", 1)
    put(database, "notes", "a.md", "flour")
    (tmp_path / "file").write_text("in the way")
    engine = engine_at(database, tmp_path / "file" / "index")
    assert len(engine.search("flour", 5, WHOLE)) == 1
    with pytest.raises(EngineError, match="cannot write the index"):
        engine.refresh()
    assert len(engine.search("flour", 5, WHOLE)) == 1


# What is indexed


@pytest.mark.parametrize(
    ("title", "headings", "text", "expected"), TABLES["title and headings count once"]
)
def test_title_and_headings_count_once(
    title: str, headings: list[str], text: str, expected: str
) -> None:
    assert indexed_text(title, headings, text) == expected


@pytest.mark.slow
def test_keyword_search_loads_neither_llama_index_nor_scipy(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from catalog.store.database import Database
from catalog.core.settings import RAGv2Settings
from catalog.store.database import EngineSetup
from catalog.core.entry_points import load_engine
from catalog.store.restriction import Restriction
home = Path({str(tmp_path)!r})
database = Database.at(home)
for name in ("bm25", "fts"):
    setup = EngineSetup(database, "notes", home / name, RAGv2Settings())
    engine = load_engine("catalog.lexical", name)(setup)
    engine.search("word", 5, Restriction("notes"))
heavy = {{"llama_index", "scipy", "bm25s", "torch", "numba"}} & set(sys.modules)
sys.exit(", ".join(sorted(heavy)) or 0)
"""
    path = str(Path(bm25.__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": path},
        check=False,
    )
    assert done.returncode == 0, done.stderr
