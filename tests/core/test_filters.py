"""Reading filters from every form, and what each condition means."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from catalog.core.dates import read_bound
from catalog.core.errors import FilterError, UnknownFieldError
from catalog.core.filters import (
    MAX_CONDITIONS,
    And,
    Condition,
    Not,
    Op,
    Or,
    check_fields,
    comparable_number,
    condition,
    filter_fields,
    matches,
    parse_expression,
    parse_filters,
)


def holds(op: Op, value: object, *values: object) -> bool:
    return matches(condition("f", op, value), lambda _: values)


@pytest.mark.parametrize(
    ("op", "asked", "values", "answer"),
    [
        (Op.EQ, "ops", ("ops",), True),
        (Op.EQ, "ops", ("dev", "ops"), True),
        (Op.EQ, "ops", (), False),
        (Op.EQ, "Ops", ("ops",), False),
        (Op.EQ, 3, (3.0,), True),
        (Op.EQ, 3, ("3",), False),
        (Op.EQ, 1, (True,), False),
        (Op.EQ, True, ("true",), False),
        (Op.EQ, 2**53 + 1, (2**53,), True),  # 64-bit floats, everywhere
        (Op.EQ, 10**400, (10**500,), True),  # both infinite
        (Op.EQ, 10**400, (-(10**400),), False),
        (Op.LT, -1e308, (-(10**400),), True),
        (Op.CONTAINS, "ops", ("dev", "ops"), True),
        (Op.NE, "ops", (), True),
        (Op.NE, "ops", ("dev",), True),
        (Op.NE, "ops", ("dev", "ops"), False),
        (Op.IN, ["a", "b"], ("b", "c"), True),
        (Op.IN, [], ("b",), False),
        (Op.ANY, [], (), False),
        (Op.NIN, [], (), True),
        (Op.NIN, ["a"], (), True),
        (Op.NIN, ["a"], ("a", "b"), False),
        (Op.ALL, ["a", "b"], ("b", "a", "c"), True),
        (Op.ALL, ["a", "b"], ("a",), False),
        (Op.ALL, [], (), True),
        (Op.IS_EMPTY, None, (), True),
        (Op.IS_EMPTY, None, ("",), False),
        (Op.GT, 3, (2, 4), True),
        (Op.GT, 3, (2,), False),
        (Op.GT, 3, (3,), False),
        (Op.GTE, 3, (2,), False),
        (Op.GTE, 3, (3.0,), True),
        (Op.GTE, 3, (4,), True),
        (Op.LT, 3, (2, 4), True),
        (Op.LT, 3, (3.0,), False),
        (Op.LT, 3, (4,), False),
        (Op.LT, 3, ("2",), False),
        (Op.LT, 3, (), False),
        (Op.LTE, 3, (2,), True),
        (Op.LTE, 3, (3.0,), True),
        (Op.LTE, 3, (4,), False),
        (Op.LTE, "2024-05", ("2024-04-30",), True),
        (Op.GT, "Z", ("a",), True),  # by code point
        (Op.GT, 0, (True,), False),
        (Op.TEXT_MATCH, "eye", ("keyed",), True),
        (Op.TEXT_MATCH, "EYE", ("keyed",), False),
        (Op.TEXT_MATCH, "3", (3,), False),
        (Op.TEXT_MATCH, "", ("",), True),
        (Op.TEXT_MATCH_INSENSITIVE, "STRASSE", ("Hauptstraße",), True),
    ],
)
def test_a_condition_means(op: Op, asked: object, values: tuple[object, ...], answer: bool):
    assert holds(op, asked, *values) is answer


@given(st.lists(st.sampled_from([0, 1, True, False, "1", "", 0.0, "a"]), max_size=3))
def test_ne_is_exactly_not_eq_and_nin_exactly_not_in(values):
    for asked in (0, 1, True, "1", "a"):
        assert holds(Op.NE, asked, *values) is not holds(Op.EQ, asked, *values)
        assert holds(Op.NIN, [asked, "b"], *values) is not holds(Op.IN, [asked, "b"], *values)


def test_connectives_of_nothing():
    nobody = lambda _: ()  # noqa: E731
    assert matches(And(()), nobody)
    assert not matches(Or(()), nobody)
    assert matches(Not(Or(())), nobody)


def test_equality_never_crosses_types():
    values = ["1", 1, True, "true", "True", ""]
    for left in values:
        for right in values:
            assert holds(Op.EQ, left, right) is (left is right)


def test_there_is_one_zero():
    assert [str(comparable_number(zero)) for zero in (0, 0.0, -0.0)] == ["0.0"] * 3


def test_none_is_no_restriction_and_an_empty_filter_holds_always():
    assert parse_filters(None) is None
    for nothing in ({}, [], MetadataFilters(filters=[])):
        assert parse_filters(nothing) == And(())


def test_a_mapping_is_anded_with_lists_as_alternatives():
    assert parse_filters({"tag": "ops", "path": ["a.md", "b.md"], "page": {">=": 3, "<": 9}}) == (
        And(
            (
                Condition("tags", Op.EQ, "ops"),
                Condition("path", Op.IN, ("a.md", "b.md")),
                And((Condition("page", Op.GTE, 3), Condition("page", Op.LT, 9))),
            )
        )
    )
    assert parse_filters({"tag": []}) == Condition("tags", Op.IN, ())
    assert parse_filters({"x": {FilterOperator.NE: 1}}) == Condition("x", Op.NE, 1)


def test_llama_index_filters_nest():
    tree = parse_filters(
        MetadataFilters(
            condition=FilterCondition.OR,
            filters=[
                MetadataFilter(key="tags", value=["a"], operator=FilterOperator.ALL),
                MetadataFilters(
                    condition=FilterCondition.NOT,
                    filters=[MetadataFilter(key="page", value=3, operator=FilterOperator.LT)],
                ),
            ],
        )
    )
    assert tree == Or((Condition("tags", Op.ALL, ("a",)), Not(Or((Condition("page", Op.LT, 3),)))))
    assert parse_filters(MetadataFilter(key="a", value=1)) == Condition("a", Op.EQ, 1)


def test_llama_index_filters_without_a_condition_are_not_dropped():
    one = MetadataFilter(key="a", value=1)
    assert parse_filters(MetadataFilters(filters=[one], condition=None)) == Condition("a", Op.EQ, 1)


@pytest.mark.parametrize("name", ["all", "nand", "xor"])
def test_an_unknown_connective_is_refused(name: str):
    one = MetadataFilter(key="a", value=1)
    with pytest.raises(FilterError, match=f"condition '{name}'"):
        parse_filters(SimpleNamespace(filters=[one], condition=name))


@pytest.mark.parametrize("operator", list(FilterOperator))
def test_every_llama_index_operator_is_known(operator: FilterOperator):
    value: object = ["a"] if operator in ("in", "nin", "any", "all") else "a"
    tree = parse_filters(MetadataFilters(filters=[MetadataFilter.model_construct(
        key="k", value=value, operator=operator)]))  # fmt: skip
    assert isinstance(tree, Condition)
    assert tree.op == operator.value


@pytest.mark.parametrize(
    ("text", "field", "op", "value"),
    [
        ("tag=ops", "tags", Op.EQ, "ops"),
        ("tag == ops", "tags", Op.EQ, "ops"),
        ("tag!=ops", "tags", Op.NE, "ops"),
        ("page>=3", "page", Op.GTE, 3),
        ("page<3.5", "page", Op.LT, 3.5),
        ("year>-1e3", "year", Op.GT, -1000.0),
        ("draft=true", "draft", Op.EQ, True),
        ("draft=false", "draft", Op.EQ, False),
        ('draft="true"', "draft", Op.EQ, "true"),
        ("title~two words", "title", Op.TEXT_MATCH_INSENSITIVE, "two words"),
        ('title~"two  "', "title", Op.TEXT_MATCH_INSENSITIVE, "two  "),
        ("tag=a|b", "tags", Op.IN, ("a", "b")),
        ("tag!=a|b", "tags", Op.NIN, ("a", "b")),
        ('tag="a|b"', "tags", Op.EQ, "a|b"),
        ('year="1|2"|3', "year", Op.IN, ("1|2", 3)),
        ("url=https://x/?a=b&c>d", "url", Op.EQ, "https://x/?a=b&c>d"),
        ("note=", "note", Op.EQ, ""),
        ('note=""', "note", Op.EQ, ""),
        ('note="open', "note", Op.EQ, '"open'),
        ('note=shut"', "note", Op.EQ, 'shut"'),
        ("note=!now!", "note", Op.EQ, "!now!"),
        ('note="', "note", Op.EQ, '"'),
        # fields whose values are text keep it, whatever it looks like
        ("docid=12345678", "docid", Op.EQ, "12345678"),
        ("path=2024", "path", Op.EQ, "2024"),
        ("created>=2024", "created", Op.GTE, "2024"),
        ("title=true", "title", Op.EQ, "true"),
        # and only plain decimals are numbers
        ("x=inf", "x", Op.EQ, "inf"),
        ("x=nan", "x", Op.EQ, "nan"),
        ("x=1_000", "x", Op.EQ, "1_000"),
        ("x=1e999", "x", Op.EQ, "1e999"),
        ("x=٣", "x", Op.EQ, "٣"),
    ],
)
def test_an_expression_reads_as(text: str, field: str, op: Op, value: object):
    read = parse_expression(text)
    assert (read.field, read.op, read.value) == (field, op, value)
    assert type(read.value) is type(value)


def test_expressions_are_anded():
    assert parse_filters(["tag=ops", "page>3"]) == And(
        (Condition("tags", Op.EQ, "ops"), Condition("page", Op.GT, 3))
    )


@given(st.text(max_size=30))
def test_any_expression_is_read_or_refused_by_name(text: str):
    with suppress(FilterError):
        assert isinstance(parse_expression(text), Condition)


@pytest.mark.parametrize(
    ("filters", "says"),
    [
        ("no operator", "is not a condition such as field=value"),
        ("=x", "is not a condition such as field=value"),
        (" =x", "non-empty name"),
        ("tag!x", "unknown operator"),
        (7, "int"),
        (b"tag=x", "bytes"),
        ([None], "NoneType"),
        ({"tag": None}, "tags needs text"),
        ({"tag": b"x"}, "tags needs text"),
        ({"tag": {}}, "tag has no operator"),
        ({"tag": {"in": "abc"}}, "tags in needs a list"),
        ({"tag": {"in": {"a": 1}}}, "tags in needs a list"),
        ({"tag": {"==": ["a"]}}, "tags needs text"),
        ({"tag": [["a"]]}, "tags needs text"),
        ({"n": float("nan")}, "n needs text"),
        ({"n": {"text_match": 3}}, "n text_match needs text"),
        ({"": 1}, "non-empty name"),
        ({"tag": "\udcff"}, "not valid Unicode"),
        ({"\udcff": "x"}, "non-empty name"),
    ],
)
def test_a_filter_without_meaning_is_refused(filters: object, says: str):
    with pytest.raises(FilterError, match=says):
        parse_filters(filters)


def test_half_a_character_is_refused_and_its_neighbours_are_text():
    for half in ("\ud800", "\udfff"):
        with pytest.raises(FilterError, match="not valid Unicode"):
            parse_filters({"tag": half})
    for neighbour in ("\ud7ff", "\ue000", "\U0001f600"):
        assert parse_filters({"tag": neighbour}) == Condition("tags", Op.EQ, neighbour)


@pytest.mark.parametrize("operator", ["=>", "like", "", None, 3])
def test_an_unknown_operator_is_refused_with_the_known_ones(operator):
    with pytest.raises(FilterError, match="text_match_insensitive"):
        condition("tag", operator, "x")


def test_a_filter_made_by_hand_is_checked_and_its_aliases_resolved():
    assert parse_filters(Not(Condition("tag", Op.EQ, "x"))) == Not(Condition("tags", Op.EQ, "x"))
    with pytest.raises(FilterError):
        parse_filters(Or((Condition("tags", Op.EQ, ("a", "b")),)))


def test_a_filter_too_large_or_too_deep_is_refused():
    with pytest.raises(FilterError, match=str(MAX_CONDITIONS)):
        parse_filters([f"a={index}" for index in range(MAX_CONDITIONS + 1)])
    with pytest.raises(FilterError, match=str(MAX_CONDITIONS)):
        parse_filters({"a": {"all": list(range(MAX_CONDITIONS + 1))}})
    for levels in (60, 5000):
        deep = Condition("a", Op.EQ, 1)
        for _ in range(levels):
            deep = Not(deep)
        with pytest.raises(FilterError, match="nested deeper"):
            parse_filters(deep)


def test_a_filter_of_exactly_the_largest_size_and_depth_is_read_and_a_list_of_any_length():
    wide = parse_filters([f"a={index}" for index in range(500)])
    assert isinstance(wide, And)
    assert len(wide.parts) == 500
    assert parse_filters({"a": ["x"] * 501}) == Condition("a", Op.IN, ("x",) * 501)
    deep = Condition("a", Op.EQ, 1)
    for _ in range(49):
        deep = Not(deep)
    assert parse_filters(deep) == deep
    with pytest.raises(FilterError, match="deeper than 50"):
        parse_filters(Not(deep))


def test_unknown_fields_are_refused_by_name_and_known_ones_listed():
    tree = parse_filters({"tag": "x", "colour": "red"})
    assert tree is not None
    assert filter_fields(tree) == {"tags", "colour"}
    check_fields(tree, ["colour"])
    check_fields(tree, ["colour", "tags"])
    with pytest.raises(UnknownFieldError, match=r"'colour'.*modality"):
        check_fields(tree, [])


def _written(moment: datetime, hours: int, form: str) -> str:
    """The moment in one of the usual forms, at a place so many hours from UTC."""
    return moment.astimezone(timezone(timedelta(hours=hours))).strftime(form)


dates = st.builds(
    _written,
    st.datetimes(datetime(2023, 12, 30), datetime(2024, 3, 2), timezones=st.just(UTC)),
    st.integers(-12, 14),
    st.sampled_from(["%Y", "%Y-%m", "%Y-%m-%d", "%Y%m%d", "%Y-%m-%dT%H:%M:%S%z",
                     "%Y-%m-%d %H:%M %z", "%Y-%m-%dT%H:%M:%S.%f", "%Y%m%dT%H%M%S%z"]),
)  # fmt: skip


@given(stored=dates, bound=dates, field=st.sampled_from(["created", "modified"]))
def test_a_filter_on_a_date_agrees_with_after_and_before(stored, bound, field):
    def allows(op):
        return matches(condition(field, op, bound), lambda _: (stored,))

    at, begin = read_bound("after", stored), read_bound("after", bound)
    assert allows(">=") == (at >= begin)
    assert allows("<") == (at < begin)
    assert allows(">") == (not allows("<="))
    assert allows("<=") >= allows("<")


@pytest.mark.parametrize(
    ("asked", "inside", "outside"),
    [
        ("created<=2024-05-31", "2024-05-31T23:59:59.9Z", "2024-06-01"),
        ("created<=2024-05-31", "2024-06-01T01:00+02:00", "2024-05-31T23:00-02:00"),
        ("created>2024-05-31", "2024-06-01", "2024-05-31T23:59:59Z"),
        ("created<=2024-02", "2024-02-29T12:00", "2024-03"),
        ("created>2023-12", "2024", "2023-12-31T23:59"),
        ("created<=2024", "2024-12-31T23:59", "2025-01-01"),
        ("created>=2024-06-01", "2024-05-31T23:30-02:00", "2024-06-01T00:30+02:00"),
        ("created>=2024-06-01", "2024-06", "2024-05"),
        ("created<=2024-06-01T10:00Z", "2024-06-01T12:00+02:00", "2024-06-01T10:00:01Z"),
        ("created>2024-06-01T10:00Z", "2024-06-01T10:00:01Z", "2024-06-01T10:00Z"),
        ("created<=9999", "9999-12-31", "soon"),
    ],
)
def test_a_day_month_or_year_is_compared_whole_and_a_time_to_the_moment(asked, inside, outside):
    tree = parse_filters([asked])
    assert matches(tree, lambda _: (inside,))
    assert not matches(tree, lambda _: (outside,))
