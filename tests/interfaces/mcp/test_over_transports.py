"""What an agent may do, over stdio and HTTP and in both of the protocol's eras."""

import json
from concurrent.futures import CancelledError

import pytest
from jsonschema import Draft202012Validator
from mcp.shared.exceptions import MCPError

from catalog.interfaces.mcp import document_uri
from catalog.interfaces.tools import ASK, LISTED_TOOLS, TOOLS
from interfaces.mcp.conftest import ODD_PATHS
from interfaces.mcp.signs import give, wait_for
from tables import read_cases

GOOD = dict(read_cases(__file__)["good"])
BAD = [
    ("get", {"reference": {"a": 1}}, "reference must be a valid string"),
    ("status", {"tpo_k": 3}, "there is no argument 'tpo_k'"),
]


def written(value):
    return json.dumps(value, ensure_ascii=False)


def data(answer):
    """The data of an answer, which is told in words too."""
    assert [one.type for one in answer.content] == ["text"]
    assert answer.is_error == (answer.structured_content["status"] == "error")
    return answer.structured_content


def test_every_tool_is_listed_as_read_only_with_a_valid_schema_and_few_words(session):
    tools = session.do("list_tools").tools
    assert [one.name for one in tools] == list(LISTED_TOOLS)
    for tool in tools:
        Draft202012Validator.check_schema(tool.input_schema)
        hints = tool.annotations
        assert (hints.read_only_hint, hints.destructive_hint) == (True, False)
    sent = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
    read = [tool["name"] + tool["description"] + written(tool["inputSchema"]) for tool in sent]
    instructions = session.client.instructions
    assert len("".join(read)) <= 6_500
    assert len(instructions) <= 1_200
    assert len(written({"tools": sent})) + len(instructions) <= 16_000


def test_the_server_tells_how_to_use_it_and_what_it_holds(session):
    told = session.client.instructions
    assert "Use search_chunks when answering questions about document content" in told
    assert "many (120 documents), notes (5 documents)" in told
    assert session.client.server_info.name == "catalog"


def test_every_tool_has_a_good_call():
    assert GOOD.keys() == TOOLS.keys() - {ASK.name}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_call_is_answered_in_words_and_as_data(session, name):
    answer = session.call(name, **GOOD[name])
    assert data(answer)["status"] == "ok", answer.content[0].text
    assert ("keys.md" if name != "status" else "notes") in answer.content[0].text


@pytest.mark.parametrize(("name", "given", "message"), BAD)
def test_a_wrong_argument_is_named(session, name, given, message):
    assert message in data(session.call(name, **given))["message"]


def test_an_unknown_tool_is_an_error_of_the_protocol(session):
    with pytest.raises(MCPError, match="tools: search_chunks") as raised:
        session.call("delete_everything")
    assert raised.value.code == -32602


def test_twenty_calls_at_once_get_each_its_own_answer(session):
    futures = [session.later("get", reference=f"many:{number:03}.txt") for number in range(20)]
    texts = [data(future.result(timeout=30))["text"] for future in futures]
    assert texts == [f"Note number {number} is about marigolds.\n" for number in range(20)]


def test_a_cancelled_call_leaves_the_session_usable(session):
    held = session.later("search_chunks", query="HOLD keys", dataset="notes")
    wait_for(session.signs / "began")
    held.cancel()
    with pytest.raises(CancelledError):
        held.result(timeout=30)
    answer = session.call("search", query="keys", dataset="notes")
    give(session.signs / "go")
    assert data(answer)["status"] == "ok"


def test_every_document_is_listed_once_and_can_be_read(session):
    found, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        page = session.do("list_resources", cursor=cursor)
        found += [one.uri for one in page.resources]
        cursor, pages = page.next_cursor, pages + 1
    assert pages == 2
    many = [("many", f"{number:03}.txt") for number in range(120)]
    names = [*many, *(("notes", path) for path in (*ODD_PATHS, "keys.md", "hostile.md"))]
    assert sorted(found) == sorted(document_uri(*name) for name in names)
    for path in ODD_PATHS:
        (content,) = session.do("read_resource", document_uri("notes", path)).contents
        assert content.text.startswith(f"# Title of {path}\n")
    (template,) = session.do("list_resource_templates").resource_templates
    assert template.uri_template == "catalog://{dataset}/{+path}"
