"""Estimate whether the passages that a search found answer its question.

    estimate = σ(.684 + .5 · logit(confidence) + .093 · R + .376 · S)

``confidence`` is the search's (:mod:`catalog.retrieval.relevance`). R is the highest score that the
cross-encoder gives to one of the best eight statements, read with its heading, lead-in or question.
S is the largest share of the question's words that a statement has with that context.

A statement is as long in every preset, but the cosines of long passages are lower than those of
short ones: R and S make up for that. The coefficients are a logistic regression on the questions of
four folders under three presets (``docs/evidence/abstention.md``).

Without the packaged cross-encoder, for keywords, and for passages that are not in English, the
estimate is the search's confidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from catalog.core.errors import CatalogError
from catalog.core.settings import RAGv2Settings
from catalog.core.text import storable
from catalog.models.model_files import reranker
from catalog.retrieval.query_words import keywords_of
from catalog.retrieval.relevance import TELLING, is_english

if TYPE_CHECKING:
    from catalog.answers.extracting import Candidate
    from catalog.core.results import SearchResults
    from catalog.retrieval.search_parts import SearchParts

NO_PASSAGE = "no passage was found"
_CONSTANT, _CONFIDENCE, _READ, _SHARE = 0.684, 0.5, 0.093, 0.376
_STATEMENTS = 8  # that the cross-encoder reads: more made no difference
_NEARLY = 1e-4  # to 0 and 1, for the logit


def why_not_answered(results: SearchResults, estimate: float, least: float) -> str | None:
    """Return why the passages found do not answer; ``None`` if they may.

    ``estimate`` and ``least`` are probabilities, 0 to 1: questions are answered from ``least`` on.
    """
    if len(results) == 0:
        return NO_PASSAGE
    if estimate >= least:
        return None
    return (
        f"an estimated probability of {estimate:.0%} that the passages answer; {least:.0%} is "
        "needed"
    )


def estimate_answer(
    parts: SearchParts, question: str, results: SearchResults, candidates: Sequence[Candidate]
) -> float:
    """Return the probability, 0 to 1, that the passages answer; see the module.

    The ``candidates`` are their statements, best first.
    """
    first = [result.text for result in results.results[:TELLING]]
    if not candidates or keywords_of(question) or not is_english(first):
        return results.confidence
    scores = _read(parts, question, [one.read for one in candidates[:_STATEMENTS]])
    if scores is None:
        return results.confidence
    confidence = min(max(results.confidence, _NEARLY), 1 - _NEARLY)
    logit = (
        _CONSTANT
        + _CONFIDENCE * math.log(confidence / (1 - confidence))
        + _READ * max(scores)
        + _SHARE * max(one.share for one in candidates)
    )
    return 1 / (1 + math.exp(-logit))


def _read(parts: SearchParts, question: str, statements: Sequence[str]) -> list[float] | None:
    """Return the packaged cross-encoder's scores; ``None`` without this model."""
    model = reranker(parts.settings, is_on=True)
    usual = RAGv2Settings.model_fields
    is_usual = (model.provider, model.name) == (
        usual["rerank_provider"].default,
        usual["rerank_model"].default,
    )
    if not is_usual or model.files is None or model.files.found is None:
        return None
    try:
        return parts.reranker.scores(storable(question), list(map(storable, statements)))
    except CatalogError:  # the confidence of the search is there without it
        return None
