"""Documents that a search lost, each with the step that lost it, as text and as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from catalog.evaluation.significance import Interval

STEPS: Mapping[str, str] = {
    "index": "not indexed",
    "filter": "outside the scope or a filter",
    "passage": "no passage holds it whole",
    "route": "the router chose other documents",
    "words": "not found by words",
    "meaning": "not found by meaning",
    "words and meaning": "found neither by words nor by meaning",
    "fusion": "ranked down when both lists were fused",
    "recency": "ranked down by its date",
    "keyword": "another passage of its document was chosen",
    "limit": "over the limit of passages per document",
    "rerank": "ranked down by the reranker",
    "threshold": "below the least relevance",
    "top_k": "below the number of results",
    "token budget": "no room in the token budget",
    "retrieval": "not retrieved",
}
"""The steps that can lose a document, in their order, each in words."""


_LISTED = 50  # lost documents in a text


class StepRank(NamedTuple):
    """The place (from 1) of a document's best passage in a step's list; ``None``: not in it."""

    step: str
    rank: int | None
    size: int


@dataclass(frozen=True, slots=True)
class Change:
    """One change, as people say it, and the place of the document with it.

    ``params`` and ``settings`` are those of the search that found it, and ``synonym`` a line of
    ``synonyms.txt``; ``rank`` is ``None`` for a change of the index, which was not tried.
    """

    text: str
    params: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    synonym: str = ""
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """What became of one document in one search.

    ``rank`` is its place among the results and ``step`` is ``None`` if it was found. ``ranks`` are
    its places after each step that ran, and ``reason`` is a sentence for people. ``id`` is the
    question's in a golden set.
    """

    query: str
    document: str
    step: str | None
    rank: int | None
    ranks: tuple[StepRank, ...]
    reason: str
    change: Change | None = None
    id: str = ""

    @property
    def told(self) -> str:
        """Return the step in words, "" if the document was found."""
        return STEPS.get(self.step or "", f"lost by {self.step}") if self.step else ""


class LossShare(NamedTuple):
    """The documents that a step lost, and their share of all relevant ones, mean over queries."""

    step: str
    documents: int
    share: float
    interval: Interval


@dataclass(frozen=True, slots=True)
class GoldenLosses:
    """The losses over a golden set; the shares add up to 1 - ``found``, the recall."""

    losses: tuple[Loss, ...]
    documents: int
    queries: int
    found: float
    shares: tuple[LossShare, ...]


def loss_lines(loss: Loss) -> Iterator[str]:
    """Yield what became of the document, for people."""
    if loss.step is None:
        yield f"{loss.document} is result {loss.rank}. {loss.reason}".rstrip()
    else:
        yield f"{loss.document}: {loss.told}. {loss.reason}".rstrip()
    for one in loss.ranks:
        place = "not in it" if one.rank is None else f"{one.rank:,}"
        yield f"  {one.step:20} {place:>9} of {one.size:,}"
    if (change := loss.change) is not None:
        told = "not tried" if change.rank is None else f"result {change.rank} then"
        yield f"Smallest change: {change.text} ({told})"
    elif loss.step in STEPS and loss.step not in ("index", "retrieval"):
        yield "No single change that was tried brings it back."


def golden_loss_lines(found: GoldenLosses) -> Iterator[str]:
    """Yield the shares of the steps, and then each lost document with the change that helps."""
    yield (
        f"{found.documents} relevant documents of {found.queries} queries: {found.found:.1%} found"
    )
    for step, count, share, ends in found.shares:
        yield f"  {share:6.1%} [{ends.low:.1%}, {ends.high:.1%}]  {count:4}  {STEPS[step]}"
    for loss in found.losses[:_LISTED]:
        helps = f"; {loss.change.text}" if loss.change else ""
        yield f"{loss.query!r}: {loss.document}: {loss.told}{helps}"
    if (more := len(found.losses) - _LISTED) > 0:
        yield f"and {more} more; --json has all"


def golden_loss_dict(found: GoldenLosses) -> dict[str, Any]:
    """Return the same as data."""
    shares = [{**one._asdict(), "interval": asdict(one.interval)} for one in found.shares]
    return {
        "documents": found.documents,
        "queries": found.queries,
        "found": found.found,
        "shares": shares,
        "losses": [loss_dict(loss) for loss in found.losses],
    }


def loss_dict(loss: Loss) -> dict[str, Any]:
    """Return one loss as data."""
    return {**asdict(loss), "told": loss.told, "ranks": [one._asdict() for one in loss.ranks]}
