"""Suites are read whole or refused with every fault named."""

import pytest

from catalog.core.errors import GoldenSetError
from catalog.evaluation.validation.suite import read_suite

GOOD = """
name = "keys"
[[query]]
id = "rotate"
kind = "general"
query = "how are keys rotated"
expected = [{ path = "keys.md" }, "section~Rotating"]
"""


@pytest.fixture
def read(tmp_path):
    """Reads a suite of this text."""

    def read_text(text):
        path = tmp_path / "suite.toml"
        path.write_text(text, encoding="utf-8")
        return read_suite(path)

    return read_text


def query(**fields):
    given = {"id": '"one"', "kind": '"general"', "query": '"keys"', "expected": '["path=a.md"]'}
    lines = (f"{name} = {value}" for name, value in (given | fields).items() if value)
    return "\n".join(("[[query]]", *lines, ""))


def test_a_suite_has_its_questions_sources_and_usual_limits(read):
    suite = read(GOOD)
    assert (suite.name, suite.repeats, suite.top_k, suite.score) == ("keys", 3, None, "relevance")
    assert (suite.limits.queries, suite.limits.stable) == (0.9, 1.0)
    (one,) = suite.query
    assert [str(source.field) for source in one.sources] == ["path", "section"]
    assert one.is_answerable


def test_a_suite_without_a_name_has_its_files(read):
    assert read(query()).name == "suite"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (query(kind='"easy"'), "query one: kind: Input should be 'general', 'technical', "),
        (query(expected=None), "query one: expected has no source: name one, or call"),
        (query(kind='"non-existent"'), "query one: a non-existent query must not expect a source"),
        (query(kind='"filtered"'), "query one: a filtered query needs filters"),
        (query(query='"  "'), "query one: the query is blank"),
        (
            query(expected='["path"]'),
            "query one: expected: 'path' is not a condition such as field=value",
        ),
        (
            query(expected='["path=|"]', filters='["page?3"]'),
            "filters: 'page?3' is not a condition",
        ),
        (query(expected='"path=a.md"'), "query one: expected: must be a list of sources"),
        (query(filters="{ page = { near = 3 } }"), "query one: filters: unknown filter operator"),
        (query(threshold="1.5"), "query one: threshold: Input should be less than or equal to 1"),
        (query(limit="3"), "query one: limit: unknown key; keys: id, kind"),
        (query(filter="3"), "query one: filter: unknown key; did you mean filters?"),
        (query(id=None), "query 1: id: Field required"),
        (query() + query(), "id 'one' occurs twice"),
        ("name = 'none'\n", "the suite has no query"),
        ("query = 3\n", "write a query as [[query]]"),
        ("query = [3]\n", "query 1: Input should be a valid dictionary"),
        ("mode = 'lexical'\nscore = 'cosine'\n" + query(), "a lexical search has no cosine"),
        ("score = 'cosine'\n" + query(), "each model has other cosines: set a thres"),
        ("[limits]\nprecision = 2\n" + query(), "limits.precision: Input should be less than"),
        ("repeats = 1\n" + query(), "repeats: Input should be greater than or equal to 2"),
        ("[[query", "is not TOML"),
    ],
)
def test_a_suite_that_cannot_be_held_to_is_refused_with_the_reason(read, text, reason):
    with pytest.raises(GoldenSetError) as refused:
        read(text)
    assert reason in str(refused.value)


def test_every_bad_query_is_named_at_once(read):
    with pytest.raises(GoldenSetError) as refused:
        read(query(id='"first"', kind='"odd"') + query(id='"second"', expected=None))
    assert "2 bad queries" in str(refused.value)
    assert all(name in str(refused.value) for name in ("query first", "query second"))


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path):
    with pytest.raises(GoldenSetError, match="cannot read"):
        read_suite(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(GoldenSetError, match="not UTF-8"):
        read_suite(tmp_path / "bytes.toml")
