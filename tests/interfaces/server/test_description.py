"""The API does what its own description says, whatever is sent to it."""

import asyncio
import json
from functools import lru_cache

import httpx
import pytest
from hypothesis import HealthCheck, settings

from catalog.core.params import BrowseParams, GetParams, SearchParams, edge_fields
from catalog.core.results import SearchResult
from catalog.core.settings import ServeSettings
from catalog.interfaces.server.http import HEALTH, ApiState, build_api
from catalog.interfaces.server.security import Address, guard_app
from catalog.interfaces.server.workers import Workers

TOKEN = "a token of some length"
CALLS = 12  # for each route


@lru_cache(maxsize=4)
def api(engine, serve):
    asking = ApiState(engine, Workers(2, 20), 20.0)
    app = build_api(asking, needs_token=serve.token is not None)
    return guard_app(app, Address("127.0.0.1", 80), serve, open_paths=frozenset([HEALTH]))


def description(app, **headers):
    async def go():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return (await client.get("/openapi.json", headers=headers)).json()

    return asyncio.run(go())


@pytest.mark.slow
def test_every_answer_is_one_that_is_described(engine):
    import schemathesis
    from schemathesis.checks import load_all_checks
    from schemathesis.generation.feedback import FeedbackSources
    from schemathesis.pytest._test_builder import build_operation_test
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    @settings(
        max_examples=CALLS,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def ask(case):
        # a query may fit its type and yet be one nobody can search for
        case.call_and_validate(excluded_checks=[positive_data_acceptance])
        asked.add(case.operation.label)

    app, asked = api(engine, ServeSettings(allowed_hosts=("testserver",))), set()
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    load_all_checks()
    # Not by schemathesis's own plugin: it makes its cases when tests are collected.
    for operation in schema.get_all_operations():
        build_operation_test(
            config=schema.config,
            operation=operation.ok(),
            test_func=ask,
            given_kwargs={},
            feedback=FeedbackSources(),
        )()
    assert len(asked) == 10


def test_the_description_says_that_a_token_is_needed(engine):
    serve = ServeSettings(token=TOKEN)
    app = api(engine, serve)
    said = description(app, authorization=f"Bearer {TOKEN}")
    assert said["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    assert said["paths"]["/v1/search"]["post"]["security"] == [{"HTTPBearer": []}]
    assert "error" in description(app)
    assert "securitySchemes" not in description(api(engine, ServeSettings()))["components"]


def test_every_route_argument_and_error_is_described(engine):
    said = description(api(engine, ServeSettings()))
    routes = [(path, method) for path, one in said["paths"].items() for method in one]
    assert routes == [
        ("/v1/search", "post"),
        ("/v1/search", "get"),
        ("/v1/ask", "post"),
        ("/v1/generate", "post"),
        ("/v1/documents", "get"),
        ("/v1/documents", "post"),
        ("/v1/documents/{reference}", "get"),
        ("/v1/status", "get"),
        ("/v1/health", "get"),
        ("/v1/ready", "get"),
    ]
    for path, method in routes:
        route = said["paths"][path][method]
        assert route["summary"]
        assert route["description"].endswith(".")
        for parameter in route.get("parameters", ()):
            assert parameter["description"], parameter["name"]
        if method == "post":
            body = route["requestBody"]["content"]["application/json"]
            assert body["examples"]
        for status, answer in route["responses"].items():
            shape = answer["content"]["application/json"]["schema"]["$ref"]
            assert shape.endswith("/ErrorShape") is (status != "200")
    for name in ("SearchParams", "MultiGetParams"):
        for field, about in said["components"]["schemas"][name]["properties"].items():
            assert about["description"], field


def test_examples_in_python_are_not_part_of_the_description(engine):
    assert ">>> " in SearchResult.__doc__
    said = description(api(engine, ServeSettings()))
    about = said["components"]["schemas"]["SearchResult"]["description"]
    assert about == SearchResult.__doc__.partition("\n\n    Examples:")[0].replace("\n    ", "\n")
    assert ">>> " not in json.dumps(said)


def test_a_query_string_takes_every_parameter_of_its_verb(engine):
    paths = description(api(engine, ServeSettings()))["paths"]

    def names(path):
        return [one["name"] for one in paths[path]["get"]["parameters"]]

    def fields(kind):
        return [field.name for field in edge_fields(kind)]

    assert names("/v1/search") == fields(SearchParams)
    assert names("/v1/documents") == fields(BrowseParams)
    assert names("/v1/documents/{reference}") == fields(GetParams)


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/docs/oauth2-redirect", "/"])
def test_no_page_loads_scripts_from_elsewhere(engine, path):
    async def go():
        transport = httpx.ASGITransport(api(engine, ServeSettings()))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(path)

    assert asyncio.run(go()).status_code == 404
