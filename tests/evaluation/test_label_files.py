"""Labels of other tools: read, written, and read again."""

import pytest
from ir_measures import read_trec_qrels

from catalog.core.errors import GoldenSetError
from catalog.evaluation.golden import Expected, GoldenQuery, GoldenSet
from catalog.evaluation.label_files import read_labels, write_labels
from tables import table

HEN = {
    "where is the hen": {"farm/the hen.md": 3, "goat.md": 0},
    'say "moo", please': {"cow.md": 1},
}


@pytest.fixture
def read(tmp_path):
    """Read files of these texts: the labels, and what is without a label."""

    def read(name, text, topics=None, of_topics=""):
        (tmp_path / name).write_text(text, encoding="utf-8")
        if topics is not None:
            (tmp_path / topics).write_text(of_topics, encoding="utf-8")
            topics = tmp_path / topics
        golden, left_out = read_labels(tmp_path / name, topics)
        return {one.query: one.grades for one in golden}, left_out

    return read


@table("name, text, topics, of_topics, left_out")
def test_the_forms_of_each_tool_give_the_same_labels(read, name, text, topics, of_topics, left_out):
    assert read(name, text, topics or None, of_topics) == (HEN, left_out)


@table("name, text, topics, of_topics, told")
def test_a_bad_row_is_told_by_file_and_line(read, name, text, topics, of_topics, told):
    with pytest.raises(GoldenSetError, match=told):
        read(name, text, topics or None, of_topics)


def label(item):
    return Expected(path=item[0], grade=item[1])


@pytest.mark.parametrize("topics", [None, "topics.tsv", "topics.jsonl"])
def test_what_is_written_is_read_again(tmp_path, topics):
    labels = [*HEN.items(), ("50 %, or less?", {"a%20b\u2003c.md": 2})]
    queries = tuple(
        GoldenQuery(id=f"q00{n}", query=text, expected=tuple(map(label, grades.items())))
        for n, (text, grades) in enumerate(labels, start=1)
    )
    topics = topics and tmp_path / topics
    write_labels(GoldenSet("set", queries), tmp_path / "set.txt", topics)
    golden, left_out = read_labels(tmp_path / "set.txt", topics)
    assert (golden.queries, left_out) == (queries, 0)
    if topics:  # the field's own tools read it too
        rows = read_trec_qrels(str(tmp_path / "set.txt"))
        assert [row.relevance for row in rows] == [3, 0, 1, 2]


def test_quepid_gets_no_two_queries_of_one_text(tmp_path):
    same = [GoldenQuery(id=name, query="hen", filters=["tags=farm"]) for name in "ab"]
    with pytest.raises(GoldenSetError, match="the same"):
        write_labels(GoldenSet("set", tuple(same)), tmp_path / "set.csv")
    assert list(tmp_path.iterdir()) == []
