"""What an operator asks a server: is it ready, what did it do, and which request was that."""

import asyncio
import logging
import re

import pytest

from catalog.core.errors import StoreError
from catalog.core.settings import ServeSettings
from catalog.interfaces.server.asgi import build_app
from catalog.interfaces.server.request_log import Readiness, end_with_request_id
from catalog.interfaces.server.security import Address

TOKEN = {"token": "a token of some length"}
LOOPBACK = Address("127.0.0.1", 8180)


def ask_in_turn(app, sending, *requests):
    """What the app answers to requests, one after the other."""

    async def go():
        return [await sending(app, method, path, **more) for method, path, more in requests]

    return asyncio.run(go())


def counted(text):
    """The samples of a page of metrics: name with labels to value."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_metrics_count_requests_questions_and_their_stages(engine, app_of, sending):
    search = ("POST", "/v1/search", {"json": {"query": "yeast", "mode": "lexical"}})
    wrong = ("POST", "/v1/search", {"json": {"query": "yeast", "dataset": "none"}})
    odd = ("GET", "/v1/documents/bread.txt", {})
    page = ask_in_turn(app_of(engine), sending, search, search, wrong, odd, ("GET", "/metrics", {}))
    assert page[-1].headers["content-type"].startswith("text/plain; version=0.0.4")
    found = counted(page[-1].text)
    of_search = 'catalog_requests_total{method="POST",route="/v1/search",status="%d"}'
    assert found[of_search % 200] == 2
    assert found[of_search % 404] == 1
    assert found['catalog_request_seconds_count{route="/v1/search"}'] == 3
    assert found['catalog_request_seconds_count{route="/v1/documents/…"}'] == 1
    asked = 'catalog_questions_total{edge="http",outcome="%s",verb="search"}'
    assert found[asked % "answered"] == 2
    assert found[asked % "failed"] == 1
    assert found['catalog_stages_total{stage="lexical",status="ran",verb="search"}'] == 2
    assert found["catalog_requests_running"] == 1  # that of the metrics
    assert found["catalog_calls_pending"] == 0
    assert found["catalog_ready"] == 1
    assert "yeast" not in page[-1].text
    assert "bread" not in page[-1].text


def test_no_method_nor_address_that_a_caller_makes_up_becomes_a_label(engine, app_of, sending):
    made_up = [(f"M{n}", f"/nothing/{n}", {}) for n in range(5)]
    text = ask_in_turn(app_of(engine), sending, *made_up, ("GET", "/metrics", {}))[-1].text
    routes = set(re.findall(r'catalog_requests_total\{method="(\w+)",route="([^"]+)"', text))
    assert routes == {("other", "another address")}


def test_metrics_need_the_token_and_are_only_read(engine, asked):
    assert asked(engine, "GET", "/metrics", TOKEN).status_code == 401
    bearing = {"Authorization": f"Bearer {TOKEN['token']}"}
    assert asked(engine, "GET", "/metrics", TOKEN, headers=bearing).status_code == 200
    assert asked(engine, "POST", "/metrics", json={}).status_code == 405


def test_a_server_is_ready_once_it_is_warm_and_until_it_is_about_to_stop(engine, sending):
    readiness = Readiness(is_warm=False)
    app = build_app(engine, LOOPBACK, ServeSettings(), readiness=readiness)

    def ready():
        return ask_in_turn(app, sending, ("GET", "/v1/ready", {}))[0]

    assert ready().status_code == 503
    assert ready().json()["error"]["kind"] == "NotReadyError"
    assert "warming up" in ready().json()["error"]["message"]
    readiness.is_warm = True
    assert (ready().status_code, ready().json()["status"]) == (200, "ready")
    assert "connection" not in ready().headers
    readiness.is_draining = True
    assert ready().status_code == 503
    assert "is stopping" in ready().json()["error"]["message"]
    assert ready().headers["connection"] == "close"
    answer = ask_in_turn(app, sending, ("GET", "/v1/search?q=yeast&mode=lexical", {}))[0]
    assert answer.status_code == 200


def test_readiness_needs_no_token_but_a_store_that_can_be_read(stub, asked):
    unreadable = stub(lambda verb, arguments: {})

    def fail():
        raise StoreError("the store cannot be read")

    assert asked(unreadable, "GET", "/v1/ready", TOKEN).status_code == 200
    unreadable.check_store = fail
    assert asked(unreadable, "GET", "/v1/ready", TOKEN).status_code == 503


def test_an_answer_and_what_is_logged_on_the_way_bear_the_requests_id(stub, asked, caplog):
    def answer(verb, arguments):
        logging.getLogger("catalog.stage").warning("a stage of %d failed", 3)
        return {"results": []}

    caplog.handler.addFilter(end_with_request_id)
    caplog.set_level(logging.INFO)
    bearing = {"X-Request-ID": "from-the-balancer.1"}
    found = asked(stub(answer), "POST", "/v1/search", headers=bearing, json={"query": "yeast"})
    assert found.headers["x-request-id"] == "from-the-balancer.1"
    lines = [record.getMessage() for record in caplog.records if "catalog" in record.name]
    assert "a stage of 3 failed [from-the-balancer.1]" in lines
    assert any(
        re.fullmatch(r"POST /v1/search 200 in .* \[from-the-balancer\.1\]", x) for x in lines
    )


@pytest.mark.parametrize(
    "given", [[], [""], ["two words"], ["x" * 129], ["ä"], ["a\tb"], ["one", "two"]]
)
def test_a_request_without_an_id_that_can_be_logged_gets_one(stub, asked, given):
    headers = [(b"X-Request-ID", one.encode()) for one in given]
    found = asked(stub(lambda *_: {}), "GET", "/v1/health", headers=headers)
    assert re.fullmatch("[0-9a-f]{32}", found.headers["x-request-id"])
