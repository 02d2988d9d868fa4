"""Whether a passage says what a sentence says, with no language model.

Two things are looked at. The share of the sentence's words, as the keyword leg stems them, that
the passage has, and has in one place: words from here and there make no statement. And, since
words alone would pass a sentence with one number changed, its details and negations one by one:
each must be in the passage, and where the passage has another one between the same words, that one
is meant. ``docs/abstention.md`` says how well this works.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from catalog.answers.analysed_text import AnalysedText, analyse_text, strip_references
from catalog.answers.details import Date, Detail, Quantity, is_name
from catalog.answers.measurement_units import MeasurementUnit
from catalog.answers.negation import find_contradictions
from catalog.answers.stretches import is_scattered
from catalog.retrieval.query_words import language_of_words

THRESHOLD = 0.6
_SHORT = 3
_MOST_DETAILS = 40  # of a sentence: each is compared with all of the passage
_REACH = 3  # words on either side that say which of several details is meant
_WEIGHTS = (3, 2, 1)  # of the nearest word, the next and the third
_SAME_PLACE = 8  # of 12: the words around agree so far that the same detail must stand there
_ROUNDED = 0.05
_APPROXIMATELY = frozenset({"about", "approximately", "around", "roughly", "nearly", "almost"})


@dataclass(frozen=True, slots=True)
class Support:
    """Whether a passage supports a sentence; ``score`` (0 to 1) is the share of words it has.

    ``reasons`` say what speaks against it, none if it is supported. Each begins with what was
    compared: ``words``, ``number``, ``date``, ``unit``, ``name`` or ``negation``.
    """

    supported: bool
    score: float
    reasons: tuple[str, ...] = ()


def check_support(
    sentence: str,
    passage: str,
    *,
    headings: str = "",
    stretches: int = 1,
    threshold: float = THRESHOLD,
) -> Support:
    """Check whether a passage supports a sentence, whose own citations are left out.

    ``headings`` are over all of the passage: their words count wherever in it the others stand.
    ``stretches`` (1 or more) is from how many stretches of it the words may come: one for each
    passage where several are checked as one. ``threshold`` is the score (0 to 1) from which on the
    words are enough.
    """
    language = language_of_words(passage)
    claim = analyse_text(strip_references(sentence), language)
    source = analyse_text(f"{headings}\n{passage}" if headings else passage, language)
    score = _word_score(claim, source)
    reasons = []
    if not claim.tokens and not claim.details:
        reasons.append("words: it says nothing that can be looked up")
    elif score < threshold:
        reasons.append(f"words: {score:.2f} of it is in the passage, and {threshold:.2f} is needed")
    elif is_scattered(claim, source, headings=len(headings), stretches=stretches):
        reasons.append("words: the passage has them only here and there, not in one place")
    if len(claim.details) > _MOST_DETAILS:
        reasons.append(f"words: it has more than the {_MOST_DETAILS} details that are checked")
    else:
        reasons += _differences(claim, source)
    return Support(not reasons, score, tuple(reasons))


def _word_score(claim: AnalysedText, source: AnalysedText) -> float:
    tokens = claim.tokens
    if not tokens:
        return 1.0 if claim.details else 0.0
    return len(tokens & source.tokens) / len(tokens)


def _differences(claim: AnalysedText, source: AnalysedText) -> Iterator[str]:
    """Say which details the passage does not have, or has another of in the same place."""
    quantities = {one.start: one for one in claim.details if isinstance(one.value, Quantity)}
    for detail in claim.details:
        shown = claim.text[detail.start : detail.end]
        if detail.kind == "number" and detail.start in quantities:
            continue  # it is looked at with its unit
        if detail.certain and not _is_stated(detail, claim, source):
            yield f"{_kind_to_blame(detail, source)}: {shown} is not in the passage"
        elif (other := _displaced(detail, claim, source)) is not None:
            has = source.text[other.start : other.end]
            yield f"{detail.kind}: {shown}, where the passage has {has}"
    yield from find_contradictions(claim, source)


def _kind_to_blame(detail: Detail, source: AnalysedText) -> str:
    """Return ``unit`` for a quantity only if its number is right."""
    if not isinstance(detail.value, Quantity):
        return detail.kind
    numbers = (one.value for one in source.details if one.kind == "number")
    return "unit" if any(_equal(detail.value.value, number) for number in numbers) else "number"


def _is_stated(detail: Detail, claim: AnalysedText, source: AnalysedText) -> bool:
    """Return whether the passage has such a detail anywhere."""
    value = detail.value
    if is_name(value):
        return _is_named(value, source)
    same_kind = [one for one in source.details if one.kind == detail.kind]
    if any(_agrees(value, one.value) for one in same_kind):
        return True
    if isinstance(value, Date):
        years = [one.value for one in source.details if one.kind == "number"]
        is_number = value == Date(value.year) and any(value.year == year for year in years)
        return is_number or _is_dated(value, [one.value for one in same_kind])
    if isinstance(
        value, MeasurementUnit
    ):  # without a number: wrong only where the passage has another
        units = [one.value for one in source.details if one.kind == "unit"]
        mentioned = [one.unit if isinstance(one, Quantity) else one for one in units]
        families = {one.family for one in mentioned if isinstance(one, MeasurementUnit)}
        return value in mentioned or value.family not in families
    if isinstance(value, Quantity):
        plain = [one for one in source.details if one.kind == "number"]
        with_unit = {one.start for one in same_kind}
        return any(
            _equal(value.value, one.value) or _equal(value.value * value.unit.factor, one.value)
            for one in plain
            if one.start not in with_unit
        )
    if isinstance(value, float) and _is_rounded(detail, claim):
        numbers = [one.value for one in same_kind if isinstance(one.value, float)]
        return any(abs(value - one) <= _ROUNDED * abs(one) for one in numbers)
    return False


def _is_rounded(detail: Detail, claim: AnalysedText) -> bool:
    before, _ = claim.around(detail, 1)
    return bool(_APPROXIMATELY & set(before))


def _equal(one: object, other: object) -> bool:
    return isinstance(one, float) and isinstance(other, float) and math.isclose(one, other)


def _agrees(value: object, other: object) -> bool:
    """Return whether two values of one kind are the same; a date may leave out parts of another."""
    if isinstance(value, Date) and isinstance(other, Date):
        return all(mine in (None, its) for mine, its in zip(value, other, strict=True))
    if isinstance(value, Quantity) and isinstance(other, Quantity):
        if value.unit.dimension != other.unit.dimension:
            return False
        mine, its = value.value * value.unit.factor, other.value * other.unit.factor
        return math.isclose(mine, its, rel_tol=1e-6)
    if is_name(value) and is_name(other):
        joined = "".join(value)
        is_part = len(joined) > _SHORT and joined in "".join(other)  # blanks are easily lost
        return is_part or set(value) <= set(other)
    return _equal(value, other) or value == other


def _is_dated(value: Date, dates: list[object]) -> bool:
    """Return whether two dates give it: one the year, such as a title, the other the day."""
    known = [one for one in dates if isinstance(one, Date)]
    if value.year is None or value.month is None:
        return False
    return any(one == Date(value.year) for one in known) and any(
        one.year is None and (one.month, one.day) == (value.month, value.day) for one in known
    )


def _is_named(words: tuple[str, ...], source: AnalysedText) -> bool:
    return all(_is_word(word, source) for word in words) or (
        len(words) > 2 and _initials(words) in source.words
    )


def _is_word(word: str, source: AnalysedText) -> bool:
    """Return whether the passage has a word, an ending apart, or the words it abbreviates."""
    if word in source.words:
        return True
    if len(word) > 3 and any(_one_begins_other(word, one) for one in source.words):
        return True
    parts = [part for part in _split(word) if part]
    if len(parts) > 1 and all(part in source.words for part in parts):
        return True
    return 2 < len(word) < 7 and _abbreviates(word, source)


def _split(word: str) -> list[str]:
    return "".join(mark if mark.isalnum() else " " for mark in word).split()


def _one_begins_other(word: str, other: str) -> bool:
    if len(other) < 4 or not (word.isalpha() and other.isalpha()):
        return False
    return abs(len(word) - len(other)) <= 3 and (word.startswith(other) or other.startswith(word))


def _initials(words: tuple[str, ...]) -> str:
    return "".join(word[0] for word in words)


def _abbreviates(word: str, source: AnalysedText) -> bool:
    names = (one.value for one in source.details if one.kind == "name")
    return any(is_name(name) and _initials(name) == word for name in names)


def _displaced(detail: Detail, claim: AnalysedText, source: AnalysedText) -> Detail | None:
    """Return the other detail that the passage has between the same words, if any.

    A sentence that takes a number from elsewhere in the passage has it between other words.
    """
    mine = claim.around(detail, _REACH)
    best, best_other, other = 0, 0, None
    for one in source.details:
        if one.kind != detail.kind:
            continue
        if detail.kind == "unit" and type(one.value) is not type(detail.value):
            continue
        likeness = _likeness(mine, source.around(one, _REACH))
        if _agrees(detail.value, one.value):
            best = max(best, likeness)
        elif likeness > best_other and (detail.certain or one.certain):
            best_other, other = likeness, one
    return other if best_other >= _SAME_PLACE and 2 * best <= best_other else None


def _likeness(mine: tuple[list[str], list[str]], its: tuple[list[str], list[str]]) -> int:
    return sum(
        weight
        for own, others in zip(mine, its, strict=True)
        for weight, word, other in zip(_WEIGHTS, own, others, strict=False)
        if word == other
    )
