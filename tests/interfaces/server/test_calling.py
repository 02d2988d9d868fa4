"""``/call``: for who has the secret of ``serve.json``, and nobody else."""

import hmac

import pytest

from catalog.interfaces.calls import VERBS
from catalog.interfaces.terminal import Form, render

SECRET = "5" * 64
OWNER = {"authorization": f"Bearer {SECRET}"}
TOKEN = "a token of some length"
GET_BREAD = {"operation": "get", "arguments": {"reference": "bread.txt"}, "form": None}


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer " + "6" * 64}, {"authorization": f"Bearer {TOKEN}"}],
)
@pytest.mark.parametrize("serve", [{}, {"token": TOKEN}])
def test_it_refuses_who_has_not_the_secret(engine, asked, headers, serve):
    answer = asked(engine, "POST", "/call", serve, json=GET_BREAD, headers=headers)
    assert answer.status_code == 401
    assert answer.json()["error"]["kind"] == "Unauthorized"
    assert SECRET not in answer.text


def test_the_secret_is_compared_in_constant_time(engine, asked, monkeypatch):
    compared = []
    real = hmac.compare_digest

    def noted(one, other):
        compared.append({one, other})
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", noted)
    asked(engine, "POST", "/call", json=GET_BREAD, headers={"authorization": "Bearer wrong"})
    assert compared == [{b"wrong", SECRET.encode()}]


def test_the_secret_opens_nothing_else(engine, asked):
    answer = asked(engine, "GET", "/v1/status", {"token": TOKEN}, headers=OWNER)
    assert answer.status_code == 401


def test_pages_may_not_call_it_whatever_is_allowed(engine, asked):
    serve = {"allowed_origins": ("https://app.example",)}
    headers = OWNER | {"origin": "https://app.example"}
    answer = asked(engine, "POST", "/call", serve, json=GET_BREAD, headers=headers)
    assert answer.status_code == 403


def test_the_answer_comes_as_data(engine, asked):
    answer = asked(engine, "POST", "/call", json=GET_BREAD, headers=OWNER)
    assert answer.json() == {"data": engine.ask("get", {"reference": "bread.txt"})}


@pytest.mark.parametrize(
    "form", [{"numbers": True}, {"json": True}, {"bold": True, "explain": True}, {}]
)
@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("get", {"reference": "keys.md"}),
        ("multi_get", {"patterns": ["*.md"]}),
    ],
)
def test_the_answer_comes_as_the_command_would_print_it(engine, asked, operation, arguments, form):
    body = {"operation": operation, "arguments": arguments, "form": form}
    answer = asked(engine, "POST", "/call", json=body, headers=OWNER)
    printed = render(operation, engine.answer(operation, arguments), Form(**form))
    assert answer.json() == {"out": printed.out, "err": printed.err, "code": printed.code}
    assert printed.out


@pytest.mark.parametrize("operation", list(VERBS))
def test_every_operation_has_its_words(engine, asked, operation):
    arguments = {
        "search": {"query": "bread"},
        "ask": {"question": "bread"},
        "generate": {"kind": "pdr", "topic": "bread"},
        "get": {"reference": "bread.txt"},
        "multi_get": {"patterns": ["bread.txt"]},
    }.get(operation, {})
    body = {"operation": operation, "arguments": arguments, "form": {}}
    answer = asked(engine, "POST", "/call", json=body, headers=OWNER)
    assert answer.status_code == 200, answer.text
    assert "notes" in answer.json()["out"] or "bread" in answer.json()["out"]


@pytest.mark.parametrize(
    ("body", "status", "kind", "said"),
    [
        ({}, 400, "InputError", "operation is missing"),
        (GET_BREAD | {"more": 1}, 400, "InputError", "no argument 'more'"),
        (GET_BREAD | {"form": {"colour": True}}, 400, "InputError", "bold, explain, json"),
        (GET_BREAD | {"form": {"json": "yes"}}, 400, "InputError", "form.json"),
        (GET_BREAD | {"operation": "drop"}, 400, "InputError", "no verb 'drop'"),
        (GET_BREAD | {"arguments": {}}, 400, "InputError", "reference is missing"),
        (GET_BREAD | {"arguments": {"reference": "x.md"}}, 404, "DocumentNotFoundError", "x.md"),
    ],
)
def test_a_wrong_call_is_an_error_with_its_reason(engine, asked, body, status, kind, said):
    answer = asked(engine, "POST", "/call", json=body, headers=OWNER)
    assert answer.status_code == status
    assert answer.json()["error"]["kind"] == kind
    assert said in answer.json()["error"]["message"]


def test_a_body_that_is_no_json_and_another_method_are_refused(engine, asked):
    assert asked(engine, "POST", "/call", content=b"{", headers=OWNER).status_code == 400
    assert asked(engine, "GET", "/call", headers=OWNER).status_code == 405


def test_a_defect_is_told_by_name_only(stub, asked, caplog):
    def fail(operation, arguments):
        raise ValueError(arguments["reference"])

    answer = asked(stub(fail), "POST", "/call", json=GET_BREAD, headers=OWNER)
    assert answer.status_code == 500
    assert answer.json()["error"]["kind"] == "InternalError"
    assert "bread.txt" not in answer.text + caplog.text


def test_it_is_not_in_the_description(engine, asked):
    assert "/call" not in asked(engine, "GET", "/openapi.json").text
