"""The server in this process: limits, defects, instructions."""

import logging

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from catalog.core.errors import StoreBusyError
from catalog.interfaces.mcp import catalog_server, instructions
from catalog.interfaces.server.workers import Workers
from interfaces.mcp.stubs import StubEngine

DEADLINE = 10


def client_session(engine, talk, timeout_seconds=30.0):
    """What ``talk(call, client)`` returns, with a client in this process; ``call`` gets a name."""

    async def main():
        server = catalog_server(engine, Workers(8, timeout_seconds))
        with anyio.fail_after(DEADLINE):
            async with Client(server, mode="auto") as client:

                async def call(reference):
                    return await client.call_tool("get", {"reference": reference})

                return await talk(call, client)

    return anyio.run(main)


def test_a_defect_is_told_by_its_name_and_logged_without_its_message(caplog):
    async def talk(call, client):
        with pytest.raises(MCPError, match=r"^internal error \(ValueError\)$"):
            await client.read_resource("catalog://notes/fail")
        return await call("fail")

    answer = client_session(StubEngine(), talk)
    assert answer.is_error is True
    assert answer.structured_content["message"] == "internal error (ValueError)"
    assert "in ask" in caplog.text
    assert "FAIL" not in caplog.text


def test_a_call_beyond_its_time_is_an_error_that_says_so():
    engine = StubEngine()

    async def talk(call, _):
        answer = await call("hold")
        engine.go.set()
        return answer

    answer = client_session(engine, talk, timeout_seconds=0.05)
    assert answer.is_error is True
    assert answer.structured_content["message"].startswith("no answer within 0.05 seconds")


def told_of(**counts):
    datasets = [{"dataset": name, "documents": count} for name, count in counts.items()]
    return instructions(StubEngine(datasets))


def test_instructions_list_the_datasets_and_their_numbers_of_documents():
    told = told_of(notes=1, vault=1200)
    assert told.endswith("all are searched: notes (1 document), vault (1,200 documents).\n")
    assert told_of().endswith("There is no dataset yet.")
    assert told_of(notes=1).endswith("Dataset here: notes (1 document).")


def test_instructions_stay_short_however_many_datasets_there_are():
    counts = {f"{number}-{'long' * 30}": 10**9 for number in range(100)}
    for some in range(101):
        assert len(told_of(**dict(list(counts.items())[:some]))) <= 1200


def test_a_store_that_cannot_be_read_does_not_stop_the_server(caplog, monkeypatch):
    def busy(*_):
        raise StoreBusyError("another process writes")

    monkeypatch.setattr(StubEngine, "ask", busy)
    with caplog.at_level(logging.WARNING):
        server = catalog_server(StubEngine(), Workers(1, 20))
    assert "query_catalog" in server.instructions
    assert "another process writes" in caplog.text
