"""Arguments: what is meant beyond doubt is taken and told, anything else refused."""

import pytest

from catalog.core.arguments import check_params, describe_unknown, read_params, rename_arguments
from catalog.core.errors import InputError
from catalog.core.params import BrowseParams, GetParams, SearchParams, edge_fields
from catalog.interfaces.calls import VERBS
from tables import table

NAMES = {"top_k": ("limit", "k"), "query": ("q",), "docs": ("path", "paths")}


@pytest.mark.parametrize("given", ["limit", "k", "topK", "top-k", "TOP_K", "topk", "Limit"])
def test_another_usual_name_or_spelling_is_taken_and_told(given):
    assert rename_arguments({given: 3}, NAMES) == ({"top_k": 3}, [f"{given} was read as top_k"])


def test_an_arguments_own_name_needs_no_note_and_an_unknown_one_stays():
    assert rename_arguments({"top_k": 3, "xyz": None}, NAMES) == ({"top_k": 3, "xyz": None}, [])


def test_two_names_of_one_argument_are_refused_unless_one_is_null():
    with pytest.raises(InputError, match="top_k"):
        rename_arguments({"limit": 3, "top_k": 4}, NAMES)
    with pytest.raises(InputError, match="path and docs are the same"):
        rename_arguments({"paths": ["a"], "path": "b"}, NAMES)
    assert rename_arguments({"limit": None, "top_k": 4}, NAMES)[0] == {"top_k": 4}


@table("given, hint")
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


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (SearchParams(5), "query .*valid string, not 5"),
        (SearchParams(None), "query .*valid string, not None"),
        (SearchParams("q", dataset=5), "dataset .*valid string or a valid list, not 5"),
        (SearchParams("q", dataset=["a", 5]), "dataset .*valid string"),
        (SearchParams("q", docs="a.md"), "docs .*valid list, not 'a.md'"),
        (SearchParams("q", doc_ids=[5]), "doc_ids .*valid string, not 5"),
        (SearchParams("q", rerank="false"), "rerank .*valid boolean, not 'false'"),
        (SearchParams("q", strict=1), "strict .*valid boolean, not 1"),
        (SearchParams("q", top_k=0), "top_k must be at least 1, not 0"),
        (SearchParams("q", top_k=1001), "top_k must be at most 1000, not 1001"),
        (SearchParams("q", top_k=True), "top_k .*valid integer, not True"),
        (BrowseParams(tags=["t"] * 51), "tags: .* at most 50 items"),
        (GetParams("a.md", line_start=0), "line_start must be at least 1, not 0"),
    ],
)
def test_a_wrong_type_or_bound_is_named(params, message):
    with pytest.raises(InputError, match=f"^{message}"):
        check_params(params)


def test_any_iterable_of_texts_is_a_list_and_none_is_the_default():
    ids = (name for name in ["a.md"])
    check_params(SearchParams("q", docs=("a.md",), doc_ids=ids, rerank=None, top_k=1000))
    assert list(ids) == ["a.md"]  # not read by the check
    check_params(BrowseParams(tags={"t"}, offset=0))
    check_params(GetParams("a.md", line_start=None, line_end=10**9))


@pytest.mark.parametrize("given", ["5", "five", "", 5.5, True])
def test_a_value_in_json_that_is_not_a_whole_number_is_refused(given):
    with pytest.raises(InputError, match="top_k"):
        read_params(SearchParams, {"query": "x", "top_k": given}, "search")
