"""Get other words for a query through the cache; the source may be slow, silent or wrong."""

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
from catalog.retrieval.caches import ModelCache
from catalog.retrieval.expansion.lines import ExpansionLine, describe_dropped, filter_lines
from catalog.store.lexical.analysis import Analyzer
from catalog.store.llm_cache import CacheEntry, cache_key

if TYPE_CHECKING:
    from catalog.core.settings import RAGv2Settings
    from catalog.retrieval.expansion.sources import ExpansionSource

ResultT = TypeVar("ResultT")
_ABANDONED = 2  # hanging calls; with more, the source is not asked until one of them ends


@dataclass(frozen=True, slots=True)
class Expansion:
    """The lines to search, the time in milliseconds, a note, and ``error`` if the source failed."""

    lines: tuple[ExpansionLine, ...]
    ms: float
    note: str
    error: CatalogError | None = None


class Expander:
    """Ask one source for lines within a time limit; safe to share between threads."""

    def __init__(self, source: ExpansionSource, cache: ModelCache, rag: RAGv2Settings) -> None:
        self._source, self._cache, self._rag = source, cache, rag
        self._calls = BoundedCalls(_ABANDONED)
        self._analyzer = Analyzer()

    @cached_property
    def identity(self) -> str:
        """Return the source's fingerprint; raise :class:`LLMError` if the source has none."""
        return self._call(lambda: self._source.fingerprint)

    def expand(self, query: str) -> Expansion:
        """Return the lines that pass the filters; never raise an error of the source."""
        started = time.perf_counter()
        try:
            lines, is_cached = self._lines(query)
        except CatalogError as error:
            return Expansion((), _ms_since(started), "", error)
        rag = self._rag
        usable, dropped = filter_lines(
            lines,
            query,
            analyzer=self._analyzer,
            lex_max=rag.expansion_lex_max,
            vec_max=rag.expansion_vec_max,
            hyde_max=rag.expansion_hyde_max,
            prompt=self._source.prompt,
        )
        notes = [f"{self._source.name}{' (cached)' if is_cached else ''}"]
        notes.append(", ".join(f"{line.kind}: {line.text}" for line in usable) or "no usable line")
        if dropped:
            notes.append(describe_dropped(dropped))
        return Expansion(tuple(usable), _ms_since(started), "; ".join(notes))

    def _lines(self, query: str) -> tuple[list[ExpansionLine], bool]:
        """Return the source's lines, and whether they come from the cache."""
        key = cache_key("expansion", _normalise(query), self.identity)
        cached = _decode(self._cache.get([key]).get(key))
        if cached is not None:
            return cached, True
        seconds = self._rag.expansion_timeout_ms / 1000
        lines = self._call(lambda: self._calls.call(lambda: self._source.expand(query), seconds))
        if lines:
            entry = CacheEntry(json.dumps([asdict(line) for line in lines]), None)
            self._cache.put({key: entry}, model=self.identity)
        return lines, False

    def _call(self, function: Callable[[], ResultT]) -> ResultT:
        """Turn whatever the source's code raises, even an exit, into one of our errors."""
        try:
            return function()
        except (CatalogError, KeyboardInterrupt):
            raise
        except BaseException as error:
            name = type(self._source).__name__
            raise LLMError(f"{name}: {type(error).__name__}: {error}") from error


def _decode(text: str | None) -> list[ExpansionLine] | None:
    """Read cached lines; ``None`` for an entry that cannot be read."""
    try:
        return None if text is None else [ExpansionLine(**line) for line in json.loads(text)]
    except (TypeError, ValueError):
        return None


def _normalise(query: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", query).casefold().split())


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000
