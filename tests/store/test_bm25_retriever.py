"""The BM25 engine as LlamaIndex users see it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from llama_index.core.schema import BaseNode, TextNode
from llama_index.retrievers.bm25 import BM25Retriever

from builders import drop, make_database, put
from catalog.core.errors import EngineError
from catalog.core.scope import Scope
from catalog.store.database import Database
from catalog.store.engine_types import Restriction
from catalog.store.lexical.analysis import Analyzer
from catalog.store.lexical.bm25 import Bm25Engine
from catalog.store.lexical.bm25_retriever import ChunkBM25Retriever

WHOLE = Restriction("notes")


def join(seqs: Sequence[int]) -> Mapping[int, BaseNode]:
    return {seq: TextNode(id_=f"chunk-{seq}", text=f"text of {seq}") for seq in seqs}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = make_database(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def engine(database: Database, tmp_path: Path) -> Bm25Engine:
    return Bm25Engine(database, "notes", tmp_path / "index")


def test_it_is_a_bm25_retriever_that_returns_joined_nodes_with_scores(
    database: Database, engine: Bm25Engine
) -> None:
    [seq] = put(database, "notes", "a.md", "flour and water")
    put(database, "notes", "b.md", "salt")
    retriever = ChunkBM25Retriever(engine, WHOLE, join=join)
    assert isinstance(retriever, BM25Retriever)
    [found] = retriever.retrieve("flour")
    assert found.node.node_id == f"chunk-{seq}"
    assert found.score is not None
    assert found.score > 0


def test_the_async_door_gives_the_same(database: Database, engine: Bm25Engine) -> None:
    put(database, "notes", "a.md", "flour and water")
    retriever = ChunkBM25Retriever(engine, WHOLE, join=join)
    assert asyncio.run(retriever.aretrieve("flour")) == retriever.retrieve("flour")


def test_no_match_no_words_and_no_corpus_give_no_node(
    database: Database, engine: Bm25Engine
) -> None:
    retriever = ChunkBM25Retriever(engine, WHOLE, join=join)
    assert retriever.retrieve("flour") == []
    put(database, "notes", "a.md", ["flour", "water"])
    assert retriever.retrieve("zebra") == []
    assert retriever.retrieve("the of and") == []
    assert retriever.retrieve("???") == []


def test_what_the_restriction_forbids_is_never_returned_as_filler(
    database: Database, engine: Bm25Engine
) -> None:
    put(database, "notes", "secret.md", "flour")
    put(database, "notes", "open.md", "water")
    within = Restriction("notes", Scope.of(["notes:open.md"]))
    retriever = ChunkBM25Retriever(engine, within, join=join, similarity_top_k=50)
    assert retriever.retrieve("flour") == []


def test_a_chunk_that_vanished_before_the_join_is_left_out(
    database: Database, engine: Bm25Engine
) -> None:
    [gone] = put(database, "notes", "a.md", "flour")
    [kept] = put(database, "notes", "b.md", "flour")

    def without_gone(seqs: Sequence[int]) -> Mapping[int, BaseNode]:
        return {seq: node for seq, node in join(seqs).items() if seq != gone}

    retriever = ChunkBM25Retriever(engine, WHOLE, join=without_gone)
    assert [found.node.node_id for found in retriever.retrieve("flour")] == [f"chunk-{kept}"]


def test_changes_need_no_new_retriever(database: Database, engine: Bm25Engine) -> None:
    retriever = ChunkBM25Retriever(engine, WHOLE, join=join)
    put(database, "notes", "a.md", "flour")
    assert len(retriever.retrieve("flour")) == 1
    drop(database, "notes", "a.md")
    assert retriever.retrieve("flour") == []


def test_a_reloaded_retriever_keeps_its_tokenizer_and_its_scores(
    database: Database, tmp_path: Path
) -> None:
    put(database, "notes", "a.md", "die Häuser will er kaufen")
    put(database, "notes", "b.md", "ein Haus will er bauen")
    german = Bm25Engine(
        database, "notes", tmp_path / "index", analyzer=Analyzer(language="german"), k1=0.9, b=0.4
    )
    retriever = ChunkBM25Retriever(german, WHOLE, join=join, similarity_top_k=7)
    retriever.persist(str(tmp_path / "saved"))
    again = ChunkBM25Retriever.from_persist_dir(
        str(tmp_path / "saved"), database=database, restriction=WHOLE, join=join
    )
    for query in ("Haus", "Häuser bauen", "will"):
        assert again.retrieve(query) == retriever.retrieve(query)
    assert len(again.retrieve("Haus")) == 2
    assert again.similarity_top_k == 7


def test_a_folder_without_a_saved_retriever_says_so(database: Database, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no saved retriever"):
        ChunkBM25Retriever.from_persist_dir(
            str(tmp_path), database=database, restriction=WHOLE, join=join
        )


def test_building_it_from_nodes_is_refused_with_the_way_to_do_it() -> None:
    with pytest.raises(TypeError, match="Bm25Engine"):
        ChunkBM25Retriever.from_defaults(nodes=[])
