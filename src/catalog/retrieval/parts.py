"""The parts of a search: models and calibrations over one library, and the report of its steps."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal

from catalog.core.errors import ConfigError, StageFailedError
from catalog.core.kept import LRUCache
from catalog.core.results import StageReport
from catalog.core.retrieval_events import tell_failure, tell_fallback
from catalog.core.settings import RAGv2Settings, Settings
from catalog.core.settings.loading import needs_rebuild, with_section
from catalog.library.library import Library
from catalog.retrieval.fusion import BY_MEANING, BY_WORDS, PRIOR, Balance, balance_of_languages
from catalog.retrieval.relevance import WORDS_ONLY, Calibration, find_calibration
from catalog.store.llm_cache import ModelCache

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from sqlalchemy import Connection

    from catalog.embedding.model import EmbeddingModel
    from catalog.llm import LanguageModel
    from catalog.retrieval.expansion import Expander, ExpansionSource
    from catalog.retrieval.rerank import Reranker
    from catalog.store.embedding_cache import Side
    from catalog.store.engines import LexicalEngine, VectorEngine
    from catalog.store.filter_sql import DatasetNames

    Vector = npt.NDArray[np.float32]

_PROBES = 64  # passages read for a dataset's languages if its engine has none
_BALANCES = 64  # datasets whose balance is kept
_RERANKER_SETTINGS = {  # the budget is also how long a request may take
    *("rerank_provider", "rerank_model", "rerank_url", "rerank_api_key", "rerank_budget_ms")
}
_STORE_SETTINGS = ("qdrant_url", "qdrant_api_key")  # engines are shared
Status = Literal["ran", "skipped", "failed"]
OnStage = Callable[[StageReport], object]


class SearchParts:
    """The parts of searches in one library under one set of v2 settings. Thread-safe.

    Each part is made at its first use. ``make_reranker`` and ``expansion_source`` replace those of
    the settings.
    """

    def __init__(
        self,
        library: Library,
        settings: Settings | None = None,
        *,
        make_reranker: Callable[[], Reranker] | None = None,
        expansion_source: ExpansionSource | None = None,
        calibrations: dict[str, Calibration] | None = None,
    ) -> None:
        self.library, self.database = library, library.database
        self.settings = settings or library.settings
        self.rag: RAGv2Settings = self.settings.rag_v2
        self._make_reranker = make_reranker or cache(self._load_reranker)
        self._source = expansion_source
        self._calibrations = {} if calibrations is None else calibrations
        self._balances: LRUCache[DatasetNames, tuple[Hashable, Balance]] = LRUCache(_BALANCES)
        # the vectors are on a server, which no transaction should wait for
        self.asks_server = self.rag.vector_engine == "qdrant" and self.rag.qdrant_url is not None
        self._expander: tuple[LanguageModel | None, Expander] | None = None
        self.on_stage: OnStage | None = None
        self.synonyms: Sequence[str] = ()  # lines to try in addition to those of the home

    def with_settings(self, changes: Mapping[str, Any]) -> SearchParts:
        """Return the parts for other v2 settings; models are shared.

        Raises :class:`ConfigError` for a setting that needs a rebuild.
        """
        for name in changes:
            if needs_rebuild(f"rag_v2.{name}") or name in _STORE_SETTINGS:
                raise ConfigError(
                    f"{name} shapes the index: change it and rebuild, in another home"
                )
        settings = with_section(self.settings, "rag_v2", changes)
        rag = settings.rag_v2
        if rag.expansion_enabled or (rag.rerank_enabled and rag.rerank_provider == "llm"):
            _ = self.library.llm  # reports a missing setting now
        is_same_reranker = _RERANKER_SETTINGS.isdisjoint(changes)
        if is_same_reranker and rag.rerank_enabled:
            _ = self.reranker
        return SearchParts(
            self.library,
            settings,
            make_reranker=self._make_reranker if is_same_reranker else None,
            expansion_source=self._source,
            calibrations=self._calibrations,
        )

    def lexical(self, dataset: DatasetNames) -> LexicalEngine:
        """Return the lexical engine of the settings; a single one for several datasets."""
        engine = self.library.indexes.lexical(dataset, self.rag.lexical_engine)
        return engine.weighted(self.rag.bm25_k1, self.rag.bm25_b)

    def vector(self, dataset: str) -> VectorEngine:
        """Return the vector engine of the settings; raises like ``Indexes.vector``."""
        return self.library.indexes.vector(dataset, self.rag.vector_engine)

    @cached_property
    def query_vectors(self) -> QueryVectors:
        """Query embeddings through the cache, with the query prefix of these settings."""
        model, rag, of_library = self.library.model, self.rag, self.library.settings
        if rag.embed_prefix_query != of_library.rag_v2.embed_prefix_query:
            from catalog.embedding import query_prefix

            model = replace(model, query_prefix=query_prefix(of_library.embedding, rag))
        return QueryVectors(model, rag.query_cache_size)

    @property
    def expander(self) -> Expander:
        """Other words for queries, through the cache; raises like ``Library.llm``."""
        return self.expander_of(None if self._source else self.library.llm)

    def expander_of(self, llm: LanguageModel | None) -> Expander:
        """Return the expander that asks this language model; the last one is kept."""
        from catalog.retrieval.expansion import Expander, LexVecSource

        kept = self._expander
        if kept is None or kept[0] is not llm:
            rag, source = self.rag, self._source
            source = source if llm is None else LexVecSource(llm)
            assert source is not None
            answers = ModelCache(self.database, kind="expansion", lifetime=rag.cache_ttl_seconds)
            kept = self._expander = llm, Expander(source, answers, rag)
        return kept[1]

    @property
    def reranker(self) -> Reranker:
        """The reranker; its model loads at its first use."""
        return self._make_reranker()

    @cached_property
    def rerank_cache(self) -> ModelCache:
        """Scores of the reranker, by query and text."""
        return ModelCache(self.database, kind="rerank", lifetime=self.rag.cache_ttl_seconds)

    def calibration(self, has_cosines: bool) -> Calibration:
        """Return the calibration that turns passages' features into relevance."""
        embedding = self.library.wanted_model.fingerprint if has_cosines else WORDS_ONLY
        if embedding not in self._calibrations:
            self._calibrations[embedding] = find_calibration(self.database, embedding)
        return self._calibrations[embedding]

    def balance(self, dataset: DatasetNames) -> Balance:
        """Return the legs' balance in adaptive fusion: by useless legs, else by languages."""
        from catalog.store.database import read_meta
        from catalog.store.restriction import read_stamps

        if self.rag.fusion_mode != "adaptive":
            return PRIOR
        with self.database.read() as connection:
            state = read_stamps(connection, dataset), read_meta(connection, f"agreement:{dataset}")
            kept = self._balances.get(dataset)
            if kept is None or kept[0] != state:
                kept = state, self._find_balance(connection, dataset)
                self._balances.put(dataset, kept)
        return kept[1]

    @cached_property
    def known_languages(self) -> tuple[str, ...]:
        """The languages that the embedding model knows; ``()`` if they are many or unknown."""
        from catalog.embedding.profiles import profile_of

        return profile_of(self.library.wanted_model.model).languages

    def _find_balance(self, connection: Connection, dataset: DatasetNames) -> Balance:
        """Read the balance; if the keyword engine tells no languages, a sample of passages does."""
        from catalog.library.useless_legs import read_useless_leg
        from catalog.store.chunks import load_chunks
        from catalog.store.lexical.languages import detect_language
        from catalog.store.vectors.flat import draw_passages

        useless = read_useless_leg(self.database, dataset) if isinstance(dataset, str) else None
        if useless is not None or not self.known_languages:
            return {"vector": BY_WORDS, "lexical": BY_MEANING}.get(useless or "", PRIOR)
        counts: Mapping[str, int] = self.lexical(dataset).languages()
        if not counts:
            seqs = draw_passages(connection, dataset, _PROBES)
            drawn = load_chunks(connection, dataset, seqs, damaged=[]).values()
            counts = Counter(detect_language(one.text, one.text.split()) or "" for one in drawn)
        return balance_of_languages(counts, self.known_languages)

    def close(self) -> None:
        """Close the library."""
        self.library.close()

    def __deepcopy__(self, memo: object) -> SearchParts:
        return self  # its store and its models are open

    def _load_reranker(self) -> Reranker:
        from catalog.retrieval.rerank import get_reranker

        embedding = self.settings.embedding
        return get_reranker(
            self.rag,
            llm=self.library.llm if self.rag.rerank_provider == "llm" else None,
            llm_seconds=self.settings.llm.timeout_seconds,
            threads=embedding.threads,
            offline=embedding.offline,
        )


class QueryVectors:
    """Embed queries through a cache in memory of the ``size`` last ones, keyed by side and text.

    ``model_ms`` is the model's time in milliseconds since the object was made.
    """

    def __init__(self, model: EmbeddingModel, size: int) -> None:
        self.model, self.model_ms = model, 0.0
        self._memory: LRUCache[tuple[Side, str], Vector] = LRUCache(size)

    def embed(self, query: str, side: Side = "query") -> tuple[Vector, bool]:
        """Return the query's vector, shape ``(dim,)``, and whether it came from the cache.

        ``side="document"`` embeds it like a passage, for hypothetical documents.
        """
        if (vector := self._memory.get((side, query))) is not None:
            return vector, True
        model, started = self.model, time.perf_counter()
        prefix = model.query_prefix if side == "query" else model.document_prefix
        vector = model.embed_alone(prefix + query, is_passage=side == "document")
        self.model_ms += (time.perf_counter() - started) * 1000
        self._memory.put((side, query), vector)
        return vector, False


class StageLog:
    """Collect stage reports; with ``strict`` a failure or fallback raises at once.

    ``on_stage`` gets each report as soon as its step ends: names and times, and a note for people.
    ``lists`` has what each step left, best first, in the order of the steps: hits of a leg and of
    fusion, passages from then on. Logs that were forked share it.
    """

    def __init__(self, *, strict: bool = False, on_stage: OnStage | None = None) -> None:
        self.strict, self._on_stage = strict, on_stage
        self.reports: list[StageReport] = []
        self.lists: dict[str, Sequence[Any]] = {}

    def fork(self) -> StageLog:
        """Return an empty log of the same strictness, for work that may be repeated."""
        log = StageLog(strict=self.strict, on_stage=self._on_stage)
        log.lists = self.lists
        return log

    @contextmanager
    def run(self, name: str, *, survives: type[Exception] | tuple[()] = ()) -> Iterator[list[str]]:
        """Time a step and report it; the texts in the yielded list become its note.

        If the search ``survives`` an error, it is reported as the step's failure and not raised.
        """
        notes, started = list[str](), time.perf_counter()
        try:
            yield notes
        except survives as error:
            self.failed(name, (time.perf_counter() - started) * 1000, error)
        else:
            self.ran(name, (time.perf_counter() - started) * 1000, "; ".join(notes))

    def ran(self, name: str, ms: float, note: str = "") -> None:
        """Report that the step did its work."""
        self._add(name, "ran", ms, note)

    def skipped(self, name: str, note: str) -> None:
        """Report that the step was left out, with the reason."""
        self._add(name, "skipped", 0.0, note)

    def failed(self, name: str, ms: float, error: BaseException) -> None:
        """Report that the step failed and the search goes on without it; ``strict`` raises."""
        self._add(name, "failed", ms, f"{type(error).__name__}: {error}")
        tell_failure(name, error)
        if self.strict:
            raise StageFailedError(f"stage {name} failed: {error}") from error

    def fell_back(self, name: str, note: str, *, reason: str) -> None:
        """Tell that the step worked in another way than the settings say; ``strict`` raises.

        ``reason`` is logged, so it must not quote a query or a document.
        """
        tell_fallback(name, reason)
        if self.strict:
            raise StageFailedError(f"stage {name} fell back: {note}")

    def log_failures(self, log: logging.Logger) -> None:
        """Log a warning for each failed step, for callers that do not see the stages."""
        for one in self.reports:
            if one.status == "failed":
                log.warning("%s failed, the search continues without it: %s", one.name, one.note)

    def _add(self, name: str, status: Status, ms: float, note: str) -> None:
        report = StageReport(name=name, status=status, ms=round(ms, 3), note=note)
        self.reports.append(report)
        if self._on_stage is not None:
            self._on_stage(report)
