"""The hybrid retriever that also asks an expansion's lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llama_index.core.schema import NodeWithScore, QueryBundle

from catalog.search_v2.expansion.plan import ExpansionPlan
from catalog.search_v2.legs import Answer, Asked
from catalog.search_v2.retrievers import Ask, HybridRetrieverV2, Settled
from catalog.search_v2.stages import Stages
from catalog.search_v2.workspace import Workspace

if TYPE_CHECKING:
    from catalog.search_v2.factory import LegMaker


class QueryExpansionRetrieverV2(HybridRetrieverV2):
    """A :class:`HybridRetrieverV2` that first asks the query, then what the plan adds to it.

    The added lists weigh ``expansion_weight``, the query's own ``original_weight``; filters and
    scope are the same for all. A plan that comes to nothing leaves the plain hybrid answer.
    """

    def __init__(
        self,
        workspace: Workspace,
        asked: Sequence[Asked],
        *,
        dataset: str,
        top_k: int,
        stages: Stages | None = None,
        plan: ExpansionPlan,
        legs: LegMaker,
    ) -> None:
        super().__init__(workspace, asked, dataset=dataset, top_k=top_k, stages=stages)
        self._plan, self._legs = plan, legs

    def _further(self, query: QueryBundle, answers: Sequence[Answer], ask: Ask) -> list[Answer]:
        asked = list(self._legs.asked(self._plan.parts(query.query_str, answers)))
        return ask(asked, query) if asked else []

    def _told(self, answers: Sequence[Answer], settled: Settled) -> list[NodeWithScore]:
        self.stages.join(self._plan.stages)
        return super()._told(answers, settled)
