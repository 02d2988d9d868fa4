"""Golden files: what is read, what is refused and where, and the set that is shipped."""

import json
import pydoc_data.topics
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.errors import GoldenSetError
from catalog.evaluation.golden import DIFFICULTIES, KINDS, Expected, GoldenQuery, GoldenSet, Span
from catalog.evaluation.golden_files import parse_rows, read_golden
from tables import table

TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

SHIPPED = Path(__file__).parents[2] / "golden_queries" / "python-docs.jsonl"


def line(**fields):
    return json.dumps({"id": "q1", "query": "why", **fields})


def problem(**fields):
    """The only thing wrong with a query of these fields."""
    queries, problems = parse_rows([line(**fields)])
    assert queries == []
    (one,) = problems
    return one.removeprefix("line 1: ")


# one query


def test_a_query_is_read_with_everything_it_says():
    (query,), problems = parse_rows(
        [
            line(
                difficulty="hard",
                kind="filtered",
                expected=[{"path": "a.md", "grade": 3, "span": "the words"}, {"path": "b.md"}],
                filters={"tag": "ops"},
                note="in passing",
            )
        ]
    )
    assert problems == []
    assert (query.id, query.query, query.difficulty, query.kind) == (
        "q1",
        "why",
        "hard",
        "filtered",
    )
    assert query.expected == (
        Expected(path="a.md", grade=3, span=Span(text="the words")),
        Expected(path="b.md", grade=1),
    )
    assert (query.filters, query.note) == ({"tag": "ops"}, "in passing")


@table("short, long", inner=list)
def test_the_short_forms_of_a_span_mean_the_long_ones(short, long):
    assert Span.model_validate(short) == Span.model_validate(long)


@pytest.mark.parametrize("span", TABLES["a span that is no place is refused"])
def test_a_span_that_is_no_place_is_refused(span):
    assert "expected.0.span" in problem(expected=[{"path": "a", "span": span}])


@pytest.mark.parametrize(
    ("fields", "reason"), TABLES["a query that contradicts itself is refused saying how"]
)
def test_a_query_that_contradicts_itself_is_refused_saying_how(fields, reason):
    assert reason in problem(**fields)
    assert "query" in problem(query="\ud800")  # which TOML cannot hold


@pytest.mark.parametrize(
    ("fields", "told"), TABLES["a bad line says what is wrong with which key and what is expected"]
)
def test_a_bad_line_says_what_is_wrong_with_which_key_and_what_is_expected(fields, told):
    assert problem(**fields) == told


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ("[]", "must be an object, not []"),
        ('{"id": "q1", ', "not JSON: Expecting property name enclosed in double quotes"),
        ("q1 why", "not JSON: Expecting value (character 1)"),
        ("[" * 100_000, "not JSON: nested too deeply"),
    ],
)
def test_a_line_that_is_no_object_says_so(bad, told):
    _, (problem,) = parse_rows([bad])
    assert problem.startswith(f"line 1: {told}")


# files


def test_a_file_full_of_bad_lines_names_twenty_and_counts_the_rest(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text("x\n" * 23)
    with pytest.raises(GoldenSetError) as raised:
        read_golden(path)
    assert "line 20:" in str(raised.value)
    assert "line 21:" not in str(raised.value)
    assert str(raised.value).endswith("and 3 more")


@pytest.mark.parametrize(
    "bad", ["[" * 100_000, '{"id": "q1", "query": "x", "n": ' + "1" * 5000 + "}"]
)
def test_a_line_too_deep_or_long_for_the_reader_is_reported_like_any_problem(bad):
    queries, problems = parse_rows([line(), bad])
    assert [one.id for one in queries] == ["q1"]
    assert len(problems) == 1
    assert problems[0].startswith("line 2: ")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
near_queries = st.fixed_dictionaries(
    {"id": st.text(max_size=5), "query": st.text(max_size=5)},
    optional={
        "expected": json_values | st.lists(st.fixed_dictionaries({"path": st.text(max_size=3)})),
        "filters": json_values,
        "kind": st.sampled_from(KINDS) | json_values,
    },
)


@pytest.mark.slow
@given(st.lists(st.text() | json_values.map(json.dumps) | near_queries.map(json.dumps), max_size=4))
def test_any_line_is_a_query_or_a_problem(lines):
    queries, problems = parse_rows(lines)
    asked = [one for one in lines if one.strip()]
    repeated = [one for one in problems if "occurs in line" in one]
    assert len(queries) + len(problems) - len(repeated) == len(asked)


@given(near_queries)
def test_a_query_that_is_accepted_can_be_written_and_read_again(fields):
    queries, _ = parse_rows([json.dumps(fields)])
    for query in queries:
        again, problems = parse_rows([query.model_dump_json(exclude_defaults=True)])
        assert (again, problems) == ([query], [])


def test_a_file_of_windows_with_a_mark_and_odd_separators_is_read(tmp_path):
    path = tmp_path / "odd.jsonl"
    text = json.dumps({"id": "q1", "query": "one\u2028line"}, ensure_ascii=False)
    path.write_bytes(b"\xef\xbb\xbf" + f"{text}\r\n\r\n{line(id='q2')}\r\n".encode())
    found = read_golden(path)
    assert [(one.id, one.query) for one in found] == [("q1", "one\u2028line"), ("q2", "why")]
    assert found.name == "odd"


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "has no query"), (b"\n \n", "has no query"), (b"\xff\xfe", "not UTF-8")],
)
def test_a_file_without_queries_or_of_other_bytes_is_refused(tmp_path, content, reason):
    path = tmp_path / "set.jsonl"
    path.write_bytes(content)
    with pytest.raises(GoldenSetError, match=reason):
        read_golden(path)


def test_a_file_that_cannot_be_opened_is_refused_by_name(tmp_path):
    for path in (tmp_path / "absent.jsonl", tmp_path):
        with pytest.raises(GoldenSetError, match=f"cannot read {path}"):
            read_golden(path)


# sets


def test_a_set_parts_the_answerable_from_the_rest_whatever_their_kind_is_called():
    answered = GoldenQuery(id="a", query="x", expected=(Expected(path="p"),))
    graded_zero = GoldenQuery(id="b", query="x", expected=(Expected(path="p", grade=0),))
    unlabelled = GoldenQuery(id="c", query="x")
    found = GoldenSet("set", (graded_zero, answered, unlabelled))
    assert len(found) == 3
    assert found.answerable == (answered,)
    assert found.unanswerable == (graded_zero, unlabelled)


def test_the_digest_changes_with_every_query_label_and_filter_and_with_nothing_else():
    def digest(name="set", **fields):
        given_ = {"id": "q", "query": "x", "expected": [{"path": "a", "grade": 2}]} | fields
        return GoldenSet(name, (GoldenQuery.model_validate(given_),)).digest

    changes = [
        {}, {"query": "y"}, {"expected": [{"path": "a", "grade": 1}]},
        {"expected": [{"path": "b", "grade": 2}]}, {"filters": ["tag=ops"]},
    ]  # fmt: skip
    assert len({digest(**one) for one in changes}) == len(changes)
    assert digest(name="renamed") == digest()


# the shipped set


@pytest.fixture(scope="module")
def shipped():
    return read_golden(SHIPPED)


def test_the_shipped_set_is_large_enough_and_of_every_difficulty_and_kind(shipped):
    assert len(shipped) >= 200
    assert len(shipped.unanswerable) >= 30
    assert {one.difficulty for one in shipped} == set(DIFFICULTIES)
    assert {one.kind for one in shipped} == set(KINDS)
    assert {one.kind for one in shipped.unanswerable} == {"unanswerable"}


def test_the_shipped_set_asks_nothing_twice(shipped):
    assert len({one.id for one in shipped}) == len(shipped)
    assert len({(one.query.casefold(), str(one.filters)) for one in shipped}) == len(shipped)


def headings(topics):
    """Names of topics, and lines that are underlined or stand first, casefolded."""
    yield from (name.casefold() for name in topics)
    for text in topics.values():
        lines = text.splitlines()
        yield lines[0].strip().casefold()
        for title, under in pairwise(lines):
            if len(under) >= 3 and set(under) <= set("*=-~^#") and len(set(under)) == 1:
                yield title.strip().casefold()


of_this_python = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11),
    reason="the shipped labels are of the topics of Python 3.11; this one's differ",
)


@of_this_python
def test_no_query_of_the_shipped_set_is_a_heading_of_its_corpus(shipped):
    known = set(headings(pydoc_data.topics.topics))
    assert {'the "assert" statement', "boolean operations"} <= known
    assert [one.id for one in shipped if one.query.strip().casefold() in known] == []


@of_this_python
def test_every_label_of_the_shipped_set_stands_in_the_topics_of_python(shipped):
    topics = {f"{name}.rst": text for name, text in pydoc_data.topics.topics.items()}
    labels = [(query.id, one) for query in shipped for one in query.expected]
    assert [(id_, one.path) for id_, one in labels if one.path not in topics] == []
    spans = [(id_, one.path, one.span.text) for id_, one in labels if one.span is not None]
    assert len(spans) >= 200
    assert [span for span in spans if span[2] is None or span[2] not in topics[span[1]]] == []


# labels of answers


def test_labels_of_answers_are_read_and_do_not_count_as_labels_of_searches():
    nuggets = [{"text": "14 days"}, {"text": "in writing", "importance": "okay"}]
    query = GoldenQuery.model_validate_json(line(answer="Within 14 days.", nuggets=nuggets))
    assert [one.importance for one in query.nuggets] == ["vital", "okay"]
    assert (query.has_answer, query.is_answerable) == (True, False)
    assert not GoldenQuery.model_validate_json(line(answerable=False)).has_answer


def test_a_set_without_labels_of_answers_keeps_its_hash():
    queries = (GoldenQuery(id="q1", query="why"),)
    assert GoldenSet("a", queries).digest == (
        "11c0ec13173332a0326a0f745b2752f706571391732f6eaf4d12013f55bcba00"
    )


@table("fields")
def test_a_question_is_not_answerable_and_unanswerable(fields):
    assert "labels say the opposite" in problem(**fields)
