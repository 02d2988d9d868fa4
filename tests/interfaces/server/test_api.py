"""``/v1``: what the engine says, as the command line prints it; failures in one shape."""

import asyncio
import json
import logging
import threading

import pytest

from catalog.core import errors
from catalog.interfaces.plain_text import json_text
from tables import table


def timeless(value):
    """Without what differs from one run to the next."""
    if isinstance(value, dict):
        return {
            name: timeless(one) for name, one in value.items() if name not in ("elapsed_ms", "ms")
        }
    return [timeless(one) for one in value] if isinstance(value, list) else value


@table("method, path, request_, operation, arguments")
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


@table("method, path, request_, status, kind, said")
def test_a_failure_is_reported_in_one_shape(
    engine, asked, method, path, request_, status, kind, said
):
    sent = {name: one.encode("latin-1") for name, one in request_.items() if name == "content"}
    answer = asked(engine, method, path, **request_ | sent)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["error"]["kind"] == kind
    assert said in answer.json()["error"]["message"]
    assert set(answer.json()) == {"error"}
    assert set(answer.json()["error"]) == {"kind", "message"}


@table("kind, status")
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
    assert late.json()["error"]["message"] == "no answer within 0.2 seconds"
    assert quick.json() == {"query": "quick"}


@pytest.mark.slow
@table("path, status")
def test_head_is_answered_as_get_without_the_body(engine, asked, path, status):
    head, get = asked(engine, "HEAD", path), asked(engine, "GET", path)
    assert (head.status_code, head.content) == (get.status_code, b"") == (status, b"")
    assert head.headers["content-type"] == get.headers["content-type"]
