"""The outbox: its rows go only once what they say is safe in the index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from sqlalchemy import Connection, func, select

from builders import drop, put
from catalog.core.errors import EngineError
from catalog.store.schema import outbox
from catalog.store.vectors.outbox import Outbox
from catalog.store.vectors.points import IndexPoint
from vector_bench import DATASET, DIM, Bench, bench, vector

pytestmark = pytest.mark.both_stores


class FakeIndex:
    """An index in memory that loses what was not flushed, and can fail to flush."""

    def __init__(self) -> None:
        self.durable: dict[str, str] = {}
        self.fails = False
        self._changes: dict[str, str | None] = {}

    def upsert(self, points: Sequence[IndexPoint]) -> None:
        self._changes |= {point.id: str(point.payload["doc_id"]) for point in points}

    def delete(self, point_ids: Sequence[str]) -> None:
        self._changes |= dict.fromkeys(point_ids)

    def flush(self) -> None:
        changes, self._changes = self._changes, {}
        if self.fails:
            raise EngineError("no room to flush")
        for point, document in changes.items():
            if document is None:
                self.durable.pop(point, None)
            else:
                self.durable[point] = document

    def documents(self) -> list[str]:
        return sorted(self.durable.values())


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "flat") as made:
        made.put("a.md", vector(1))
        made.put("b.md", [vector(0, 1), vector(0, 2)])
        yield made


def pending(desk: Bench) -> int:
    with desk.database.read() as connection:
        return connection.scalar(select(func.count()).select_from(outbox)) or 0


@pytest.mark.parametrize("wait", [True, False])
def test_rows_stay_while_the_index_has_not_flushed_and_are_applied_next_time(
    desk: Bench, wait: bool
):
    index, queue = FakeIndex(), Outbox(desk.database, DATASET, DIM)
    index.fails = True
    before = pending(desk)
    assert before > 0
    for _ in range(2):
        with pytest.raises(EngineError, match="no room to flush"):
            queue.apply(index, wait=wait)
        assert pending(desk) == before
        assert not queue.is_empty()
    index.fails = False
    assert queue.apply(index, wait=wait) == 3
    assert index.documents() == ["notes:a.md", "notes:b.md", "notes:b.md"]
    assert queue.is_empty()


def test_a_deletion_that_was_not_flushed_is_done_by_another_process(desk: Bench):
    index, queue = FakeIndex(), Outbox(desk.database, DATASET, DIM)
    queue.apply(index, wait=True)
    drop(desk.database, DATASET, "b.md")
    index.fails = True
    with pytest.raises(EngineError):
        queue.apply(index, wait=True)
    index.fails = False
    assert Outbox(desk.database, DATASET, DIM).apply(index, wait=True) == 2
    assert index.documents() == ["notes:a.md"]
    assert pending(desk) == 0


def test_rows_are_still_there_when_the_index_flushes(desk: Bench, monkeypatch: pytest.MonkeyPatch):
    index, queue = FakeIndex(), Outbox(desk.database, DATASET, DIM)
    monkeypatch.setattr("catalog.store.vectors.outbox.BATCH", 1)
    at_flush: list[int] = []
    flush = index.flush
    monkeypatch.setattr(index, "flush", lambda: (at_flush.append(pending(desk)), flush()))
    assert queue.apply(index, wait=True) == 3
    assert at_flush == [2, 1]
    assert pending(desk) == 0


def test_filling_that_was_not_flushed_leaves_the_outbox_as_it_was(desk: Bench):
    index, queue = FakeIndex(), Outbox(desk.database, DATASET, DIM)
    index.fails = True
    before = pending(desk)
    with pytest.raises(EngineError):
        queue.fill(index)
    index.fails = False
    assert pending(desk) == before
    assert queue.apply(index, wait=True) == 3
    assert index.documents() == ["notes:a.md", "notes:b.md", "notes:b.md"]


def test_outbox_rows_of_another_dataset_are_left_to_its_own_index(desk: Bench):
    index, queue = FakeIndex(), Outbox(desk.database, DATASET, DIM)
    queue.apply(index, wait=True)
    desk.embed({"k": vector(1)})
    put(desk.database, "other", "theirs.md", "text", embed_keys=["k"])
    assert queue.is_empty()
    assert queue.apply(index, wait=True) == 0
    assert "other:theirs.md" not in index.documents()
    assert pending(desk) == 1


def test_filling_takes_every_point_and_leaves_what_comes_meanwhile_in_the_outbox(
    desk: Bench, monkeypatch: pytest.MonkeyPatch
):
    put(desk.database, DATASET, "failed.md", "text", embed_keys=["never embedded"])
    desk.put("c.md", vector(1, 1))
    monkeypatch.setattr("catalog.store.vectors.outbox.BATCH", 1)
    index, queue = FakeIndex(), Outbox(desk.database, DATASET, DIM)
    upsert = index.upsert

    def upsert_while_another_writes(points: Sequence[IndexPoint]) -> None:
        monkeypatch.setattr(index, "upsert", upsert)
        desk.put("late.md", vector(1))
        index.upsert(points)

    monkeypatch.setattr(index, "upsert", upsert_while_another_writes)
    assert queue.fill(index) == 5  # one of a.md, two of b.md, one each of c.md and late.md
    assert index.documents() == [
        "notes:a.md", "notes:b.md", "notes:b.md", "notes:c.md", "notes:late.md",
    ]  # fmt: skip
    assert queue.apply(index, wait=True) == 1  # late.md again, and of the others nothing
    assert pending(desk) == 0


def test_the_write_lock_is_taken_to_remove_rows_alone_and_waited_for_only_if_told(
    desk: Bench, monkeypatch: pytest.MonkeyPatch
):
    index, queue = FakeIndex(), Outbox(desk.database, DATASET, DIM)
    write = desk.database.write
    waits: list[bool] = []

    def noted(*, wait: bool = True) -> AbstractContextManager[Connection]:
        waits.append(wait)
        return write(wait=wait)

    monkeypatch.setattr(desk.database, "write", noted)
    assert queue.apply(index, wait=True) == 3
    assert queue.apply(index, wait=True) == 0
    assert waits == [True], "the second time there is nothing to remove"

    desk.put("c.md", vector(1, 1))
    waits.clear()
    with write():
        assert queue.apply(index, wait=False) == 1
        assert queue.apply(index, wait=False) == 0
    assert set(waits) == {False}
    assert pending(desk) == 1, "applied, and to be removed once nobody is writing"

    waits.clear()
    assert queue.apply(index, wait=True) == 0
    assert waits == [True]
    assert pending(desk) == 0
