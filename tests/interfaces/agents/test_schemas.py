"""Schemas made simple to check allow and forbid what they did before."""

import pytest
from jsonschema import Draft202012Validator

from catalog.interfaces.agents import AGENT_TOOLS
from catalog.interfaces.agents.tool import simplify_schema

SCHEMA = {
    "$defs": {
        "Place": {
            "title": "Place",
            "type": "object",
            "properties": {
                "title": {"type": "string"},
                "lines": {
                    "anyOf": [
                        {"type": "array", "items": {"type": "integer"}, "minItems": 2},
                        {"type": "null"},
                    ]
                },
            },
            "required": ["title"],
            "additionalProperties": False,
        }
    },
    "type": "object",
    "properties": {
        "name": {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "Name"},
        "mode": {"anyOf": [{"enum": ["a", "b"], "type": "string"}, {"type": "null"}]},
        "place": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}]},
        "places": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
    },
}
VALUES = [
    {},
    {"name": "x"},
    {"name": None},
    {"name": 3},
    {"mode": "a"},
    {"mode": "c"},
    {"mode": None},
    {"place": None},
    {"place": {"title": "t"}},
    {"place": {}},
    {"place": {"title": "t", "lines": [1, 2]}},
    {"place": {"title": "t", "lines": [1]}},
    {"place": {"title": "t", "lines": None}},
    {"place": {"title": "t", "more": 1}},
    {"places": [{"title": "t"}]},
    {"places": [{"title": 1}]},
]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_a_simple_schema_decides_as_the_one_it_is_made_of(value):
    simple = Draft202012Validator(simplify_schema(SCHEMA))
    assert simple.is_valid(value) == Draft202012Validator(SCHEMA).is_valid(value)


def test_a_field_may_be_called_title_and_nothing_is_referred_to():
    simple = simplify_schema(SCHEMA)
    assert "$defs" not in simple
    assert "$ref" not in str(simple)
    assert simple["properties"]["name"] == {"type": ["string", "null"]}
    assert set(simple["properties"]["places"]["items"]["properties"]) == {"title", "lines"}


@pytest.mark.parametrize("name", AGENT_TOOLS)
def test_the_published_schemas_are_simple_ones(name):
    assert "$ref" not in str(AGENT_TOOLS[name].output_schema())
