"""Grading what pipelines found, and keeping it."""

import json
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.errors import GoldenSetError
from catalog.core.user_search import RankedHit, Ranking
from catalog.evaluation.golden import Expected, GoldenQuery
from catalog.evaluation.golden_files import (
    changing_golden,
    load_golden,
    next_id,
    pool_hits,
    read_golden,
    save_golden,
)
from tables import read_cases, table


def answer(*paths):
    return Ranking(tuple(RankedHit(path) for path in paths))


def names(pool):
    return [one.path for one in pool]


def query(*grades, **fields):
    expected = tuple(Expected(path=path, grade=grade) for path, grade in grades)
    return GoldenQuery(**{"id": "q1", "query": "why", "expected": expected, **fields})


# the pool


def test_the_pipelines_lists_are_taken_in_turn():
    # first of each: a, x; second: b, a (seen); third: c, y
    pool = pool_hits([answer("a", "b", "c"), answer("x", "a", "y")], judged=())
    assert names(pool) == ["a", "x", "b", "c", "y"]


def test_judged_documents_are_left_out_and_make_room_for_others():
    pool = pool_hits([answer(*"abcdef")], judged=["a", "c"], limit=3)
    assert names(pool) == ["b", "d", "e"]


@given(
    st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12), max_size=4),
    st.sets(st.sampled_from("abcdefgh")),
    st.integers(1, 10),
)
def test_a_pool_holds_each_unjudged_document_once_and_every_lists_own_first(lists, judged, limit):
    pool = names(pool_hits([answer(*one) for one in lists], judged, limit))
    found = {path for one in lists for path in one} - judged
    assert len(pool) == len(set(pool)) == min(limit, len(found))
    assert set(pool) <= found
    firsts = {one[0] for one in lists if one} - judged
    assert set(pool[: len(firsts)]) == firsts or len(pool) < len(firsts)


# the grades


def test_a_file_keeps_its_permissions_and_a_link_still_leads_to_it(tmp_path):
    file, link = tmp_path / "set.jsonl", tmp_path / "link.jsonl"
    file.write_text('{"id": "a", "query": "who?"}\n', encoding="utf-8")
    file.chmod(0o640)
    link.symlink_to(file)
    with changing_golden(link) as queries:
        queries[0] = queries[0].model_copy(update={"note": "seen"})
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    assert read_golden(file).queries[0].note == "seen"


def test_a_question_with_a_key_twice_can_be_changed(tmp_path):
    file = tmp_path / "set.jsonl"
    file.write_text('{"id": "a", "query": "x", "query": "who?"}\n', encoding="utf-8")
    with changing_golden(file) as queries:
        queries[0] = queries[0].model_copy(update={"note": "seen"})
    assert json.loads(file.read_text(encoding="utf-8")) == {
        "id": "a", "query": "who?", "note": "seen",
    }  # fmt: skip


def test_a_saved_set_is_read_back_unchanged(tmp_path):
    path = tmp_path / "made" / "set.jsonl"
    queries = [
        query(("größe.md", 3), ("b", 1), difficulty="easy", kind="semantic"),
        query(("b", 0), id="q2", query="one\u2028line", kind="unanswerable", note="no"),
        query(id="q3"),
    ]
    save_golden(path, queries)
    assert load_golden(path) == queries
    assert list(read_golden(path)) == queries
    assert "größe.md" in path.read_text(encoding="utf-8")


def test_a_file_with_a_bad_line_is_not_overwritten_but_named(tmp_path):
    path = tmp_path / "set.jsonl"
    path.write_text('{"id": "q1", "query": "x"}\n{"id": "q2"}\n')
    with pytest.raises(GoldenSetError, match=r"set\.jsonl line 2: query: .*golden check"):
        load_golden(path)


def test_a_failed_save_leaves_the_file_unchanged_and_no_other_file(tmp_path, monkeypatch):
    path = tmp_path / "set.jsonl"
    save_golden(path, [query()])
    before = path.read_bytes()

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(GoldenSetError, match="No space left"):
        save_golden(path, [query(), query(id="q2")])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


BY_HAND = read_cases(__file__)["by_hand"]


def changed(tmp_path, change):
    """Return a file made by hand after a change of its queries."""
    path = tmp_path / "set.jsonl"
    path.write_bytes(BY_HAND.encode())
    with changing_golden(path) as queries:
        change(queries)
    assert load_golden(path) == queries
    return path.read_bytes().decode()


def relabel(number, **values):
    def change(queries):
        fields = queries[number].model_dump() | values
        queries[number] = GoldenQuery.model_validate(fields)

    return change


def test_a_file_without_a_change_stays_byte_for_byte(tmp_path):
    assert changed(tmp_path, lambda _: None) == BY_HAND


def add(queries):
    queries.append(query(id="q4"))


def test_only_the_line_of_a_changed_question_is_written_anew(tmp_path):
    _, *others = BY_HAND.split("\n")
    first, *same = changed(tmp_path, relabel(0, note="x")).split("\n")
    assert first.startswith("\ufeff{")
    assert first.endswith("}\r")
    assert json.loads(first.removeprefix("\ufeff"))["note"] == "x"
    assert same == others
    assert changed(tmp_path, add) == BY_HAND + '\n{"id": "q4", "query": "why"}\n'
    assert changed(tmp_path, lambda queries: queries.pop()) == BY_HAND.removesuffix(others[-1])


LABELS = st.lists(
    st.builds(
        dict,
        path=st.sampled_from("abcd"),
        grade=st.integers(0, 2),
        span=st.sampled_from([None, "words", [3, 9], {"line_start": 1, "line_end": 2}]),
    ),
    max_size=4,
    unique_by=itemgetter("path"),
)


@given(before=LABELS, after=LABELS, indent=st.sampled_from([(",", ":"), (" , ", " : ")]))
def test_any_change_of_labels_is_read_back(tmp_path_factory, before, after, indent):
    path = tmp_path_factory.mktemp("golden") / "set.jsonl"
    path.write_text(json.dumps({"id": "q1", "expected": before, "query": "why"}, separators=indent))
    wanted = GoldenQuery.model_validate({"id": "q1", "query": "why", "expected": after})
    save_golden(path, [wanted])
    assert load_golden(path) == [wanted]


@table("taken, free")
def test_a_new_id_is_unused(taken, free):
    assert next_id([query(id=one) for one in taken]) == free
