"""Golden sets as JSON Lines, one query on each line: see ``golden_queries/README.md``."""

from __future__ import annotations

import json
import reprlib
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout
from pydantic import ValidationError

from catalog.core.arguments import nearest_name
from catalog.core.errors import GoldenSetError
from catalog.core.text import counted
from catalog.core.user_search import RankedHit, Ranking
from catalog.evaluation.golden import GoldenQuery, GoldenSet

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_SHOWN_PROBLEMS = 20
_LOCK_SECONDS = 10


def read_golden(path: Path) -> GoldenSet:
    """Read the set in a JSON Lines file; raise :class:`GoldenSetError` naming every bad line."""
    queries, problems = parse_rows(read_lines(path))
    if problems:
        lines = "\n  ".join(problems[:_SHOWN_PROBLEMS])
        rest = len(problems) - _SHOWN_PROBLEMS
        more = f"\n  and {rest} more" if rest > 0 else ""
        if path.suffix != ".jsonl":
            more += "\n  'catalog golden import' reads labels of Quepid, TREC and OpenSearch"
        raise GoldenSetError(f"{path} has {counted(len(problems), 'bad line')}:\n  {lines}{more}")
    if not queries:
        raise GoldenSetError(f"{path} has no query")
    return GoldenSet(path.stem, tuple(queries))


def parse_rows(lines: Iterable[str]) -> tuple[list[GoldenQuery], list[str]]:
    """Parse one JSON object on each line, with unique ids; blank lines are skipped.

    Returns the valid queries, and a problem for each invalid line, which begins with the number of
    the line (from 1).
    """
    rows: list[GoldenQuery] = []
    problems: list[str] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = GoldenQuery.model_validate(json.loads(line))
        except ValidationError as error:
            problems.append(f"line {number}: {describe_problems(error)}")
        except (ValueError, RecursionError) as error:
            problems.append(f"line {number}: not JSON: {describe_json(error)}")
        else:
            if row.id in seen:
                problems.append(f"line {number}: id {row.id!r} occurs in line {seen[row.id]}")
            seen.setdefault(row.id, number)
            rows.append(row)
    return rows, problems


def load_golden(path: Path) -> list[GoldenQuery]:
    """Load the queries of a file to add to; ``[]`` if it does not exist.

    Raises :class:`GoldenSetError`.
    """
    if not path.exists():
        return []
    queries, problems = parse_rows(read_lines(path))
    if problems:
        raise GoldenSetError(f"{path} {problems[0]}; correct it first ('catalog golden check')")
    return queries


@contextmanager
def changing_golden(path: Path) -> Iterator[list[GoldenQuery]]:
    """Give the queries of a file to change, and save them at the end of the block.

    Other processes wait until it is saved, so that no query of theirs is lost. After an
    error the file is unchanged. Raises :class:`GoldenSetError`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock"), timeout=_LOCK_SECONDS):
            queries = load_golden(path)
            yield queries
            save_golden(path, queries)
    except Timeout:
        raise GoldenSetError(f"another process keeps {path} locked: try again") from None
    except OSError as error:
        raise GoldenSetError(f"cannot write {path}: {error.strerror}") from error


def save_golden(path: Path, queries: Sequence[GoldenQuery]) -> None:
    """Write all queries; on failure raise :class:`GoldenSetError` and leave the file unchanged.

    A query that did not change keeps its line. New queries come last.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "".join(_updated_lines(path, queries)))


def write_whole(path: Path, text: str, mode: int = 0o666) -> None:
    """Write a file in one step: readers see the old file or the new one, never a part.

    A new one has the ``mode``, less the umask. Raises :class:`GoldenSetError`.
    """
    try:
        path = path.resolve() if path.is_symlink() else path
        draft = path.with_name(f".{path.name}.draft")  # that of a killed process is replaced
        draft.touch(mode)
        draft.write_text(text, encoding="utf-8", newline="")
        if path.exists():
            shutil.copymode(path, draft)
        draft.replace(path)
    except (OSError, ValueError) as error:  # ValueError: no Unicode, or a null character in a path
        with suppress(OSError, ValueError):
            draft.unlink(missing_ok=True)
        reason = error.strerror if isinstance(error, OSError) else error
        raise GoldenSetError(f"cannot write {path}: {reason}") from error


def _updated_lines(path: Path, queries: Sequence[GoldenQuery]) -> Iterator[str]:
    wanted = {query.id: query for query in queries}
    known = iter(load_golden(path))
    lines: list[str] = []
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:  # keeps the ends of lines
            lines = list(file)
    for line in lines:
        start, end = line.find("{"), line.rfind("}") + 1
        if start < 0:
            yield line  # blank
            continue
        query = next(known)
        if (changed := wanted.pop(query.id, None)) is not None:
            if (new := _values(changed)) == _values(query):
                yield line
            else:
                yield line[:start] + json.dumps(new, ensure_ascii=False) + line[end:]
    if wanted and lines and not lines[-1].endswith(("\n", "\r")):
        yield "\n"
    for query in wanted.values():
        yield json.dumps(_values(query), ensure_ascii=False) + "\n"


def _values(query: GoldenQuery) -> dict[str, Any]:
    """Return the values of a query that are not defaults, and the grade of each label."""
    values = query.model_dump(mode="json", exclude_defaults=True)
    if labels := values.get("expected"):
        grades = query.grades
        values["expected"] = [
            {"path": label["path"], "grade": grades[label["path"]], **label} for label in labels
        ]
    return values


def read_lines(path: Path) -> list[str]:
    """Read the lines of a JSON Lines file; raise :class:`GoldenSetError` if that fails."""
    try:
        # not splitlines(): JSON allows U+2028 in a text
        return path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise GoldenSetError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        place = f"byte {error.start + 1:,}"
        raise GoldenSetError(f"cannot read {path}: it is not UTF-8 text ({place})") from error


def describe_problems(
    error: ValidationError, known: Iterable[str] = GoldenQuery.model_fields
) -> str:
    """Describe on one line which keys of a row are wrong, and their right form."""
    return "; ".join(
        describe_problem(detail, detail["loc"], known) for detail in error.errors(include_url=False)
    )


def describe_problem(detail: ErrorDetails, place: Sequence[int | str], known: Iterable[str]) -> str:
    """Describe the fault at a place; an unknown key gets the nearest of the ``known``."""
    problem = _describe(detail, dict.fromkeys(known, ()) if len(place) == 1 else {})
    return ": ".join(filter(None, (".".join(map(str, place)), problem)))


def _describe(detail: ErrorDetails, keys: Mapping[str, tuple[str, ...]]) -> str:
    given, bounds = reprlib.repr(detail["input"]), detail.get("ctx", {})
    wanted = _WANTED.get(detail["type"].partition("_")[0])
    match detail["type"]:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            near = nearest_name(str(detail["loc"][-1]), keys) if keys else None
            return "unknown key" + (f"; did you mean {near}?" if near else "")
        case "string_too_short":
            return "must not be empty"
        case "string_pattern_mismatch":
            is_blank = not str(detail["input"]).strip()
            return "must not be blank" if is_blank else f"must have no blanks: {given}"
        case "greater_than_equal":
            return f"must be at least {bounds['ge']}, not {given}"
        case "less_than_equal":
            return f"must be at most {bounds['le']}, not {given}"
        case "literal_error":
            return f"must be {bounds['expected']}, not {given}"
        case "value_error":
            return str(bounds["error"])
    return detail["msg"] if wanted is None else f"must be {wanted}, not {given}"


_WANTED = {
    "string": "text",
    "int": "a whole number",
    "float": "a number",
    "finite": "a number",
    "bool": "true or false",
    "tuple": "a list",
    "list": "a list",
    "dict": "an object",
    "model": "an object",
}
"""What pydantic's types of errors want, by the first word of the type."""


def describe_json(error: ValueError | RecursionError) -> str:
    """Describe on one line why a text is not JSON."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} (character {error.pos + 1:,})"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


POOL = 10


def pool_hits(
    rankings: Iterable[Ranking], judged: Iterable[str], limit: int = POOL
) -> list[RankedHit]:
    """Take each unjudged document's best hit, from the rankings in turn.

    Pooling several pipelines keeps the labels from favouring one of them.
    """
    best_hits = [ranking.best_hits.values() for ranking in rankings]
    seen = set(judged)
    pool: list[RankedHit] = []
    for row in zip_longest(*best_hits):
        for hit in row:
            if hit is not None and hit.path not in seen:
                seen.add(hit.path)
                pool.append(hit)
    return pool[:limit]


def next_id(queries: Sequence[GoldenQuery]) -> str:
    """Return the first free id of ``q001`` and so on."""
    ids = {query.id for query in queries}
    number = len(queries) + 1
    while f"q{number:03}" in ids:
        number += 1
    return f"q{number:03}"
