"""Which legs a query has: a retriever for each of its sub-queries, all under one restriction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from llama_index.core.schema import QueryBundle

from catalog.core.param_types import Mode
from catalog.core.query import ParsedQuery, SubQuery
from catalog.search_v2.legs import LegRetriever, LexicalRetriever, VectorRetriever
from catalog.search_v2.search_parts import SearchParts
from catalog.store.engine_types import Restriction


def bundle_about(bundle: QueryBundle, query: ParsedQuery, mode: Mode) -> QueryBundle:
    """Return the bundle with what the parsed query is about; what it brings to embed stays."""
    text = query.about(mode)
    texts = [text if t == bundle.query_str else t for t in bundle.custom_embedding_strs or ()]
    return QueryBundle(text, custom_embedding_strs=texts or None, embedding=bundle.embedding)


class LegMaker:
    """Make the retrievers of sub-queries, all under one restriction.

    The phrases of a lexical sub-query bind its own leg besides.
    """

    def __init__(
        self,
        parts: SearchParts,
        restriction: Restriction,
        k_lex: int,
        k_dense: int,
        mode: Mode,
    ) -> None:
        self._parts, self._restriction = parts, restriction
        self._k_lex, self._k_dense, self._mode = k_lex, k_dense, mode

    def make(self, queries: Iterable[SubQuery], *, is_own: bool = False) -> list[LegRetriever]:
        """Return a retriever for each sub-query that the mode has a leg for.

        ``is_own`` sub-queries are the retrieved query itself: their legs take it as it is given,
        but the lexical leg takes corrected words.
        """
        legs: list[LegRetriever] = []
        queries = list(queries)
        asked = {query.text for query in queries if query.kind == "vec"}
        for query in queries:
            if not query.is_for(self._mode):
                continue
            is_corrected = query.kind == "lex" and query.text not in asked
            fixed = None if is_own and not is_corrected else query
            if query.kind == "lex":
                legs.append(self._lexical(query.phrases, fixed))
            else:
                legs.append(VectorRetriever(self._parts, self._restriction, self._k_dense, fixed))
        return legs

    def _lexical(self, phrases: tuple[str, ...], fixed: SubQuery | None) -> LexicalRetriever:
        engine = self._parts.lexical(self._restriction.dataset)
        containing = tuple(dict.fromkeys((*self._restriction.containing, *phrases)))
        restriction = replace(self._restriction, containing=containing)
        return LexicalRetriever(
            self._parts.database,
            engine,
            restriction,
            self._k_lex,
            fixed,
        )
