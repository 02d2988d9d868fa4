"""What is particular to the BM25 engine: its scores, its files, and how it keeps them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator
from math import log, log1p
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from filelock import FileLock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders import drop, make_database, put
from catalog.core.errors import ConfigError, EngineError
from catalog.core.filters import Op, condition
from catalog.core.scope import Scope
from catalog.store.database import Database
from catalog.store.engine_types import Restriction, Stamp, read_stamp
from catalog.store.lexical import bm25
from catalog.store.lexical import snapshot as compaction
from catalog.store.lexical.analysis import TextAnalyzer
from catalog.store.lexical.bm25 import Bm25Engine
from catalog.store.lexical.postings import (
    MAX_COUNT,
    PostingsSegment,
    SegmentBuilder,
    merge_segments,
    top_hits,
)
from catalog.store.lexical.snapshot import (
    LexicalSnapshot,
    LiveSegment,
    find_contenders,
    indexed_text,
    read_texts,
)

pytestmark = pytest.mark.both_stores

WHOLE = Restriction("notes")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = make_database(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "index"


def engine_at(database: Database, folder: Path, **options: float) -> Bm25Engine:
    return Bm25Engine(database, "notes", folder, **options)  # type: ignore[arg-type]


# Scores


def test_scores_are_those_of_the_formula(database: Database, folder: Path) -> None:
    # Two chunks of 2 and 4 tokens: average 3. "flour" stands in one of them, twice:
    #   idf  = ln(1 + (2 - 1 + 0.5) / (1 + 0.5)) = ln 2
    #   norm = 1.2 * (1 - 0.75 + 0.75 * 4 / 3) = 1.5
    #   score = ln 2 * 2 / (2 + 1.5)
    put(database, "notes", "a.md", "yeast water")
    [seq] = put(database, "notes", "b.md", "flour flour salt oil")
    [hit] = engine_at(database, folder).search("flour", 5, WHOLE)
    assert hit.seq == seq
    assert hit.score == pytest.approx(log(2) * 2 / 3.5, rel=1e-12)


def test_a_word_said_twice_in_the_query_counts_twice(database: Database, folder: Path) -> None:
    put(database, "notes", "a.md", "flour water")
    put(database, "notes", "b.md", "salt")
    engine = engine_at(database, folder)
    [once], [twice] = engine.search("flour", 5, WHOLE), engine.search("flour flour", 5, WHOLE)
    assert twice.score == pytest.approx(2 * once.score)


def test_k1_and_b_take_effect_without_a_rebuild(database: Database, folder: Path) -> None:
    put(database, "notes", "short.md", "flour")
    put(database, "notes", "long.md", "flour " + "water " * 50)
    engine_at(database, folder).refresh()
    flat = engine_at(database, folder, k1=0.0).search("flour", 5, WHOLE)
    assert flat[0].score == flat[1].score
    steep = engine_at(database, folder, b=1.0).search("flour", 5, WHOLE)
    assert steep[0].score > steep[1].score


@pytest.mark.parametrize("options", [{"k1": -0.1}, {"b": 1.1}, {"b": -0.1}, {"k1": float("nan")}])
def test_numbers_out_of_range_are_refused(
    database: Database, folder: Path, options: dict[str, float]
) -> None:
    with pytest.raises(ConfigError, match="k1"):
        engine_at(database, folder, **options)


def test_a_word_repeated_beyond_all_measure_is_still_counted(
    database: Database, folder: Path
) -> None:
    [seq] = put(database, "notes", "a.md", "flour " * (MAX_COUNT + 10))
    put(database, "notes", "b.md", "flour " + "salt " * (MAX_COUNT + 9))
    assert engine_at(database, folder).search("flour", 1, WHOLE)[0].seq == seq


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 45))
def test_the_best_are_those_of_a_full_sort(scores: list[int], k: int) -> None:
    seqs = np.arange(100, 100 + len(scores), dtype=np.int64)
    expected = sorted(zip(seqs.tolist(), scores, strict=True), key=lambda hit: (-hit[1], hit[0]))
    assert top_hits(seqs, np.array(scores, dtype=np.float64), k) == expected[:k]


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=400),
    st.integers(1, 12),
    st.randoms(use_true_random=False),
)
def test_the_contenders_hold_the_best_and_all_that_tie_with_them(
    scores: list[int], k: int, chance: Random
) -> None:
    allowed = np.array([chance.random() < 0.7 for _ in scores])
    for mask in (None, allowed):
        there = [score if mask is None or mask[row] else 0 for row, score in enumerate(scores)]
        rows = find_contenders(np.array(scores, dtype=np.float32), mask, k, 0.0).tolist()
        least = max(1, sorted(there, reverse=True)[:k][-1] if len(there) >= k else 1)
        assert {row for row, score in enumerate(there) if score >= least} <= set(rows)
        assert all(there[row] > 0 for row in rows)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("k", [1, 10, 100])
def test_the_best_of_many_have_scores_of_double_precision_in_their_order(
    k: int, parts: int
) -> None:
    chance = np.random.default_rng(3)
    words, shares = ("the", "of", "flour", "yeast"), (0.99, 0.6, 0.2, 0.001)
    counts = chance.poisson(np.array(shares) * 2, size=(6_000, len(words)))
    lengths = chance.integers(40, 60, size=len(counts))  # few, so that many scores nearly tie
    segments = []
    for some in np.array_split(np.arange(len(counts)), parts):
        builder = SegmentBuilder()
        for row in some.tolist():
            tokens = [
                word for word, count in zip(words, counts[row], strict=True) for _ in range(count)
            ]
            builder.add(row, row, [*tokens, *["x"] * int(lengths[row] - len(tokens))])
        segments.append(LiveSegment(builder.build(), np.ones(len(some), dtype=np.bool_)))
    norms = 1.2 * (1 - 0.75 + 0.75 * lengths / lengths.mean())
    expected = np.zeros(len(counts))
    for word in range(len(words)):
        holds = counts[:, word] > 0
        weight = log1p((len(counts) - holds.sum() + 0.5) / (holds.sum() + 0.5))
        expected += weight * (counts[:, word] / (counts[:, word] + norms))
    best = np.lexsort((np.arange(len(counts)), -expected))[:k]
    snapshot = LexicalSnapshot(None, tuple(segments), 1.2, 0.75)
    hits = snapshot.rank([(word,) for word in words], k, snapshot.live_masks())
    assert [hit.seq for hit in hits] == best.tolist()
    assert [hit.score for hit in hits] == expected[best].tolist()
    assert hits.spread == pytest.approx((expected.mean(), expected.std()))


def test_what_a_term_adds_is_worked_out_once_for_each_state_of_the_index(
    database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[str] = []
    find = PostingsSegment.find
    monkeypatch.setattr(
        PostingsSegment, "find", lambda self, term: looked_up.append(term) or find(self, term)
    )
    put(database, "notes", "a.md", "flour and water")
    engine = engine_at(database, folder)
    first = engine.search("flour", 5, WHOLE)
    assert engine.search("flour", 5, WHOLE) == first
    assert looked_up == ["flour"]
    put(database, "notes", "b.md", "flour and salt")
    assert len(engine.search("flour", 5, WHOLE)) == 2
    assert looked_up == ["flour"] * 3  # in both parts


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("IT", ["it"]),
        ("who runs IT here", ["it"]),
        ("US", ["us", "dotted"]),
        ("OR gate", ["gate"]),
        ("WHAT IS THE HARBOUR", ["harbour"]),  # all in capitals: no name
    ],
)
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


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("sourdoguh", "sourdough"),  # two letters swapped
        ("suordough", "sourdough"),
        ("mayonaise", "mayonnaise"),  # one left out
        ("ordinay", "ordinary"),  # which has another stem
        ("unsued", "unused"),
        ("coied", "copied"),
        ("parantel", "parental"),  # vowels confused; "parallel" has as few edits
        ("expences", "expenses"),
        ("Mueller", "Müller"),
        ("Kuendigung", "Kündigung"),
        ("bread", None),  # is there
        ("breads", None),
        ("zebra", None),  # nothing is near
        ("taht", None),  # too short to tell
        ("E4021", None),  # a code is no word
    ],
)
def test_a_misspelt_word_is_corrected_to_one_that_a_passage_spells(
    database: Database, folder: Path, typed: str, meant: str | None
) -> None:
    put(
        database,
        "notes",
        "a.md",
        "Of ordinary bread: sourdough, unused, copied, with mayonnaise. That E4012.",
    )
    put(
        database,
        "notes",
        "b.md",
        "The parental leave runs parallel to expenses. Frau Müller: Kündigung.",
    )
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


@pytest.mark.of_sqlite
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
    monkeypatch.setattr(compaction, "CHURN_ROWS", churn)
    monkeypatch.setattr(compaction, "MAX_PARTS", 3)
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


def test_parts_merge_into_what_a_fresh_build_gives_in_whatever_order_they_come() -> None:
    texts = {1: "flour salt", 2: "salt salt", 3: "oil", 4: "flour", 5: "water salt oil"}

    def built(*seqs: int) -> PostingsSegment:
        builder = SegmentBuilder()
        for seq in seqs:
            builder.add(seq, seq * 7, texts[seq].split())
        return builder.build()

    merged = merge_segments(
        [
            (built(4, 5), np.array([True, True])),
            (built(2), np.array([True])),
            (built(1, 3), np.array([True, False])),
        ]
    )
    fresh = built(1, 2, 4, 5)
    for array in ARRAYS:
        assert np.array_equal(getattr(merged, array), getattr(fresh, array)), array


# Files


def read_chunks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The row numbers whose text is read from now on."""
    seen: list[int] = []
    original = read_texts

    def noted(connection: object, dataset: str, seqs: object) -> object:
        for chunk in original(connection, dataset, seqs):  # type: ignore[arg-type]
            seen.append(chunk[0])
            yield chunk

    monkeypatch.setattr(compaction, "read_texts", noted)
    return seen


def test_a_new_process_reads_only_what_changed_since_the_last_save(
    database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(10):
        put(database, "notes", f"{index}.md", "flour")
    engine_at(database, folder).refresh()
    read = read_chunks(monkeypatch)
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
    database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(database, "notes", "a.md", "flour")
    reader, writer = engine_at(database, folder), engine_at(database, folder)
    reader.search("flour", 5, WHOLE)
    put(database, "notes", "b.md", "flour")
    writer.refresh()
    read = read_chunks(monkeypatch)
    assert len(reader.search("flour", 5, WHOLE)) == 2
    assert read == []


def test_a_lost_index_is_saved_again_by_the_search_that_had_to_rebuild_it(
    database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bm25, "_WORTH_SAVING", 3)
    put(database, "notes", "a.md", ["flour", "salt", "water"])
    engine_at(database, folder).search("flour", 5, WHOLE)
    read = read_chunks(monkeypatch)
    assert len(engine_at(database, folder).search("flour", 5, WHOLE)) == 1
    assert read == []


ARRAYS = ["seqs", "keys", "lengths", "terms", "term_starts", "starts", "rows", "counts"]


DAMAGE = ("gone", "empty", "cut", "garbage", "another array")


@pytest.mark.parametrize(
    ("name", "how"),
    [  # every file, one kind after another
        (name, DAMAGE[number % len(DAMAGE)])
        for number, name in enumerate([*(f"{array}.npy" for array in ARRAYS), "current.json"])
    ]
    + [("current.json", how) for how in DAMAGE[:3]],
)
def test_a_damaged_file_costs_time_and_nothing_else(
    database: Database, folder: Path, name: str, how: str
) -> None:
    for index in range(5):
        put(database, "notes", f"{index}.md", f"flour {'water ' * index}")
    whole = engine_at(database, folder)
    whole.refresh()
    expected = whole.search("flour water", 9, WHOLE)
    [file] = folder.rglob(name)
    content = file.read_bytes()
    if how == "gone":
        file.unlink()
    elif how == "empty":
        file.write_bytes(b"")
    elif how == "cut":
        file.write_bytes(content[: len(content) - 5])
    elif how == "garbage":
        file.write_bytes(b"\x93NUMPY" + b"\xff" * len(content))
    else:
        with file.open("wb") as opened:
            np.save(opened, np.full(7, 1 << 20, dtype=np.int32))
    engine = engine_at(database, folder)
    assert engine.search("flour water", 9, WHOLE) == expected
    engine.refresh()
    assert engine_at(database, folder).search("flour water", 9, WHOLE) == expected


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows", b"\x93NUMPY\x01\x00\x0d\x00{'descr':(((("),
        ("languages", np.full(5, 200, dtype=np.uint8)),
        ("lengths", np.full(5, -3, dtype=np.int32)),
        ("counts", 0),
    ],
)
def test_arrays_that_no_index_has_are_not_searched_though_their_checksum_fits(
    database: Database, folder: Path, name: str, content: Any
) -> None:
    for index in range(5):
        put(database, "notes", f"{index}.md", f"flour {'water ' * index}")
    engine_at(database, folder).refresh()
    expected = engine_at(database, folder).search("flour water", 9, WHOLE)
    [file] = folder.rglob(f"{name}.npy")
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        np.save(file, np.load(file) * 0 if isinstance(content, int) else content)
    sums = file.with_name("checksums.json")
    changed = {name: zlib.crc32(file.read_bytes())}
    sums.write_text(json.dumps(json.loads(sums.read_text()) | changed))
    assert engine_at(database, folder).search("flour water", 9, WHOLE) == expected


@pytest.mark.parametrize(
    "change",
    [
        {"format": 999},
        {"dataset": "other"},
        {"stamp": [1]},
        {"stamp": "x"},
        {"parts": None},
        {"parts": [{"folder": "nowhere", "dead": []}]},
        {"parts": [{}]},
    ],
)
def test_a_pointer_that_makes_no_sense_is_not_followed(
    database: Database, folder: Path, change: dict[str, object]
) -> None:
    [seq] = put(database, "notes", "a.md", "flour")
    engine_at(database, folder).refresh()
    pointer = folder / "current.json"
    pointer.write_text(json.dumps({**json.loads(pointer.read_text()), **change}))
    engine = engine_at(database, folder)
    assert [hit.seq for hit in engine.search("flour", 5, WHOLE)] == [seq]
    engine.refresh()
    assert [hit.seq for hit in engine_at(database, folder).search("flour", 5, WHOLE)] == [seq]


def test_an_index_of_another_analyzer_is_replaced(database: Database, folder: Path) -> None:
    [seq] = put(database, "notes", "a.md", "die Häuser")
    engine_at(database, folder).refresh()
    german = Bm25Engine(database, "notes", folder, analyzer=TextAnalyzer(language="german"))
    assert [hit.seq for hit in german.search("Haus", 5, WHOLE)] == [seq]
    german.refresh()
    again = Bm25Engine(database, "notes", folder, analyzer=TextAnalyzer(language="german"))
    assert [hit.seq for hit in again.search("Haus", 5, WHOLE)] == [seq]


@pytest.mark.of_sqlite
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
    put(restored, "notes", "d.md", "water")
    assert kept == lost
    engine = engine_at(restored, folder)
    assert [hit.seq for hit in engine.search("yeast", 5, WHOLE)] == kept
    assert engine.search("salt", 5, WHOLE) == []
    restored.close()


def test_refreshing_forever_leaves_few_files(
    database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "CHURN_ROWS", 10)
    engine = engine_at(database, folder)
    for index in range(40):
        put(database, "notes", f"{index % 20}.md", f"flour number{index}")
        engine.refresh()
    assert len(list(folder.glob("segment-*"))) <= 4
    assert list(folder.glob("unfinished-*")) == []
    assert len(engine_at(database, folder).search("flour", 50, WHOLE)) == 20


def test_a_reader_goes_on_with_files_that_were_replaced_meanwhile(
    database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "CHURN_ROWS", 0)
    put(database, "notes", "a.md", "flour")
    writer = engine_at(database, folder)
    writer.refresh()
    reader = engine_at(database, folder)
    with database.read() as connection:
        stamp = read_stamp(connection, "notes")
        assert stamp is not None
        snapshot = reader._snapshot_at(connection, stamp)
    for index in range(4):
        put(database, "notes", f"{index}.md", "flour")
        writer.refresh()
    assert len(snapshot.rank([("flour",)], 5, snapshot.live_masks())) == 1
    assert len(reader.search("flour", 9, WHOLE)) == 5


def test_while_another_process_saves_a_refresh_is_left_to_it(
    database: Database, folder: Path
) -> None:
    put(database, "notes", "a.md", "flour")
    engine = engine_at(database, folder)
    folder.mkdir()
    with FileLock(folder / ".lock"):
        engine.refresh()
        assert not (folder / "current.json").exists()
        assert len(engine.search("flour", 5, WHOLE)) == 1
    engine.refresh()
    assert (folder / "current.json").exists()


def test_a_folder_that_cannot_be_written_fails_a_refresh_and_no_search(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bm25, "_WORTH_SAVING", 1)
    put(database, "notes", "a.md", "flour")
    (tmp_path / "file").write_text("in the way")
    engine = engine_at(database, tmp_path / "file" / "index")
    assert len(engine.search("flour", 5, WHOLE)) == 1
    with pytest.raises(EngineError, match="cannot write the index"):
        engine.refresh()
    assert len(engine.search("flour", 5, WHOLE)) == 1


def test_a_closed_engine_opens_again(database: Database, folder: Path) -> None:
    put(database, "notes", "a.md", "flour")
    engine = engine_at(database, folder)
    engine.refresh()
    engine.close()
    assert len(engine.search("flour", 5, WHOLE)) == 1


# What is indexed, and what a restriction remembers


@pytest.mark.parametrize(
    ("title", "headings", "text", "expected"),
    [
        ("Bread", [], "Mix flour", "Bread\nMix flour"),
        ("Bread", ["Bread", "Baking"], "Mix flour", "Bread\nBaking\nMix flour"),
        ("Bread", ["Bread", "Baking"], "## Baking\nMix flour", "Bread\n## Baking\nMix flour"),
        ("R", [], "Results of it", "R\nResults of it"),
        ("R", [], "All in R.", "All in R."),
        ("", [], "Mix", "Mix"),
    ],
)
def test_title_and_headings_count_once(
    title: str, headings: list[str], text: str, expected: str
) -> None:
    assert indexed_text(title, headings, text) == expected


def test_rows_allowed_in_an_older_state_are_not_cached_for_newer_ones() -> None:
    builder = SegmentBuilder()
    for seq in (1, 2):
        builder.add(seq, seq, ["flour"])
    stamp = Stamp(0.0, 2, 0.0, "")
    part = LiveSegment(builder.build(), np.ones(2, dtype=np.bool_))
    snapshot = LexicalSnapshot(stamp, (part,), 1.2, 0.75)
    asked = Restriction("notes", filter=condition("tags", Op.EQ, "x"))
    older = stamp._replace(generation=1)
    [mask] = snapshot.masks(asked, older, lambda: np.array([1], dtype=np.int64))
    assert mask.tolist() == [True, False]
    [mask] = snapshot.masks(asked, stamp, lambda: np.array([1, 2], dtype=np.int64))
    assert mask.tolist() == [True, True]


def test_keyword_search_loads_neither_llama_index_nor_scipy(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from catalog.store.database import Database
from catalog.store.lexical import get_lexical_engine
from catalog.store.engine_types import Restriction
database = Database.at(Path({str(tmp_path)!r}))
for name in ("bm25", "fts"):
    engine = get_lexical_engine(name, database, "notes", Path({str(tmp_path)!r}) / name)
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
