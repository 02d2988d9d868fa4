"""A bound on unsupported sentences holds, says what it costs, and ends when something changes."""

from __future__ import annotations

import random

import pytest

from catalog.answers.risk import bound_risk, explain_void, labels_needed
from catalog.core.errors import InputError


def _draw(n: int, random_: random.Random) -> tuple[list[float], list[bool]]:
    """Draw sentences with even scores, supported with a chance of 1 - .6 (1 - score)²."""
    scores = [random_.random() for _ in range(n)]
    return scores, [random_.random() < 1 - 0.6 * (1 - score) ** 2 for score in scores]


@pytest.mark.parametrize("digits", [9, 1])  # scores of sentences are shares of few words
@pytest.mark.parametrize("most", [0.05, 0.1, 0.2])
def test_the_bound_holds_in_95_of_100_resampled_calibrations(most: float, digits: int) -> None:
    random_ = random.Random(17)
    scores, supported = _draw(20_000, random_)
    scores = [round(score, digits) for score in scores]
    held = given = 0
    for _ in range(100):
        chosen = random_.sample(range(len(scores)), 400)
        try:
            bound = bound_risk(
                [scores[at] for at in chosen], [supported[at] for at in chosen], most=most
            )
        except InputError:  # nothing is promised
            held += 1
            continue
        given += 1
        shown = [
            ok for score, ok in zip(scores, supported, strict=True) if score >= bound.threshold
        ]
        held += 1 - sum(shown) / len(shown) <= most
    assert held >= 95
    assert given >= 50


def test_too_few_labels_are_refused_with_how_many_more_are_needed() -> None:
    # .95 ** 59 = .0485 is the first power below .05
    assert labels_needed(0.05) == 59
    with pytest.raises(InputError, match="label 19 more"):
        bound_risk([0.5] * 40, [True] * 40, most=0.05)


def test_scores_without_information_give_no_bound() -> None:
    with pytest.raises(InputError, match="no threshold"):
        bound_risk([0.5] * 200, [True, False] * 100, most=0.05)


def test_equal_scores_are_shown_together() -> None:
    scores, supported = [0.9] * 100 + [0.1] * 100, [True] * 100 + [False] * 100
    assert bound_risk(scores, supported, most=0.05).threshold == 0.9


def test_the_promise_is_reported_with_its_confidence_and_what_it_costs() -> None:
    scores, supported = [0.9] * 100 + [0.1] * 100, [True] * 100 + [False] * 100
    assert bound_risk(scores, supported, most=0.05).describe() == (
        "at most 5.0% of the sentences shown are unsupported, with 95% confidence: "
        "from a score of 0.900 on, which 50% of 200 labels reach (0.0% of these unsupported)"
    )


def test_another_model_index_or_setting_voids_the_bound_aloud() -> None:
    made_for = {"model": "a", "index": "1", "settings": "x"}
    bound = bound_risk([0.9] * 100, [True] * 100, most=0.05, made_for=made_for)
    assert explain_void(bound, made_for) == ""
    assert "changed since it was made: index, model" in explain_void(
        bound, {"model": "b", "index": "2", "settings": "x"}
    )


@pytest.mark.parametrize(("most", "confidence"), [(0.05, 1.5), (0.05, 0.0), (1.0, 0.9), (0, 0.9)])
def test_invalid_shares_are_refused_before_labels_are_counted(most, confidence) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        labels_needed(most, confidence)
