"""Estimate whether the passages that a search found answer its question.

    estimate = σ(.684 + .5 · logit(confidence) + .093 · R + .376 · S)

``confidence`` is the search's (:mod:`catalog.retrieval.relevance`). R is the highest score that the
cross-encoder gives to one of the best eight statements, read with its heading, lead-in or question.
S is the largest share of the question's words that a statement has with that context.

Where R is below -11, no statement has to do with the question, and the estimate is 0. This does not
apply to keywords, because the cross-encoder does not know names, and not to other languages.

A statement is as long in every preset, but the cosines of long passages are lower than those of
short ones: R and S make up for that. The coefficients are a logistic regression on the questions of
four folders under three presets (``docs/evidence/abstention.md``).

Without the packaged cross-encoder, and for passages that are not in English, the estimate is the
search's confidence. ``catalog golden calibrate`` learns a constant for a dataset
that is added to the logit of either.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from catalog.core.errors import CatalogError
from catalog.core.query import MOST_TYPED
from catalog.core.settings import RAGv2Settings
from catalog.core.text import storable
from catalog.models.model_files import reranker
from catalog.retrieval.query_words import (
    has_word,
    keywords_of,
    language_of_words,
    query_words,
    reword,
    unite,
)
from catalog.retrieval.relevance import TELLING, is_english
from catalog.retrieval.select import ASKS_FOR_NEWEST

if TYPE_CHECKING:
    from catalog.answers.extracting import Candidate
    from catalog.core.answers import Answer
    from catalog.core.params import SearchParams
    from catalog.core.results import SearchResults
    from catalog.retrieval.parts import SearchParts
    from catalog.retrieval.search import Searcher

NO_PASSAGE = "no passage was found"
_CONSTANT, _CONFIDENCE, _READ, _SHARE = 0.684, 0.5, 0.093, 0.376
_STATEMENTS = 8  # that the cross-encoder reads: more made no difference
_UNRELATED = -11.0  # of the cross-encoder's scores, whose lowest is near -11.4
# Score plus lead: of 252 questions with an answer 88 have it, 76 of them rightly, and 7 of 108
# without one (docs/evidence/abstention.md).
_SURE, _COMPARED, _LOOKED_UP = 5.0, 2, 8
_UNTOLD = re.compile(  # no text has to have these: many, long, often, now, tag:ops
    r"(?<!\S)-?(?:file|path|tag|type):\S+|"
    rf"(?<=\bhow) \w+|\b(?:today|heute|derzeit|jetzt)\b|{ASKS_FOR_NEWEST.pattern}",
    re.I,
)
_STEP = 1.0  # of a score: what nearly equal statements differ by, of two ranks
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


def is_sure(results: SearchResults, candidates: Sequence[Candidate]) -> bool:
    """Return whether the best statement is likely to answer, by its score and its lead.

    It must be in the first passage. Both are those of the cross-encoder; without them the passage
    must have the words of a keyword query as they are.
    """
    scores = sorted([one.read_score for one in candidates if one.read_score is not None])
    if len(scores) < _COMPARED:
        return any(one.certainty == "exact" for one in results.results[:1])
    return candidates[0].n == results.results[0].rank and 2 * scores[-1] - scores[-2] >= _SURE


def find_absent(service: Searcher, search: SearchParams, results: SearchResults) -> list[str]:
    """Return the words of a question that no document mentions which the search may see.

    At most eight words are looked up, and none of a pasted text.
    """
    if len(search.query.split()) > MOST_TYPED:
        return []
    parts = chain.from_iterable((one.text, one.title, one.path) for one in results)
    absent, wordings = [], reword(search.query, service.library.settings.home)
    for word in find_missing(search.query, list(parts), wordings)[:_LOOKED_UP]:
        asked = replace(search, query=word, mode="lexical", top_k=1, rerank=False, expand=False)
        found = service.run(asked)
        told = any(f"{word!r} is in no passage searched" in note for note in found.notes)
        absent += [word] if told or not found.results else []
    return absent


def find_missing(
    question: str, parts: Sequence[str], wordings: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the words of a question that none of the texts has; stop words never count.

    A word counts as there if one of the ``wordings`` of the question lacks it and nothing else.
    """
    words = query_words(_UNTOLD.sub("", question), language_of_words(" ".join(parts)))
    tokens = unite(match.tokens for part in parts for match in words.matches(part))
    known = [has_word(word, tokens) for word in words.words]
    missing = tuple(raw for raw, is_known in zip(words.raws, known, strict=True) if not is_known)
    lacking = (find_missing(one, parts) for one in (wordings if missing else ()))
    said = [{*missing} - {*some} for some in lacking if {*some} <= {*missing}]
    return tuple(one for one in missing if not any(one in some for some in said))


def cited_parts(answer: Answer) -> list[str]:
    """Return what an answer cites, word for word, with headings, titles and paths."""
    cited = [one for one in answer.results if one.rank in {at.rank for at in answer.citations}]
    parts = [*(at.text for at in answer.citations), *(one.context for one in answer.sentences)]
    return parts + [part for one in cited for part in (one.title, one.path, *one.sections)]


def estimate_answer(
    parts: SearchParts, question: str, results: SearchResults, candidates: Sequence[Candidate]
) -> float:
    """Return the probability, 0 to 1, that the passages answer; see the module.

    The ``candidates`` are their statements as :func:`read_candidates` returns them.
    """
    logit = answer_logit(question, results, candidates) + _find_shift(parts, results)
    return 1 / (1 + math.exp(-logit))


def answer_logit(question: str, results: SearchResults, candidates: Sequence[Candidate]) -> float:
    """Return the logit of the estimate without what labels taught."""
    of_search = logit_of(results.confidence)
    scores = [one.read_score for one in candidates if one.read_score is not None]
    if not scores:
        return of_search
    if max(scores) < _UNRELATED and is_english([question]) and not keywords_of(question):
        return logit_of(0.0)
    share = max(one.share for one in candidates)
    return _CONSTANT + _CONFIDENCE * of_search + _READ * max(scores) + _SHARE * share


def read_candidates(
    parts: SearchParts, question: str, results: SearchResults, candidates: Sequence[Candidate]
) -> list[Candidate]:
    """Return the best eight in the order of the packaged cross-encoder's scores, then the rest.

    The first statement of these answers 64 % of the questions of four folders, and the first by
    words 58 % (``docs/evidence/abstention.md``). Without that model, or for passages that are not
    in English, the order stays.
    """
    read, rest = candidates[:_STATEMENTS], candidates[_STATEMENTS:]
    if not read or not is_english([result.text for result in results.results[:TELLING]]):
        return list(candidates)
    scores = _read(parts, question, [one.read for one in read])
    if scores is None:
        return list(candidates)
    step = _STEP if ASKS_FOR_NEWEST.search(question) else 0.0  # newer documents are first
    lowered = (score - step * (one.n - 1) for one, score in zip(read, scores, strict=True))
    scored = [one._replace(read_score=it) for one, it in zip(read, lowered, strict=True)]
    scored.sort(key=lambda one: -(one.read_score or 0.0))
    return [*scored, *rest]


def logit_of(probability: float) -> float:
    """Return ln(p / (1 - p)), within ±9.2."""
    probability = min(max(probability, _NEARLY), 1 - _NEARLY)
    return math.log(probability / (1 - probability))


def save_answer_shift(parts: SearchParts, dataset: str, shift: float | None, about: str) -> None:
    """Save what labels taught about a dataset's answers; ``None`` forgets it."""
    embedding = parts.library.wanted_model.fingerprint
    entry = {"fit": shift, "of": dataset, "about": about, "embedding": embedding}
    parts.database.set_meta(f"answers:{dataset}", json.dumps(entry))


def _find_shift(parts: SearchParts, results: SearchResults) -> float:
    """Return the constant learnt for the dataset and its model; 0 without one, or for several."""
    if len(results.datasets) != 1:
        return 0.0

    def read(fit: float | None, embedding: str, **_: object) -> float:
        is_of_model = embedding == parts.library.wanted_model.fingerprint
        return float(fit or 0.0) if is_of_model else 0.0

    return parts.database.note(f"answers:{results.datasets[0]}", "when to answer", read) or 0.0


def _read(parts: SearchParts, question: str, statements: Sequence[str]) -> list[float] | None:
    """Return the packaged cross-encoder's scores; ``None`` without this model."""
    model = reranker(parts.settings, is_on=True)
    usual = RAGv2Settings.model_fields
    is_usual = (model.provider, model.name) == (
        usual["rerank_provider"].default,
        usual["rerank_model"].default,
    )
    if not is_usual or model.found is None:
        return None
    try:
        return parts.reranker.scores(storable(question), list(map(storable, statements)))
    except CatalogError:  # the confidence of the search is there without it
        return None
