"""The API does what its own description says, whatever is sent to it."""

import json

import pytest
from hypothesis import HealthCheck, settings

from catalog.core.params import BrowseParams, GetParams, SearchParams, edge_fields
from catalog.core.results import SearchResult

TOKEN = "a token of some length"
CALLS = 12  # for each route


@pytest.fixture
def said(engine, asked):
    """The description without a token."""
    return asked(engine, "GET", "/openapi.json").json()


@pytest.mark.slow
def test_every_answer_is_one_that_is_described(engine, app_of):
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

    app, asked = app_of(engine, allowed_hosts=("testserver",)), set()
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


@pytest.mark.slow
def test_the_description_says_that_a_token_is_needed(engine, asked, said):
    ask = (engine, "GET", "/openapi.json", {"token": TOKEN})
    with_token = asked(*ask, headers={"authorization": f"Bearer {TOKEN}"}).json()
    assert with_token["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    assert with_token["paths"]["/v1/search"]["post"]["security"] == [{"HTTPBearer": []}]
    assert "error" in asked(*ask).json()
    assert "securitySchemes" not in said["components"]


def test_every_route_argument_and_error_is_described(said):
    routes = [(path, method) for path, one in said["paths"].items() for method in one]
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


def test_examples_in_python_are_not_part_of_the_description(said):
    assert ">>> " in SearchResult.__doc__
    about = said["components"]["schemas"]["SearchResult"]["description"]
    assert about == SearchResult.__doc__.partition("\n\n    Examples:")[0].replace("\n    ", "\n")
    assert ">>> " not in json.dumps(said)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/search", SearchParams),
        ("/v1/documents", BrowseParams),
        ("/v1/documents/{reference}", GetParams),
    ],
)
def test_a_query_string_takes_every_parameter_of_its_verb(said, path, kind):
    names = [one["name"] for one in said["paths"][path]["get"]["parameters"]]
    assert names == [field.name for field in edge_fields(kind)]


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/docs/oauth2-redirect"])
def test_no_page_loads_scripts_from_elsewhere(engine, asked, path):
    assert asked(engine, "GET", path).status_code == 404
