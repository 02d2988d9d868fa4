"""Threads that answer: how many, how long, and what comes out of them."""

import asyncio
import threading

import pytest
from sqlalchemy import text

from catalog.core.errors import OutOfTimeError, ServingError, StoreReplacedError
from catalog.interfaces.server.workers import Workers
from catalog.store.database import Database


def test_a_check_that_fails_is_the_answer_and_the_work_is_not_begun():
    begun = []

    def refuse():
        raise StoreReplacedError("another store")

    async def go():
        workers = Workers(1, 20, refuse)
        with pytest.raises(StoreReplacedError):
            await workers.run(lambda: begun.append(1))
        assert workers.pending == 0

    asyncio.run(go())
    assert begun == []


def test_a_time_out_of_the_work_itself_is_not_taken_for_ours():
    def times_out():
        raise TimeoutError("of the work")

    with pytest.raises(TimeoutError, match="of the work"):
        asyncio.run(Workers(1, 20).run(times_out))


def test_one_that_was_given_up_keeps_its_thread_until_it_ends():
    gate, ended = threading.Event(), threading.Event()

    def hang():
        assert gate.wait(20)
        ended.set()

    async def go():
        workers = Workers(1, 0.05)
        with pytest.raises(OutOfTimeError, match=r"0\.05 seconds"):
            await workers.run(hang)
        assert workers.pending == 1
        with pytest.raises(OutOfTimeError):  # no thread is free: it never began
            await workers.run(ended.set)
        assert not ended.is_set()
        gate.set()
        assert ended.wait(20)
        again = Workers(1, 20)
        assert await again.run(lambda: "well") == "well"

    asyncio.run(go())


def test_more_than_four_for_each_thread_do_not_wait():
    gate = threading.Event()

    async def go():
        workers = Workers(1, 20)
        tasks = [asyncio.create_task(workers.run(lambda: gate.wait(20))) for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(ServingError, match="5 requests are waiting"):
            await workers.run(lambda: None)
        gate.set()
        assert await asyncio.gather(*tasks) == [True] * 5
        assert await workers.run(lambda: "well") == "well"

    asyncio.run(go())


def test_the_work_of_a_call_ends_soon_after_its_time(tmp_path):
    """Nobody waits for it, and it would keep a thread from the next call."""
    database, ended = Database.at(tmp_path), threading.Event()

    def count_for_ever():
        numbers = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
        try:
            with database.read() as connection:
                connection.execute(text(f"{numbers} SELECT count(*) FROM n"))
        finally:
            ended.set()

    async def go():
        workers = Workers(1, 0.2)
        with pytest.raises(OutOfTimeError):
            await workers.run(count_for_ever)
        assert await asyncio.to_thread(ended.wait, 20)
        assert await workers.run(lambda: 7) == 7

    asyncio.run(go())
    database.close()
