"""``/v1``: what the engine says, as the command line prints it; failures in one shape."""

import asyncio
import json
import logging

import pytest

from catalog.core import errors
from catalog.interfaces.plain_text import json_text


def timeless(value):
    """Without what differs from one run to the next."""
    if isinstance(value, dict):
        return {
            name: timeless(one) for name, one in value.items() if name not in ("elapsed_ms", "ms")
        }
    return [timeless(one) for one in value] if isinstance(value, list) else value


def got(path, verb, **arguments):
    return ("GET", path, {}, verb, arguments)


def posted(path, verb, **arguments):
    return ("POST", path, {"json": arguments}, verb, arguments)


@pytest.mark.parametrize(
    ("method", "path", "request_", "operation", "arguments"),
    [
        posted("/v1/search", "search", query="rotate keys", top_k=2, explain=True,
               filters=["tags=ops"]),
        posted("/v1/documents", "multi_get", patterns=["*.md"]),
        got("/v1/search?q=rotate+keys&top_k=2&mode=lexical&dataset=notes", "search",
            query="rotate keys", top_k=2, mode="lexical", dataset="notes"),
        got("/v1/search?q=rotate+keys&dataset=notes&dataset=notes", "search",
            query="rotate keys", dataset=["notes", "notes"]),
        got("/v1/search?q=keys&docs=keys.md&docs=bread.txt&filters=tags%3Dops&explain=true",
            "search", query="keys", docs=["keys.md", "bread.txt"], filters=["tags=ops"],
            explain=True),
        got("/v1/documents?limit=2&sort=name", "browse", limit=2, sort="name"),
        got("/v1/documents?tags=ops&tags=security", "browse", tags=["ops", "security"]),
        got("/v1/documents?filters=tags%3Dops", "browse", filters=["tags=ops"]),
        got("/v1/documents/guides/backup.md", "get", reference="guides/backup.md"),
        got("/v1/documents/notes:keys.md:4-6", "get", reference="notes:keys.md:4-6"),
        got("/v1/documents/keys.md?line_start=2&max_bytes=40", "get", reference="keys.md",
            line_start=2, max_bytes=40),
        got("/v1/status", "status"),
    ],
)  # fmt: skip
def test_a_route_answers_what_the_engine_answers(
    engine, asked, method, path, request_, operation, arguments
):
    engine.ask(operation, arguments)  # the second time, a stage may tell that it remembered
    answer = asked(engine, method, path, **request_)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    expected = engine.ask(operation, arguments)
    assert timeless(answer.json()) == timeless(json.loads(json.dumps(expected)))


def test_the_text_of_the_json_is_that_of_the_command_line(engine, asked):
    answer = asked(engine, "GET", "/v1/documents/keys.md")
    assert answer.text == json_text(engine.ask("get", {"reference": "keys.md"}))


def test_a_docid_is_a_reference(engine, asked):
    docid = engine.ask("get", {"reference": "bread.txt"})["docid"]
    answer = asked(engine, "GET", f"/v1/documents/%23{docid}")
    assert answer.json()["path"] == "bread.txt"


def test_health_looks_at_nothing(stub, asked):
    def fail(operation, arguments):
        raise AssertionError

    answer = asked(stub(fail), "GET", "/v1/health")
    assert answer.json()["status"] == "ok"
    assert "proof" not in answer.json()


def refused(status, kind, said, **body):
    return ("POST", "/v1/search", {"json": body}, status, kind, said)


@pytest.mark.parametrize(
    ("method", "path", "request_", "status", "kind", "said"),
    [
        refused(422, "InputError", "query is missing"),
        refused(422, "InputError", "no argument 'tpo_k'; did you mean top_k?", query="x", tpo_k=1),
        refused(422, "InputError", "top_k", query="x", top_k="one"),
        refused(422, "InputError", "top_k must be at least 1, not 0", query="x", top_k=0),
        refused(422, "InputError", "before", query="x", before=5),
        refused(400, "QueryError", "", query=" "),
        refused(400, "UnknownValueError", "file types", query="x", file_type="pfd"),
        refused(404, "UnknownDatasetError", "notes", query="x", dataset="other"),
        refused(409, "ConfigError", "IDX_LLM__PROVIDER", query="x", expand=True),
        ("POST", "/v1/search", {"json": []}, 422, "InputError", "the body"),
        ("POST", "/v1/search", {"content": b"{"}, 422, "InputError", "not JSON"),
        ("POST", "/v1/search", {"content": b"\xff"}, 400, "BadRequest", "body"),
        ("POST", "/v1/ask?role=x", {"json": {"question": "y"}}, 400, "InputError", "in the body"),
        ("GET", "/v1/search", {}, 422, "InputError", "query is missing"),
        ("GET", "/v1/search?q=x&tpo_k=1", {}, 422, "InputError", "did you mean top_k?"),
        ("GET", "/v1/search?q=x&query=y", {}, 400, "InputError", "the same argument"),
        ("GET", "/v1/search?q=x&after=last+week", {}, 400, "InputError", "2026-03"),
        ("GET", "/v1/documents?limit=0", {}, 422, "InputError", "limit"),
        ("GET", "/v1/documents?after=soon", {}, 400, "InputError", "soon"),
        ("GET", "/v1/documents/key.md", {}, 404, "DocumentNotFoundError", "notes:keys.md"),
        ("GET", "/v1/documents/keys.md:99", {}, 400, "DocumentReferenceError", "lines 1-"),
        ("POST", "/v1/documents", {"json": {"patterns": []}}, 422, "InputError", "patterns"),
        ("GET", "/v1/status?full=1", {}, 422, "InputError", "no argument 'full'"),
        ("GET", "/v2/search", {}, 404, "NotFound", "/openapi.json"),
        ("GET", "/v1/search/", {}, 404, "NotFound", "/openapi.json"),
        ("PUT", "/v1/search", {}, 405, "MethodNotAllowed", "GET, POST"),
    ],
)
def test_a_failure_is_reported_in_one_shape(
    engine, asked, method, path, request_, status, kind, said
):
    headers = {"content-type": "application/json"} if "content" in request_ else {}
    answer = asked(engine, method, path, headers=headers, **request_)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["error"]["kind"] == kind
    assert said in answer.json()["error"]["message"]
    assert set(answer.json()) == {"error"}
    assert set(answer.json()["error"]) == {"kind", "message"}


@pytest.mark.parametrize("kind", [{}, {"content-type": "text/plain"}])
def test_a_body_that_is_not_said_to_be_json_is_refused_with_what_to_say(engine, asked, kind):
    answer = asked(engine, "POST", "/v1/search", headers=kind, content='{"query": "keys"}')
    assert answer.status_code == 422
    assert answer.json()["error"] == {
        "kind": "InputError",
        "message": "the body was not read: send JSON, with Content-Type: application/json",
    }


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("InputError", 400),
        ("FilterError", 400),
        ("DocumentNotFoundError", 404),
        ("UnknownDatasetError", 404),
        ("ConfigError", 409),
        ("ModelUnavailableError", 409),
        ("StoreBusyError", 503),
        ("ServingError", 503),
        ("StoreUnreachableError", 503),
        ("EngineLockedError", 503),
        ("LLMBusyError", 503),
        ("LLMTimeoutError", 503),
        ("StoreDamagedError", 500),
        ("StageFailedError", 500),
    ],
)
def test_the_status_says_who_has_to_do_something(stub, asked, kind, status):
    def fail(operation, arguments):
        raise getattr(errors, kind)("so it is")

    answer = asked(stub(fail), "GET", "/v1/search?q=x")
    assert answer.status_code == status
    assert answer.json() == {"error": {"kind": kind, "message": "so it is"}}
    assert ("retry-after" in answer.headers) is (status == 503)


def test_a_defect_is_not_reported_and_its_log_quotes_nothing(stub, asked, caplog):
    def fail(operation, arguments):
        raise ValueError(f"cannot handle {arguments['query']}")

    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.WARNING, logger="httpx"):
        answer = asked(stub(fail), "GET", "/v1/search?q=my+diagnosis")
    assert answer.status_code == 500
    assert answer.json()["error"]["kind"] == "InternalError"
    assert "diagnosis" not in answer.text
    assert "ValueError" in caplog.text
    assert "in fail" in caplog.text
    assert "diagnosis" not in caplog.text


def test_the_log_has_a_line_for_each_request_without_its_words(engine, asked, caplog):
    with caplog.at_level(logging.INFO, logger="catalog.interfaces.server"):
        asked(engine, "GET", "/v1/search?q=my+diagnosis")
        asked(engine, "POST", "/v1/search", json={"query": "my diagnosis"})
        asked(engine, "GET", "/v1/documents/my-diagnosis.md")
        asked(engine, "GET", "/my-diagnosis")
    lines = [record.getMessage().split(" in ")[0] for record in caplog.records]
    assert lines == [
        "GET /v1/search 200",
        "POST /v1/search 200",
        "GET /v1/documents/… 404",
        "GET another address 404",
    ]
    assert "diagnosis" not in caplog.text


def test_a_request_that_takes_too_long_is_given_up_and_the_next_is_answered(stub, app_of, sending):
    import threading

    gate = threading.Event()

    def slow_for_some(operation, arguments):
        if arguments["query"] == "slow":
            assert gate.wait(20)
        return {"query": arguments["query"]}

    async def go():
        app = app_of(stub(slow_for_some), max_concurrent=2, timeout_seconds=0.2)
        late = await sending(app, "GET", "/v1/search?q=slow")
        quick = await sending(app, "GET", "/v1/search?q=quick")
        gate.set()
        return late, quick

    late, quick = asyncio.run(go())
    assert late.status_code == 503
    assert late.json()["error"] == {
        "kind": "OutOfTimeError",
        "message": "no answer within 0.2 seconds",
    }
    assert quick.json() == {"query": "quick"}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/health",
        "/v1/ready",
        "/v1/status",
        "/v1/search?q=keys",
        "/v1/documents",
        "/v1/documents/keys.md",
        "/openapi.json",
        "/metrics",
    ],
)
def test_head_is_answered_as_get_without_the_body(engine, asked, path):
    head, get = asked(engine, "HEAD", path), asked(engine, "GET", path)
    assert (head.status_code, head.content) == (get.status_code, b"") == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/nothing", 404), ("/v1/documents/gone.md", 404), ("/v1/ask", 405)]
)
def test_head_of_what_cannot_be_had_tells_the_status_alone(engine, asked, path, status):
    head = asked(engine, "HEAD", path)
    assert (head.status_code, head.content) == (status, b"")
