"""Reading filters from every form, and what each condition means."""

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
    file_type_filter,
    filter_fields,
    matches,
    name_filter,
    parse_expression,
    parse_filters,
)
from tables import table


def holds(op: str, value: object, *values: object) -> bool:
    return matches(condition("f", op, value), lambda _: values)


@table("op, asked, values, answer", list)
def test_a_condition_means(op: str, asked: object, values: list[object], answer: bool):
    assert holds(op, asked, *values) is answer


def test_integers_beyond_floats_are_infinite_and_no_value_is_empty():
    assert holds(Op.EQ, 10**400, 10**500)
    assert not holds(Op.EQ, 10**400, -(10**400))
    assert holds(Op.LT, -1e308, -(10**400))
    assert holds(Op.IS_EMPTY, None)
    assert not holds(Op.IS_EMPTY, None, "")


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


@table("text, field, op, value")
def test_an_expression_reads_as(text: str, field: str, op: str, value: object):
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
        (["created>=yesterday"], "created >= needs a date such as 2024-05-31, not 'yesterday'"),
        (["modified<2024-02-31"], "modified < needs a date"),
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
    assert allows("==") == (allows(">=") and allows("<=")) != allows("!=")


@table("asked, inside, outside")
def test_a_day_month_or_year_is_compared_whole_and_a_time_to_the_moment(asked, inside, outside):
    tree = parse_filters([asked])
    assert matches(tree, lambda _: (inside,))
    assert not matches(tree, lambda _: (outside,))


def fits(tree, **values):
    return matches(tree, lambda field: (values[field],) if field in values else ())


@table("said, file_type")
def test_a_kind_of_file_goes_by_the_names_people_have_for_it(said, file_type):
    assert fits(file_type_filter(said), file_type=file_type)


@table("said, file_type")
def test_no_other_kind_is_let_through(said, file_type):
    assert not fits(file_type_filter(said), file_type=file_type)


@pytest.mark.parametrize("said", ["srt", ".SRT", "subtitles", "subtitle files"])
def test_subtitles_of_a_recording_are_told_by_their_path(said):
    assert fits(file_type_filter(said), file_type="video", path="talks/One.SRT")
    assert fits(file_type_filter(said), file_type="audio", path="one.srt")
    assert not fits(file_type_filter(said), file_type="md", path="one.srt.md")
    assert not fits(file_type_filter(said), file_type="video", path="one.mp4")


def test_one_kind_of_subtitles_is_not_the_others():
    assert not fits(file_type_filter("srt"), file_type="video", path="one.vtt")
    assert fits(file_type_filter("captions"), file_type="video", path="one.vtt")


@pytest.mark.parametrize("field", ["path", "title", "media"])
def test_a_part_of_the_path_the_title_or_the_recording_is_enough_in_any_case(field):
    assert fits(name_filter("Lecture 3"), **{field: "my LECTURE 3.mp4"})
    assert not fits(name_filter("Lecture 3"), **{field: "lecture 4"})


@pytest.mark.parametrize("signs", ["%", "_", "*", ".", "[a-z]", "a|b", "'", '"'])
def test_signs_that_mean_something_elsewhere_are_signs_here(signs):
    assert fits(name_filter(signs), path=f"x{signs}y")
    assert not fits(name_filter(signs), path="abc")


@pytest.mark.parametrize("narrow", [file_type_filter, name_filter])
@pytest.mark.parametrize("blank", ["", "  ", "\t\n", None, 3])
def test_blank_text_narrows_to_nothing_and_is_an_error(narrow, blank):
    with pytest.raises(FilterError):
        narrow(blank)
