"""The v2 search service for LlamaIndex users."""

from __future__ import annotations

import logging

from llama_index.core.schema import NodeWithScore, QueryBundle

from catalog.core.arguments import takes_self
from catalog.core.params import SearchParams
from catalog.core.retrieval_events import searching
from catalog.retrieval.request import for_agent
from catalog.retrieval.search import Searcher, find_passages
from catalog.search_v2.nodes import to_nodes, to_question


class SearchServiceV2(Searcher):
    """A :class:`Searcher` that also returns LlamaIndex nodes.

    Examples:
        >>> from catalog.library.library import Library
        >>> from catalog.search_v2 import SearchServiceV2
        >>> service = SearchServiceV2(Library.open())
        >>> nodes = service.retrieve("bake bread", dataset="notes", top_k=1)
        >>> nodes[0].metadata["path"], nodes[0].metadata["title"]
        ('recipes/bread.txt', 'bread')
        >>> service.close()
    """

    @takes_self(SearchParams)
    def retrieve(self, params: SearchParams) -> list[NodeWithScore]:
        """Return the passages of ``search`` as LlamaIndex nodes, for query engines and agents."""
        return find_nodes(self, params)


def find_nodes(
    service: Searcher,
    params: SearchParams,
    bundle: QueryBundle | None = None,
    *,
    is_refined: bool = True,
    is_filled: bool = False,
) -> list[NodeWithScore]:
    """Return the passages of a search as LlamaIndex nodes, or the candidates for them.

    A ``bundle`` may have an embedding, or texts to embed, instead of the query's. A failed stage is
    logged, because nodes have no place for it.
    """
    with searching(str(service.library.settings.home)):
        params = for_agent(params, service.parts.settings)
        question = None if bundle is None else to_question(bundle)
        found = find_passages(
            service.parts, params, question, is_refined=is_refined, is_filled=is_filled
        )
        found.stages.log_failures(logging.getLogger(__name__))
        return to_nodes(found.passages, service.library.database)
