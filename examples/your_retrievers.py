"""v2's fusion over a project with BM25 and Qdrant: docs/how-to/your-retrievers.md shows this."""

from llama_index.core import SimpleDirectoryReader, StorageContext, VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.retrievers.bm25 import BM25Retriever
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import QdrantClient

from catalog.core.settings import get_settings
from catalog.search.embed_model import get_embed_model
from catalog.search_v2 import HybridRetrieverFactoryV2, KeywordChunkSelector

# The project as it is, with its own reader, splitter, embedding model and collection.
documents = SimpleDirectoryReader("notes", recursive=True).load_data()
nodes = SentenceSplitter(chunk_size=256, chunk_overlap=20).get_nodes_from_documents(documents)
store = QdrantVectorStore("notes", client=QdrantClient(":memory:"))
context = StorageContext.from_defaults(vector_store=store)
embed_model = get_embed_model(get_settings().embedding)  # or HuggingFaceEmbedding(…), or any
index = VectorStoreIndex(nodes, storage_context=context, embed_model=embed_model)
bm25 = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=20)
vectors = index.as_retriever(similarity_top_k=20)
before = QueryFusionRetriever(
    [bm25, vectors],
    llm=MockLLM(),
    mode="reciprocal_rerank",
    num_queries=1,
    similarity_top_k=10,
    use_async=False,  # the client of this collection is synchronous
)

# v2 over it
fused = HybridRetrieverFactoryV2().over([bm25, vectors], weights=[1, 1], bonus=(0.05, 0.02))
stages = [KeywordChunkSelector()]
after = RetrieverQueryEngine.from_args(fused, llm=MockLLM(), node_postprocessors=stages)
