"""Names of arguments: what is meant beyond doubt is taken and told, anything else refused."""

import pytest

from catalog.core.arguments import describe_unknown, read_params, rename_arguments
from catalog.core.errors import InputError
from catalog.core.params import SearchParams, edge_fields
from catalog.interfaces.calls import VERBS

NAMES = {"top_k": ("limit", "k"), "query": ("q",), "docs": ("path", "paths")}


@pytest.mark.parametrize("given", ["limit", "k", "topK", "top-k", "TOP_K", "topk", "Limit"])
def test_another_usual_name_or_spelling_is_taken_and_told(given):
    assert rename_arguments({given: 3}, NAMES) == (
        {"top_k": 3},
        [f"{given} was read as top_k"],
    )


def test_an_arguments_own_name_needs_no_note_and_an_unknown_one_stays():
    assert rename_arguments({"top_k": 3, "xyz": None}, NAMES) == (
        {"top_k": 3, "xyz": None},
        [],
    )


def test_two_names_of_one_argument_are_refused_unless_one_is_null():
    with pytest.raises(InputError, match="top_k"):
        rename_arguments({"limit": 3, "top_k": 4}, NAMES)
    with pytest.raises(InputError, match="path and docs are the same"):
        rename_arguments({"paths": ["a"], "path": "b"}, NAMES)
    assert rename_arguments({"limit": None, "top_k": 4}, NAMES)[0] == {"top_k": 4}


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("tpo_k", "; did you mean top_k? "),
        ("limt", "; did you mean top_k? "),
        ("pathes", "; did you mean docs? "),
        ("zzz", "; "),
    ],
)
def test_the_nearest_name_of_an_unknown_one_is_reported(given, hint):
    expected = f"there is no argument {given!r}{hint}arguments: top_k, query, docs"
    assert describe_unknown(given, NAMES) == expected


def test_no_name_stands_for_two_parameters_of_a_verb():
    for verb in VERBS.values():
        fields = edge_fields(verb.params)
        own = {field.name for field in fields}
        aliases = [alias for field in fields for alias in field.aliases if alias not in own]
        assert len(set(aliases)) == len(aliases), verb.name


def test_json_arguments_of_a_verb_take_the_names():
    taken = read_params(SearchParams, {"q": "keys", "limit": 3, "path": ["a.md"]}, "search")
    assert taken == SearchParams("keys", top_k=3, docs=["a.md"])
