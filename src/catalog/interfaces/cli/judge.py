"""``catalog judge``: what people prefer, and how far they agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from catalog.core.text import counted
from catalog.interfaces.cli.options import JsonOption
from catalog.interfaces.cli.output import print_json, say

if TYPE_CHECKING:
    from catalog.evaluation.golden import GoldenSet
    from catalog.evaluation.judging import Agreement, Conflict, PreferenceTest


app = typer.Typer(help="Show the judgements of people.", no_args_is_help=True)


@app.command("stats")
def stats(
    file: Annotated[Path, typer.Argument(help="Labelled queries, JSON Lines.")],
    json: JsonOption = False,
) -> None:
    """Show which search people prefer, whether that is decided, and how far people agree.

    You may look after every choice: the chance of a wrong decision is at most 5 % in all.

    Examples:
        catalog judge stats notes.jsonl
        catalog judge stats notes.jsonl --json
    """
    from catalog.evaluation.golden_files import read_golden
    from catalog.evaluation.judging import find_conflicts, measure_agreement, preference_tests

    golden = read_golden(file)
    tests, conflicts = preference_tests(golden), list(find_conflicts(golden))
    agreements = measure_agreement(golden.queries)
    if json:
        print_json(_as_json(golden, tests, agreements, conflicts))
        return
    for test in tests:
        say(*_test_lines(test, len(golden)))
    if not tests:
        say(f"no preference in {counted(len(golden), 'question')}")
    for one in agreements:
        say(str(one))
    for conflict in conflicts:
        grades = ", ".join(f"{person} {grade}" for person, grade in conflict.grades.items())
        say(f"conflict: {conflict.query.id} {conflict.path}: {grades}")


def _test_lines(one: PreferenceTest, questions: int) -> Iterator[str]:
    test = one.test
    chosen = test.wins + test.ties + test.losses
    yield f"{one.candidate} and {one.baseline}, {one.mode}: {one.verdict}"
    yield (
        f"  {one.candidate} won {test.wins}, tied {test.ties} ({one.neither} both bad) and lost "
        f"{test.losses}; {questions - chosen} of {questions} questions are left"
    )
    yield (
        f"  preferred in {test.share:.0%} of the choices that are not ties "
        f"[{test.interval.low:.0%}, {test.interval.high:.0%}], evidence {test.e_value:.3g}"
    )
    if one.still_needed:
        yield f"  {one.still_needed}"
    if one.by_kind:
        kinds = ", ".join(f"{kind} {counts}" for kind, counts in one.by_kind.items())
        yield f"  won-tied-lost by kind: {kinds}"
    yield f"  by {_people(one.people)}"
    if one.repeated:
        yield f"  judged before by somebody else, so not counted again: {_people(one.repeated)}"


def _people(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{person} ({count})" for person, count in counts.items())


def _as_json(
    golden: GoldenSet,
    tests: list[PreferenceTest],
    agreements: list[Agreement],
    conflicts: list[Conflict],
) -> dict[str, Any]:
    return {
        "golden": golden.name,
        "questions": len(golden),
        "preferences": [{**asdict(one), "verdict": one.verdict} for one in tests],
        "agreement": [asdict(one) for one in agreements],
        "conflicts": [
            {"query": one.query.id, "path": one.path, "grades": one.grades} for one in conflicts
        ],
    }
