"""Other words for a query, from a source that may be slow, silent or wrong, through the cache."""

from __future__ import annotations

import json
import time
import unicodedata
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from catalog.core.bounded_calls import BoundedCalls
from catalog.core.errors import CatalogError, LLMError
from catalog.search_v2.caches import ModelCache
from catalog.search_v2.expansion.lines import ExpansionLine, filter_lines
from catalog.store.lexical.analysis import Analyzer
from catalog.store.llm_cache import CacheEntry, cache_key

if TYPE_CHECKING:
    from catalog.core.settings import RAGv2Settings
    from catalog.search_v2.expansion.sources import ExpansionSource

ResultT = TypeVar("ResultT")
_ABANDONED = 2  # hanging calls before the source is left alone until one of them ends


@dataclass(frozen=True, slots=True)
class Expansion:
    """Lines worth asking, milliseconds, a note; ``error`` if the source failed."""

    lines: tuple[ExpansionLine, ...]
    ms: float
    note: str
    error: CatalogError | None = None


class Expander:
    """Asks one source, within its time, for lines of a query; safe between threads."""

    def __init__(self, source: ExpansionSource, cache: ModelCache, rag: RAGv2Settings) -> None:
        self._source, self._cache, self._rag = source, cache, rag
        self._calls = BoundedCalls(_ABANDONED)
        self._analyzer = Analyzer()

    @cached_property
    def identity(self) -> str:
        """The source's fingerprint; raises :class:`LLMError` if it has none to give."""
        return self._guarded(lambda: self._source.fingerprint)

    def expand(self, query: str) -> Expansion:
        """The lines that survive the filters; never raises for what the source does."""
        started = time.perf_counter()
        try:
            key = cache_key("expansion", _normalised(query), self.identity)
            cached = _decoded(self._cache.get([key]).get(key))
            lines = self._asked(query) if cached is None else cached
        except CatalogError as error:
            return Expansion((), _since(started), "", error)
        if cached is None and lines:
            encoded = json.dumps([asdict(line) for line in lines])
            self._cache.put({key: CacheEntry(encoded, None)}, model=self.identity)
        kept, dropped = filter_lines(
            lines,
            query,
            analyzer=self._analyzer,
            lex_max=self._rag.expansion_lex_max,
            vec_max=self._rag.expansion_vec_max,
            hyde_max=self._rag.expansion_hyde_max,
            prompt=self._source.prompt,
        )
        said = [f"{self._source.name}{' (cached)' if cached is not None else ''}"]
        said.append(", ".join(f"{line.kind}: {line.text}" for line in kept) or "no usable line")
        if dropped:
            counts = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()))
            said.append(f"dropped: {counts}")
        return Expansion(tuple(kept), _since(started), "; ".join(said))

    def _asked(self, query: str) -> list[ExpansionLine]:
        seconds = self._rag.expansion_timeout_ms / 1000

        def ask() -> list[ExpansionLine]:
            return self._calls.call(lambda: self._source.expand(query), seconds)

        return self._guarded(ask)

    def _guarded(self, ask: Callable[[], ResultT]) -> ResultT:
        """Whatever another's code raises, an exit too, as our error."""
        try:
            return ask()
        except (CatalogError, KeyboardInterrupt):
            raise
        except BaseException as error:
            name = type(self._source).__name__
            raise LLMError(f"{name}: {type(error).__name__}: {error}") from error


def _decoded(text: str | None) -> list[ExpansionLine] | None:
    """Kept lines; nothing of an entry that cannot be read."""
    try:
        return None if text is None else [ExpansionLine(**line) for line in json.loads(text)]
    except (TypeError, ValueError):
        return None


def _normalised(query: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", query).casefold().split())


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1000
