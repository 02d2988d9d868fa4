"""Whether what a search found answers the question at all, decided before any model is asked.

    answerable = σ(constant + relevance · logit(R) + coverage · C)
    logit(x) = ln(x / (1 - x)),  σ(x) = 1 / (1 + exp(-x))

R is the relevance of the best passage (:mod:`catalog.search_v2.relevance`) and C the share of the
question's words that one of the first passages has, its title and headings included. The
coefficients are a logistic regression over questions with labelled answers, and questions and
words of other collections. Relevance does not depend on how the legs are fused, so they hold for
every search. ``docs/abstention.md`` has the figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from catalog.search_v2.query_words import has_word, language_of_words, query_words

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


FIT = AnswerableFit(constant=-0.552, relevance=0.717, coverage=2.157, least=0.4)


@dataclass(frozen=True, slots=True)
class RetrievalEvidence:
    """What a search says about its question having an answer.

    ``passages`` is how many it found and ``relevance`` the best one's, 0 to 1. ``coverage`` is the
    share (0 to 1) of the question's different words, stop words left out, that the best of the
    first three passages contains, with its title and headings.
    """

    mode: Mode
    passages: int
    relevance: float
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
    """Return why not to answer, or ``None``: answer.

    ``least`` is the probability from which on to answer, that of the fit unless given.
    """
    if evidence.passages == 0:
        return Abstention(0.0, NO_PASSAGE)
    answerable, needed = _estimate(evidence), FIT.least if least is None else least
    if answerable >= needed:
        return None
    reason = (
        f"what was found answers with an estimated {answerable:.0%}, and {needed:.0%} is needed: "
        f"no passage has more than {evidence.coverage:.0%} of the question's words"
    )
    return Abstention(answerable, reason)


def _estimate(evidence: RetrievalEvidence) -> float:
    relevance = min(max(evidence.relevance, _SMALLEST), 1 - _SMALLEST)
    odds = math.log(relevance / (1 - relevance))
    score = FIT.constant + FIT.relevance * odds + FIT.coverage * evidence.coverage
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
    return sum(has_word(word, bits) for word in words.words) / len(words.words)
