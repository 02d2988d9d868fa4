"""What a search answers, as data; these are also the shapes of the JSON everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, overload

from pydantic import BaseModel, ConfigDict, Field

Mode = Literal["lexical", "vector", "hybrid"]
MODES: tuple[Mode, ...] = ("lexical", "vector", "hybrid")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ResultLocator(_Frozen):
    """Where the passage stands: page, lines (inclusive, from 1), seconds; ``None`` if unknown."""

    page: int | None = None
    line_start: int | None = None
    line_end: int | None = None
    time_start: float | None = None
    time_end: float | None = None


class Contribution(_Frozen):
    """What one list gave to a result's score.

    ``rank`` counts from 1; ``raw_score`` is the engine's own (BM25 or cosine); ``contribution``
    is the share of the score, in the score's unit.
    """

    leg: Literal["lexical", "vector"]
    engine: str
    query: str
    origin: Literal["original", "expansion"]
    rank: int
    raw_score: float
    weight: float
    contribution: float


class Explanation(_Frozen):
    """How a score came about: ``score == sum(contributions) + bonus``, summed in this order."""

    fusion: str
    contributions: tuple[Contribution, ...]
    bonus: float
    score: float


class SearchResult(_Frozen):
    """One passage: ``text`` is ``document[start_offset:end_offset]``, always.

    ``score`` orders the results of one search; its formula depends on mode and fusion (see
    ``docs/scoring.md``) and it is not comparable between queries.
    """

    rank: int
    score: float
    path: str
    source_doc_id: str
    docid: str
    chunk_id: str
    title: str
    heading_path: tuple[str, ...]
    modality: str
    locator: ResultLocator
    start_offset: int
    end_offset: int
    text: str
    snippet: str
    explain: Explanation | None = None


class StageReport(_Frozen):
    """One step of the query path: whether it ran, how long it took, and what there is to say."""

    name: str
    status: Literal["ran", "skipped", "failed"]
    ms: float
    note: str = ""


class SearchResults(Sequence[SearchResult]):
    """The passages found, best first, with what was asked and how the search went."""

    def __init__(
        self,
        results: Sequence[SearchResult],
        *,
        query: str,
        dataset: str,
        mode: Mode,
        stages: Sequence[StageReport],
        elapsed_ms: float,
    ) -> None:
        self.results = tuple(results)
        self.query = query
        self.dataset = dataset
        self.mode = mode
        self.stages = tuple(stages)
        self.elapsed_ms = elapsed_ms

    @overload
    def __getitem__(self, index: int) -> SearchResult: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[SearchResult, ...]: ...
    def __getitem__(self, index: int | slice) -> SearchResult | tuple[SearchResult, ...]:
        return self.results[index]

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[SearchResult]:
        return iter(self.results)

    def __repr__(self) -> str:
        return f"<SearchResults {len(self)} for {self.query!r} in {self.dataset!r}>"

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that the command line, HTTP and MCP give."""
        return _Answer(
            query=self.query,
            dataset=self.dataset,
            mode=self.mode,
            results=self.results,
            stages=self.stages,
            elapsed_ms=self.elapsed_ms,
        ).model_dump(mode="json", exclude_unset=True)


class _Answer(_Frozen):
    query: str
    dataset: str
    mode: Mode
    results: tuple[SearchResult, ...] = Field(default=())
    stages: tuple[StageReport, ...] = Field(default=())
    elapsed_ms: float
