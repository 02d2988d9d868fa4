"""Results of searching and browsing as data; these are also the shapes of the JSON everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar, overload

from pydantic import BaseModel, ConfigDict, PrivateAttr

from catalog.core.documents import Chunk
from catalog.core.params import Mode
from catalog.core.places import Unit

TIMED_MODALITIES = frozenset(["video_transcript", "audio_transcript", "video_frame"])
"""The modalities of passages that belong to a moment of a recording."""


def _without_examples(schema: dict[str, Any]) -> None:
    """Leave Python examples out of a schema's description, which HTTP clients read."""
    if "description" in schema:
        schema["description"] = schema["description"].partition("\n\nExamples:")[0]


class Frozen(BaseModel):
    """Base of immutable models without extra fields."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, json_schema_extra=_without_examples
    )


class ResultLocator(Frozen):
    """The position of the passage in its file; numbers are from 1 and inclusive, times are seconds.

    ``start`` and ``end`` count in ``unit``: the citation names them, and ``get`` takes them after
    the path. A ``record`` is named by its line of ``file``, a mail or an attachment by the ``file``
    that contains it. Lines are numbered in the file; in a notebook within the one cell. ``cells``
    are those of a workbook: ``Costs!A12:F30``. Unknown fields are ``None``.
    """

    unit: Unit = "line"
    start: int | float | None = None
    end: int | float | None = None
    file: str | None = None
    page: int | None = None
    page_end: int | None = None
    line_start: int | None = None
    line_end: int | None = None
    time_start: float | None = None
    time_end: float | None = None
    cells: str | None = None


class Contribution(Frozen):
    """The ``contribution`` of one list to a score; ``raw_score`` is the engine's own."""

    leg: Literal["lexical", "vector"]
    engine: str
    query: str
    origin: Literal["original", "expansion"]
    rank: int
    raw_score: float
    weight: float
    contribution: float


class Reranked(Frozen):
    """A fused score after reranking: ``score == fused_part + rerank_part``.

    ``raw_score`` is the model's own and ``relevance`` the same as 0 to 1, both ``None`` for a
    passage it was not given. ``rank`` is the passage's rank before.
    """

    model: str
    blend: str
    rank: int
    raw_score: float | None
    relevance: float | None
    fused_part: float
    rerank_part: float


class Recency(Frozen):
    """How age lowered a score: ``factor = 2 ** (-age_days / half_life_days)``."""

    age_days: float
    half_life_days: float
    factor: float


Certainty = Literal["exact", "likely", "possible"]


class Explanation(Frozen):
    """How a score came about.

    ``fused == sum(contributions) + bonus``, summed in this order. ``score`` is ``fused``, times
    the factor of ``recency`` if it was asked for, or what ``rerank`` made of that.
    """

    fusion: str
    contributions: tuple[Contribution, ...]
    bonus: float
    fused: float
    recency: Recency | None = None
    rerank: Reranked | None = None
    score: float


class EvidenceLine(Frozen):
    """The words said, or the frame shown, from one second of a recording to another (inclusive).

    ``text`` is one line of the passage ``chunk_id``; ``is_best``: the best sentence of one found.
    """

    time_start: float
    time_end: float
    kind: Literal["Audio", "Screen"]
    speaker: str | None
    text: str
    chunk_id: str
    is_best: bool = False


class Evidence(Frozen):
    """The words and frames of a recording around the passages found in it, ordered by time.

    ``best_sentence`` is the best passage's; ``start`` and ``end`` are seconds, ``anchors`` the
    passages' ids, ``link`` opens the first of them.
    """

    best_sentence: EvidenceLine | None = None
    media: str
    dataset: str
    start: float
    end: float
    lines: tuple[EvidenceLine, ...]
    anchors: tuple[str, ...]
    link: str


class OtherPlace(Frozen):
    """Another passage of a result's text: where it stands, and how it is cited."""

    dataset: str
    path: str
    source_doc_id: str
    docid: str
    chunk_id: str
    modality: str
    locator: ResultLocator
    citation: str


class PassageResult(Frozen):
    """The fields of a result of either pipeline; v2's results add fields and remove none."""

    rank: int
    score: float
    path: str
    source_doc_id: str
    chunk_id: str
    title: str
    text: str


class SearchResult(PassageResult):
    """One passage: ``text`` is ``document[start_offset:end_offset]``, always.

    ``score`` orders the results of one search and is not comparable between queries. ``relevance``
    is: the estimated probability (0 to 1) that the passage answers, never rising from result to
    result. ``certainty`` is the same in a word:
    ``exact`` (the passage contains the one or two words of the query exactly as written, or its
    quoted phrase), ``likely`` (.5 or more) or ``possible``. ``sections`` are all headings over it
    or in it, then the column names of its table. ``snippet`` is whole lines of the text,
    ``snippet_lines`` their numbers in the file and ``matches`` the ``[start, end)`` of query words
    in it. ``moment`` is the second at which its best sentence begins. ``citation`` names the source
    and that second, or the page of the best sentence and all pages of the passage, or its lines,
    cells or paragraphs. ``link`` opens a recording at that second or a PDF at that page.
    ``original`` is the path of the file that the document was made of, if it was. ``evidence`` is
    the part of a recording around the passage; results near one another share it, and
    ``evidence_at`` is the rank of the first that has it, the only one with it in JSON. ``also_in``
    are the places of passages that say the same, best first, and have no separate result. Dates are
    the document's, as in :class:`CatalogEntry`.

    Examples:
        >>> from catalog.search_v2 import search
        >>> best = search("rotate keys", dataset="notes")[0]
        >>> best.title, best.locator.line_start, best.certainty
        ('Keys', 4, 'exact')
        >>> start, end = best.matches[0]
        >>> best.snippet[start:end]
        'Keys'
    """

    dataset: str
    docid: str
    heading_path: tuple[str, ...]
    sections: tuple[str, ...] = ()
    modality: str
    locator: ResultLocator
    start_offset: int
    end_offset: int
    snippet: str
    snippet_lines: tuple[int, int] | None
    matches: tuple[tuple[int, int], ...]
    citation: str
    snippet_locator: ResultLocator | None = None
    moment: float | None = None
    original: str | None = None
    link: str | None = None
    evidence: Evidence | None = None
    evidence_at: int | None = None
    also_in: tuple[OtherPlace, ...] = ()
    file_type: str = ""
    source_type: str = ""
    tags: tuple[str, ...] = ()
    created: str | None = None
    modified: str | None = None
    date: str | None = None
    relevance: float
    certainty: Certainty
    explain: Explanation | None = None
    _chunk: Chunk | None = PrivateAttr(None)  # for the places of its parts; of this process alone

    @property
    def paths(self) -> tuple[str, ...]:
        """The documents that have its text, its own first."""
        return (self.path, *(other.path for other in self.also_in))


class StageReport(Frozen):
    """One step of the query path: whether it ran, how long it took, and what there is to say."""

    name: str
    status: Literal["ran", "skipped", "failed"]
    ms: float
    note: str = ""


class RankChange(Frozen):
    """The ranks of a document that both pipelines found."""

    path: str
    v1: int
    v2: int


class Latency(Frozen):
    """The time one question took, in milliseconds."""

    v1: float
    v2: float


class Comparison(Frozen):
    """One question put to both pipelines, document by document.

    ``overlap`` is the share of the documents that either found which both found (Jaccard, 0 to 1).
    ``note`` says which parts of the question the baseline could not take, and how many of its
    passages are outside scope and filters; ``error`` says why the baseline failed, if it did.
    """

    baseline: str
    overlap: float
    only_v1: tuple[str, ...]
    only_v2: tuple[str, ...]
    rank_changes: tuple[RankChange, ...]
    latency_ms: Latency
    note: str = ""
    error: str = ""


ResultT = TypeVar("ResultT", bound=PassageResult, covariant=True)


@dataclass(eq=False, repr=False)
class ResultList(Sequence[ResultT]):
    """The passages either pipeline found, best first, with the question; fields are its JSON."""

    query: str = field(kw_only=True)
    dataset: str | None = field(kw_only=True)
    mode: Mode = field(kw_only=True)
    results: tuple[ResultT, ...]
    elapsed_ms: float = field(kw_only=True)

    @overload
    def __getitem__(self, index: int) -> ResultT: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ResultT, ...]: ...
    def __getitem__(self, index: int | slice) -> ResultT | tuple[ResultT, ...]:
        return self.results[index]

    def __len__(self) -> int:
        return len(self.results)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self)} for {self.query!r} in {self.dataset!r}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that the command line, HTTP and MCP give."""
        return {one.name: _to_json(getattr(self, one.name)) for one in fields(self)}


def _to_json(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=isinstance(value, PassageResult))
    return [_to_json(item) for item in value] if isinstance(value, tuple) else value


@dataclass(eq=False, repr=False, kw_only=True)
class SearchResults(ResultList[SearchResult]):
    """v2's answer: also how the search went, and how v1 answered, if that was asked for.

    ``dataset`` is the only one of the ``datasets`` searched, ``None`` for several. ``confidence``
    is the estimated probability (0 to 1) that a passage answers, kept or not, and
    ``low_confidence`` says whether that is below the setting. When nothing was found, ``notes``
    name alternatives, ``searched`` describes the searched documents, and ``nearest`` names
    documents that are near without the call's conditions.

    Examples:
        >>> from catalog.search_v2 import search
        >>> results = search("rotate keys", dataset="notes", top_k=2)
        >>> results
        <SearchResults 2 for 'rotate keys' in 'notes'>
        >>> [stage.name for stage in results.stages if stage.status == "failed"]
        []
    """

    dataset: str | None = field(init=False)
    results: tuple[SearchResult, ...] = field(kw_only=False)
    agent: str | None = None
    datasets: tuple[str, ...]
    confidence: float
    low_confidence: bool
    stages: tuple[StageReport, ...]
    comparison: Comparison | None = None
    notes: tuple[str, ...] = ()
    searched: str | None = None
    nearest: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.dataset = self.datasets[0] if len(self.datasets) == 1 else None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that the command line, HTTP and MCP give."""
        answer = super().to_dict()
        for result, shown in zip(self.results, answer["results"], strict=True):
            if result.evidence_at not in (None, result.rank):
                shown["evidence"] = None
        if self.comparison is None:
            del answer["comparison"]
        if self.searched is None:
            del answer["searched"], answer["nearest"]
        return answer


class CollectionResult(PassageResult):
    """One passage of a collection that other software filled, with the fields its payload has.

    ``score`` is the similarity that Qdrant gives, ``is_low`` whether it is below the setting.
    ``path`` and ``source_doc_id`` are ``source_url``, else ``chunk_id``, which is the point's id.
    """

    source_url: str | None = None
    section: str = ""
    chunk_index: int | None = None
    citation: str
    is_low: bool = False


@dataclass(eq=False, repr=False, kw_only=True)
class CollectionResults(ResultList[CollectionResult]):
    """A collection's answer: ``dataset`` is its name, ``low_confidence`` is of the best result."""

    mode: Mode = field(init=False, default="vector")
    low_confidence: bool = field(init=False)
    stages: tuple[StageReport, ...]

    def __post_init__(self) -> None:
        self.low_confidence = not self.results or self.results[0].is_low

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that the command line gives."""
        answer = super().to_dict()
        return {"collection" if name == "dataset" else name: answer[name] for name in answer}


class CatalogEntry(Frozen):
    """One document.

    ``summary`` is the beginning of its prose. ``created`` and ``modified`` are as the document
    says, ``modified`` as its file does where the document is silent. ``date`` is the one that
    sorting and bounds go by, in UTC: the document's own ``modified``, else its own ``created``,
    else that of its file. ``bytes`` is the size of a file with a single document, ``characters``
    those of its text and ``chunks`` its passages. ``score`` orders the entries of one page.
    ``matching`` counts the passages that contain the words asked for, and ``places`` are references
    to the first ten of them.
    """

    source_doc_id: str
    dataset: str
    path: str
    title: str
    file_type: str
    docid: str
    summary: str
    tags: tuple[str, ...]
    created: str | None
    modified: str | None
    date: str | None
    characters: int
    bytes: int | None
    chunks: int
    score: float | None
    matching: int | None = None
    places: tuple[str, ...] = ()


class CatalogPage(Frozen):
    """Some of the documents that match, from the ``offset``-th on (counted from 0).

    ``dataset`` is the only one of the ``datasets`` listed, ``None`` for several. ``total`` counts
    all that match and ``types`` the same by file type, most first. ``notes`` name alternatives when
    nothing matches, and steps that could not be done.
    """

    dataset: str | None
    datasets: tuple[str, ...]
    query: str | None
    entries: tuple[CatalogEntry, ...]
    total: int
    offset: int
    types: dict[str, int]
    notes: tuple[str, ...]
    elapsed_ms: float

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that every interface gives."""
        return self.model_dump(mode="json")
