"""The examples of docs/reference/http.md work as they stand, against a real server."""

import re
import shlex
from pathlib import Path

import httpx
import pytest

from catalog.answers import generating
from scripted import write

DOCS = Path(__file__).parents[3] / "docs" / "reference" / "http.md"
TEXT = DOCS.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
CURLS = [block for block in BLOCKS if block.startswith("curl ")]


def request(block):
    """What the curl command sends."""
    words = iter(shlex.split(block.replace("\\\n", " "))[1:])
    sent = {"method": "GET", "headers": {}, "content": None}
    for word in words:
        if word == "-H":
            name, _, value = next(words).partition(": ")
            sent["headers"][name] = value
        elif word == "-d":
            sent["method"], sent["content"] = "POST", next(words)
        elif word != "-s":
            assert word.startswith("http://127.0.0.1:8180/"), word
            sent["url"] = word
    return sent


@pytest.mark.slow
@pytest.mark.parametrize("block", CURLS)
def test_an_example_is_answered(engine, app_of, on_port, block, monkeypatch):
    monkeypatch.setattr(generating, "choose_llm", lambda *_: write())
    sent = request(block)
    with on_port(app_of(engine)) as server:
        sent["url"] = sent["url"].replace(":8180", f":{server.port}")
        answer = httpx.request(**sent, timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert len(answer.json()) > 2 or answer.json()["documents"]


@pytest.mark.slow
def test_there_is_an_example_of_every_route(engine, asked):
    described = asked(engine, "GET", "/openapi.json").json()["paths"]
    shown = set()
    for one in map(request, CURLS):
        path = one["url"].removeprefix("http://127.0.0.1:8180").partition("?")[0]
        rest = path.removeprefix("/v1/documents/")
        shown.add((path if rest == path else "/v1/documents/{reference}", one["method"].lower()))
    assert shown == {(path, method) for path, one in described.items() for method in one}


def test_every_status_of_the_description_is_in_the_table_of_errors(engine, asked):
    paths = asked(engine, "GET", "/openapi.json").json()["paths"]
    described = {
        status for one in paths.values() for route in one.values() for status in route["responses"]
    }
    listed = set(re.findall(r"^\| (\d{3}) \|", TEXT, re.MULTILINE))
    assert described - {"200"} <= listed
