"""Reading what a search of any make returned."""

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.response.schema import Response
from llama_index.core.schema import NodeWithScore, TextNode

from catalog.core.errors import BackendError
from catalog.core.results import Contribution, Explanation
from catalog.core.user_search import RankedHit, Ranking, to_ranking


def read(value, top_k=10):
    return to_ranking(value, "books", top_k)


def paths(value, top_k=10):
    return [one.path for one in read(value, top_k).hits]


def explanation(bonus=0.0):
    part = Contribution(
        leg="lexical",
        engine="bm25",
        query="x",
        origin="original",
        rank=2,
        raw_score=7.25,
        weight=0.5,
        contribution=0.008,
    )
    score = 0.008 + bonus
    return Explanation(fusion="rrf", contributions=(part,), bonus=bonus, fused=score, score=score)


@given(st.lists(st.sampled_from("abcdef"), max_size=30))
def test_documents_are_each_path_once_in_the_order_of_first_appearance(names):
    documents = Ranking(tuple(map(RankedHit, names))).documents
    assert set(documents) == set(names)
    positions = [names.index(one) for one in documents]
    assert positions == sorted(set(positions))


@pytest.mark.parametrize(
    "value",
    [
        ["a.md", "b.md"],
        ("a.md", "b.md"),
        iter(["a.md", "b.md"]),
        {"a.md": 2, "b.md": 1}.items(),
        [{"path": "a.md"}, {"path": "b.md"}],
        {"results": ["a.md", "b.md"]},
        {"hits": [{"id": "a.md"}, {"id": "b.md"}]},
        SimpleNamespace(results=["a.md", "b.md"]),
        SimpleNamespace(source_nodes=["a.md", "b.md"]),
        [SimpleNamespace(doc_id="a.md"), SimpleNamespace(source_doc_id="b.md")],
        [{"metadata": {"file_path": "a.md"}}, {"metadata": {"docno": "b.md"}}],
        [Path("a.md"), ["b.md", 2]],
    ],
)
def test_every_usual_shape_of_hits_is_read_in_its_order(value):
    assert paths(value) == ["a.md", "b.md"]


def test_the_datasets_name_before_a_path_is_not_part_of_it():
    assert paths(["books:a.md", ("books:b.md", 1.0), {"path": "books:c.md"}, "other:d.md"]) == [
        "a.md",
        "b.md",
        "c.md",
        "other:d.md",
    ]


def test_a_path_names_the_document_rather_than_the_id_of_a_chunk():
    assert paths([{"id": "7f3e", "metadata": {"path": "a.md"}}]) == ["a.md"]
    assert paths([{"_id": "9", "id": 0}]) == ["0"]
    assert paths([{"path": "", "doc_id": None, "id": "a.md"}]) == ["a.md"]


def test_llamaindex_nodes_are_known_by_their_metadata_and_keep_text_and_score():
    node = TextNode(id_="node-1", text="flour and water", metadata={"path": "bread.txt"})
    (passage,) = read([NodeWithScore(node=node, score=0.75)]).hits
    assert (passage.path, passage.score, passage.text) == ("bread.txt", 0.75, "flour and water")


def test_a_llamaindex_response_is_its_source_nodes():
    node = TextNode(text="x", metadata={"file_name": "a.md"})
    answered = Response("because", source_nodes=[NodeWithScore(node=node, score=1.0)])
    assert paths(answered) == ["a.md"]


def test_score_text_place_and_times_are_kept():
    locator = {"page": 4, "line_start": 10, "line_end": 12, "time_start": 1.5, "time_end": 9}
    hit = {"path": "a.md", "score": "0.5", "content": "words", "locator": locator}
    assert read([hit]).hits == (RankedHit("a.md", 0.5, "words", "page 4, lines 10–12", (1.5, 9.0)),)
    (passage,) = read([{"path": "a", "locator": {"time_start": 3}}]).hits
    assert passage.times == (3.0, 3.0)
    answer = Ranking((RankedHit("a.md", 1.0, "text"),), {"lexical": 2.0}, low_confidence=True)
    assert read(answer) == answer
    assert read([["a.md", 2], Path("guides/a.md")]).hits[0].score == 2.0


@pytest.mark.parametrize(
    ("pages", "told"),
    [
        ({"page": 6, "page_end": 7}, "pages 6–7"),
        ({"page": 6, "page_end": 6}, "page 6"),
        ({"page": 6, "page_end": None}, "page 6"),
        ({"page": None, "page_end": None}, ""),
    ],
)
def test_pages_are_told_from_the_first_to_the_last(pages, told):
    assert read([{"path": "a", "locator": pages}]).hits[0].location == told


@pytest.mark.parametrize("score", [None, True, "high", [1]])
def test_a_value_that_is_not_a_number_is_not_a_score(score):
    assert read([{"path": "a", "score": score}, ("b", score)]).hits == (
        RankedHit("a"),
        RankedHit("b"),
    )


def test_only_as_many_passages_as_asked_for_are_taken_of_any_form():
    many = tuple(RankedHit(f"{n}.md") for n in range(9))
    assert paths([one.path for one in many], top_k=2) == ["0.md", "1.md"]
    assert paths(Ranking(many), top_k=2) == ["0.md", "1.md"]
    assert paths((f"{n}.md" for n in itertools.count()), top_k=2) == ["0.md", "1.md"]


def test_stages_and_doubt_are_kept_where_they_are_reported():
    stages = [{"name": "lexical", "ms": 2}, SimpleNamespace(name="vector", ms=3.5), {"name": "x"}]
    answer = read({"results": [], "stages": stages, "low_confidence": True})
    assert answer.stages_ms == {"lexical": 2.0, "vector": 3.5}
    assert answer.low_confidence is True
    assert read({"results": [], "low_confidence": "maybe"}).low_confidence is None


@pytest.mark.parametrize("stages", [3, {"lexical": 2.0}, ["lexical"], list])
def test_stages_of_another_form_are_left_out(stages):
    assert read(SimpleNamespace(results=["a.md"], stages=stages)).stages_ms == {}


def test_methods_named_like_our_fields_are_not_taken_for_them():
    class Hits(list):
        def results(self):
            raise AssertionError

        def stages(self):
            raise AssertionError

    class Hit:
        id = "a.md"

        def path(self):
            raise AssertionError

    assert paths(Hits([Hit()])) == ["a.md"]


def test_an_explanation_becomes_lines_with_every_part_of_the_score():
    (passage,) = read([{"path": "a", "explain": explanation(bonus=0.05)}]).hits
    assert passage.explain == (
        "0.058000 by rrf",  # 0.008 + 0.05
        "0.008000  lexical (bm25), rank 2, score 7.2500, weight 0.5",
        "0.050000  top-rank bonus",
    )


def test_an_explanation_read_from_json_is_shown_alike():
    given_ = explanation().model_dump(mode="json")
    (passage,) = read([{"path": "a", "explain": given_}]).hits
    assert passage.explain == read([{"path": "a", "explain": explanation()}]).hits[0].explain
    assert len(passage.explain) == 2


def test_anothers_explanation_is_shown_when_text_and_never_breaks_the_answer():
    explains = ["matched flour\nand water", {"bm25": 3.2}, 7, None]
    found = read([{"path": str(n), "explain": one} for n, one in enumerate(explains)])
    assert [one.explain for one in found.hits] == [("matched flour", "and water"), (), (), ()]


@pytest.mark.parametrize(
    "value", [None, 7, "a.md", b"a.md", {"answer": "x"}, {"hits": {}}, {"a.md", "b.md"}]
)
def test_results_that_are_not_a_sequence_of_hits_are_refused_by_their_type(value):
    with pytest.raises(BackendError, match="sequence of hits"):
        read(value)


@pytest.mark.parametrize("hit", [{"score": 1.0}, 7, ["a.md", "b.md"], None, "", ("books:", 1.0)])
def test_a_hit_without_a_path_is_refused_naming_what_was_looked_for(hit):
    with pytest.raises(BackendError, match=r"no path.*source_doc_id|empty path"):
        read([hit])


def test_whole_paths_in_the_datasets_folder_are_its_documents():
    found = read(["/me/notes/a/keys.md", "/me/notes-2/b.md", "keys.md", "notes/c.md"], 9)
    below = found.below("/me/notes")
    assert below.documents == ("a/keys.md", "/me/notes-2/b.md", "keys.md", "notes/c.md")
    assert found.below("") == found
    assert read(["/me/one.md"], 9).below("/me/one.md").documents == ("one.md",)
