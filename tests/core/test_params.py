"""What Python callers may give a verb: the types and bounds that its parameters say."""

import pytest

from catalog.core.errors import InputError
from catalog.core.param_fields import check_params, read_params
from catalog.core.params import BrowseParams, GetParams, SearchParams


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (SearchParams(5), "query must be text, not 5"),
        (SearchParams(None), "query must be text, not None"),
        (SearchParams("q", dataset=5), "dataset must be text or a list of texts, not 5"),
        (SearchParams("q", dataset=["a", 5]), "dataset must be text or a list of texts, not"),
        (SearchParams("q", docs="a.md"), "docs must be a list of texts, not 'a.md'"),
        (SearchParams("q", docs=5), "docs must be a list of texts, not 5"),
        (SearchParams("q", doc_ids=[5]), r"doc_ids must be a list of texts, not \[5\]"),
        (SearchParams("q", rerank="false"), "rerank must be true or false, not 'false'"),
        (SearchParams("q", strict=1), "strict must be true or false, not 1"),
        (SearchParams("q", top_k=0), "top_k must be a whole number from 1 to 1000, not 0"),
        (SearchParams("q", top_k=True), "top_k must be a whole number from 1 to 1000, not True"),
        (BrowseParams(tags=["t"] * 51), "tags must be a list of at most 50 texts"),
        (BrowseParams(offset=-1), "offset must be a whole number from 0 to 10000000, not -1"),
        (GetParams("a.md", line_start=0), "line_start must be a whole number from 1, not 0"),
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


@pytest.mark.parametrize(("given", "taken"), [("5", 5), (5.0, 5), (" 5.00 ", 5)])
def test_whole_numbers_in_json_may_be_text(given, taken):
    read = read_params(SearchParams, {"query": "7", "limit": given, "explain": "true"}, "search")
    assert (read.query, read.top_k, read.explain) == ("7", taken, True)


@pytest.mark.parametrize("given", ["5.5", "five", "", "1e3", 5.5, True])
def test_a_value_in_json_that_is_not_a_whole_number_is_refused(given):
    with pytest.raises(InputError, match="top_k"):
        read_params(SearchParams, {"query": "x", "top_k": given}, "search")
