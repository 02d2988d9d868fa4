"""Add and count the judgements of people: preferences between searches, grades, agreement."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from pydantic import ValidationError

from catalog.core.errors import GoldenSetError
from catalog.core.text import counted
from catalog.evaluation.golden import Expected, GoldenQuery, Judgement, Preference
from catalog.evaluation.golden_files import describe_problems
from catalog.evaluation.significance import SequentialTest, choices_needed, sequential_test


@dataclass(frozen=True)
class PreferenceTest:
    """The choices between two backends in one mode, one for each question.

    ``test`` has the wins of the ``candidate``. ``neither`` counts the ties in which both were bad,
    ``people`` the choices of each person. ``repeated`` counts the choices of each person on
    questions that somebody else had judged before: they tell how far people agree, but are no new
    evidence. ``by_kind`` has ``won-tied-lost`` for each kind of question that has one.
    """

    baseline: str
    candidate: str
    mode: str
    test: SequentialTest
    neither: int
    people: dict[str, int]
    repeated: dict[str, int]
    by_kind: dict[str, str]

    @property
    def verdict(self) -> str:
        """Say in a sentence who is preferred, or that it is not decided."""
        if self.test.decided_after is None:
            return f"not decided between {self.candidate} and {self.baseline}"
        better = self.candidate if self.test.interval.low > 0.5 else self.baseline
        other = self.baseline if better == self.candidate else self.candidate
        return f"{better} is preferred to {other}, decided after {self.test.decided_after}"

    @property
    def still_needed(self) -> str:
        """Say how many more choices it takes if people go on choosing as so far; maybe nothing."""
        needed = choices_needed(self.test)
        return "" if needed is None else f"about {needed} more if people go on choosing so"


@dataclass(frozen=True)
class Agreement:
    """How far two people agree, ``about`` grades of documents or preferences between searches.

    ``common`` counts what both judged, ``share`` is the part of it on which they agree, 0 to 1.
    ``kappa`` is ``None`` where they agree on all by giving one and the same judgement only.
    """

    people: tuple[str, str]
    about: str
    common: int
    share: float
    kappa: float | None

    def __str__(self) -> str:
        noun = {"grades": "document", "preferences": "choice"}[self.about]
        kappa = "not defined" if self.kappa is None else f"{self.kappa:.2f}"
        return (
            f"{' and '.join(self.people)} agree on {self.share:.0%} of "
            f"{counted(self.common, noun)} (kappa {kappa})"
        )


@dataclass(frozen=True)
class Conflict:
    """A document that people graded differently, and nobody settled; the grade by person."""

    query: GoldenQuery
    path: str
    grades: dict[str, int]


def add_preference(query: GoldenQuery, preference: Preference) -> GoldenQuery:
    """Add a preference; it replaces the same person's choice between the two in that mode."""
    kept, first = [], preference.at
    for one in query.preferences:
        if _key_of(one) == _key_of(preference):
            first = one.at
        else:
            kept.append(one)
    latest = preference.model_copy(update={"at": first})
    return query.model_copy(update={"preferences": (*kept, latest)})


def add_judgement(query: GoldenQuery, judgement: Judgement) -> GoldenQuery:
    """Add a grade, which replaces the same person's grade, and set the label that counts.

    That is the settled grade, else the grade of the person who graded first. A query that loses its
    last answer becomes ``unanswerable``; one that gets its first answer loses that kind.
    """
    by_person = {(one.by, one.path, one.settled): one for one in (*query.judgements, judgement)}
    of_path = [one for one in by_person.values() if one.path == judgement.path]
    decisive = next((one for one in of_path if one.settled), of_path[0])
    known = next((one for one in query.expected if one.path == judgement.path), None)
    span = decisive.span or judgement.span or (known.span if known else None)
    label = Expected(path=judgement.path, grade=decisive.grade, span=span)
    expected = [label if one.path == label.path else one for one in query.expected]
    values = query.model_dump() | {
        "expected": expected if known else [*expected, label],
        "judgements": tuple(by_person.values()),
    }
    is_answered = any(one.grade > 0 for one in values["expected"])
    if query.kind is not None and not is_answered:
        values["kind"] = "unanswerable"
    elif query.kind == "unanswerable":
        values["kind"] = None
    try:
        return GoldenQuery.model_validate(values)
    except ValidationError as error:
        raise GoldenSetError(f"{query.id}: {describe_problems(error)}") from error


def preference_tests(queries: Iterable[GoldenQuery]) -> list[PreferenceTest]:
    """Test the preferences of each pair of backends in each mode, most choices first.

    A question counts once, by the person who chose first, so that choices are independent.
    """
    repeated: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    kinds: dict[tuple[str, str, str], dict[str, list[int]]] = defaultdict(dict)
    chosen: dict[tuple[str, str, str], list[Preference]] = defaultdict(list)
    for query in queries:
        firsts: dict[tuple[str, str, str], Preference] = {}
        for one in sorted(query.preferences, key=lambda one: one.at):
            key: tuple[str, str, str] = (*_pair_of(one), one.mode)
            if firsts.setdefault(key, one) is not one:
                repeated[key][one.by] += 1
        for pair_and_mode, first in firsts.items():
            chosen[pair_and_mode].append(first)
            if query.kind is not None:
                counts = kinds[pair_and_mode].setdefault(query.kind, [0, 0, 0])
                counts[1 - _side_of(first)] += 1
    tests = []
    for (baseline, candidate, mode), preferences in chosen.items():
        preferences.sort(key=lambda one: one.at)
        choices = [_side_of(one) for one in preferences]
        tests.append(
            PreferenceTest(
                baseline=baseline,
                candidate=candidate,
                mode=mode,
                test=sequential_test(choices),
                neither=sum(one.preferred == "neither" for one in preferences),
                people=dict(Counter(one.by for one in preferences)),
                repeated=dict(repeated[baseline, candidate, mode]),
                by_kind={
                    kind: "-".join(map(str, counts))
                    for kind, counts in kinds[baseline, candidate, mode].items()
                },
            )
        )
    return sorted(tests, key=lambda one: -sum(one.people.values()))


def _key_of(preference: Preference) -> tuple[str, str, tuple[str, str]]:
    return preference.by, preference.mode, _pair_of(preference)


def _side_of(preference: Preference) -> int:
    """Return 1 if the candidate was preferred, -1 for the baseline, 0 for a tie."""
    baseline, candidate = _pair_of(preference)
    return {candidate: 1, baseline: -1}.get(preference.winner or "", 0)


def _pair_of(preference: Preference) -> tuple[str, str]:
    """Return both names in a fixed order: v1 before v2."""
    first, second = sorted((preference.left, preference.right))
    return first, second


def grades_by_person(query: GoldenQuery) -> dict[str, dict[str, int]]:
    """Return path and grade by person, without decisions between people."""
    grades: dict[str, dict[str, int]] = defaultdict(dict)
    for one in query.judgements:
        if not one.settled:
            grades[one.by][one.path] = one.grade
    return dict(grades)


def find_conflicts(queries: Iterable[GoldenQuery]) -> Iterator[Conflict]:
    """Yield the documents on which people disagree and no decision is recorded."""
    for query in queries:
        settled = {one.path for one in query.judgements if one.settled}
        by_path: dict[str, dict[str, int]] = defaultdict(dict)
        for person, grades in grades_by_person(query).items():
            for path, grade in grades.items():
                by_path[path][person] = grade
        for path, grades in by_path.items():
            if len(set(grades.values())) > 1 and path not in settled:
                yield Conflict(query, path, grades)


def measure_agreement(queries: Sequence[GoldenQuery]) -> list[Agreement]:
    """Return the agreement of every two people, those with most in common first.

    Preferences agree if they name the same search, or the same kind of tie.
    """
    given: dict[str, dict[str, dict[Hashable, Hashable]]] = {"preferences": {}, "grades": {}}
    for query in queries:
        for person, grades in grades_by_person(query).items():
            own = given["grades"].setdefault(person, {})
            own.update({(query.id, path): grade for path, grade in grades.items()})
        for one in query.preferences:
            own = given["preferences"].setdefault(one.by, {})
            own[query.id, one.mode, _pair_of(one)] = one.winner or one.preferred
    found = []
    for about, judged in given.items():
        for first, second in combinations(sorted(judged), 2):
            common = [key for key in judged[first] if key in judged[second]]
            pairs = [(judged[first][key], judged[second][key]) for key in common]
            if pairs:
                share = sum(one == other for one, other in pairs) / len(pairs)
                kappa = cohen_kappa(pairs)
                found.append(Agreement((first, second), about, len(pairs), share, kappa))
    return sorted(found, key=lambda one: -one.common)


def cohen_kappa(pairs: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """Compute Cohen's kappa of two people: agreement (seen - expected) / (1 - expected).

    Expected is the agreement by chance if each kept their share of each judgement. ``None`` without
    pairs, and where both gave one and the same judgement only.

    Source: Cohen 1960, "A coefficient of agreement for nominal scales", Educational and
    Psychological Measurement 20.
    """
    if not pairs:
        return None
    seen = sum(first == second for first, second in pairs) / len(pairs)
    firsts, seconds = (Counter(column) for column in zip(*pairs, strict=True))
    expected = sum(firsts[grade] * seconds[grade] for grade in firsts) / len(pairs) ** 2
    return None if expected == 1 else (seen - expected) / (1 - expected)


def team_draft(
    first: Sequence[str], second: Sequence[str], toss: Callable[[], bool]
) -> list[tuple[str, str]]:
    """Interleave two lists of documents: each with the side, ``left`` or ``right``, it came from.

    The sides choose in turn, each its best document that is not chosen yet; in every round a
    ``toss`` says whether the left one begins.

    Source: Radlinski, Kurup and Joachims 2008, "How does clickthrough data reflect retrieval
    quality?", CIKM, algorithm 2.
    """
    lists = {"left": iter(first), "right": iter(second)}
    drafted: dict[str, str] = {}
    while lists:
        for side in ("left", "right") if toss() else ("right", "left"):
            document = next((one for one in lists.get(side, ()) if one not in drafted), None)
            if document is None:
                lists.pop(side, None)
            else:
                drafted[document] = side
    return list(drafted.items())


def credit_teams(teams: Sequence[str], useful: Iterable[int]) -> str:
    """Return the preferred side of a drafted list: the one with more useful documents.

    ``useful`` are places in the list, from 0. Without a useful document it is ``neither``.
    """
    counts = Counter(teams[place] for place in set(useful) if place < len(teams))
    if counts["left"] == counts["right"]:
        return "equal" if counts else "neither"
    return max(counts, key=counts.__getitem__)
