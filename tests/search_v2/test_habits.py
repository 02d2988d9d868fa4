"""LlamaIndex habits: what an experienced developer does from memory with our parts."""

import asyncio
import logging

import pytest
from llama_index.core import QueryBundle, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever, RecursiveRetriever
from llama_index.core.schema import IndexNode, TextNode

from catalog import search_v2
from catalog.core.settings import get_settings
from catalog.library.indexing import Indexer
from catalog.retrieval import shared
from catalog.search_v2 import (
    CatalogRetriever,
    HybridRetrieverFactoryV2,
    SearchServiceV2,
)
from fakes import DIM, open_library


@pytest.fixture
def service(tmp_path, notes):
    """The shared service of this process, over three notes and a model without files."""
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
    made = SearchServiceV2(open_library(tmp_path / "home"))
    shared._services.get(get_settings().model_dump_json(), lambda: made)
    yield made
    search_v2.close()


class OtherModel(BaseEmbedding):
    """Another index's model: words count in other dimensions than ours."""

    dim: int = DIM

    def _get_text_embedding(self, text):
        vector = [0.0] * self.dim
        for word in text.casefold().split():
            vector[sum(map(ord, word)) % self.dim] += 1.0
        return vector

    _get_query_embedding = _get_text_embedding

    async def _aget_query_embedding(self, query):
        return self._get_text_embedding(query)


def paths(nodes):
    return [node.metadata["path"] for node in nodes if "path" in node.metadata]


def foreign_index(dim, **given):
    nodes = [TextNode(id_="zoo", text="walrus"), TextNode(id_="sea", text="bake cod")]
    return VectorStoreIndex(nodes, embed_model=OtherModel(dim=dim), **given)


@pytest.mark.parametrize("dim", [7, DIM])
def test_an_embedding_that_another_index_wrote_is_replaced_and_told_once(service, dim, caplog):
    stock = foreign_index(dim).as_retriever()
    for ours in (
        CatalogRetriever("notes", mode="vector", top_k=1),
        HybridRetrieverFactoryV2().build(dataset_name="notes", mode="vector", k_fused=1),
    ):
        bundle = QueryBundle("midnight backups")
        stock.retrieve(bundle)
        assert bundle.embedding is not None
        [alone] = ours.retrieve("midnight backups")
        for _ in range(2):
            [node] = ours.retrieve(bundle)
            assert (node.node_id, node.score) == (alone.node_id, alone.score)
    told = [one for one in caplog.records if "another model" in one.message]
    assert [one.levelno for one in told] == [logging.WARNING]


@pytest.mark.parametrize("dim", [7, DIM])
def test_fusion_recursion_and_objects_of_llama_index_reach_our_retriever(service, dim):
    ours = CatalogRetriever("notes", top_k=1)
    stock = foreign_index(dim).as_retriever(similarity_top_k=1)
    fused = QueryFusionRetriever([stock, ours], num_queries=1, use_async=False, llm=MockLLM())
    assert paths(fused.retrieve("midnight backups")) == ["guides/backup.md"]
    fused = QueryFusionRetriever([stock, ours], num_queries=1, llm=MockLLM())
    assert paths(asyncio.run(fused.aretrieve("midnight backups"))) == ["guides/backup.md"]
    pointer = IndexNode(text="backups", index_id="ours", id_="ours")
    root = VectorStoreIndex([pointer], embed_model=OtherModel(dim=dim)).as_retriever()
    recursive = RecursiveRetriever("root", retriever_dict={"root": root, "ours": ours})
    assert paths(recursive.retrieve("midnight backups")) == ["guides/backup.md"]
    objects = [IndexNode(text="backups", index_id="ours", obj=ours)]
    over = VectorStoreIndex(objects=objects, embed_model=OtherModel(dim=dim)).as_retriever()
    assert paths(over.retrieve("midnight backups")) == ["guides/backup.md"]
    assert paths(asyncio.run(over.aretrieve("midnight backups"))) == ["guides/backup.md"]
