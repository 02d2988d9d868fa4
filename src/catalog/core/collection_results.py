"""Results of searching a collection that other software filled, as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from catalog.core.results import PassageResult, ResultList, StageReport


class CollectionResult(PassageResult):
    """One passage of a collection that other software filled, as far as its payload tells of it.

    ``score`` is the similarity that Qdrant gives, ``is_low`` whether it is below the setting.
    ``path`` and ``source_doc_id`` are ``source_url``, else ``chunk_id``, which is the point's id.
    """

    source_url: str | None = None
    section: str = ""
    chunk_index: int | None = None
    citation: str
    is_low: bool = False


class CollectionResults(ResultList[CollectionResult]):
    """What a collection answered: ``dataset`` is its name, ``low_confidence`` of the best one."""

    def __init__(
        self,
        results: Sequence[CollectionResult],
        *,
        query: str,
        collection: str,
        stages: Sequence[StageReport],
        elapsed_ms: float,
    ) -> None:
        super().__init__(
            results, query=query, dataset=collection, mode="vector", elapsed_ms=elapsed_ms
        )
        self.stages = tuple(stages)
        self.low_confidence = len(results) == 0 or results[0].is_low

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that the command line gives."""
        answer = super().to_dict()
        answer["collection"] = answer.pop("dataset")
        answer["low_confidence"] = self.low_confidence
        answer["stages"] = [stage.model_dump(mode="json") for stage in self.stages]
        return answer
