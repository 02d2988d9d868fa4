"""One question put to both pipelines."""

import sys
import types

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, TextNode

from catalog.core.errors import StageFailedError
from catalog.library.indexing import Indexer
from catalog.search_v2 import HybridRetrieverFactoryV2
from catalog.search_v2.compare_with_v1 import compare_paths
from catalog.search_v2.service import SearchServiceV2
from small_documents import NOTES
from stores import open_store


def test_two_lists_are_compared_by_document_and_rank():
    # v1: a b c; v2: b d a (its second b is the same document): both a, b of a b c d -> 1/2
    told = compare_paths("old", ["a", "b", "c"], ["b", "d", "b", "a"], v1_ms=3.0, v2_ms=4.0)
    assert told.overlap == 0.5
    assert told.only_v1 == ("c",)
    assert told.only_v2 == ("d",)
    assert [(one.path, one.v1, one.v2) for one in told.rank_changes] == [("b", 2, 1), ("a", 1, 3)]
    assert (told.latency_ms.v1, told.latency_ms.v2) == (3.0, 4.0)


def test_two_empty_lists_agree_and_one_empty_list_does_not():
    assert compare_paths("old", [], [], v1_ms=0, v2_ms=0).overlap == 1.0
    assert compare_paths("old", [], ["a"], v1_ms=0, v2_ms=0).overlap == 0.0


@pytest.fixture
def plugged(monkeypatch):
    module = types.ModuleType("old_search")
    monkeypatch.setitem(sys.modules, "old_search", module)
    return module


@pytest.fixture
def service(tmp_path, plugged):
    with open_store(NOTES, tmp_path, baseline="old_search:find") as library:
        yield SearchServiceV2(library)


def test_the_baseline_of_the_settings_is_asked_the_same_question(service, plugged):
    asked = []

    def find(query, *, dataset, limit):
        asked.append((query, dataset, limit))
        return ["gone.md", "keys.md"]

    plugged.find = find
    answer = service.search("rotate keys", dataset="notes", top_k=2, compare_with_v1=True)
    assert set(asked) == {("rotate keys", "notes", 2)}
    assert answer.comparison.baseline == "old_search:find"
    assert answer.comparison.only_v1 == ("gone.md",)
    assert answer.comparison.latency_ms.v2 > 0
    assert answer.to_dict()["comparison"]["overlap"] == answer.comparison.overlap
    assert answer.stages[-1].name == "compare"


def test_a_retriever_is_a_baseline_and_names_files_by_their_whole_paths(service, plugged, tmp_path):
    class Stock(BaseRetriever):
        def _retrieve(self, query_bundle):
            keys = TextNode(text="keys", metadata={"file_path": str(tmp_path / "notes/keys.md")})
            return [NodeWithScore(node=keys, score=1.0)]

    plugged.find = HybridRetrieverFactoryV2().over([Stock()])
    answer = service.search("rotate keys", dataset="notes", top_k=1, compare_with_v1=True)
    assert answer.comparison.error == ""
    assert (answer.comparison.overlap, answer.comparison.only_v1) == (1.0, ())


def test_a_baseline_that_fails_is_reported_and_the_answer_stands(service, plugged):
    def find(query):
        raise RuntimeError("index is on fire")

    answer = service.search("rotate keys", dataset="notes", compare_with_v1=True)
    assert "old_search:find" in answer.comparison.error  # there is none yet
    service = SearchServiceV2(service.library)
    plugged.find = lambda query: sys.exit(3)
    answer = service.search("rotate keys", dataset="notes", compare_with_v1=True)
    assert answer.comparison.error == "SystemExit: 3"
    service = SearchServiceV2(service.library)
    plugged.find = find
    answer = service.search("rotate keys", dataset="notes", compare_with_v1=True)
    assert len(answer) > 0
    assert answer.comparison.error == "RuntimeError: index is on fire"
    assert answer.stages[-1].status == "failed"
    with pytest.raises(StageFailedError, match="on fire"):
        service.search("rotate keys", dataset="notes", compare_with_v1=True, strict=True)


def test_what_of_the_question_the_baseline_cannot_be_told_is_said(service, plugged):
    plugged.find = lambda query: ["bread.txt"]
    asked = {"doc_ids": iter(["keys.md"]), "filters": "tag=ops"}
    answer = service.search("rotate keys", dataset="notes", compare_with_v1=True, **asked)
    assert {hit.path for hit in answer} == {"keys.md"}
    assert answer.comparison.note == (
        "asked without filters and doc_ids, which it does not accept; "
        "1 of its passages are outside the scope and left out"
    )
    told = []
    service = SearchServiceV2(service.library)
    plugged.find = lambda query, doc_ids, filters: told.append((doc_ids, filters)) or []
    answer = service.search(
        "rotate keys", dataset="notes", compare_with_v1=True, doc_ids=["keys.md"], filters="tag=ops"
    )
    assert told[-1] == (["keys.md"], "tag=ops")
    assert answer.comparison.note == ""


@pytest.mark.parametrize(
    "narrowed",
    [
        {"doc_ids": ["keys.md"]}, {"docs": ["keys.*"]}, {"filters": "tag=ops"},
        {"file_type": "md", "name": "keys"}, {"doc_ids": []},
    ],
    ids=lambda narrowed: next(iter(narrowed)),
)  # fmt: skip
def test_a_baseline_shows_nothing_from_outside_scope_and_filters(service, plugged, narrowed):
    plugged.find = lambda query: ["bread.txt", "keys.md", "guides/backup.md", "gone.md"]
    answer = service.search("rotate keys", dataset="notes", compare_with_v1=True, **narrowed)
    assert answer.comparison.only_v1 == ()
    assert answer.comparison.overlap == 1.0
    left_out = 3 if len(answer) else 4
    note = f"{left_out} of its passages are outside the scope and left out"
    assert note in answer.comparison.note
    assert not [name for name in ("bread", "backup", "gone") if name in str(answer.to_dict())]


def test_without_asking_nothing_is_compared(service):
    answer = service.search("rotate keys", dataset="notes")
    assert answer.comparison is None
    assert "comparison" not in answer.to_dict()


@pytest.mark.slow
@pytest.mark.model
def test_by_default_v1_is_asked_on_the_same_store(tmp_path, notes):
    from catalog.core.settings import load_settings
    from catalog.library.library import Library

    settings = load_settings(overrides={"home": tmp_path / "home"}).settings
    with Library(settings) as library:
        Indexer(library).build(notes, "notes")
        answer = SearchServiceV2(library).search(
            "revoke a leaked key", dataset="notes", compare_with_v1=True
        )
    assert answer.comparison.error == ""
    assert answer.comparison.overlap == 1.0  # three notes: both find them all
    assert (tmp_path / "home" / "v1" / "notes").is_dir()
