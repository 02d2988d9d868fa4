"""Labelled queries in files: golden sets and tool prompts as JSON Lines, and BEIR collections.

A golden set has one JSON object a line: ``id, query, difficulty, kind, expected [{path, grade,
span?}], filters?, note?``. See ``golden_queries/README.md``. A BEIR collection is a folder of
``corpus.jsonl``, ``queries.jsonl`` and ``qrels/SPLIT.tsv``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from pydantic import ValidationError

from catalog.core.argument_names import nearest_name
from catalog.core.errors import GoldenSetError
from catalog.evaluation.golden import MAX_GRADE, Expected, GoldenQuery, GoldenSet

CORPUS = "corpus.jsonl"
_SHOWN_PROBLEMS = 20


class _Row(Protocol):
    @property
    def id(self) -> str: ...
    @classmethod
    def model_validate(cls, obj: Any, /) -> Self: ...


RowT = TypeVar("RowT", bound=_Row)


def read_golden(path: Path) -> GoldenSet:
    """Read the set in a JSON Lines file; raises :class:`GoldenSetError` naming every bad line."""
    return GoldenSet(path.stem, tuple(read_rows(path, GoldenQuery, "query")))


def read_rows(path: Path, model: type[RowT], noun: str) -> list[RowT]:
    """Read objects with unique ids from a JSON Lines file that must hold one at least.

    Raises :class:`GoldenSetError` naming every bad line.
    """
    rows, problems = parse_rows(read_lines(path), model)
    if problems:
        lines = "\n  ".join(problems[:_SHOWN_PROBLEMS])
        rest = len(problems) - _SHOWN_PROBLEMS
        more = f"\n  and {rest} more" if rest > 0 else ""
        raise GoldenSetError(f"{path} has {len(problems)} bad lines:\n  {lines}{more}")
    if not rows:
        raise GoldenSetError(f"{path} holds no {noun}")
    return rows


def parse_rows(lines: Iterable[str], model: type[RowT]) -> tuple[list[RowT], list[str]]:
    """Parse one JSON object a line, with unique ids; blank lines are skipped.

    Returns the objects that can be read, and for each line that cannot a problem that begins with
    its number, counted from 1.
    """
    rows: list[RowT] = []
    problems: list[str] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = model.model_validate(json.loads(line))
        except ValidationError as error:
            problems.append(f"line {number}: {format_errors(error)}")
        except (ValueError, RecursionError) as error:
            problems.append(f"line {number}: not JSON: {error}")
        else:
            if row.id in seen:
                problems.append(f"line {number}: id {row.id!r} stands in line {seen[row.id]}")
            seen.setdefault(row.id, number)
            rows.append(row)
    return rows, problems


def load_golden(path: Path) -> list[GoldenQuery]:
    """Load the queries of a file to add to, none if it does not exist.

    Raises :class:`GoldenSetError`.
    """
    if not path.exists():
        return []
    queries, problems = parse_rows(read_lines(path), GoldenQuery)
    if problems:
        raise GoldenSetError(f"{path} {problems[0]}; mend it first ('catalog golden check')")
    return queries


def save_golden(path: Path, queries: Sequence[GoldenQuery]) -> None:
    """Write all queries, or leave the file as it was and raise :class:`GoldenSetError`."""
    lines = [query.model_dump_json(exclude_defaults=True) + "\n" for query in queries]
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text("".join(lines), encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise GoldenSetError(f"cannot write {path}: {error.strerror}") from error


def read_beir(folder: Path, split: str = "test") -> GoldenSet:
    """Read the judged queries of a split, in the judgements' order; grades below 0 count as 0.

    Raises :class:`GoldenSetError` naming the file and line.
    """
    for name in (CORPUS, "queries.jsonl"):
        if not (folder / name).is_file():
            raise GoldenSetError(f"{folder} is not a collection in BEIR layout: no {name}")
    grades_by_query = _read_beir_grades(folder, split)
    texts = _read_beir_queries(folder / "queries.jsonl")
    for query in grades_by_query:
        if query not in texts:
            raise GoldenSetError(f"{folder}: judged query {query!r} is not in queries.jsonl")
    if not grades_by_query:
        raise GoldenSetError(f"{folder}: split {split!r} judges nothing")
    queries = []
    for query, grades in grades_by_query.items():
        try:
            expected = tuple(Expected(path=path, grade=grade) for path, grade in grades.items())
            queries.append(GoldenQuery(id=query, query=texts[query], expected=expected))
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            raise GoldenSetError(f"{folder}: judged query {query!r}: {reason}") from error
    return GoldenSet(f"{folder.name}-{split}", tuple(queries))


def _read_beir_grades(folder: Path, split: str) -> dict[str, dict[str, int]]:
    path = folder / "qrels" / f"{split}.tsv"
    if not path.is_file():
        splits = ", ".join(sorted(file.stem for file in path.parent.glob("*.tsv"))) or "none"
        raise GoldenSetError(f"no split {split!r} in {folder}; splits: {splits}")
    grades: dict[str, dict[str, int]] = {}
    for number, line in _read_beir_lines(path):
        columns = line.split("\t")
        if number == 1 and not columns[-1].strip().lstrip("-").isdigit():
            continue  # the header
        try:
            query, document, grade = columns
            grades.setdefault(query, {})[document] = min(MAX_GRADE, max(0, int(grade)))
        except ValueError as error:
            raise GoldenSetError(f"{path} line {number}: {error}") from error
    return grades


def _read_beir_queries(path: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    for number, line in _read_beir_lines(path):
        try:
            row = json.loads(line)
            texts[str(row["_id"])] = row["text"]
        except (ValueError, KeyError, TypeError) as error:
            raise GoldenSetError(f"{path} line {number}: {error!r}") from error
    return texts


def _read_beir_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Return the lines that are not blank, numbered as in the file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise GoldenSetError(f"cannot read {path}: {error}") from error
    return ((n, line) for n, line in enumerate(text.split("\n"), start=1) if line.strip())


def read_lines(path: Path) -> list[str]:
    """Read the lines of a JSON Lines file; raises :class:`GoldenSetError` when that fails."""
    try:
        return path.read_text(encoding="utf-8-sig").split("\n")  # not U+2028, as JSON allows it
    except OSError as error:
        raise GoldenSetError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise GoldenSetError(f"{path} is not UTF-8 text: {error}") from error


def format_errors(error: ValidationError, keys: Iterable[str] = ()) -> str:
    """Return what is wrong on one line, by field; of an unknown one the nearest of ``keys``."""
    known: dict[str, tuple[str, ...]] = dict.fromkeys(keys, ())
    parts = []
    for detail in error.errors(include_url=False):
        field = ".".join(map(str, detail["loc"]))
        message = detail["msg"].removeprefix("Value error, ")
        if known and detail["type"] == "extra_forbidden" and len(detail["loc"]) == 1:
            near = nearest_name(field, known)
            message = "there is no such key; " + (
                f"did you mean {near}?" if near else f"keys: {', '.join(known)}"
            )
        parts.append(f"{field}: {message}" if field else message)
    return "; ".join(parts)
