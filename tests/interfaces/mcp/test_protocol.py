"""The server in this process: limits, defects, warm-up, instructions."""

import logging

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from catalog.core.errors import StoreBusyError
from catalog.interfaces.server.mcp.protocol import build_server, catalog_server, instructions
from catalog.interfaces.server.workers import Workers
from interfaces.mcp.stubs import TOOLS, StubEngine, status

DEADLINE = 10


def server_of(engine, max_concurrent=8, timeout_seconds=30.0):
    workers = Workers(max_concurrent, timeout_seconds)
    return build_server(engine, tools=TOOLS, instructions="how", workers=workers)


def client_session(engine, talk, mode="auto", **options):
    """What ``talk(client)`` returns, with a client in this process."""

    async def main():
        with anyio.fail_after(DEADLINE):
            async with Client(server_of(engine, **options), mode=mode) as client:
                return await talk(client)

    return anyio.run(main)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_tool_is_listed_with_its_schemas_and_as_read_only(mode):
    listed = client_session(StubEngine(), lambda client: client.list_tools(), mode)
    (tool,) = listed.tools
    assert (tool.name, tool.title, tool.description) == ("echo", "Echo", "Says it again.")
    assert tool.input_schema["additionalProperties"] is False
    assert tool.input_schema["required"] == ["word"]
    assert set(tool.output_schema["properties"]) >= {"status", "message", "notes", "echo"}
    hints = tool.annotations
    assert hints.read_only_hint is True
    assert hints.destructive_hint is False
    assert hints.idempotent_hint is True
    assert hints.open_world_hint is False


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_answer_comes_as_text_and_as_data(mode):
    async def talk(client):
        return await client.call_tool("echo", {"word": "ab", "times": 9})

    answer = client_session(StubEngine(), talk, mode)
    assert answer.is_error is False
    assert [one.text for one in answer.content] == ["echo: ababab"]
    note = "times 9 is out of range, so 3 was used"
    assert answer.structured_content == {"status": "ok", "echo": "ababab", "notes": [note]}


def test_text_that_utf_8_cannot_carry_is_replaced():
    async def talk(client):
        return await client.call_tool("echo", {"word": "a\ud800b"})

    answer = client_session(StubEngine(), talk)
    assert answer.content[0].text == "echo: a\ufffdb"
    assert answer.structured_content["echo"] == "a\ufffdb"


def test_wrong_arguments_are_an_answer_that_names_them():
    async def talk(client):
        return [
            await client.call_tool("echo", arguments)
            for arguments in ({}, {"word": 3}, {"word": "a", "wrod": "b"}, None)
        ]

    answers = client_session(StubEngine(), talk)
    assert [one.is_error for one in answers] == [True] * 4
    messages = [one.structured_content["message"] for one in answers]
    assert messages[0] == messages[3] == "the argument word is missing"
    assert messages[1] == "word must be a valid string, not 3"
    assert messages[2] == "there is no argument 'wrod'; did you mean word? arguments: word, times"


def test_an_unknown_tool_is_an_error_of_the_protocol_that_names_those_there_are():
    async def talk(client):
        with pytest.raises(MCPError) as raised:
            await client.call_tool("ehco\x1b[31m" + "x" * 100, {})
        return raised.value

    error = client_session(StubEngine(), talk)
    assert error.code == -32602
    assert error.message.endswith("tools: echo")
    assert "\x1b" not in error.message
    assert len(error.message) < 120


def test_a_cursor_for_the_only_page_of_tools_is_refused():
    async def talk(client):
        with pytest.raises(MCPError) as raised:
            await client.list_tools(cursor="x")
        return raised.value

    assert client_session(StubEngine(), talk).code == -32602


def test_a_defect_is_told_by_its_name_and_logged_without_its_message(caplog):
    async def talk(client):
        return await client.call_tool("echo", {"word": "fail"})

    answer = client_session(StubEngine(), talk)
    assert answer.is_error is True
    assert answer.structured_content["message"] == "internal error (ValueError)"
    assert "run_echo" in caplog.text
    assert "FAIL" not in caplog.text


def test_a_call_beyond_its_time_is_an_error_that_says_so():
    engine = StubEngine()

    async def talk(client):
        answer = await client.call_tool("echo", {"word": "hold"})
        engine.go.set()
        return answer

    answer = client_session(engine, talk, timeout_seconds=0.05)
    assert answer.is_error is True
    assert answer.structured_content["message"].startswith("no answer within 0.05 seconds")


def test_no_more_calls_run_at_once_than_allowed_and_all_are_answered():
    engine = StubEngine()

    async def talk(client):
        answers = []

        async def one(number):
            answers.append(await client.call_tool("echo", {"word": "hold"}))

        async with anyio.create_task_group() as tasks:
            for number in range(15):  # three at once, twelve waiting
                tasks.start_soon(one, number)
            for _ in range(3):
                await anyio.to_thread.run_sync(engine.began.acquire)
            engine.go.set()
        return answers

    answers = client_session(engine, talk, max_concurrent=3)
    assert [one.is_error for one in answers] == [False] * 15
    assert engine.most == 3


def test_a_call_given_up_keeps_its_place_until_its_thread_ends():
    engine = StubEngine()

    async def talk(client):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "echo", {"word": "hold"})
            await anyio.to_thread.run_sync(engine.began.acquire)
            tasks.cancel_scope.cancel()
        kept = await client.call_tool("echo", {"word": "a"})
        engine.go.set()
        while (free := await client.call_tool("echo", {"word": "a"})).is_error:
            pass
        return kept, free

    kept, free = client_session(engine, talk, max_concurrent=1, timeout_seconds=0.1)
    assert kept.structured_content["message"].startswith("no answer within 0.1 seconds")
    assert free.structured_content["echo"] == "a"


def test_instructions_list_the_datasets_and_their_numbers_of_documents():
    told = instructions(StubEngine(status=lambda _: status(notes=1, vault=1200)))
    assert told.endswith("all are searched: notes (1 document), vault (1200 documents).\n")
    assert "query_catalog" in told


def test_instructions_stay_short_however_many_datasets_there_are():
    counts = {f"{number}-{'long' * 30}": 10**9 for number in range(100)}
    for some in range(101):
        shown = dict(list(counts.items())[:some])
        assert len(instructions(StubEngine(status=lambda _, s=shown: status(**s)))) <= 1200


def test_instructions_of_an_empty_store_say_so():
    told = instructions(StubEngine(status=lambda _: status()))
    assert told.endswith("There is no dataset yet.")


def test_a_store_that_cannot_be_read_does_not_stop_the_server(caplog):
    def busy(_):
        raise StoreBusyError("another process writes")

    with caplog.at_level(logging.WARNING):
        server = catalog_server(StubEngine(status=busy), Workers(1, 20))
    assert "query_catalog" in server.instructions
    assert "another process writes" in caplog.text
