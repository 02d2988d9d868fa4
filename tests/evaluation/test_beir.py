"""Labels of collections in BEIR layout."""

import json

import pytest

from catalog.core.errors import GoldenSetError
from catalog.evaluation.golden import Expected
from catalog.evaluation.label_files import read_labels
from tables import table

HEADER = "query-id\tcorpus-id\tscore\n"


@pytest.fixture
def collection(tmp_path):
    """Write a collection; what is not given is a small sound one."""

    def made(qrels=HEADER + "1\td1\t2\n", queries=None, split="test"):
        folder = tmp_path / "scifact"
        (folder / "qrels").mkdir(parents=True, exist_ok=True)
        if queries is None:
            queries = "".join(
                json.dumps({"_id": str(n), "text": f"question {n}", "metadata": {}}) + "\n"
                for n in range(1, 4)
            )
        (folder / "queries.jsonl").write_text(queries, encoding="utf-8")
        (folder / "qrels" / f"{split}.tsv").write_text(qrels, encoding="utf-8")
        return folder

    return made


def read(folder, split="test"):
    return read_labels(folder / "qrels" / f"{split}.tsv", folder / "queries.jsonl")[0]


def labels(folder, split="test"):
    return {
        one.id: {label.path: label.grade for label in one.expected} for one in read(folder, split)
    }


def test_judged_queries_are_read_with_their_texts_and_grades_in_the_judgements_order(collection):
    folder = collection(HEADER + "3\td9\t1\n1\td1\t2\n3\td2\t0\n")
    found = read(folder)
    assert [(one.id, one.query) for one in found] == [("3", "question 3"), ("1", "question 1")]
    assert found.queries[0].expected == (Expected(path="d9", grade=1), Expected(path="d2", grade=0))
    assert found.queries[0].relevant == {"d9": 1}


def test_the_split_asked_for_is_read(collection):
    collection(HEADER + "2\td5\t1\n", split="train")
    folder = collection()
    assert labels(folder, "train") == {"2": {"d5": 1}}


def test_grades_below_ours_are_brought_in(collection):
    folder = collection(HEADER + "1\ta\t-1\n1\tb\t10\n1\tc\t2.0\n")
    assert labels(folder) == {"1": {"a": 0, "b": 10, "c": 2}}


def test_the_first_line_is_kept_when_it_is_no_header(collection):
    assert labels(collection("1\td1\t1\n2\td2\t1\n")) == {"1": {"d1": 1}, "2": {"d2": 1}}
    assert labels(collection("1\td1\t-1\n2\td2\t1\n")) == {"1": {"d1": 0}, "2": {"d2": 1}}


def test_marks_blank_lines_windows_ends_and_numbers_for_ids_are_no_obstacle(collection):
    folder = collection(
        "\ufeff" + (HEADER + "\n1\td 1\t1\n").replace("\n", "\r\n"),
        queries='\n{"_id": 1, "text": "one\u2028line"}\n\n',
    )
    (query,) = read(folder)
    assert (query.id, query.query, query.relevant) == ("1", "one\u2028line", {"d 1": 1})


@table("files, told")
def test_a_bad_file_is_told_by_its_name_the_line_and_what_is_expected(collection, files, told):
    with pytest.raises(GoldenSetError, match=told) as caught:
        read(collection(**files))
    for word in ("pydantic", "unpack", "KeyError", "Input should"):
        assert word not in str(caught.value)


@pytest.mark.parametrize("text", ["", "  ", None, 7])
def test_a_judged_query_that_cannot_be_asked_is_refused_by_id(collection, text):
    folder = collection(queries=json.dumps({"_id": "1", "text": text}))
    with pytest.raises(GoldenSetError, match="judged query '1'"):
        read(folder)


def test_a_split_that_judges_nothing_is_refused(collection):
    with pytest.raises(GoldenSetError, match="has no judgement"):
        read(collection(HEADER))
