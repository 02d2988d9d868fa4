"""A deleted document, or one of a removed dataset, is in nothing that the product holds, says."""

import pytest
from sqlalchemy import select

from catalog.core.errors import DocumentNotFoundError
from catalog.evaluation.backends import Backends, write_run
from catalog.evaluation.golden import GoldenQuery, GoldenSet
from catalog.evaluation.runs import run_backends
from catalog.interfaces.calls import LocalEngine
from catalog.library.indexing import Indexer
from catalog.retrieval.parts import SearchParts
from catalog.search_v2.service import SearchServiceV2
from catalog.store.schema import meta
from fakes import open_library, open_qdrant_library, write
from scripted import ScriptedReranker, ScriptedSource

SECRET = "zqsecret"
WORDS = "the kettle of the harbour"


@pytest.fixture
def folder(tmp_path):
    """Notes of which one says what none may say when it is gone."""
    front = f"---\n{SECRET}field: {SECRET}value\ntags: [{SECRET}tag]\n---\n"
    write(
        tmp_path / "notes",
        kept_dot_md="# Kettle\n\nThe kettle of the harbour is kept.\n",
        other_dot_md="# Ledger\n\nA ledger of kettles.\n",
        third_dot_md="# Otter\n\nAn otter in the harbour.\n",
        zqsecret_dot_md=f"{front}# {SECRET}title\n\nThe kettle of the harbour says {SECRET}word.\n",
    )
    return tmp_path / "notes"


def rows(library):
    """Each row of the store, caches and recorded runs included, that holds the secret."""
    with library.database.read() as connection:
        every = [
            (table.name, str(tuple(row)))
            for table in meta.metadata.sorted_tables
            for row in connection.execute(select(table))
        ]
    return [(name, row) for name, row in every if SECRET in row]


def answers(library):
    """Whatever the verbs and the evaluation give for questions about it."""
    engine = LocalEngine(library)
    for mode in ("hybrid", "lexical", "vector"):
        for query in (WORDS, f"{SECRET}word {SECRET}title kettle"):
            answer = engine.ask("search", {"query": query, "mode": mode, "top_k": 50})
            yield str([answer["results"], answer["notes"]])
    browsed = engine.ask("browse", {"limit": 100})
    yield str(browsed)
    assert browsed["total"] == 3
    yield str(engine.ask("multi_get", {"patterns": ["**"]}))
    with pytest.raises(DocumentNotFoundError) as raised:
        engine.ask("get", {"reference": "zqsecret.md"})
    yield str(raised.value.suggestions)
    queries = GoldenSet("g", (GoldenQuery(id="q1", query=WORDS, expected=[{"path": "kept.md"}]),))
    with Backends(library) as backends:
        (run,) = run_backends([backends.load("v2")], queries, dataset="notes", repeats=0)
    yield str(run.outcomes)
    exported = write_run(library.settings.home.parent / "runs", "v2", {"q1": run.documents("q1")})
    yield exported.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["bm25", "fts"])
def test_after_a_deletion_a_reopening_and_a_rebuild_nothing_of_it_is_left(tmp_path, folder, engine):
    home = tmp_path / "home"
    with open_library(home, lexical_engine=engine) as library:
        Indexer(library).build(folder, "notes")
        parts = SearchParts(
            library,
            make_reranker=lambda: ScriptedReranker(1.0),
            expansion_source=ScriptedSource("lex: kettle harbour"),
        )
        asked = {"dataset": "notes", "rerank": True, "expand": True, "top_k": 50}
        service = SearchServiceV2(library, parts)
        assert SECRET in str(service.search(WORDS, **asked).to_dict())
        assert rows(library)
        (folder / "zqsecret.md").unlink()
        Indexer(library).update("notes")
        assert SECRET not in str(service.search(WORDS, **asked).to_dict())
        assert rows(library) == []
        assert [text for text in answers(library) if SECRET in text] == []
    with open_library(home, lexical_engine=engine) as library:
        assert [text for text in answers(library) if SECRET in text] == []
        Indexer(library).rebuild()
        assert rows(library) == []
        assert [text for text in answers(library) if SECRET in text] == []


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["bm25", "fts"])
def test_after_a_dataset_is_removed_nothing_of_it_is_left(tmp_path, folder, engine):
    home = tmp_path / "home"
    (tmp_path / "secrets").mkdir()
    (folder / "zqsecret.md").rename(tmp_path / "secrets" / "zqsecret.md")
    with open_qdrant_library(home, lexical_engine=engine) as library:
        for name in ("notes", "secrets"):
            Indexer(library).build(tmp_path / name, name)
        asked = {"rerank": True, "expand": True, "top_k": 50}
        parts = SearchParts(
            library,
            make_reranker=lambda: ScriptedReranker(1.0),
            expansion_source=ScriptedSource("lex: kettle harbour"),
        )
        service = SearchServiceV2(library, parts)
        assert SECRET in str(service.search(WORDS, **asked).to_dict())
        Indexer(library).remove("secrets")
        assert SECRET not in str(service.search(WORDS, **asked).to_dict())
        assert rows(library) == []
        assert [text for text in answers(library) if SECRET in text] == []
    derived = [file for file in (home / "indexes").rglob("*") if file.is_file()]
    assert [file for file in derived if SECRET.encode() in file.read_bytes()] == []
    with open_qdrant_library(home, lexical_engine=engine) as library:
        assert [text for text in answers(library) if SECRET in text] == []
