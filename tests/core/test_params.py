"""What Python callers may give a verb: the types and bounds that its parameters say."""

import pytest

from catalog.core.arguments import check_params, read_params
from catalog.core.errors import InputError
from catalog.core.params import BrowseParams, GetParams, SearchParams


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
