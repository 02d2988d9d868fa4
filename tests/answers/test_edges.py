"""The same answer over HTTP, for agents, and in a terminal while it is written."""

import json
from contextlib import suppress

import anyio
import httpx
import pytest
from mcp import Client

from answers.conftest import WritingLLM, serve
from catalog.answers.generating import SCHEMAS
from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.cli import main
from catalog.interfaces.mcp import catalog_server
from catalog.interfaces.server.http import ApiState, build_api
from catalog.interfaces.server.workers import Workers
from catalog.interfaces.terminal import Form, render, stream_answer
from catalog.interfaces.tools import ASK

CANCEL = {"question": "How many days may customers cancel within?"}
RIGHT = "Customers may cancel within 14 days of the order [1]."
NDJSON = {"accept": "application/x-ndjson"}


class Answering(LocalEngine):
    """An engine on a search that is open already."""

    service = None

    def __init__(self, service):
        super().__init__(service.library)
        self.service = service


@pytest.fixture
def engine(service):
    return Answering(service)


@pytest.fixture
def writing(project):
    """Makes engines whose model writes these replies."""
    made = []

    def make(*replies, **answers):
        made.append(serve(project, WritingLLM(replies=list(replies), prompts=[]), **answers))
        return Answering(made[-1])

    yield make
    for service in made:
        service.close()


def posted(engine, body, headers=None, path="/v1/ask"):
    app = build_api(ApiState(engine, Workers(2, 20), 20.0), needs_token=False)

    async def go():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.post(path, json=body, headers=headers)

    return anyio.run(go)


def without_times(answer):
    stages = [stage["name"] for stage in answer["stages"]]
    return {**answer, "elapsed_ms": 0, "stages": stages}


@pytest.mark.slow
def test_http_gives_the_answer_of_the_command_line(engine):
    answer = posted(engine, CANCEL)
    assert answer.status_code == 200
    assert without_times(answer.json()) == without_times(engine.ask("ask", CANCEL))


def test_http_streams_results_sentences_and_the_whole(writing):
    lines = posted(writing(f"{RIGHT} A refund takes 5 working days [1]."), CANCEL, NDJSON)
    assert lines.headers["content-type"] == "application/x-ndjson"
    events = [json.loads(line) for line in lines.text.splitlines()]
    assert [one["event"] for one in events] == ["results", "sentence", "sentence", "answer"]
    assert events[1]["sentence"]["text"] == "Customers may cancel within 14 days of the order."
    assert events[3]["answer"]["model"] == "writer"


@pytest.mark.parametrize("headers", [None, NDJSON])
def test_a_wrong_question_is_an_error_before_any_event(engine, headers):
    answer = posted(engine, {**CANCEL, "dataset": "nowhere"}, headers)
    assert answer.status_code == 404
    assert answer.json()["error"]["kind"] == "UnknownDatasetError"


def test_an_error_on_the_way_is_the_last_event(writing):
    lines = posted(writing([RuntimeError("x")]), {**CANCEL, "strict": True}, NDJSON)
    first, last = map(json.loads, lines.text.splitlines())
    assert first["event"] == "results"
    assert (last["event"], last["error"]["kind"]) == ("error", "StageFailedError")


def test_http_requests_cannot_name_code_to_load(engine):
    answer = posted(engine, {**CANCEL, "model": "os:getcwd"})
    assert answer.status_code == 422
    assert "model" in answer.json()["error"]["message"]


@pytest.mark.parametrize("with_answers", [True, False])
def test_agents_have_the_tool_only_where_answers_are_on(engine, with_answers):
    server = catalog_server(engine, Workers(2, 20), with_answers=with_answers)

    async def go():
        async with Client(server) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            return names, await client.call_tool("ask", CANCEL) if "ask" in names else None

    names, answer = anyio.run(go)
    assert ("ask" in names) is with_answers
    if with_answers:
        assert answer.structured_content["answer"].startswith("Customers may cancel within 14")
        assert answer.structured_content["citations"][0]["reference"].startswith("notes:cancel.md")


@pytest.mark.slow
def test_text_of_documents_is_marked_as_data_for_agents(engine):
    text = ASK.call(engine, CANCEL).text
    assert text.startswith("Between the two documents-")
    none = ASK.call(engine, {"question": "What is the capital of Mongolia?"})
    assert none.data["status"] == "no_results"
    assert none.text.startswith("no results: ")
    assert none.data["abstention"]["nearest"]


BLUEPRINT = "\n\n".join(
    f"{one}\n\n{RIGHT if one == '# Overview' else 'No evidence.'}" for one in SCHEMAS["blueprint"]
)
MOBILE = {"kind": "blueprint", "topic": "the cancellation of an order by customers"}


@pytest.mark.slow
def test_http_generates_and_gives_the_draft_of_a_model_that_keeps_to_no_schema(writing):
    made = posted(writing(BLUEPRINT), MOBILE, path="/v1/generate").json()
    assert made["markdown"].startswith("# Overview\n\nCustomers may cancel within")
    refused = posted(writing("# Something\n\nElse."), MOBILE, path="/v1/generate")
    assert refused.status_code == 502
    assert refused.json()["error"]["draft"] == "# Something\n\nElse."


def test_the_command_writes_a_file_and_keeps_a_draft_beside_it(
    project, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("IDX_HOME", str(project))
    monkeypatch.setenv("IDX_RAG_V2__VECTOR_ENGINE", "flat")
    out = tmp_path / "plan.md"
    arguments = ["generate", "blueprint", "--project", "notes", "--topic", MOBILE["topic"]]
    arguments += ["--mode", "lexical", "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["catalog", *arguments, "--model", f"{__name__}:planning"])
    with suppress(SystemExit):
        main()
    assert out.read_text().startswith("# Overview\n\nCustomers may cancel within")
    said = capsys.readouterr()
    assert said.out == ""
    assert "no language model" not in said.err

    monkeypatch.setattr("sys.argv", ["catalog", *arguments, "--model", f"{__name__}:drafting"])
    out.unlink()
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert not out.exists()
    assert (tmp_path / "plan.draft.md").read_text() == "# Something\n\nElse.\n"
    assert f"the draft is in {tmp_path / 'plan.draft.md'}" in capsys.readouterr().err

    file = str(tmp_path / "none" / "x.md")  # refused before anything is made
    monkeypatch.setattr("sys.argv", ["catalog", "generate", "pdr", "--topic", "x", "--out", file])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert "its folder does not exist" in capsys.readouterr().err


def planning():
    return WritingLLM(replies=[BLUEPRINT], prompts=[], context=8000)


def drafting():
    return WritingLLM(replies=["# Something\n\nElse."], prompts=[])


def streamed(engine):
    """What a terminal gets as it comes, and what after that."""
    *parts, rest = stream_answer(engine.answer_events(CANCEL), Form())
    return parts, rest


def test_a_terminal_gets_each_sentence_as_it_comes_and_then_the_sources(writing):
    engine = writing(f"{RIGHT} A refund takes 5 working days [1].")
    parts, rest = streamed(engine)
    assert parts == [
        "Customers may cancel within 14 days of the order. [1]",
        " A refund takes 5 working days. [1]",
    ]
    whole = render("ask", engine.answer("ask", CANCEL), Form())
    assert "".join(parts) + rest.out == whole.out
    assert "[1] [source: Cancellation, line" in rest.out
    assert rest.err.startswith("by writer, from 4 passages in ")


def test_a_terminal_shows_the_whole_answer_again_after_a_failure(writing):
    parts, rest = streamed(writing([f"{RIGHT} ", "A ", TimeoutError()]))
    assert parts[0] == "Customers may cancel within 14 days of the order. [1]"
    assert "Customers may cancel within 14 days of the order. [1]" in rest.out
    assert "did not end its answer in time" in rest.err


def test_a_terminal_marks_what_is_unsupported_and_says_why(writing):
    engine = writing(f"{RIGHT} A refund takes 50 working days [1].")
    printed = render("ask", engine.answer("ask", CANCEL), Form())
    assert "A refund takes 50 working days. [1] [unsupported]" in printed.out
    assert "catalog: unsupported: 'A refund takes 50 working days.': number" in printed.err
