"""Fuse the answers of retrievers that people already have: any of LlamaIndex's."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar, cast

from llama_index.core import Settings as LlamaSettings
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms.mock import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever, VectorIndexRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES, QUERY_GEN_PROMPT
from llama_index.core.schema import NodeWithScore, QueryBundle
from pydantic import PrivateAttr

from catalog.core.arguments import check_params, parameter_names
from catalog.core.errors import EngineError, InputError
from catalog.core.params import AskParams, SearchParams
from catalog.retrieval.fusion import FusedHit, RankedList, rrf
from catalog.retrieval.parts import StageLog
from catalog.retrieval.request import search_arguments

_log = logging.getLogger(__name__)
_BM25 = "llama_index.retrievers.bm25"
_OF_LLAMA_INDEX = ("callback_manager", "object_map")  # which its classes set

ParamsT = TypeVar("ParamsT", SearchParams, AskParams)


def is_own(part: object, name: str) -> bool:
    """Return whether an attribute is no setting: private, LlamaIndex's, or a property."""
    is_property = isinstance(getattr(type(part), name, None), property)
    return name.startswith("_") or name in _OF_LLAMA_INDEX or is_property


class LaterSettings(Generic[ParamsT]):
    """A part whose parameters can also be read and set as attributes.

    A set parameter acts at the next query. :class:`InputError` for a name that does not exist.
    """

    _params: ParamsT

    def __setattr__(self, name: str, value: Any) -> None:
        if is_own(self, name):
            super().__setattr__(name, value)
            return
        params = self._params
        changed = replace(params, **search_arguments({name: value}, kind=type(params)))
        check_params(changed)
        self._params = changed

    def __getattr__(self, name: str) -> Any:
        name = "top_k" if name == "similarity_top_k" else name
        if name.startswith("_") or name not in parameter_names(type(self._params)):
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return getattr(self._params, name)


class FusedNode(NodeWithScore):
    """A node of other retrievers after fusion, with the parts of its score."""

    _fused: FusedHit = PrivateAttr()

    @classmethod
    def of(cls, found: NodeWithScore, fused: FusedHit) -> NodeWithScore:
        """Return the node with its fused score; one of our own searches keeps its class."""
        if type(found) not in (NodeWithScore, cls):
            return found.model_copy(update={"score": fused.score})
        node = cls(node=found.node, score=fused.score)
        node._fused = fused
        return node

    @property
    def fused(self) -> FusedHit:
        """Contributions and bonus that add up to the fused score."""
        return self._fused


class _Answer(NamedTuple):
    """One retriever's nodes, or its error, and its time."""

    nodes: Sequence[NodeWithScore]
    error: Exception | None
    ms: float


class FusionRetriever(QueryFusionRetriever):
    """A ``QueryFusionRetriever`` by type only: legs and fusion are ours.

    The stock class ignores weights, merges equal texts, counts ranks from 0, requires an LLM and
    runs synchronous retrievers one after the other. Retrievals are reported to the
    ``callback_manager``, or else to that of LlamaIndex's ``Settings``. Of its settings only
    ``similarity_top_k`` can be set later.
    """

    def __init__(
        self,
        retrievers: Sequence[BaseRetriever],
        top_k: int | None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        # The stock __init__ only sets these, after looking for LangChain and OpenAI (7 ms).
        vars(self).update(
            num_queries=1,
            query_gen_prompt=QUERY_GEN_PROMPT,
            mode=FUSION_MODES.RECIPROCAL_RANK,
            use_async=False,
        )
        self.similarity_top_k = cast("int", top_k)  # without one, that of the settings
        self._retrievers, self._llm = list(retrievers), MockLLM()
        self._retriever_weights = [1.0 / max(1, len(retrievers))] * len(retrievers)
        BaseRetriever.__init__(self, callback_manager or LlamaSettings.callback_manager)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "similarity_top_k":
            check_depths(None, None, value)
        elif not is_own(self, name):
            raise InputError(
                f"{name} cannot be set here, only similarity_top_k: build another retriever"
            )
        super().__setattr__(name, value)


def check_depths(
    k_lex: int | None, k_dense: int | None, k_fused: int | None
) -> tuple[int | None, int | None, int | None]:
    """Return the depths; raise :class:`InputError` for one below 1."""
    for name, depth in (("k_lex", k_lex), ("k_dense", k_dense), ("k_fused", k_fused)):
        if depth is None:
            continue
        if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
            raise InputError(f"{name} is {depth!r}: use a number from 1, or leave it out")
    return k_lex, k_dense, k_fused


class FusedRetrievers(FusionRetriever):
    """Fuse any retrievers by weighted reciprocal ranks with the top-rank bonus, by node id.

    Built by ``HybridRetrieverFactoryV2.over``, which has the rules.
    """

    def __init__(
        self,
        retrievers: Sequence[BaseRetriever],
        weights: Sequence[float],
        bonus: tuple[float, float],
        k: int,
        top_k: int,
        *,
        strict: bool = False,
        stages: StageLog | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        _check(retrievers, weights, bonus, k)
        super().__init__(retrievers, top_k, callback_manager)
        self._weights, self._bonus, self._k = tuple(weights), tuple(bonus), k
        self._strict, self._stages = strict, stages
        self._by_meaning = {
            number for number, one in enumerate(retrievers) if isinstance(one, VectorIndexRetriever)
        }
        names = [type(one).__name__ for one in retrievers]
        self._names = [
            name if names.count(name) == 1 else f"{name} {number}"
            for number, name in enumerate(names, start=1)
        ]

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        run, asking = contextvars.copy_context().run, self._ask_all(query_bundle, is_async=False)
        with ThreadPoolExecutor(1, "retriever") as thread:  # this one may run a loop already
            return thread.submit(run, asyncio.run, asking).result()

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await self._ask_all(query_bundle, is_async=True)

    async def _ask_all(self, query_bundle: QueryBundle, *, is_async: bool) -> list[NodeWithScore]:
        asked = (_ask(one, query_bundle, is_async=is_async) for one in self._retrievers)
        return self._fuse(query_bundle.query_str, await asyncio.gather(*asked))

    def _fuse(self, query: str, answers: Sequence[_Answer]) -> list[NodeWithScore]:
        stages = StageLog(strict=self._strict)
        for name, answer in zip(self._names, answers, strict=True):
            if answer.error is None:
                stages.ran(name, answer.ms, f"{len(answer.nodes)} nodes")
            else:
                stages.failed(name, answer.ms, answer.error)
        errors = [answer.error for answer in answers if answer.error is not None]
        if len(errors) == len(answers):
            failures = "; ".join(
                f"{name}: {type(error).__name__}: {error}"
                for name, error in zip(self._names, errors, strict=True)
            )
            raise EngineError(f"every retriever failed: {failures}") from errors[0]
        if self._stages is None:
            stages.log_failures(_log)
        else:
            self._stages.reports += stages.reports
        nodes: dict[str, NodeWithScore] = {}
        lists = []
        for number, answer in enumerate(answers):
            best: dict[str, NodeWithScore] = {}
            for one in answer.nodes:
                best.setdefault(one.node.node_id, one)
            nodes = best | nodes
            lists.append(
                RankedList(
                    leg="vector" if number in self._by_meaning else "lexical",
                    engine=self._names[number],
                    query=query,
                    origin="original",
                    weight=self._weights[number],
                    hits=tuple((node_id, _score(one)) for node_id, one in best.items()),
                )
            )
        first, second = self._bonus
        fused = rrf(lists, k=self._k, bonus_first=first, bonus_second=second)
        return [FusedNode.of(nodes[str(hit.key)], hit) for hit in fused[: self.similarity_top_k]]


def _check(
    retrievers: Sequence[BaseRetriever],
    weights: Sequence[float],
    bonus: Sequence[float],
    k: int,
) -> None:
    """Raise :class:`InputError` for what cannot be fused."""
    if not retrievers:
        raise InputError("there is no retriever to fuse: give one or more")
    for one in retrievers:
        if not isinstance(one, BaseRetriever):
            way_out = ": give its as_retriever(…)" if hasattr(one, "as_retriever") else ""
            raise InputError(f"{type(one).__name__} is not a LlamaIndex retriever{way_out}")
    if len(weights) != len(retrievers):
        raise InputError(f"{len(weights)} weights for {len(retrievers)} retrievers: give one each")
    for weight in weights:
        if not _is_number(weight) or weight <= 0:
            raise InputError(
                f"the weight {weight!r} is not above 0: leave out a retriever that must not count"
            )
    is_pair = isinstance(bonus, list | tuple) and len(bonus) == 2
    if not is_pair or not all(_is_number(one) and one >= 0 for one in bonus):
        raise InputError(
            f"bonus is {bonus!r}: give two numbers, for the first place and for the second and "
            "third, or (0, 0) for none"
        )
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InputError(f"k is {k!r}: give a whole number from 1")


def _is_number(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)  # type: ignore[arg-type]


async def _ask(retriever: BaseRetriever, bundle: QueryBundle, *, is_async: bool) -> _Answer:
    """Ask with a copy of the query, into which a vector retriever writes its embedding."""
    started, found, failed = time.perf_counter(), list[NodeWithScore](), None
    try:
        nodes: object
        if is_async and _is_asynchronous(retriever):
            nodes = await retriever.aretrieve(replace(bundle))
        else:
            nodes = await asyncio.to_thread(retriever.retrieve, replace(bundle))
        found = _checked(retriever, nodes)
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001 - another's; reported, and the rest answers
        failed = error
    return _Answer(found, failed, (time.perf_counter() - started) * 1000)


def _is_asynchronous(retriever: BaseRetriever) -> bool:
    """Return whether it retrieves without blocking the event loop.

    The base class only calls the synchronous method, and a Qdrant store may lack its client.
    """
    store = getattr(retriever, "_vector_store", None)
    lacks_client = store is not None and getattr(store, "_aclient", store) is None
    return not lacks_client and type(retriever)._aretrieve is not BaseRetriever._aretrieve


def _checked(retriever: BaseRetriever, found: object) -> list[NodeWithScore]:
    """Return the nodes of a retriever; ``BM25Retriever`` fills its list up with score 0."""
    if not isinstance(found, list | tuple) or not all(isinstance(n, NodeWithScore) for n in found):
        raise TypeError(f"a retriever returns nodes with scores, not {found!r:.80}")
    if any(base.__module__.startswith(_BM25) for base in type(retriever).__mro__):
        return [one for one in found if one.score != 0.0]
    return list(found)


def _score(found: NodeWithScore) -> float:
    return math.nan if found.score is None else found.score
