"""Catalog in LlamaIndex. Runs as it is, in the store that ``IDX_HOME`` names; no network."""

from llama_index.core import Document
from llama_index.core.chat_engine import CondenseQuestionChatEngine
from llama_index.core.llms import MockLLM
from llama_index.core.tools import QueryEngineTool

from catalog.search_v2 import (
    CatalogRetriever,
    HybridRetrieverFactoryV2,
    IngestionPipelineBuilderV2,
    QueryEngineBuilderV2,
)

keys = "# Keys\n\n## Rotating\n\nRotate the API keys every ninety days.\n"
bread = "Mix flour, water and yeast. Bake the bread at 230 degrees.\n"

# A pipeline over documents of any LlamaIndex reader: a run replaces what it brings again.
pipeline = IngestionPipelineBuilderV2().build_pipeline("handbook")
pipeline.run(
    documents=[
        Document(text=keys, metadata={"file_name": "keys.md", "tags": ["ops"]}),
        Document(text=bread, doc_id="recipes/bread.txt"),
    ]
)

# The whole search as a retriever, with any parameter of a search.
retriever = CatalogRetriever("handbook", top_k=3, filters={"tags": "ops"})
for node in retriever.retrieve("how often are keys rotated"):
    print(f"{node.score:.2f} {node.metadata['path']}:{node.metadata['line_start']}")

# Both legs and fusion alone: a QueryFusionRetriever.
fused = HybridRetrieverFactoryV2().build(dataset_name="handbook", k_fused=5)
print([node.metadata["path"] for node in fused.retrieve("bake bread")])

# A query engine. With llm=… it writes an answer, without one the best sentences are it, cited.
engine = QueryEngineBuilderV2().build_query_engine("handbook", top_k=1)
print(engine.query("at how many degrees is bread baked"))

# A chat engine of LlamaIndex's own. Put your model, which rewords questions, in place of MockLLM.
chat = CondenseQuestionChatEngine.from_defaults(engine, llm=MockLLM())
print(chat.chat("how hot is the oven").source_nodes[0].metadata["path"])

# A tool for any agent: FunctionAgent(tools=[tool], llm=…).
tool = QueryEngineTool.from_defaults(engine, name="handbook", description="Searches our notes.")
print(tool.call("at how many degrees is bread baked").content)
