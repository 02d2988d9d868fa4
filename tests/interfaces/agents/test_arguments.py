"""Arguments as models write them: what is meant beyond doubt is taken, anything else refused."""

import pytest

from catalog.core.filters import parse_filters
from catalog.interfaces.tools import TOOLS
from tables import table


class Asked:
    """An engine that keeps what it was asked and finds nothing."""

    def __init__(self):
        self.asked = []

    def ask(self, verb, arguments):
        self.asked.append(dict(arguments))
        common = {"dataset": "d", "datasets": ["d"], "elapsed_ms": 1.5, "notes": [], "query": "q"}
        found = {"mode": "hybrid", "results": [], "stages": [], "low_confidence": True}
        return common | {
            "search": found | {"confidence": 0.0, "agent": None},
            "browse": {"entries": [], "total": 0, "offset": 0, "types": {}},
            "multi_get": {"documents": [], "skipped": [], "notes": []},
        }.get(verb, {})


def call(tool, /, **arguments):
    """The answer, and what the engine was asked first."""
    engine = Asked()
    answer = TOOLS[tool].call(engine, arguments)
    return answer, engine.asked[0] if engine.asked else None


def case(tool, /, *, asked, notes=(), **given):
    return pytest.param(tool, given, asked, list(notes), id=f"{tool}-{str(given)[:60]}")


KEYS = {"query": "keys"}
ANY = {"query": "keys", "mode": "lexical"}
CLAMPED = "top_k {} is out of range, so {} was used".format


@pytest.mark.parametrize(
    ("tool", "given", "asked", "notes"),
    [
        case("search", query="keys", file_type="", name=" ", dataset=None, top_k=None, asked=ANY),
        case("search", query="keys", docs=[], asked=ANY | {"docs": []}),
        case("search", query="keys", docs=["a.md", ""], asked=ANY | {"docs": ["a.md"]}),
        case("search", query="keys", filters="tag=ops", asked=ANY | {"filters": ["tag=ops"]}),
        case("search", query="5", dataset="2024", name="7", docs="8",
             asked=ANY | {"query": "5", "dataset": ["2024"], "name": "7", "docs": ["8"]}),
        case("search_chunks", query="keys", docs='["a.md", "b.md"]', dataset="d, e",
             asked=KEYS | {"docs": ["a.md", "b.md"], "dataset": ["d", "e"]}),
        case("search_chunks", query="keys", filters={"tag": "ops"}, docs="[draft].md",
             asked=KEYS | {"filters": {"tag": "ops"}, "docs": ["[draft].md"]}),
        case("search_chunks", q="keys", limit=3, path="a.md", fileType="md",
             asked=KEYS | {"top_k": 3, "docs": ["a.md"], "file_type": "md"},
             notes=["q was read as query, limit was read as top_k, path was read as docs, "
                    "fileType was read as file_type_filter"]),
        case("vsearch", query="keys", asked=KEYS | {"mode": "vector"}),
        case("query", query="keys", asked=KEYS | {"mode": "hybrid", "rerank": True}),
        case("query", query="keys", rerank="false", expand="yes",
             asked=KEYS | {"mode": "hybrid", "rerank": False, "expand": True}),
        case("query_catalog", tags=["ops", ""], asked={"tags": ["ops"]}),
        case("query_catalog", tags="ops, security", asked={"tags": ["ops, security"]}),
        case("multi_get", patterns="*.md", asked={"patterns": ["*.md"]}),
        *(case("search_chunks", query="keys", top_k=given, asked=KEYS | {"top_k": taken},
               notes=notes)
          for given, taken, notes in [
            (5.0, 5, []), ("5", 5, []), (" +5.0 ", 5, []), (50, 50, []),
            ("51", 50, [CLAMPED(51, 50)]), (0, 1, [CLAMPED(0, 1)]), (-3.0, 1, [CLAMPED(-3, 1)]),
            ("9" * 19, 50, [CLAMPED("of that size", 50)]),
            (10**300, 50, [CLAMPED("of that size", 50)]),
          ]),
    ],
)  # fmt: skip
def test_what_is_meant_beyond_doubt_is_taken(tool, given, asked, notes):
    answer, told = call(tool, **given)
    assert not answer.is_error, answer.text
    assert told == asked
    assert answer.data["notes"] == notes
    assert all(f"note: {note}\n" in answer.text for note in notes)


FILTERS = ['{"tag": "ops", "page": {">=": 3}}', '[{"tag": "ops"}, {"page": {">=": 3}}]',
           [{"tag": "ops"}, {"page": {">=": 3}}], ["tag=ops", {"page": {">=": 3}}],
           [{"field": "tag", "op": "=", "value": "ops"},
            {"key": "page", "operator": ">=", "value": 3}]]  # fmt: skip


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_filters_may_be_json_text_or_a_list_of_objects(filters):
    _, told = call("search_chunks", query="keys", filters=filters)
    assert parse_filters(told["filters"]) == parse_filters(["tag=ops", "page>=3"])


@table("tool, given, said")
def test_what_is_wrong_is_named_and_the_engine_is_not_asked(tool, given, said):
    answer, told = call(tool, **given)
    assert answer.is_error
    assert said in answer.text
    assert told is None


def test_a_tool_requires_what_its_verb_does_and_describes_every_argument():
    schemas = {name: tool.input_schema() for name, tool in TOOLS.items()}
    assert {name: one["required"] for name, one in schemas.items() if one.get("required")} == {
        **{name: ["query"] for name in ("search_chunks", "search", "vsearch", "query")},
        "get": ["reference"], "multi_get": ["patterns"], "ask": ["question"],
    }  # fmt: skip
    for schema in schemas.values():
        assert schema["additionalProperties"] is False
        assert all(one["description"] for one in schema["properties"].values())
        assert not any("anyOf" in one or "title" in one for one in schema["properties"].values())
