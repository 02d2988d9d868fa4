"""Whether what a search found answers the question at all, decided before any model is asked.

    answerable = σ(constant + relevance · logit(R) + coverage · C)
    logit(x) = ln(x / (1 - x)),  σ(x) = 1 / (1 + exp(-x))

R is the relevance of the best passage (:mod:`catalog.search_v2.relevance`) and C the share of the
question's words that one of the first passages has, its title and headings included. The
coefficients are a logistic regression over questions with labelled answers, questions of another
field and questions whose answers were taken out. Relevance does not depend on how the legs are
fused, so they hold for every fusion. A search by words alone goes by coverage; other searches
whose relevance was not calibrated are not decided. ``docs/abstention.md`` has the figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from catalog.search_v2.query_words import language_of_words, query_words

if TYPE_CHECKING:
    from catalog.core.param_types import Mode
    from catalog.core.results import SearchResults

_READ = 3  # passages whose words are compared with the question's
_SMALLEST = 1e-9
NO_PASSAGE = "no passage was found"


@dataclass(frozen=True, slots=True)
class AnswerableFit:
    """The coefficients of the module's formula, and the probability from which on to answer.

    ``least`` is that at which 7 to 10 of 100 answerable questions were refused.
    """

    constant: float
    relevance: float
    coverage: float
    least: float


CALIBRATED = AnswerableFit(constant=0.6095, relevance=1.1125, coverage=1.2699, least=0.4)
WORDS_ONLY = AnswerableFit(constant=-2.8349, relevance=0.0, coverage=5.5766, least=0.3)


@dataclass(frozen=True, slots=True)
class RetrievalEvidence:
    """What a search says about its question having an answer.

    ``passages`` is how many it found; ``relevance`` the best one's, above 0 and below 1, ``None``
    where nothing was calibrated; ``coverage`` the share (0 to 1) of the question's different words,
    stop words left out, that the best of the first three passages has, with its title and headings.
    """

    mode: Mode
    passages: int
    relevance: float | None
    coverage: float


@dataclass(frozen=True, slots=True)
class Abstention:
    """A question not to be answered: the estimated probability that it can be, and why."""

    answerable: float
    reason: str


def gather_evidence(results: SearchResults) -> RetrievalEvidence:
    """Return the evidence of a search, as it was asked for."""
    shares = [
        query_coverage(results.query, one.text, (one.title, *one.sections))
        for one in results.results[:_READ]
    ]
    return RetrievalEvidence(
        mode=results.mode,
        passages=len(results),
        relevance=results.confidence,
        coverage=max(shares, default=0.0),
    )


def decide_abstention(
    evidence: RetrievalEvidence, *, least: float | None = None
) -> Abstention | None:
    """Return why not to answer, or ``None``: answer, or nothing was fitted for such a search.

    ``least`` is the probability from which on to answer, that of the fit unless given.
    """
    if evidence.passages == 0:
        return Abstention(0.0, NO_PASSAGE)
    fit = _fit_for(evidence)
    if fit is None:
        return None
    answerable, needed = _estimate(evidence, fit), fit.least if least is None else least
    if answerable >= needed:
        return None
    reason = (
        f"what was found answers with an estimated {answerable:.0%}, and {needed:.0%} is needed: "
        f"no passage has more than {evidence.coverage:.0%} of the question's words"
    )
    if evidence.relevance is not None:
        reason += f", and the best is {evidence.relevance:.0%} relevant"
    return Abstention(answerable, reason)


def _fit_for(evidence: RetrievalEvidence) -> AnswerableFit | None:
    if evidence.relevance is not None:
        return CALIBRATED
    return WORDS_ONLY if evidence.mode == "lexical" else None


def _estimate(evidence: RetrievalEvidence, fit: AnswerableFit) -> float:
    score = fit.constant + fit.coverage * evidence.coverage
    if evidence.relevance is not None:
        relevance = min(max(evidence.relevance, _SMALLEST), 1 - _SMALLEST)
        score += fit.relevance * math.log(relevance / (1 - relevance))
    return 1 / (1 + math.exp(-score))


def query_coverage(query: str, text: str, headings: Sequence[str]) -> float:
    """Return the share of the query's words, 0 to 1, in a passage and its headings; 1 of none."""
    words = query_words(query, language_of_words(text))
    bits = 0
    for part in (text, *headings):
        for match in words.matches(part):
            bits |= match.tokens
    if not words.words:
        return 1.0
    return sum(1 for word in words.words if word & bits) / len(words.words)
