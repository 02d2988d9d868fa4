"""LlamaIndex's own parts as a baseline over a dataset's passages."""

import builtins

import pytest
from llama_index.core.schema import TextNode
from llama_index.retrievers.bm25 import BM25Retriever

from catalog.core.errors import InputError, MissingExtraError
from catalog.evaluation.backends import Backends
from catalog.ingest.sync_report import Silent
from catalog.library.indexing import Indexer
from catalog.store.chunks import load_chunks
from catalog.store.engine_types import Restriction
from catalog.store.vectors.flat import draw_passages
from evaluation.stubs import question
from fakes import WordEncoder, open_library, write

QUERY = "rotate the api keys"


@pytest.fixture
def library(tmp_path, notes):
    with open_library(tmp_path / "home") as opened:
        Indexer(opened).build(notes, "notes")
        yield opened


@pytest.fixture
def stock(library):
    with Backends(library) as backends:
        yield backends.load("stock")


def asked(backend, query=QUERY, top_k=10):
    return backend.search(question(1, query=query), dataset="notes", top_k=top_k)


def test_it_ranks_as_the_stock_fusion_does_by_hand(library, stock):
    with library.database.read() as connection:
        seqs = draw_passages(connection, "notes", 1000)
        chunks = [load_chunks(connection, "notes", seqs)[seq] for seq in sorted(seqs)]
    headed = [
        f"title: {chunk.title}\nheader_path: {' > '.join(chunk.heading_path)}\n\n{chunk.text}"
        for chunk in chunks
    ]
    bm25 = BM25Retriever.from_defaults(
        nodes=[TextNode(id_=c.chunk_id, text=t) for c, t in zip(chunks, headed, strict=True)],
        similarity_top_k=len(chunks),
    )
    words = [one.node.node_id for one in bm25.retrieve(QUERY)]
    exact, query = library.indexes.vector("notes", "flat"), library.model.embed_query(QUERY)
    hits = exact.search(query, len(chunks), Restriction("notes"))
    by_seq = {chunk.seq: chunk.chunk_id for chunk in chunks}
    near = [by_seq[hit.seq] for hit in hits]
    fused = {chunk.chunk_id: 0.0 for chunk in chunks}
    for listed in (words, near):
        for rank, one in enumerate(listed):  # from 0, as the stock class counts
            fused[one] += 1 / (60 + rank)
    expected = [fused[one] for one in sorted(fused, key=lambda one: -fused[one])]
    stock.prepare("notes", Silent())
    found = asked(stock, top_k=len(chunks))
    assert [hit.score for hit in found.hits] == pytest.approx(expected)
    paths = {chunk.chunk_id: chunk.path for chunk in chunks}
    assert found.hits[0].path == paths[max(fused, key=fused.get)]
    assert found.hits[0].path == "keys.md"


def test_a_dataset_that_changed_is_loaded_again(library, stock, notes):
    stock.prepare("notes", Silent())
    first = stock._client
    stock.prepare("notes", Silent())
    assert stock._client is first
    write(notes, zebra_dot_md="# Zebras\n\nA zebra has stripes.\n")
    Indexer(library).build(notes, "notes")
    stock.prepare("notes", Silent())
    assert asked(stock, "zebra stripes").documents[0] == "zebra.md"


def test_passages_that_wait_for_a_vector_are_found_by_words(tmp_path, notes):
    encoder = WordEncoder()
    write(notes, poison_dot_md="# Odd\n\nPOISON zebra.\n")
    with open_library(tmp_path / "home", encoder) as library, Backends(library) as backends:
        Indexer(library).build(notes, "notes")
        stock = backends.load("stock")
        stock.prepare("notes", Silent())
        assert "poison.md" in asked(stock, "zebra").documents


def test_a_dataset_without_passages_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty", a_dot_md="\n")
    with open_library(tmp_path / "home") as library, Backends(library) as backends:
        Indexer(library).build(tmp_path / "empty", "notes")
        with pytest.raises(InputError, match="no passage"):
            backends.load("stock").prepare("notes", Silent())


def test_without_its_package_the_extra_is_named(library, monkeypatch):
    load = builtins.__import__

    def refuse(name, *args):
        if name.startswith("llama_index.retrievers.bm25"):
            raise ImportError(name)
        return load(name, *args)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with Backends(library) as backends, pytest.raises(MissingExtraError, match=r"\[stock\]"):
        backends.load("stock")


def test_its_identity_holds_the_versions_and_the_model(stock):
    identity = stock.identity
    assert identity["embedding"] == "words-1"
    assert identity["llama-index-retrievers-bm25"]
