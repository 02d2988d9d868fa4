"""The contract of vector engines: subclass :class:`VectorContract`, and pytest runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from sqlalchemy import delete, select, update

from catalog.core.documents import MetadataValue, Modality
from catalog.core.errors import EmbeddingError, EmbeddingMismatchError
from catalog.core.filters import parse_filters
from catalog.core.scope import Scope
from catalog.store.backup import back_up, restore
from catalog.store.database import Database
from catalog.store.embedding_cache import save
from catalog.store.engines import VectorEngine, nearest
from catalog.store.restriction import Hit, Restriction
from catalog.store.schema import chunk_windows, chunks, datasets, documents, embeddings
from catalog.testing.stores import NOW, drop, make_database, put

DATASET = "notes"
FINGERPRINT = "toy/1"
DIM = 8

Vector = npt.NDArray[np.float32]


def vector(*numbers: float) -> Vector:
    """Return these numbers, filled up with zeros."""
    return np.array([*numbers, *[0.0] * (DIM - len(numbers))], dtype=np.float32)


@dataclass
class Desk:
    """A store in a folder, with engines over it that are closed at the end."""

    folder: Path
    open_engine: Callable[[Database, str, Path], VectorEngine]
    database: Database = field(init=False)
    opened: list[VectorEngine] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.database = make_database(self.folder)

    def engine(self) -> VectorEngine:
        """Return a fresh engine over the same store and folder."""
        made = self.open_engine(self.database, DATASET, self.folder / "index")
        self.opened.append(made)
        return made

    def search(
        self, engine: VectorEngine, asked: Vector, k: int, restriction: Restriction
    ) -> list[Hit]:
        """Return what the engine finds in the present state of the store."""
        return nearest(engine, self.database, asked, k, restriction)

    def reopen(self, engine: VectorEngine) -> VectorEngine:
        """Close the engine and open the same index again."""
        engine.close()
        return self.engine()

    def embed(self, vectors: Mapping[str, Vector]) -> None:
        """Store vectors under these keys."""
        with self.database.write() as connection:
            save(connection, vectors, fingerprint=FINGERPRINT, now=NOW)

    def put(
        self,
        path: str,
        *passages: Vector | Sequence[Vector],
        texts: Sequence[str] = (),
        metadata: Mapping[str, MetadataValue] | None = None,
        sections: Sequence[str] = (),
        modality: Modality = "text",
        page: int | None = None,
        page_breaks: Sequence[int] = (),
        title: str = "",
    ) -> list[int]:
        """Publish a document; each chunk has a vector or its windows' vectors. Return the rows."""
        keys: list[list[str]] = []
        for passage in passages:
            windows = [passage] if isinstance(passage, np.ndarray) else list(passage)
            keyed = {one.tobytes().hex(): one for one in windows}
            self.embed(keyed)
            keys.append([one.tobytes().hex() for one in windows])
        given = list(texts) or [f"{path} passage {index}" for index in range(len(passages))]
        return put(
            self.database,
            DATASET,
            path,
            given,
            title=title,
            metadata=metadata,
            sections=sections,
            embed_keys=keys,
            modality=modality,
            page=page,
            page_breaks=page_breaks,
        )

    def close(self) -> None:
        """Close the engines and the store."""
        for engine in self.opened:
            engine.close()
        self.database.close()


def everything() -> Restriction:
    """Return no restriction within the dataset."""
    return Restriction(DATASET)


def only(*paths: str) -> Restriction:
    """Return a restriction to these documents."""
    return Restriction(DATASET, Scope.of(f"{DATASET}:{path}" for path in paths))


def paths_of(database: Database, seqs: Sequence[int]) -> list[str]:
    """Return the documents of these chunks, in the order given."""
    query = select(chunks.c.seq, documents.c.path).join(
        documents, documents.c.id == chunks.c.document_id
    )
    with database.read() as connection:
        found = {row.seq: row.path for row in connection.execute(query)}
    return [found[seq] for seq in seqs]


def brute_force(desk: Desk, asked: Vector, k: int) -> list[Hit]:
    """Compare every window of the store in float64; return the best for each chunk."""
    query = select(chunk_windows.c.seq, embeddings.c.vector).join(
        embeddings, embeddings.c.embed_key == chunk_windows.c.embed_key
    )
    best: dict[int, float] = {}
    unit = asked.astype(np.float64) / np.linalg.norm(asked)
    with desk.database.read() as connection:
        for seq, blob in connection.execute(query):
            window = np.frombuffer(blob, dtype="<f4").astype(np.float64)
            best[seq] = max(best.get(seq, -1.0), float(window @ unit / np.linalg.norm(window)))
    return [Hit(seq, best[seq]) for seq in sorted(best, key=lambda s: (-best[s], s))[:k]]


def found(
    desk: Desk,
    engine: VectorEngine,
    restriction: Restriction | None = None,
    asked: Vector | None = None,
    k: int = 10,
) -> list[str]:
    """Return the documents that a vector finds."""
    hits = desk.search(
        engine, asked if asked is not None else vector(1), k, restriction or everything()
    )
    return paths_of(desk.database, [hit.seq for hit in hits])


class VectorContract:
    """The requirements for every vector engine.

    A subclass called ``Test…`` makes its engine in ``open_engine``, for vectors of :data:`DIM`
    numbers of the model :data:`FINGERPRINT`.
    """

    def open_engine(self, database: Database, dataset: str, folder: Path) -> VectorEngine:
        """Return the engine under test over a dataset; ``folder`` is for its derived files."""
        raise NotImplementedError

    @pytest.fixture
    def desk(self, tmp_path: Path) -> Iterator[Desk]:
        """Return a store to put documents into, with the engine over it."""
        with closing(Desk(tmp_path, self.open_engine)) as made:
            yield made

    def test_the_nearest_chunks_come_in_the_order_of_a_brute_force_scan(self, desk: Desk) -> None:
        random = np.random.default_rng(7)
        for index in range(40):
            desk.put(f"{index}.md", *random.normal(size=(3, DIM)).astype(np.float32))
        engine = desk.engine()
        for asked in random.normal(size=(10, DIM)).astype(np.float32):
            expected = brute_force(desk, asked, 15)
            got = desk.search(engine, asked, 15, everything())
            assert [hit.seq for hit in got] == [hit.seq for hit in expected]
            assert [hit.score for hit in got] == pytest.approx(
                [hit.score for hit in expected], abs=2e-6
            )

    def test_length_of_query_and_document_vectors_does_not_matter(self, desk: Desk) -> None:
        desk.put("long.md", vector(300, 400))
        desk.put("short.md", vector(0.03, 0.01))
        (first, second) = desk.search(desk.engine(), vector(30, 40), 2, everything())
        assert first.score == 1.0
        assert second.score == pytest.approx((3 * 3 + 4 * 1) / (5 * 10**0.5), abs=1e-5)

    def test_opposite_vectors_score_minus_one_and_zero_vectors_zero(self, desk: Desk) -> None:
        desk.put("away.md", vector(-2))
        desk.put("nothing.md", vector(0))
        hits = desk.search(desk.engine(), vector(1), 5, everything())
        assert [hit.score for hit in hits] == [0.0, -1.0]

    def test_a_chunk_scores_as_its_best_window(self, desk: Desk) -> None:
        (seq,) = desk.put("long.md", [vector(0, 1), vector(1, 0), vector(-1, 0)])
        desk.put("other.md", vector(1, 1))
        assert desk.search(desk.engine(), vector(1), 1, everything()) == [Hit(seq, 1.0)]

    def test_a_chunk_of_many_windows_takes_one_place_only(self, desk: Desk) -> None:
        near = [vector(1, 0.001 * index) for index in range(60)]
        desk.put("crowd.md", near)
        for index in range(5):
            desk.put(f"{index}.md", vector(1, 1 + index))
        assert found(desk, desk.engine(), k=4) == ["crowd.md", "0.md", "1.md", "2.md"]

    def test_equal_scores_are_ordered_by_row_number_wherever_the_cut_falls(
        self, desk: Desk
    ) -> None:
        paths = [f"{index:02}.md" for index in range(30)]
        for path in paths:
            desk.put(path, vector(1, 2))
        engine = desk.engine()
        assert found(desk, engine, k=1) == paths[:1]
        assert found(desk, engine, k=7) == paths[:7]
        assert found(desk, engine, k=100) == paths

    def test_an_empty_index_answers_nothing(self, desk: Desk) -> None:
        engine = desk.engine()
        assert desk.search(engine, vector(1), 5, everything()) == []
        put(desk.database, DATASET, "unembedded.md", "text without a vector")
        assert desk.search(engine, vector(1), 5, everything()) == []
        engine.refresh()
        assert engine.rebuild() == 0

    @pytest.mark.parametrize("k", [0, -3])
    def test_no_hit_asked_for_is_no_hit_answered(self, desk: Desk, k: int) -> None:
        desk.put("a.md", vector(1))
        assert desk.search(desk.engine(), vector(1), k, everything()) == []

    def test_a_chunk_whose_embedding_failed_is_not_found_until_it_is_embedded(
        self, desk: Desk
    ) -> None:
        desk.put("fine.md", vector(1))
        put(desk.database, DATASET, "late.md", "text", embed_keys=["late"])
        engine = desk.engine()
        assert found(desk, engine) == ["fine.md"]
        desk.embed({"late": vector(1, 0.1)})
        assert found(desk, engine) == ["fine.md", "late.md"]

    def test_scope_none_is_everything_and_an_empty_scope_is_nothing(self, desk: Desk) -> None:
        desk.put("a.md", vector(1))
        desk.put("b.md", vector(1, 1))
        engine = desk.engine()
        assert found(desk, engine, Restriction(DATASET, Scope.of(None))) == [
            "a.md",
            "b.md",
        ]
        assert found(desk, engine, Restriction(DATASET, Scope.of([]))) == []
        assert found(desk, engine, Restriction(DATASET, Scope.of(()))) == []
        assert found(desk, engine, only("b.md")) == ["b.md"]
        assert found(desk, engine, only("absent.md")) == []

    def test_a_scope_of_thousands_of_documents_is_fine(self, desk: Desk) -> None:
        desk.put("a.md", vector(1))
        desk.put("b.md", vector(1, 1))
        scope = Scope.of(["notes:b.md", *(f"notes:{index}" for index in range(40_000))])
        assert found(desk, desk.engine(), Restriction(DATASET, scope)) == ["b.md"]

    def test_a_restriction_finds_what_stands_far_below_the_unrestricted_best(
        self, desk: Desk
    ) -> None:
        for index in range(40):
            desk.put(f"near{index}.md", vector(1, index / 1000))
        desk.put("far.md", vector(-1, 0.5), metadata={"tags": ("rare",)})
        engine = desk.engine()
        rare = Restriction(DATASET, filter=parse_filters({"tag": "rare"}))
        assert found(desk, engine, rare, k=3) == ["far.md"]
        assert found(desk, engine, only("far.md"), k=3) == ["far.md"]

    def test_phrases_to_leave_out_and_to_contain_are_obeyed(self, desk: Desk) -> None:
        for index in range(30):
            desk.put(f"red{index}.md", vector(1, index / 100), texts=["a red apple"])
        desk.put("green.md", vector(0, 1), texts=["a green apple"])
        engine = desk.engine()
        assert found(desk, engine, Restriction(DATASET, without=("red",)), k=5) == ["green.md"]
        assert found(desk, engine, Restriction(DATASET, containing=("green apple",))) == [
            "green.md"
        ]
        assert found(desk, engine, Restriction(DATASET, containing=("blue",))) == []
        both = Restriction(DATASET, only("red3.md", "green.md").scope, without=("green",))
        assert found(desk, engine, both) == ["red3.md"]

    def test_exclusions_hold_where_too_many_chunks_remain_to_name_them(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("catalog.store.vectors.points.FEW", 0)
        for index in range(30):
            desk.put(f"red{index}.md", vector(1, index / 100), texts=["a red apple"])
        desk.put("green.md", vector(0, 1), texts=["a green apple"])
        engine = desk.engine()
        assert found(desk, engine, Restriction(DATASET, without=("red",)), k=5) == ["green.md"]

    def test_a_document_edited_back_is_found_again(self, desk: Desk) -> None:
        engine = desk.engine()
        for passage in (vector(1), vector(0, 1), vector(1)):
            desk.put("a.md", passage, texts=[str(passage)])
        desk.put("b.md", vector(1, 1))
        assert found(desk, engine) == ["a.md", "b.md"]
        desk.put("a.md", vector(0, 1), texts=["other"])
        desk.put("a.md", vector(1), texts=[str(vector(1))])
        assert found(desk, engine) == ["a.md", "b.md"]
        assert found(desk, desk.reopen(engine)) == ["a.md", "b.md"]

    def test_a_deleted_document_never_answers_even_if_the_index_was_not_told(
        self, desk: Desk
    ) -> None:
        for index in range(40):
            desk.put(f"{index}.md", vector(1, index / 100))
        desk.put("kept.md", vector(0, 1))
        engine = desk.engine()
        assert desk.search(engine, vector(1), 3, everything()) != []
        drop(desk.database, DATASET, *(f"{index}.md" for index in range(40)))
        assert found(desk, engine, k=3) == ["kept.md"]

    def test_an_index_that_follows_has_the_points_of_one_that_is_built(self, desk: Desk) -> None:
        engine = desk.engine()
        engine.refresh()
        desk.put("a.md", vector(1), [vector(0, 1), vector(0, 0, 1)])
        desk.put("b.md", vector(1, 1))
        engine.refresh()
        desk.put("a.md", vector(0, 1))
        drop(desk.database, DATASET, "b.md")
        put(desk.database, DATASET, "late.md", "text", embed_keys=[["late", "later"]])
        desk.embed({"late": vector(1, 0.1)})
        assert found(desk, engine) == ["late.md", "a.md"]
        desk.embed({"later": vector(1)})
        assert found(desk, engine) == ["late.md", "a.md"]
        assert engine.verify() == 0
        assert engine.rebuild() == 3

    def test_a_closed_index_answers_the_same_when_opened_again(self, desk: Desk) -> None:
        for index in range(20):
            desk.put(f"{index}.md", vector(1, index), vector(index, 1))
        engine = desk.engine()
        before = desk.search(engine, vector(2, 3), 12, everything())
        engine.close()
        engine.close()
        assert desk.search(desk.engine(), vector(2, 3), 12, everything()) == before
        assert len(before) == 12

    def test_a_rebuilt_index_answers_the_same(self, desk: Desk) -> None:
        for index in range(20):
            desk.put(f"{index}.md", vector(1, index), [vector(index, 1), vector(index, 2)])
        drop(desk.database, DATASET, "3.md")
        engine = desk.engine()
        before = desk.search(engine, vector(2, 3), 12, everything())
        assert engine.rebuild() == 19 * 3
        assert desk.search(engine, vector(2, 3), 12, everything()) == before

    def test_two_engines_that_take_turns_both_see_every_change(self, desk: Desk) -> None:
        engine = desk.engine()
        assert found(desk, engine) == []
        for number in range(4):
            desk.put(f"{number}.md", vector(1, number))
            if number:
                drop(desk.database, DATASET, f"{number - 1}.md")
            engine = desk.reopen(engine)
            assert found(desk, engine) == [f"{number}.md"]
        assert engine.verify() == 0

    def test_row_numbers_that_a_restored_store_uses_again_are_other_passages(
        self, desk: Desk, tmp_path: Path
    ) -> None:
        desk.put("kept.md", vector(1, 1))
        back_up(desk.database.file, tmp_path / "copy.db")
        (used,) = desk.put("lost.md", vector(1))
        engine = desk.engine()
        assert found(desk, engine) == ["lost.md", "kept.md"]
        restore(tmp_path / "copy.db", desk.database.file, locks=tmp_path)
        assert desk.put("new.md", vector(0, 1)) == [used]
        assert found(desk, engine) == ["kept.md", "new.md"]
        assert found(desk, desk.reopen(engine)) == ["kept.md", "new.md"]

    def test_a_state_that_a_reader_holds_finds_nothing_newer(self, desk: Desk) -> None:
        desk.put("a.md", vector(1, 1))
        engine = desk.engine()
        with desk.database.snapshot():
            assert found(desk, engine) == ["a.md"]
            with ThreadPoolExecutor(1) as writer:
                writer.submit(desk.put, "b.md", vector(1)).result()
            assert found(desk, engine) == ["a.md"]
        assert found(desk, engine) == ["b.md", "a.md"]

    def test_other_datasets_never_answer(self, desk: Desk) -> None:
        desk.put("mine.md", vector(1, 1))
        desk.embed({"k": vector(1)})
        put(desk.database, "other", "theirs.md", "text", embed_keys=["k"])
        engine = desk.engine()
        assert found(desk, engine) == ["mine.md"]
        theirs = Restriction(DATASET, Scope.of(["other:theirs.md"]))
        assert found(desk, engine, theirs) == []

    @pytest.mark.parametrize("shape", [(), (DIM - 1,), (DIM + 1,), (1, DIM)])
    def test_a_query_of_another_dimension_is_refused(
        self, desk: Desk, shape: tuple[int, ...]
    ) -> None:
        desk.put("a.md", vector(1))
        with pytest.raises(EmbeddingMismatchError, match="rebuild"):
            desk.search(desk.engine(), np.ones(shape, dtype=np.float32), 1, everything())

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_a_query_that_is_not_finite_is_refused(self, desk: Desk, bad: float) -> None:
        desk.put("a.md", vector(1))
        with pytest.raises(EmbeddingError, match="NaN or infinity"):
            desk.search(desk.engine(), vector(1, bad), 1, everything())

    def test_readers_in_threads_never_see_two_revisions_while_another_thread_writes(
        self, desk: Desk
    ) -> None:
        engine = desk.engine()
        kept = desk.put("a.md", vector(1), vector(1, 0.1))
        engine.refresh()

        def read(_: int) -> list[int]:
            return [hit.seq for hit in desk.search(engine, vector(1), 9, everything())]

        with ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(read, index) for index in range(40)]
            pairs = [
                desk.put("b.md", vector(0, 1), vector(0, 1, 1), texts=[f"revision {index}", "end"])
                for index in range(10)
            ]
        for answer in answers:
            seqs = answer.result()
            assert seqs[:2] == kept
            assert any(set(seqs[2:]) <= set(pair) for pair in pairs)
        assert read(0) == kept + pairs[-1]

    def test_searches_go_on_while_the_index_is_closed_and_rebuilt(self, desk: Desk) -> None:
        for index in range(10):
            desk.put(f"{index}.md", vector(1, index))
        engine = desk.engine()
        expected = desk.search(engine, vector(1), 4, everything())
        with ThreadPoolExecutor(3) as pool:
            answers = [
                pool.submit(desk.search, engine, vector(1), 4, everything()) for _ in range(30)
            ]
            for _ in range(3):
                engine.rebuild()
                engine.close()
        assert [answer.result() for answer in answers] == [expected] * 30

    def test_the_dataset_made_anew_answers_with_its_new_documents(self, desk: Desk) -> None:
        desk.put("old.md", vector(1))
        engine = desk.engine()
        assert found(desk, engine) == ["old.md"]
        drop(desk.database, DATASET, "old.md")
        with desk.database.write() as connection:
            connection.execute(delete(datasets))
        desk.put("new.md", vector(1))
        with desk.database.write() as connection:
            connection.execute(update(datasets).values(created_at=NOW + 1, generation=1))
        assert found(desk, engine) == ["new.md"]
