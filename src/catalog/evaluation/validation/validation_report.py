"""The report of a validation in Markdown, for people who decide."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from catalog.evaluation.report_text import (
    format_filters,
    format_ms,
    format_share,
    make_showable,
    shorten,
)
from catalog.evaluation.significance import MIN_QUERIES
from catalog.evaluation.validation.measurement import QueryMeasurement, ShownPassage, SuiteRun
from catalog.evaluation.validation.recommendations import ResearchAnswer
from catalog.evaluation.validation.verdict import MEANINGS, Validation, measured_times

_SPECIAL = re.compile(r"([\\`*_\[\]<>|])")
_WIDEST = 80


def validation_lines(validation: Validation) -> Iterator[str]:
    """Yield the report, line by line, in Markdown."""
    run = validation.run
    yield f"# Validation of {_plain(run.dataset)} by {_plain(run.suite.name)}"
    yield ""
    yield from _verdict(validation)
    yield from _about(run)
    yield from _criteria(validation)
    yield from _questions(validation)
    yield from _failures(validation)
    yield from _times(run)
    yield from _metadata(run)
    for answer in validation.research:
        yield from _research(answer)
    yield "## Verdict"
    yield ""
    yield from _verdict(validation)


def _verdict(validation: Validation) -> Iterator[str]:
    n = len(validation.run.measurements)
    if validation.is_ready:
        yield f"**READY**: all criteria are met on the {n} questions of the suite."
    else:
        yield f"**NOT READY**: on the {n} questions of the suite"
        yield ""
        yield from (f"- {reason}" for reason in validation.reasons)
    failed = {query: patterns for query, patterns in validation.patterns.items() if patterns}
    if failed:
        yield ""
        yield "Questions that failed:"
        yield ""
        yield from (f"- {query}: {', '.join(patterns)}" for query, patterns in failed.items())
    if n < MIN_QUERIES:
        yield ""
        yield (
            f"{n} questions can show what is broken, but little about other questions: see "
            f"the intervals, and write {MIN_QUERIES} or more before many users depend on it."
        )
    yield ""


def _about(run: SuiteRun) -> Iterator[str]:
    facts = ", ".join(f"{name} {_plain(value)}" for name, value in run.about.items())
    yield (
        f"{run.documents} documents, {len(run.measurements)} questions, {run.top_k} passages each, "
        f"asked {run.suite.repeats} times; {facts}."
    )
    yield ""


def _criteria(validation: Validation) -> Iterator[str]:
    yield "## Criteria"
    yield ""
    yield from _table(
        ("", "criterion", "measured", "95 % interval", "n", "limit", ""),
        (
            (
                one.id,
                one.name,
                one.value_text,
                one.interval_text,
                str(one.n),
                one.limit_text,
                "pass" if one.holds else "**FAIL**",
            )
            for one in validation.criteria
        ),
    )


def _questions(validation: Validation) -> Iterator[str]:
    yield "## Questions"
    yield ""
    for one in validation.run.measurements:
        patterns = validation.patterns[one.query.id]
        yield f"### {one.query.id}: {_plain(one.query.query)}"
        yield ""
        yield f"{'**FAIL**: ' + ', '.join(patterns) if patterns else 'pass'}. {_account(one)}"
        yield ""
        yield from (f"- {_plain(failure)}" for failure in one.failures)
        yield from (
            f"- no passage is of {_plain(str(one.query.expected[place]))}" for place in one.absent
        )
        yield from (f"- {_plain(note)}" for note in one.notes)
        if one.failures or one.absent or one.notes:
            yield ""
        if one.passages:
            yield from _table(
                ("", "passage", "document", "relevance", "cosine", "right"),
                map(_passage_row, one.passages),
            )
        else:
            yield "No passage came."
            yield ""


def _account(measured: QueryMeasurement) -> str:
    """Return a sentence with the question and its measurement."""
    query = measured.query
    parts: list[str] = [query.kind]
    if query.filters:
        parts.append(f"filters {_plain(format_filters(query.filters))}")
    if query.is_answerable:
        found = round(measured.recall(measured.passages) * len(query.sources))
        right = sum(passage.is_right for passage in measured.passages)
        parts.append(f"{found} of {len(query.sources)} expected sources")
        parts.append(
            f"{right} of {len(measured.passages)} passages right ({measured.available} there are "
            "in all)"
        )
    parts.append(f"threshold {measured.threshold:g}")
    if not measured.is_stable:
        parts.append("not the same each time")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _passage_row(passage: ShownPassage) -> tuple[str, ...]:
    problems = "; ".join(passage.problems)
    return (
        str(passage.rank),
        _plain(shorten(passage.citation, _WIDEST)),
        _plain(shorten(passage.path, _WIDEST)),
        _number(passage.relevance),
        _number(passage.cosine),
        ", ".join(
            filter(
                None,
                (
                    "yes" if passage.is_right else "–",
                    "outside filters" if passage.is_outside else "",
                    _plain(problems),
                ),
            )
        ),
    )


def _failures(validation: Validation) -> Iterator[str]:
    yield "## Failure patterns"
    yield ""
    if not validation.counts:
        yield "None: no question failed."
        yield ""
        return
    ids = {
        pattern: [query for query, patterns in validation.patterns.items() if pattern in patterns]
        for pattern in validation.counts
    }
    yield from _table(
        ("pattern", "questions", "what it means", "look first at"),
        (
            (pattern, f"{count}: {', '.join(ids[pattern])}", *MEANINGS[pattern])
            for pattern, count in validation.counts.items()
        ),
    )


def _times(run: SuiteRun) -> Iterator[str]:
    yield "## Latency"
    yield ""
    times = measured_times(run)
    yield from _table(
        ("", "p50", "p95", "n"),
        (
            (name, *(format_ms(values[key]) for key in ("p50", "p95")), str(values["n"]))
            for name, values in times.items()
        ),
    )
    yield (
        "Search is timed with the query's vector given; the whole is a first question, "
        "embedded and searched. Times are of this machine, with models loaded."
    )
    yield ""


def _metadata(run: SuiteRun) -> Iterator[str]:
    yield "## Metadata"
    yield ""
    shown = [passage for one in run.measurements for passage in one.passages]
    broken = [passage for passage in shown if passage.problems]
    complete = format_share((len(shown) - len(broken)) / len(shown)) if shown else "nothing"
    yield (
        f"Of the passages that came {complete} lead back to a source with "
        f"{', '.join(run.suite.required_metadata) or 'no field required'}: text at its place in "
        "the stored document, its revision, and these fields."
    )
    yield ""
    for path, problem in dict.fromkeys(
        (passage.path, problem) for passage in broken for problem in passage.problems
    ):
        yield f"- {_plain(path)}: {_plain(problem)}"
    for name, count in run.incomplete.items():
        if count:
            yield f"- {count} of {run.documents} documents have a passage without {_plain(name)}"
    if broken or any(run.incomplete.values()):
        yield ""


def _research(answer: ResearchAnswer) -> Iterator[str]:
    yield f"## {answer.id}: {answer.question}"
    yield ""
    if answer.rows:
        yield from _table(answer.head, answer.rows)
    yield f"**{answer.recommendation}** {answer.support}".rstrip()
    yield ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _plain(text: str) -> str:
    """Return text from outside as Markdown that shows it literally, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(make_showable(text).split()))
