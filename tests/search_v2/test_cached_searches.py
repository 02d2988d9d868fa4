"""Expanded searches asked again: kept while nothing has changed, and never longer."""

import pytest
from llama_index.core.schema import QueryBundle

from catalog.core.errors import StageFailedError
from catalog.library.indexing import Indexer
from catalog.retrieval.search_parts import SearchParts
from catalog.search_v2.retrievers import QueryExpansionRetrieverV2
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library
from scripted import ScriptedSource

QUERY = "rotate api keys"
TEXTS = {
    "keys.md": "Rotate the api keys every ninety days. A leaked key is revoked at once.",
    "token.md": "A credential for the interface is exchanged for a new secret each quarter.",
    "bread.md": "Mix flour, water and yeast. Bake the bread at 230 degrees.",
}
RAREST = "rotate"  # of the words of the query; a search finds the passages with it, too
LINES = "lex: api credential secret\nvec: rotate the api keys each quarter"


class CountingEngine:
    """A lexical engine that remembers what it was asked."""

    def __init__(self, engine):
        self._engine, self.asked = engine, []

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def search(self, text, k, restriction):
        self.asked.append(text)
        return self._engine.search(text, k, restriction)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "docs"
    made.mkdir()
    for name, text in TEXTS.items():
        flag = "true" if name == "keys.md" else "1"
        (made / name).write_text(f"---\nflag: {flag}\n---\n{text}\n")
    return made


@pytest.fixture
def opened(tmp_path, folder, monkeypatch):
    """Opens services over one store whose expansions come from a script, counting lexical calls."""
    libraries = []

    def make(source=None, **rag):
        library = open_library(tmp_path / "home", vector_engine="flat", **rag)
        libraries.append(library)
        if not library.datasets():
            Indexer(library).build(folder, "docs")
        counting = CountingEngine(library.indexes.lexical("docs"))
        monkeypatch.setattr(library.indexes, "lexical", lambda *_: counting)
        parts = SearchParts(library, expansion_source=source or ScriptedSource(LINES))
        return SearchServiceV2(library, parts), counting

    yield make
    for library in libraries:
        library.close()


def ask(service, query=QUERY, **more):
    return service.search(query, **{"dataset": "docs", "expand": True, **more})


def stage(found, name):
    return next(one for one in found.stages if one.name == name)


def rows(found):
    return [one.model_dump() for one in found]


def test_the_same_question_again_asks_no_leg_and_gets_the_same_answer(opened):
    service, engine = opened()
    first = ask(service, explain=True)
    assert engine.asked == [QUERY, RAREST, "api credential secret"]
    again = ask(service, explain=True)
    assert len(engine.asked) == 3
    assert rows(again) == rows(first)
    assert {part.origin for one in again for part in one.explain.contributions} == {
        "original",
        "expansion",
    }


def test_a_kept_answer_says_so_and_tells_the_same_stages(opened):
    service, _ = opened()
    first, again = ask(service), ask(service)
    assert [(one.name, one.status) for one in again.stages] == [
        (one.name, one.status) for one in first.stages
    ]
    for name in ("expand", "lexical", "vector"):
        assert "cached from an earlier search" in stage(again, name).note
        assert "cached from an earlier search" not in stage(first, name).note
        assert stage(again, name).ms == 0
    assert stage(again, "fuse").note == stage(first, "fuse").note


def test_an_edited_document_makes_it_run_again_and_its_new_text_is_found(opened, folder):
    service, engine = opened()
    ask(service)
    (folder / "bread.md").write_text("Rotate api keys: the new paragraph about keys.\n")
    Indexer(service.library).build(folder, "docs")
    found = ask(service)
    assert engine.asked.count("rotate api keys") == 2
    assert any("the new paragraph" in one.text for one in found)


def test_a_deleted_document_answers_no_longer(opened, folder):
    service, _ = opened()
    assert "keys.md" in [one.path for one in ask(service)]
    (folder / "keys.md").unlink()
    Indexer(service.library).build(folder, "docs")
    assert "keys.md" not in [one.path for one in ask(service)]


def test_no_search_of_an_earlier_state_stays_in_memory(opened, folder):
    service, _ = opened()
    ask(service)
    (folder / "keys.md").unlink()
    Indexer(service.library).build(folder, "docs")
    service.search("another question about bread", dataset="docs", expand=True)
    _, cached = service.parts._retrievals["docs"]
    texts = [one.chunk.path for each in cached._values.values() for one in each.run.passages]
    assert texts
    assert "keys.md" not in texts


def test_an_update_by_another_library_is_noticed(opened, folder):
    service, _ = opened()
    ask(service)
    (folder / "new.md").write_text("Rotate api keys: a page another process added.\n")
    other, _ = opened()
    Indexer(other.library).build(folder, "docs")
    assert "new.md" in [one.path for one in ask(service)]


@pytest.mark.parametrize(
    "other",
    [
        {"query": "rotate api credentials"},
        {"query": "rotate api keys -leaked"},
        {"top_k": 40},
        {"mode": "lexical"},
        {"filters": {"path": "bread.md"}},
        {"doc_ids": ["token.md"]},
        {"doc_ids": ["bread.md"]},
    ],
)
def test_another_question_is_another_search(opened, other):
    service, engine = opened()
    ask(service)
    before = len(engine.asked)
    found = ask(service, **other)
    assert len(engine.asked) > before
    assert rows(found) == rows(ask(opened()[0], **other)), "as if it had been the first"


@pytest.mark.parametrize(("first", "then"), [(True, 1), (1, True)])
def test_a_filter_for_true_is_not_the_filter_for_one(opened, first, then):
    service, _ = opened()
    answers = [
        {one.path for one in ask(service, filters={"flag": value})} for value in (first, then)
    ]
    yes, one = {"keys.md"}, {"token.md", "bread.md"}
    assert answers == ([yes, one] if first is True else [one, yes])


def test_a_lifetime_of_0_keeps_nothing(opened):
    service, engine = opened(cache_ttl_seconds=0)
    first, again = ask(service), ask(service)
    assert len(engine.asked) == 6
    assert rows(again) == rows(first)


def test_a_failed_expansion_is_not_kept(opened):
    source = ScriptedSource(ConnectionError("no route"))
    service, engine = opened(source)
    assert stage(ask(service), "expand").status == "failed"
    source._reply = LINES
    assert stage(ask(service), "expand").status == "ran"
    assert engine.asked == [QUERY, RAREST, QUERY, RAREST, "api credential secret"]


def test_a_failed_leg_is_not_kept(opened):
    service, engine = opened()

    def broken(text, k, restriction):
        raise OSError("the disk is gone")

    engine.search = broken
    assert stage(ask(service), "lexical").status == "failed"
    del engine.search
    assert stage(ask(service), "lexical").status == "ran"
    assert len(engine.asked) == 3


def test_a_fallback_that_is_kept_is_still_refused_by_a_strict_search(opened):
    service, _ = opened(ScriptedSource("nothing of use"))
    ask(service)
    for _ in range(2):
        with pytest.raises(StageFailedError, match="fell back"):
            ask(service, strict=True)


def test_who_changes_the_nodes_given_does_not_change_the_answer_kept(opened):
    service, engine = opened()
    for _ in range(2):  # those of the search that was kept, and those of the kept search
        for node in service.retrieve(QUERY, dataset="docs", expand=True):
            node.score = -1.0
            node.node.metadata["path"] = "elsewhere"
            node.node.set_content("overwritten")
    nodes = service.retrieve(QUERY, dataset="docs", expand=True)
    assert len(engine.asked) == 3
    assert {node.score for node in nodes}.isdisjoint({-1.0})
    assert not [node for node in nodes if "overwritten" in node.node.get_content()]
    assert {node.node.metadata["path"] for node in nodes} <= set(TEXTS)


def test_a_query_that_brings_its_embedding_is_not_kept(opened):
    service, engine = opened()
    vector = [1.0] * 64
    for _ in range(2):
        words = QueryExpansionRetrieverV2("docs", service=service)
        words.retrieve(QueryBundle(QUERY, embedding=vector))
    assert len(engine.asked) == 6


def test_a_view_under_other_settings_keeps_searches_of_its_own(opened):
    service, engine = opened(fusion_mode="rrf")
    ask(service, explain=True)
    found = ask(service.with_settings({"expansion_weight": 5.0}), explain=True)
    assert len(engine.asked) == 6  # two queries, and the rarest word, under each
    weights = {part.weight for one in found for part in one.explain.contributions}
    assert 5.0 in weights
