"""Scores of answers: what they cite, whether that supports them, and when there is none.

Precisions are of the answers there are, recalls of all questions, so that neither is had for
nothing. Each metric has a value, 0 to 1, for the questions that it can be told of:

==============  =====================================================================
``Answered``    of questions that have an answer: whether one was given
``AbstainP``    of questions not answered: whether none has an answer
``AbstainR``    of questions that have no answer: whether none was given
``CiteP``       of answers to questions with labels: share of cited passages of a labelled document
``CiteR``       of questions with labels: share of labelled documents that are cited
``CiteSpan``    of questions with labelled spans: whether a cited passage holds one
``Support``     of answers: share of sentences that what they cite supports
``VitalStrict`` of questions with nuggets: see :mod:`catalog.evaluation.nuggets`; so are the others
==============  =====================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from catalog.core.answers import Answer, AnswerSentence
from catalog.core.results import OtherPlace, ResultLocator, SearchResult
from catalog.evaluation.golden import GoldenQuery, GoldenSet, Span
from catalog.evaluation.metrics import overlap
from catalog.evaluation.nuggets import NUGGET_METRICS, NuggetAssignment, score_nuggets

ANSWER_METRICS = (
    *("Answered", "AbstainP", "AbstainR", "CiteP", "CiteR", "CiteSpan", "Support"),
    *NUGGET_METRICS,
)
COMPARED = tuple(name for name in ANSWER_METRICS if name != "AbstainP")
"""Metrics by which two runs can be compared: on one that both abstain from, AbstainP is equal."""


class PassageRecord(BaseModel):
    """A passage that an answer was made from; ``text`` only of one that the answer cites.

    ``also_in`` is where its text stands as well.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    n: int
    chunk_id: str
    path: str
    score: float
    start: int
    end: int
    locator: ResultLocator
    text: str = ""
    also_in: tuple[OtherPlace, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """The documents that have its text."""
        return (self.path, *(other.path for other in self.also_in))

    def is_of(self, documents: Collection[str]) -> bool:
        """Return whether one of these documents has its text."""
        return any(path in documents for path in self.paths)

    @classmethod
    def of(cls, result: SearchResult, *, is_cited: bool) -> PassageRecord:
        """Return the record of a result."""
        return cls(
            n=result.rank,
            chunk_id=result.chunk_id,
            path=result.path,
            score=result.score,
            start=result.start_offset,
            end=result.end_offset,
            locator=result.locator,
            text=result.text if is_cited else "",
            also_in=result.also_in,
        )


class AnswerRecord(BaseModel):
    """What was answered to one question; ``reason``: why nothing was."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    reason: str | None
    sentences: tuple[AnswerSentence, ...]
    passages: tuple[PassageRecord, ...]
    nuggets: tuple[NuggetAssignment, ...] = ()
    model: str | None = None
    tokens: int | None = None
    elapsed_ms: float = 0.0
    low_confidence: bool | None = None

    @classmethod
    def of(cls, answer: Answer, nuggets: Sequence[NuggetAssignment] = ()) -> AnswerRecord:
        """Return the record of an answer."""
        cited = {citation.n for citation in answer.citations}
        tokens = answer.tokens
        return cls(
            text=answer.text,
            reason=None if answer.abstained is None else answer.abstained.reason,
            sentences=answer.sentences,
            passages=tuple(
                PassageRecord.of(one, is_cited=one.rank in cited) for one in answer.results
            ),
            nuggets=tuple(nuggets),
            model=answer.model,
            tokens=None if tokens is None else tokens.prompt + tokens.reply,
            elapsed_ms=answer.elapsed_ms,
            low_confidence=answer.results.low_confidence,
        )

    @property
    def cited(self) -> tuple[PassageRecord, ...]:
        """The passages that its sentences cite, by rank."""
        numbers = {number for sentence in self.sentences for number in sentence.citations}
        return tuple(passage for passage in self.passages if passage.n in numbers)


def score_answers(
    golden: GoldenSet, answers: Mapping[str, AnswerRecord]
) -> dict[str, dict[str, float]]:
    """Return metric → query id → score, of the questions that each metric can be told of.

    A question without an answer in ``answers`` failed: it counts as neither answered nor left
    unanswered on purpose.
    """
    scores: dict[str, dict[str, float]] = {name: {} for name in ANSWER_METRICS}
    for query in golden:
        for name, value in _scores(query, answers.get(query.id)):
            scores[name][query.id] = float(value)
    return scores


def _scores(query: GoldenQuery, answer: AnswerRecord | None) -> Iterator[tuple[str, float]]:
    is_answered = answer is not None and answer.reason is None
    has_abstained = answer is not None and answer.reason is not None
    cited = answer.cited if answer is not None and is_answered else ()
    yield ("Answered", is_answered) if query.has_answer else ("AbstainR", has_abstained)
    if has_abstained:
        yield "AbstainP", not query.has_answer
    if query.relevant:
        paths = {path for passage in cited for path in passage.paths}
        yield "CiteR", len(paths & query.relevant.keys()) / len(query.relevant)
    if query.relevant and cited:
        yield "CiteP", sum(passage.is_of(query.relevant) for passage in cited) / len(cited)
    spans = [(one.path, one.span) for one in query.expected if one.grade > 0 and one.span]
    if spans:
        yield "CiteSpan", any(holds_span(one, path, span) for one in cited for path, span in spans)
    if answer is not None and answer.sentences:
        yield "Support", sum(one.supported for one in answer.sentences) / len(answer.sentences)
    if query.nuggets or query.answer:
        yield from score_nuggets(query, answer.nuggets if answer is not None else ()).items()


def holds_span(passage: PassageRecord, path: str, span: Span) -> bool:
    """Return whether a passage holds the span's words, or overlaps its range.

    Of a document that has its text as well, characters are not known.
    """
    if path not in passage.paths:
        return False
    if span.text is not None and " ".join(span.text.split()) in " ".join(passage.text.split()):
        return True
    place, characters = passage.locator, (passage.start, passage.end - 1)
    if passage.path != path:
        place = next(other.locator for other in passage.also_in if other.path == path)
        characters = (-1, -1)
    pairs = (
        (
            characters,
            (span.start, None if span.end is None else span.end - 1),
        ),
        ((place.line_start, place.line_end), (span.line_start, span.line_end)),
        ((place.time_start, place.time_end), (span.time_start, span.time_end)),
    )
    return any(overlap(its, wanted) for its, wanted in pairs)
