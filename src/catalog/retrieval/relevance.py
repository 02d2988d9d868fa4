"""Estimate the relevance of passages, and the confidence that a search answers its query.

Relevance is the probability that a passage answers:

    relevance = σ(constant + cosine · C + words · W + rank / n
                  + name · N + named · M + exact · E + keywords · K)
    σ(x) = 1 / (1 + exp(-x))

C is the cosine of the passage, or that of the vector leg's last hit for a passage that the leg did
not find. W is the share of the query's words in the passage, weighted by idf. n is the rank in the
search, from 1. M is the rarity of the name in the query (:mod:`catalog.retrieval.fusion`), and N
is the same if the passage contains the name. A query of one or two words without stop words is a
keyword query: then K is 1, and E is 1 if the passage contains the words as written, and .6 if it
contains other forms of them, such as the plural; .6 is not fitted. C is 0 for a keyword query and
loses weight as M grows, because the cosine of a single word or name says little.

Relevance never rises along the results: passages whose estimates contradict the order get their
mean (Ayer et al. 1955).

Confidence is the probability that any passage answers. For a keyword query, and for one with a
name, it is the relevance of the first passage. Otherwise it depends on the best cosine and the
largest W of the first three passages; it is at least .5 if the first passage contains a quoted
phrase as written:

    confidence = σ(answer_constant + answer_cosine · max C + answer_words · max W)

All coefficients are logistic regressions over labelled queries (Platt 1999). Those with a cosine
are valid for one embedding model, those without for any search. ``docs/evidence/quality.md`` shows
how well they agree with labels.
"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

from catalog.core.results import Certainty
from catalog.retrieval.fusion import NO_WORDS
from catalog.retrieval.query_words import cover_of, has_other_forms, how_written, keywords_of
from catalog.retrieval.snippets import Passage
from catalog.store import Database
from catalog.store.lexical.languages import detect_language

LIKELY = 0.5  # the least relevance of a passage that is called likely
_LIMIT = 40.0  # exp of more says nothing new
TELLING, _READ = 3, 1000  # passages that show the language, and characters read of each
_OTHER_FORM = 0.6  # of a word as written: boats for boat
_FIRST = 3  # passages whose words count for confidence
_KEY = "calibration:{}"
WORDS_ONLY = ""  # instead of a fingerprint: for searches whose cosines have no fit


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The variables of one passage's relevance."""

    cosine: float = 0.0
    words: float = 0.0
    rank: float = 0.0
    name: float = 0.0
    named: float = 0.0
    exact: float = 0.0
    keywords: float = 0.0


FEATURES = tuple(field.name for field in fields(Features))


@dataclass(frozen=True, slots=True)
class Calibration(Features):
    """The coefficients of the module's formulas; ``about`` names the labels of the fit.

    ``english_only`` says that its cosines are valid only for passages in English.
    """

    constant: float
    answer_constant: float = -3.119
    answer_cosine: float = 0.0
    answer_words: float = 9.436
    about: str = ""
    english_only: bool = False

    def relevance(self, features: Features) -> float:
        """Estimate the probability that such a passage answers: above 0, at most 1."""
        values = (getattr(self, name) * getattr(features, name) for name in FEATURES)
        return _logistic(self.constant + sum(values))

    def confidence(self, cosine: float, words: float) -> float:
        """Estimate the probability that one of the passages answers: above 0, at most 1."""
        of_both = self.answer_cosine * cosine + self.answer_words * words
        return _logistic(self.answer_constant + of_both)


def _logistic(logit: float) -> float:
    return 1 / (1 + math.exp(-max(-_LIMIT, min(_LIMIT, logit))))


CalibrationFinder = Callable[[bool], Calibration]  # with cosines or without


def judge_relevance(
    passages: Sequence[Passage], query: str, find: CalibrationFinder, phrases: Sequence[str] = ()
) -> tuple[list[Passage], float]:
    """Set relevance and certainty of the passages of one search; return them and the confidence.

    A passage without a vector, or found by a hypothetical answer, is judged by its words only. So
    are all passages if the first ones are in a language that the model does not know. With quoted
    ``phrases``, passages are exact if they contain these as written.
    """
    if not passages:
        return [], 0.0
    by_words, with_cosine = find(False), find(True)
    first = [passage.chunk.text for passage in passages[:TELLING]]
    if with_cosine.english_only and not is_english(first):
        with_cosine = by_words
    seen = extract_features(passages, query)
    fits = [with_cosine if "vec" in one.kinds_answered else by_words for one in passages]
    estimates = [fit.relevance(one) for fit, one in zip(fits, seen, strict=True)]
    judged = []
    for passage, relevance, one in zip(passages, _never_rising(estimates), seen, strict=True):
        is_exact = how_written(passage.chunk, phrases) == 1 if phrases else one.exact == 1
        certainty: Certainty = "likely" if relevance >= LIKELY else "possible"
        certainty = "exact" if is_exact else certainty
        judged.append(passage._replace(relevance=relevance, certainty=certainty))
    if seen[0].keywords or seen[0].named:
        confidence = judged[0].relevance or 0.0
    else:
        cosine, words = max(one.cosine for one in seen), max(one.words for one in seen[:_FIRST])
        confidence = fits[0].confidence(cosine, words)
    if phrases and judged[0].certainty == "exact":
        confidence = max(confidence, LIKELY)
    return judged, confidence


def extract_features(passages: Sequence[Passage], query: str) -> list[Features]:
    """Return the formula's variables for each passage of one search, in the given order."""
    by_words = (share.source for one in passages for share in one.fused.originals("lexical"))
    found = next((source.words for source in by_words), NO_WORDS)
    keywords = keywords_of(query)
    named = found.rarity if found.is_name and not keywords else 0.0
    vectors = [passage.fused.originals("vector") for passage in passages]
    last = min((share.source.hits[-1][1] for own in vectors for share in own), default=0.0)
    weight = 0.0 if keywords else 1 - named
    features = []
    for place, (passage, own) in enumerate(zip(passages, vectors, strict=True), start=1):
        chunk, cover, exact = passage.chunk, cover_of(passage.chunk, query, found), 0.0
        if keywords and how_written(chunk, keywords) > 0:
            exact = 1.0
        elif keywords and cover == 1 and has_other_forms(chunk, keywords):
            exact = _OTHER_FORM
        cosine = weight * max((share.raw_score for share in own), default=last)
        has = named * (passage.fused.key in found.rare), named, exact, float(bool(keywords))
        values = dict(zip(FEATURES, (cosine, cover, 1 / place, *has), strict=True))
        features.append(Features(**values))
    return features


def is_english(texts: Iterable[str]) -> bool:
    """Return whether the texts are in English, as in the fits, or in no known language."""
    text = " ".join([one[:_READ] for one in texts])
    return detect_language(text, text.split()) in (None, "english")


def _never_rising(estimates: Sequence[float]) -> list[float]:
    """Return the estimates with each rise replaced by the mean of the numbers involved."""
    pools: list[tuple[float, int]] = []
    for estimate in estimates:
        mean, size = estimate, 1
        while pools and pools[-1][0] < mean:
            before, count = pools.pop()
            mean, size = (before * count + mean * size) / (count + size), count + size
        pools.append((mean, size))
    return [mean for mean, size in pools for _ in range(size)]


def find_calibration(database: Database, embedding: str) -> Calibration:
    """Return the calibration saved for a model, else the packaged one, else that for words."""
    key = _KEY.format(embedding or "words")
    stored = database.note(key, "the calibration of relevance", _kept_calibration)
    found = stored or packaged_calibration(embedding)
    return found or find_calibration(database, WORDS_ONLY)


def _kept_calibration(fit: dict[str, Any] | None = None, **_about: object) -> Calibration | None:
    return None if fit is None else Calibration(**fit)


@cache
def packaged_calibration(embedding: str) -> Calibration | None:
    """Return the package's calibration for a model's fingerprint, or :data:`WORDS_ONLY`."""
    text = files("catalog.retrieval").joinpath("calibrations.json").read_text(encoding="utf-8")
    fits = {entry["embedding"]: entry["calibration"] for entry in json.loads(text)}
    return Calibration(**fits[embedding]) if embedding in fits else None


def save_calibration(database: Database, embedding: str, calibration: Calibration | None) -> None:
    """Save a calibration for a model; ``None`` restores the packaged one.

    Searches use it after the store is opened again.
    """
    entry = {"fit": None if calibration is None else asdict(calibration), "embedding": embedding}
    database.set_meta(_KEY.format(embedding or "words"), json.dumps(entry))
