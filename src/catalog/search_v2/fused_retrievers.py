"""Fuse the answers of retrievers that people already have: any of LlamaIndex's."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from typing import Any, Generic, TypeVar, cast

from llama_index.core import Settings as LlamaSettings
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.retrievers import QueryFusionRetriever, VectorIndexRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES, QUERY_GEN_PROMPT
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from pydantic import Field

from catalog.core.arguments import check_params, parameter_names
from catalog.core.errors import EngineError, InputError
from catalog.core.params import AskParams, SearchParams
from catalog.retrieval.fusion import FusedHit, RankedList, rrf
from catalog.retrieval.parts import StageLog
from catalog.retrieval.request import search_arguments
from catalog.search_v2.nodes import OwnPart

_log = logging.getLogger(__name__)
_BM25 = "llama_index.retrievers.bm25"
_OF_LLAMA_INDEX = ("callback_manager", "object_map")  # which its classes set

ParamsT = TypeVar("ParamsT", SearchParams, AskParams)


def is_own(part: object, name: str) -> bool:
    """Return whether an attribute is no setting: private, LlamaIndex's, or a property."""
    is_property = isinstance(getattr(type(part), name, None), property)
    return name.startswith("_") or name in _OF_LLAMA_INDEX or is_property


class LaterSettings(OwnPart, Generic[ParamsT]):
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
        name = {"similarity_top_k": "top_k", "dataset_name": "dataset"}.get(name, name)
        if name.startswith("_") or name not in parameter_names(type(self._params)):
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return getattr(self._params, name)


class StoreRetriever(OwnPart, BaseRetriever):
    """A retriever that waits in a thread, and finds nothing for an empty query.

    Its events go to the ``callback_manager``, or else to that of LlamaIndex's ``Settings``.
    """

    def __init__(self, callback_manager: CallbackManager | None = None) -> None:
        BaseRetriever.__init__(self, callback_manager or LlamaSettings.callback_manager)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._find(query_bundle) if query_bundle.query_str.strip() else []

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)

    def _find(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        raise NotImplementedError

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "similarity_top_k":
            check_depths(similarity_top_k=value)
        elif not is_own(self, name):
            raise InputError(
                f"{name} cannot be set here, only similarity_top_k: build another retriever"
            )
        super().__setattr__(name, value)


class FusedNode(NodeWithScore):
    """A node of other retrievers after fusion; ``fused`` has the parts that add up to its score."""

    fused: Any = Field(exclude=True, repr=False)  # a FusedHit


class FusionRetriever(StoreRetriever, QueryFusionRetriever):
    """A ``QueryFusionRetriever`` by type only: legs and fusion are ours.

    The stock class ignores weights, merges equal texts, counts ranks from 0, requires an LLM and
    runs synchronous retrievers one after the other. Only ``similarity_top_k`` can be set later.
    """

    # The stock __init__ only sets these, after looking for LangChain and OpenAI (7 ms).
    num_queries, use_async = 1, False
    query_gen_prompt, mode = QUERY_GEN_PROMPT, FUSION_MODES.RECIPROCAL_RANK

    def __init__(
        self,
        retrievers: Sequence[BaseRetriever],
        top_k: int | None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        self.similarity_top_k = cast("int", top_k)  # without one, that of the settings
        self._retrievers = list(retrievers)
        StoreRetriever.__init__(self, callback_manager)


def check_depths(**depths: int | None) -> None:
    """Raise :class:`InputError` for a depth below 1."""
    for name, depth in depths.items():
        is_number = isinstance(depth, int) and not isinstance(depth, bool)
        if depth is not None and not (is_number and depth >= 1):
            raise InputError(f"{name} is {depth!r}: use a number from 1, or leave it out")


class FusedRetrievers(FusionRetriever):
    """Fuse any retrievers, by the rules of ``HybridRetrieverFactoryV2.over``."""

    def __init__(
        self,
        retrievers: Sequence[BaseRetriever],
        weights: Sequence[float],
        bonus: tuple[float, float],
        k: int,
        top_k: int,
        *,
        strict: bool = False,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        if not retrievers:
            raise InputError("there is no retriever to fuse: give one or more")
        for one in retrievers:
            if not isinstance(one, BaseRetriever):
                way_out = ": give its as_retriever(…)" if hasattr(one, "as_retriever") else ""
                raise InputError(f"{type(one).__name__} is not a LlamaIndex retriever{way_out}")
        if len(weights) != len(retrievers):
            count = len(retrievers)
            raise InputError(f"{len(weights)} weights for {count} retrievers: give one each")
        for weight in weights:
            if not _is_number(weight) or weight < 0:
                raise InputError(f"the weight {weight!r} is no number from 0: 0 switches a leg off")
        if not any(weights):
            raise InputError("every weight is 0: no retriever is left to fuse")
        is_pair = isinstance(bonus, list | tuple) and len(bonus) == 2
        if not is_pair or not all(_is_number(one) and one >= 0 for one in bonus):
            raise InputError(
                f"bonus is {bonus!r}: give two numbers, for the first place and for the second and "
                "third, or (0, 0) for none"
            )
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise InputError(f"k is {k!r}: give a whole number from 1")
        names = [type(one).__name__ for one in retrievers]
        legs = [
            (one, weight, name if names.count(name) == 1 else f"{name} {number}")
            for number, (one, weight, name) in enumerate(
                zip(retrievers, weights, names, strict=True), start=1
            )
            if weight > 0
        ]
        super().__init__([one for one, _, _ in legs], top_k, callback_manager)
        self._legs, self._bonus, self._k = legs, tuple(bonus), k
        self._strict, self._has_told = strict, False

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        run, asking = contextvars.copy_context().run, self._ask_all(query_bundle, is_async=False)
        with ThreadPoolExecutor(1, "retriever") as thread:  # this one may run a loop already
            return thread.submit(run, asyncio.run, asking).result()

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await self._ask_all(query_bundle, is_async=True)

    async def _ask_all(self, query_bundle: QueryBundle, *, is_async: bool) -> list[NodeWithScore]:
        asked = (_ask(one, query_bundle, is_async=is_async) for one in self._retrievers)
        answers = await asyncio.gather(*asked)
        stages = StageLog(strict=self._strict)
        for (_, _, name), answer in zip(self._legs, answers, strict=True):
            if isinstance(answer, Exception):
                stages.failed(name, 0.0, answer)
        if len(stages.reports) == len(answers):
            failures = "; ".join(f"{one.name}: {one.note}" for one in stages.reports)
            raise EngineError(f"every retriever failed: {failures}")
        stages.log_failures(_log)
        found = [[] if isinstance(answer, Exception) else answer for answer in answers]
        return self._fuse(query_bundle.query_str, found)

    def _fuse(self, query: str, found: Sequence[list[NodeWithScore]]) -> list[NodeWithScore]:
        same = _match_by_text(found)
        if same and not self._has_told:
            self._has_told = True
            _log.warning(
                "retrievers name the same passages by different node ids: equal texts of one file "
                "are fused as one passage"
            )
        nodes: dict[str, NodeWithScore] = {}
        lists = []
        for (retriever, weight, name), answer in zip(self._legs, found, strict=True):
            best: dict[str, NodeWithScore] = {}
            for one in answer:
                best.setdefault(same.get(one.node.node_id, one.node.node_id), one)
            nodes = best | nodes
            lists.append(
                RankedList(
                    leg="vector" if isinstance(retriever, VectorIndexRetriever) else "lexical",
                    engine=name,
                    query=query,
                    origin="original",
                    weight=weight,
                    hits=[(id_, one.score or 0.0) for id_, one in best.items()],
                )
            )
        first, second = self._bonus
        fused = rrf(lists, k=self._k, bonus_first=first, bonus_second=second)
        return [_as_fused(nodes[str(hit.key)], hit) for hit in fused[: self.similarity_top_k]]


def _as_fused(found: NodeWithScore, hit: FusedHit) -> NodeWithScore:
    """Return the node with its fused score; one of our own searches keeps its class."""
    if type(found) in (NodeWithScore, FusedNode):
        return FusedNode(node=found.node, score=hit.score, fused=hit)
    return found.model_copy(update={"score": hit.score})


def _match_by_text(found: Sequence[Sequence[NodeWithScore]]) -> dict[str, str]:
    """Return the ids of nodes with the id of the same text in another list.

    Only a list that shares no id with another is matched: that of an app which splits its files
    again at each start, beside the vectors that it keeps. The same text in two files is two.
    """
    ids = [{one.node.node_id for one in nodes} for nodes in found]
    counts = Counter(chain.from_iterable(ids))
    is_apart = [all(counts[node_id] == 1 for node_id in own) for own in ids]
    known, same = dict[tuple[str, str], str](), dict[str, str]()
    for number in sorted(range(len(found)), key=is_apart.__getitem__):
        own = dict[tuple[str, str], str]()
        for node in (one.node for one in reversed(found[number])):
            file = str(node.metadata.get("file_name") or node.metadata.get("file_path") or "")
            own[node.get_content(metadata_mode=MetadataMode.NONE), file] = node.node_id
        if is_apart[number]:
            same |= {node_id: known[text] for text, node_id in own.items() if text in known}
        known = own | known
    return same


def _is_number(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)  # type: ignore[arg-type]


async def _ask(
    retriever: BaseRetriever, bundle: QueryBundle, *, is_async: bool
) -> list[NodeWithScore] | Exception:
    """Ask with a copy of the query, into which a vector retriever writes its embedding."""
    try:
        if is_async and _is_asynchronous(retriever):
            return _checked(retriever, await retriever.aretrieve(replace(bundle)))
        return _checked(retriever, await asyncio.to_thread(retriever.retrieve, replace(bundle)))
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001 - another's; reported, and the rest answers
        return error


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
