"""TREC run files: ours read by others, others' read by us."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_measures import read_trec_run

from catalog.core.errors import GoldenSetError
from catalog.evaluation.backends import read_run, write_run
from tables import table

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
ids = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=8)


def written(folder, text):
    path = folder / "theirs.run"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_written_run_has_the_six_columns_with_scores_falling_to_one(tmp_path):
    path = write_run(tmp_path, "v2", {"q1": ["a.md", "b c.md"], "q2": ["a.md"]})
    assert path == tmp_path / "v2.run"
    assert path.read_text().splitlines() == [
        "q1 Q0 a.md 1 2 v2",
        "q1 Q0 b%20c.md 2 1 v2",
        "q2 Q0 a.md 1 1 v2",
    ]


@given(st.dictionaries(ids, st.lists(names, min_size=1, max_size=6, unique=True), max_size=4))
def test_any_lists_come_back_in_their_order(tmp_path_factory, lists):
    path = write_run(tmp_path_factory.mktemp("runs"), "run", lists)
    found = {query: [name for name, _ in hits] for query, hits in read_run(path).items()}
    assert found == lists


def test_the_fields_own_tools_read_what_we_write(tmp_path):
    path = write_run(tmp_path, "v2:rrf_k=17", {"q1": ["b.md", "a c.md", "größe.md"]})
    hits = list(read_trec_run(str(path)))
    assert [hit.query_id for hit in hits] == ["q1"] * 3
    ordered = sorted(hits, key=lambda hit: -hit.score)
    assert [hit.doc_id for hit in ordered] == ["b.md", "a%20c.md", "größe.md"]


@table("name")
def test_any_name_of_a_backend_is_a_file_in_the_folder_and_a_tag_of_one_column(tmp_path, name):
    folder = tmp_path / "made" / "here"
    path = write_run(folder, name, {"q1": ["a.md"]})
    assert list(folder.iterdir()) == [path]
    assert len(path.read_text().split()) == 6


def test_different_names_are_different_files(tmp_path):
    backends = ["a:b", "a/b", "a b", "a%20b", "a", "a=b"]
    assert len({write_run(tmp_path, one, {}) for one in backends}) == len(backends)


def test_a_folder_that_cannot_be_written_is_refused_by_name(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GoldenSetError, match="cannot write"):
        write_run(tmp_path / "file", "run", {"q1": ["a"]})


def test_a_path_that_is_no_unicode_is_refused(tmp_path):
    with pytest.raises(GoldenSetError, match=r"cannot write .*surrogates"):
        write_run(tmp_path, "run", {"q1": ["\ud800.md"]})


def test_a_run_of_another_tool_is_read_by_score_not_by_rank_or_line(tmp_path):
    path = written(
        tmp_path,
        "\ufeff301 Q0 FBIS3-1 7 1.5 BM25\r\n"
        "301\tQ0\tFBIS3-2\t9\t17.25\tBM25\r\n"
        "302 0 LA-3 0 -2e-1 x\r\n"
        "\r\n"
        "301 Q0 FBIS3-3 1 1e1 BM25",
    )
    assert read_run(path) == {
        "301": [("FBIS3-2", 17.25), ("FBIS3-3", 10.0), ("FBIS3-1", 1.5)],
        "302": [("LA-3", -0.2)],
    }


@pytest.mark.parametrize("again", ["q Q0 a 3 9 t", "q Q0 a 1 3 t", "q\tQ0\t%61\t3\t-9\tt\r"])
def test_a_run_that_lists_a_document_twice_for_a_query_is_refused(tmp_path, again):
    path = written(tmp_path, f"q Q0 a 1 3 t\nr Q0 a 1 3 t\nq Q0 b 2 2 t\n\n{again}\n")
    with pytest.raises(GoldenSetError, match="line 5"):
        read_run(path)


@table("bad")
def test_a_line_that_is_not_trecs_is_named_by_its_number(tmp_path, bad):
    path = written(tmp_path, f"q1 Q0 a.md 1 2 tag\n\n{bad}\n")
    with pytest.raises(GoldenSetError, match=r"theirs\.run line 3 "):
        read_run(path)


def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path):
    (tmp_path / "binary.run").write_bytes(b"\xff\xfe\x00")
    for name in ("binary.run", "absent.run"):
        with pytest.raises(GoldenSetError, match=name):
            read_run(tmp_path / name)


def test_equal_scores_are_ordered_by_the_rank_column_not_by_the_line(tmp_path):
    path = tmp_path / "tied.run"
    path.write_text("q1 Q0 third.md 3 0 tag\nq1 Q0 first.md 1 0 tag\nq1 Q0 second.md 2 0 tag\n")
    assert [name for name, _ in read_run(path)["q1"]] == ["first.md", "second.md", "third.md"]
