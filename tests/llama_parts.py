"""LlamaIndex parts for tests: a language model, another index, and the paths of nodes."""

from itertools import takewhile

from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.schema import TextNode, TransformComponent

from catalog.search_v2 import CachedEmbedding
from fakes import DIM


class Scripted(CustomLLM):
    """Answers the first prompts with these replies, and all others with the reply."""

    reply: str
    replies: list[str] = []
    prompts: list[str] = []

    @property
    def metadata(self):
        return LLMMetadata(model_name="scripted")

    def complete(self, prompt, formatted=False, **_):
        self.prompts.append(prompt)
        return CompletionResponse(text=self.replies.pop(0) if self.replies else self.reply)

    def stream_complete(self, prompt, formatted=False, **_):
        self.prompts.append(prompt)
        words = self.reply.split(" ")
        yield from (
            CompletionResponse(text=" ".join(words[:n]), delta=f"{' ' if n > 1 else ''}{word}")
            for n, word in enumerate(words, start=1)
        )


def embedded_texts(pipeline, *documents):
    """The texts that a pipeline's steps would embed of these documents."""
    nodes = list(documents)
    for step in takewhile(
        lambda step: not isinstance(step, CachedEmbedding), pipeline.transformations
    ):
        nodes = step(nodes)
    return [window for node in nodes for window in node.windows]


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


class Tell(TransformComponent):
    """Adds metadata."""

    told: dict

    def __call__(self, nodes, **_):
        for node in nodes:
            node.metadata |= self.told
        return nodes
