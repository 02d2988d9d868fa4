"""The contract of keyword engines: subclass :class:`LexicalContract`, and pytest runs it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, pstdev
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.filters import Op, condition
from catalog.core.query import SubQuery
from catalog.core.scope import Scope
from catalog.retrieval.legs import LegQuery, rank_words
from catalog.store.database import Database
from catalog.store.engines import LexicalEngine
from catalog.store.restriction import Hit, Restriction
from catalog.testing.lexical_restrictions import RELAXED, WHOLE, LexicalRestrictions, Maker, found
from catalog.testing.stores import drop, make_database, put, seqs_of

STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "drop", "refresh", "reopen"]), st.integers(0, 4)),
    min_size=1,
    max_size=14,
)
WORDS = ("flour", "yeast", "water", "salt")


class LexicalContract(LexicalRestrictions):
    """The requirements for every keyword engine.

    A subclass called ``Test…`` makes its engine in ``open_engine``. An engine that cannot find
    ``RTX4090`` in a text with ``RTX 4090`` sets ``finds_neighbours`` to ``False``.
    """

    finds_neighbours = True

    # Finding

    def test_one_shared_word_is_enough_and_more_rank_higher(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        [both] = put(database, "notes", "a.md", "rotate the api keys every ninety days")
        [one] = put(database, "notes", "b.md", "the keys of the piano are black and white")
        put(database, "notes", "c.md", "bread needs flour and water")
        hits = engine.search("rotate keys", 10, WHOLE)
        assert [hit.seq for hit in hits] == [both, one]

    def test_word_forms_case_and_accents_do_not_matter(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        [seq] = put(database, "notes", "a.md", "The Café rotated its KEYS")
        for query in ("rotating", "key", "cafe", "CAFE\u0301"):
            assert found(engine, query) == {seq}, query

    def test_titles_and_headings_are_searched_too(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        [seq] = put(database, "notes", "a.md", "daily", title="Backups", sections=("Retention",))
        assert found(engine, "backup") == found(engine, "retention") == {seq}

    def test_single_letters_and_digits_are_words(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        [r] = put(database, "notes", "r.md", "plots made with R")
        [five] = put(database, "notes", "5.md", "chapter 5")
        assert found(engine, "R") == {r}
        assert found(engine, "5") == {five}

    @pytest.mark.parametrize(
        ("written", "asked"),
        [
            ("sensor XK-320", "XK320"),
            ("sensor XK320", "xk-320"),
            ("a card RTX4090", "RTX 4090"),
            ("checked by SHA-256", "sha256"),
            ("checked by sha256", "SHA-256"),
            ("part TW-00942", "tw00942"),
            ("10kg of flour", "10 kg"),
            ("my iPhone15", "iphone 15"),
            ("a new dataset", "data set"),
            ("set maxretrycount", "max retry count"),
        ],
    )
    def test_a_name_is_found_however_it_is_joined(
        self, database: Database, engine: LexicalEngine, written: str, asked: str
    ) -> None:
        [seq] = put(database, "notes", "a.md", written)
        put(database, "notes", "b.md", "flour water yeast")
        assert engine.search(asked, 1, WHOLE)[0].seq == seq

    @pytest.mark.parametrize(
        ("written", "asked"),
        [("sensor XK 320", "xk320"), ("a card RTX 4090", "rtx4090"), ("10 kg of flour", "10kg")],
    )
    def test_a_name_in_one_word_is_found_where_it_is_split(
        self, database: Database, engine: LexicalEngine, written: str, asked: str
    ) -> None:
        if not self.finds_neighbours:
            pytest.skip("the engine does not ask for two words side by side")
        [seq] = put(database, "notes", "a.md", written)
        put(database, "notes", "b.md", "salt water yeast")
        assert found(engine, asked) == {seq}

    def test_the_parts_of_a_name_far_apart_rank_below_the_name(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        put(database, "notes", "a.md", "3 of 11 boats, 4090 sails, RTX")
        [version] = put(database, "notes", "b.md", "release 3.11 of the boats is out now")
        [card] = put(database, "notes", "c.md", "the card RTX-4090 is out now for the boats")
        for index in range(5):
            put(database, "notes", f"{index}.md", "salt")
        assert engine.search("3.11", 1, WHOLE)[0].seq == version
        assert engine.search("RTX-4090", 1, WHOLE)[0].seq == card

    def test_scores_are_above_zero_and_best_first(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        # A word of every chunk has the least possible weight, in some formulas none or less.
        for index in range(8):
            put(database, "notes", f"{index}.md", "common " * (index + 1) + "filler " * index)
        hits = engine.search("common", 10, WHOLE)
        scores = [hit.score for hit in hits]
        assert len(hits) == 8
        assert min(scores) > 0
        assert scores == sorted(scores, reverse=True)

    def test_equal_scores_stand_in_order_of_row_number_also_at_the_cut(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        seqs = [put(database, "notes", f"{n}.md", "the same words")[0] for n in range(30)]
        for k in (1, 7, 29, 30, 500):
            assert [hit.seq for hit in engine.search("same words", k, WHOLE)] == seqs[:k]

    def test_the_spread_is_of_all_chunks_however_many_are_hits_or_allowed(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        for index in range(12):
            put(database, "notes", f"{index}.md", "alpha " * (index % 4) + "filler beta")
        put(database, "other", "other.md", "alpha alpha")
        drop(database, "notes", "3.md")
        [seq] = seqs_of(database, "notes", "1.md")
        scores = [hit.score for hit in engine.search("alpha", 100, WHOLE)]
        scores += [0.0] * (11 - len(scores))
        assert len(set(scores)) > 2
        only = Restriction("notes", filter=condition("path", Op.EQ, "1.md"))
        for k, restriction in ((100, WHOLE), (1, WHOLE), (100, only)):
            hits = engine.search("alpha", k, restriction)
            assert hits.spread == pytest.approx((mean(scores), pstdev(scores)))
        assert [hit.seq for hit in hits] == [seq]

    def test_the_same_question_has_the_same_answer(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        for index in range(20):
            put(database, "notes", f"{index}.md", f"alpha {'beta ' * (index % 3)} gamma")
        first = engine.search("alpha beta gamma", 5, WHOLE)
        assert all(engine.search("alpha beta gamma", 5, WHOLE) == first for _ in range(3))

    def test_no_common_word_no_hit(self, database: Database, engine: LexicalEngine) -> None:
        put(database, "notes", "a.md", "flour water yeast")
        assert engine.search("zebra", 10, WHOLE) == []

    def test_an_empty_corpus_answers_nothing(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        assert engine.search("anything", 10, WHOLE) == []
        engine.refresh()
        put(database, "notes", "a.md", "anything")
        drop(database, "notes", "a.md")
        assert engine.search("anything", 10, WHOLE) == []
        engine.refresh()
        assert engine.search("anything", 10, WHOLE) == []

    def test_a_chunk_without_a_word_harms_nothing(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        put(database, "notes", "a.md", ["???", "…", " "])
        [seq] = put(database, "notes", "b.md", "word")
        engine.refresh()
        assert found(engine, "word ???") == {seq}

    @pytest.mark.parametrize("k", [0, -1])
    def test_nothing_is_asked_for_nothing_is_given(
        self, database: Database, engine: LexicalEngine, k: int
    ) -> None:
        put(database, "notes", "a.md", "word")
        assert engine.search("word", k, WHOLE) == []

    # Any text is safe

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "   ",
            "???",
            "the of and",
            'c++ "unbalanced title:x AND *',
            "NEAR(word other, 2) OR NOT (^word - + { } : \\ ' ; --",
            "word\0other",
            "\0",
            "\ud800",
            "word* OR",
            "title : word",
            '"""',
            "%_%",
        ],
    )
    def test_no_character_is_an_operator(
        self, database: Database, engine: LexicalEngine, text: str
    ) -> None:
        [seq] = put(database, "notes", "a.md", "word")
        assert found(engine, text) == ({seq} if "word" in text else set())

    @pytest.mark.parametrize("operator", ["NOT", "AND", "OR", "NEAR", "-", '"'])
    def test_operators_do_not_change_what_is_found(
        self, database: Database, engine: LexicalEngine, operator: str
    ) -> None:
        put(database, "notes", "a.md", "flour")
        put(database, "notes", "b.md", "yeast")
        assert found(engine, f"flour {operator} yeast") == found(engine, "flour yeast")
        assert len(found(engine, "flour yeast")) == 2

    def test_a_query_of_ten_thousand_characters_is_answered(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        [seq] = put(database, "notes", "a.md", "needle")
        assert found(engine, "needle " + "x1y2 " * 2000) == {seq}
        assert found(engine, "x" * 10_000) == set()
        assert found(engine, " ".join(f"w{n}" for n in range(2000))) == set()

    @RELAXED
    @given(text=st.text(max_size=80))
    def test_any_text_is_answered(
        self, database: Database, engine: LexicalEngine, text: str
    ) -> None:
        if len(seqs_of(database, "notes", "a.md")) == 0:
            put(database, "notes", "a.md", ["word and \u00e9clair", "c++ 1.0.21 foo.bar 東京"])
        for hit in engine.search(text, 5, WHOLE):
            assert hit.score > 0

    @RELAXED
    @given(
        text=st.text(
            st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
            min_size=1,
            max_size=60,
        )
    )
    def test_any_text_can_be_indexed(
        self, database: Database, engine: LexicalEngine, text: str
    ) -> None:
        [seq] = put(database, "notes", "a.md", f"{text}\nneedle")
        assert found(engine, "needle") == {seq}

    def test_stop_words_alone_find_passages_with_them_best_in_that_order(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        put(database, "notes", "a.md", "Not that it has to be, or to go.")
        [quote] = put(
            database, "notes", "b.md", "Ask: to be or not to be, said the actor on stage."
        )
        put(database, "notes", "c.md", "bread and salt")
        assert engine.search("to be or not to be", 5, WHOLE)[0].seq == quote
        assert engine.search("whom", 5, WHOLE) == []

    def test_a_symbol_finds_the_passages_that_contain_it(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        [launch] = put(database, "notes", "a.md", "\U0001f680 launch day")
        [arrow] = put(database, "notes", "b.md", "a map: key -> value!!!")
        put(database, "notes", "c.md", "launch of a key -", title="value")
        put(database, "other", "d.md", "\U0001f680 -> !!!")
        for signs, wanted in (
            ("\U0001f680", [launch]),
            ("->", [arrow]),
            ("!!! ->", [arrow]),
            ("=>", []),
        ):
            leg = LegQuery(SubQuery("lex", signs), WHOLE, 10)
            with database.read() as connection:
                run = rank_words(connection, engine, leg)
            assert [hit.seq for hit in run.hits] == wanted, signs
        within = Restriction("notes", Scope.of(["notes:a.md"]))
        with database.read() as connection:
            leg = LegQuery(SubQuery("lex", "->"), within, 10)
            assert not rank_words(connection, engine, leg).hits

    def test_a_word_that_is_there_is_not_corrected(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        assert engine.correct("sourdoguh", WHOLE) == {}
        put(database, "notes", "a.md", "feed the sourdough")
        assert engine.correct("feed the sourdough", WHOLE) == {}
        assert engine.correct("", WHOLE) == {}

    def test_words_are_counted_by_the_passages_that_contain_them(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        assert engine.document_counts(["keys"]) == (0, [0])
        put(database, "notes", "a.md", ["rotate the keys, keys and keys", "a rotating door"])
        put(database, "notes", "b.md", "the piano has Black keys")
        put(database, "notes", "gone.md", "keys")
        put(database, "other", "c.md", "keys")
        drop(database, "notes", "gone.md")
        words = ["Key", "rotates", "black", "zebra", "the", "???"]
        assert engine.document_counts(words) == (3, [2, 2, 1, 0, 0, 0])
        assert engine.document_counts([]) == (3, [])

    def test_a_text_without_a_word_is_not_searchable(self, engine: LexicalEngine) -> None:
        assert engine.is_searchable("the walrus")
        assert not engine.is_searchable("?! --")

    # Following the truth

    def test_changes_are_seen_at_once(self, database: Database, engine: LexicalEngine) -> None:
        [old] = put(database, "notes", "a.md", "flour")
        assert found(engine, "flour") == {old}
        [new] = put(database, "notes", "a.md", "yeast")
        assert found(engine, "flour") == set()
        assert found(engine, "yeast") == {new}
        drop(database, "notes", "a.md")
        assert found(engine, "yeast flour") == set()

    def test_a_change_of_metadata_alone_is_seen_by_filters_at_once(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        asked = Restriction("notes", filter=condition("tags", Op.EQ, "public"))
        put(database, "notes", "a.md", "keys", metadata={"tags": "public"})
        assert len(found(engine, "keys", asked)) == 1
        put(database, "notes", "a.md", "keys", metadata={"tags": "secret"})
        assert found(engine, "keys", asked) == set()

    @pytest.mark.parametrize("refreshed", [True, False])
    def test_a_reopened_engine_answers_the_same(
        self, make: Maker, tmp_path: Path, database: Database, refreshed: bool
    ) -> None:
        before = make(database, "notes", tmp_path / "index")
        for index in range(12):
            put(database, "notes", f"{index}.md", f"alpha {'beta ' * index}")
            if refreshed and index % 5 == 0:
                before.refresh()
        drop(database, "notes", "3.md")
        if refreshed:
            before.refresh()
        drop(database, "notes", "5.md")
        expected = before.search("alpha beta", 20, WHOLE)
        before.close()
        database.close()

        reopened = make_database(tmp_path)
        after = make(reopened, "notes", tmp_path / "index")
        assert after.search("alpha beta", 20, WHOLE) == expected
        assert len(expected) == 10
        after.close()
        reopened.close()

    @RELAXED
    @given(steps=STEPS, texts=st.lists(st.sets(st.sampled_from(WORDS)), min_size=14, max_size=14))
    def test_any_history_leaves_exactly_the_live_chunks_findable(
        self,
        make: Maker,
        tmp_path_factory: pytest.TempPathFactory,
        steps: Sequence[tuple[str, int]],
        texts: Sequence[set[str]],
    ) -> None:
        folder = tmp_path_factory.mktemp("history")
        database = make_database(folder)
        engine = make(database, "notes", folder / "index")
        live: dict[str, tuple[int, set[str]]] = {}
        for (step, number), text in zip(steps, texts, strict=False):
            path = f"{number}.md"
            if step == "put":
                [seq] = put(database, "notes", path, " ".join(sorted(text)) + " .")
                live[path] = (seq, text)
            elif step == "drop":
                drop(database, "notes", path)
                live.pop(path, None)
            elif step == "refresh":
                engine.refresh()
            else:
                engine.close()
                engine = make(database, "notes", folder / "index")
            for word in WORDS:
                assert found(engine, word) == {seq for seq, text in live.values() if word in text}
        engine.close()
        database.close()

    def test_readers_are_right_while_a_writer_works(
        self, database: Database, engine: LexicalEngine
    ) -> None:
        [fixed] = put(database, "notes", "fixed.md", "anchor stays")
        put(database, "notes", "moving.md", "anchor version0")
        stop = Event()

        def read() -> list[list[Hit]]:
            seen = []
            while not stop.is_set():
                seen.append(engine.search("anchor", 10, WHOLE))
            return [*seen, engine.search("anchor", 10, WHOLE)]

        def write() -> None:
            try:
                for version in range(1, 13):
                    put(database, "notes", "moving.md", f"anchor version{version}")
                    if version % 3 == 0:
                        engine.refresh()
            finally:
                stop.set()

        with ThreadPoolExecutor(5) as pool:
            readers = [pool.submit(read) for _ in range(4)]
            pool.submit(write).result()
            answers = [answer for reader in readers for answer in reader.result()]
        # The document is replaced in one transaction: never absent, never there twice.
        assert all(len(answer) == 2 for answer in answers)
        assert all(fixed in {hit.seq for hit in answer} for answer in answers)
        last = seqs_of(database, "notes", "moving.md")
        assert found(engine, "version12") == set(last)

    def test_engines_of_two_processes_may_refresh_one_folder(
        self, make: Maker, database: Database, tmp_path: Path
    ) -> None:
        folder = tmp_path / "shared"
        engines = [make(database, "notes", folder) for _ in range(3)]
        for index in range(15):
            put(database, "notes", f"{index % 7}.md", f"word number{index}")
            engines[index % 3].refresh()
            assert found(engines[(index + 1) % 3], f"number{index}") == set(
                seqs_of(database, "notes", f"{index % 7}.md")
            )
        with ThreadPoolExecutor(3) as pool:
            put(database, "notes", "last.md", "word last")
            for done in [pool.submit(engine.refresh) for engine in engines]:
                done.result()
        assert all(len(found(engine, "word")) == 8 for engine in engines)
