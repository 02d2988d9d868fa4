"""Fit two constants to labelled queries: of relevance, and of the estimate that passages answer.

Each is a shift of a logit. A passage counts as relevant if its document, or another document with
its text, is labelled as relevant; an unanswerable query has no relevant passage. Every query has
the same weight, whatever its number of passages. Slopes stay, because a team's own questions have
answers: an unrelated question is not among them. A shift is adopted if it wins on
queries that it was not fitted on, with each fifth left out in turn, by more than two standard
errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from catalog.core.errors import InputError
from catalog.core.params import SearchParams
from catalog.evaluation.golden import GoldenSet
from catalog.ingest.sync_report import Progress
from catalog.retrieval.relevance import Calibration, extract_features
from catalog.retrieval.search import find_passages

if TYPE_CHECKING:
    import numpy.typing as npt

    from catalog.retrieval.search import Searcher

    Floats = npt.NDArray[np.float64]

SHIFTS = np.arange(-12, 13) / 4  # of a logit
CANDIDATES = 10  # the best passages of each query, to which thresholds apply
MIN_PASSAGES = 20  # relevant and irrelevant passages a fit needs at least
LEAST_OF_A_KIND = 10  # answerable and unanswerable queries that a fit needs at least
LEAST_ANSWERABLE, MOST_REFUSED = 20, 0.1  # of a fit to these alone; share that it may refuse
_FOLDS = 5
_ERRORS = 2.0
_OF_LIKELIHOOD = 0.5  # shrinkage: the logarithm of a normal prior of the shift
_OF_DECISIONS = 2.0
_REFUSED = 0.05  # quantile: to refuse more hides answers, and to refuse less changes little
_REFUSED_WRONGLY = 2.0  # what a refused question that has an answer counts; the reverse counts 1


@dataclass(frozen=True, slots=True)
class ShiftFit:
    """The chosen shift, and its mean gain on queries that were not used to choose it.

    ``error`` is the standard error of the gain, which is in the unit of the scores.
    """

    queries: int
    shift: float
    gain: float
    error: float

    @property
    def wins(self) -> bool:
        """Return whether the shift beats none beyond chance."""
        return self.shift != 0 and self.gain > _ERRORS * self.error


def fit_shift(scores: Floats, shrinkage: float) -> ShiftFit:
    """Choose a shift from the score of each query (row) at each of :data:`SHIFTS` (column).

    The best mean wins, averaged with its neighbours and reduced by ``shrinkage · shift² /
    queries``, so that few queries move the shift little.
    """
    none = int(np.argmin(np.abs(SHIFTS)))
    gains = []
    for fold in range(_FOLDS):
        others = np.delete(scores, np.s_[fold::_FOLDS], axis=0)
        if len(others) and len(own := scores[fold::_FOLDS]):
            gains += list(own[:, _choose(others, shrinkage)] - own[:, none])
    error = float(np.std(gains, ddof=1)) / math.sqrt(len(gains))
    shift = float(SHIFTS[_choose(scores, shrinkage)])
    return ShiftFit(len(scores), shift, float(np.mean(gains)), error)


def _choose(scores: Floats, shrinkage: float) -> int:
    padded = np.pad(scores.mean(axis=0), 1, mode="edge")
    smooth = 0.25 * padded[:-2] + 0.5 * padded[1:-1] + 0.25 * padded[2:]
    return int(np.argmax(smooth - shrinkage * np.square(SHIFTS) / len(scores)))


@dataclass(frozen=True, slots=True)
class LabelledPassages:
    """Estimated relevance of the first passages of one query, and whether each is relevant."""

    estimates: Floats
    is_relevant: npt.NDArray[np.bool_]


def collect_passages(
    service: Searcher,
    golden: GoldenSet,
    dataset: str,
    calibration: Calibration,
    *,
    progress: Progress,
) -> dict[str, LabelledPassages]:
    """Return the first passages of every query that found some, by query id.

    Expansion, the threshold and the token budget of the settings are not applied.
    """
    progress.start(len(golden))
    service = service.with_settings({"similarity_threshold": 0.0, "token_budget": 0})
    found = {}
    for query in golden:
        options = {"dataset": dataset, "top_k": CANDIDATES, "filters": query.filters}
        params = SearchParams(query.query, rerank=False, expand=False, **options)
        if passages := find_passages(service.parts, params).passages:
            seen = map(calibration.relevance, extract_features(passages, query.query))
            relevant = [any(one.path in query.relevant for one in p.chunks) for p in passages]
            found[query.id] = LabelledPassages(np.array(list(seen)), np.array(relevant))
        progress.advance(1, "asking")
    return found


def fit_relevance(queries: list[LabelledPassages]) -> ShiftFit:
    """Fit the constant of relevance; the gain is in the logarithm of a label's likelihood.

    Raises :class:`InputError` if there are too few relevant or irrelevant passages or queries.
    """
    relevant = sum(int(query.is_relevant.sum()) for query in queries)
    irrelevant = sum(query.is_relevant.size for query in queries) - relevant
    if min(relevant, irrelevant) < MIN_PASSAGES:
        raise InputError(
            f"a calibration needs {MIN_PASSAGES} relevant and {MIN_PASSAGES} irrelevant "
            f"passages, but there are {relevant} and {irrelevant}: label more queries"
        )
    if len(queries) < 2:
        raise InputError("a single query cannot be left out of its own fit: label more queries")
    rows = []
    for query in queries:
        logits = np.log(query.estimates) - np.log1p(-query.estimates)
        away = np.where(query.is_relevant, -1.0, 1.0)[:, None] * (logits[:, None] + SHIFTS)
        rows.append(-np.logaddexp(0, away).mean(axis=0))
    return fit_shift(np.array(rows), _OF_LIKELIHOOD)


@dataclass(frozen=True, slots=True)
class AnswerDecisions:
    """How far the logit of each query is above the threshold, and whether it is answerable."""

    margins: Floats  # minus infinity without a passage
    is_answerable: npt.NDArray[np.bool_]

    def fit(self) -> ShiftFit:
        """Fit the shift; both kinds of queries count alike, however many there are.

        An answerable query counts twice, because a refusal hides what the documents say.
        """
        is_right = (self.margins[:, None] + SHIFTS >= 0) == self.is_answerable[:, None]
        kinds = (self.is_answerable, _REFUSED_WRONGLY), (~self.is_answerable, 1.0)
        weight = sum(kind * (cost / max(1, kind.sum())) for kind, cost in kinds)
        weight = weight * (len(is_right) / (1 + _REFUSED_WRONGLY))
        return fit_shift(is_right * weight[:, None], _OF_DECISIONS)

    def fit_answerable(self) -> tuple[float, float]:
        """Return the shift that refuses one in twenty of the answerable queries.

        The second value is the share that it refuses of those left out of the fit, by fifths.
        """
        own = np.maximum(self.margins[self.is_answerable], -9.0)  # of one without a passage
        parts = [np.delete(own, np.s_[at::_FOLDS]) for at in range(_FOLDS)] + [own]
        *least, of_all = (float(np.quantile(one, _REFUSED, method="lower")) for one in parts)
        wrongly = [one < least[at % _FOLDS] for at, one in enumerate(own)]
        return math.ceil(-1000 * of_all) / 1000, float(np.mean(wrongly))

    def refused(self, shift: float) -> tuple[float, float]:
        """Return the shares of answerable and of unanswerable queries that are refused."""
        refused = self.margins + shift < 0
        return float(refused[self.is_answerable].mean()), float(refused[~self.is_answerable].mean())


def measure_answers(
    service: Searcher, golden: GoldenSet, dataset: str, *, progress: Progress
) -> AnswerDecisions:
    """Return how sure ``ask`` is of each query, compared with where it begins to answer."""
    from catalog.answers.answerable import answer_logit, logit_of, read_candidates
    from catalog.answers.extracting import rank_candidates

    progress.start(len(golden))
    least = logit_of(service.parts.settings.answers.answered_from)
    margins = []
    for query in golden:
        results = service.run(SearchParams(query.query, dataset=dataset, filters=query.filters))
        ranked = rank_candidates(query.query, results.results)
        candidates = read_candidates(service.parts, query.query, results, ranked)
        logit = answer_logit(query.query, results, candidates)
        margins.append(logit - least if len(results) else -math.inf)
        progress.advance(1, "asking")
    return AnswerDecisions(np.array(margins), np.array([one.is_answerable for one in golden]))
