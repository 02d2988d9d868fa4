"""The tools as functions: plain, of LlamaIndex, and of the store that the settings name."""

import asyncio
import inspect
import subprocess
import sys

import pytest

from catalog.interfaces import agents as agent_tools
from catalog.interfaces.agents import AGENT_TOOLS, LISTED_TOOLS, AgentTools, functions
from catalog.interfaces.calls import LocalEngine


def test_plain_functions_answer_in_words(tools):
    assert "recipes/bread.txt (lines 1–2)" in tools.search_chunks("bread", file_type_filter="txt")
    listed = tools.query_catalog(name="PAPER", tags=[], sort="name")
    assert listed.startswith("1 document matches")
    assert tools.search_chunks(" ").startswith("error: the argument query is blank")


@pytest.mark.parametrize("name", LISTED_TOOLS)
def test_a_plain_function_takes_what_its_tool_takes(name):
    fields = AGENT_TOOLS[name].arguments.model_fields.values()
    defaults = [inspect.Parameter.empty if one.is_required() else one.default for one in fields]
    expected = dict(zip(AGENT_TOOLS[name].arguments.model_fields, defaults, strict=True))
    method = dict(inspect.signature(getattr(AgentTools, name)).parameters)
    assert method.pop("self")
    function = inspect.signature(getattr(agent_tools, name)).parameters
    for parameters in (method, function):
        assert {key: one.default for key, one in parameters.items()} == expected
        assert list(parameters) == list(expected)


def test_an_unknown_tool_is_an_error_in_the_answer(tools):
    answer = tools.call("delete\x1b" + "x" * 200, {})
    assert answer.is_error
    assert "there is no tool 'delete" in answer.text
    assert "x" * 60 not in answer.text
    assert "query_catalog" in answer.text


def test_llama_index_tools_are_those_of_the_table(tools):
    made = tools.function_tools(list(AGENT_TOOLS))
    for tool in made:
        described = AGENT_TOOLS[tool.metadata.get_name()]
        assert tool.metadata.description == described.description
        schema = tool.metadata.get_parameters_dict()
        assert schema["properties"] == described.input_schema()["properties"]
    assert [tool.metadata.get_name() for tool in tools.function_tools()] == list(LISTED_TOOLS)
    with pytest.raises(KeyError):
        tools.function_tools(["delete"])


def test_a_llama_index_tool_gives_the_text_and_keeps_the_data(tools):
    search, browse, *_ = tools.function_tools()
    output = search(query="bread", top_k=1)
    assert "recipes/bread.txt" in output.content
    assert output.raw_output["results"][0]["path"] == "recipes/bread.txt"
    assert output.raw_input == {"args": (), "kwargs": {"query": "bread", "top_k": 1}}
    assert not output.is_error
    assert browse(limit="many").is_error
    again = asyncio.run(search.acall(query="bread", top_k=1)).raw_output
    assert again["results"] == output.raw_output["results"]


def test_a_script_asks_the_store_of_its_settings_and_opens_it_once(engine, monkeypatch):
    opened = []

    def opens(library):
        opened.append(library)
        return engine

    monkeypatch.setattr("catalog.interfaces.calls.LocalEngine", opens)
    monkeypatch.setattr("catalog.library.library.Library", lambda settings: settings)
    monkeypatch.setattr("catalog.store.database.require_store", lambda settings: None)
    monkeypatch.setattr(functions, "_engines", type(functions._engines)())
    monkeypatch.setattr(LocalEngine, "close", lambda self: opened.append("closed"))
    assert "recipes/bread.txt" in agent_tools.search_chunks("bread")
    assert "7 documents match" in agent_tools.query_catalog()
    assert len(opened) == 1
    agent_tools.close()
    assert opened[1:] == ["closed"]


def test_importing_the_tools_loads_no_framework():
    code = (
        "import sys, catalog.interfaces.agents; "
        "print([n for n in ('llama_index', 'sqlalchemy', 'numpy', 'qdrant_edge') "
        "if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
