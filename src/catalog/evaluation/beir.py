"""Collections in BEIR layout: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/SPLIT.tsv``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from catalog.core.errors import GoldenSetError
from catalog.evaluation.golden import MAX_GRADE, Expected, GoldenQuery, GoldenSet

CORPUS = "corpus.jsonl"


def read_beir(folder: Path, split: str = "test") -> GoldenSet:
    """The judged queries of a split, in the judgements' order; grades below 0 count as 0.

    Raises :class:`GoldenSetError` naming the file and line.
    """
    for name in (CORPUS, "queries.jsonl"):
        if not (folder / name).is_file():
            raise GoldenSetError(f"{folder} is not a collection in BEIR layout: no {name}")
    judged = _judgements(folder, split)
    texts = _queries(folder / "queries.jsonl")
    unknown = [query for query in judged if query not in texts]
    if unknown:
        raise GoldenSetError(f"{folder}: judged query {unknown[0]!r} is not in queries.jsonl")
    if not judged:
        raise GoldenSetError(f"{folder}: split {split!r} judges nothing")
    queries = (_query(folder, query, texts[query], judged[query]) for query in judged)
    return GoldenSet(f"{folder.name}-{split}", tuple(queries))


def _query(folder: Path, query: str, text: str, grades: Mapping[str, int]) -> GoldenQuery:
    try:
        expected = tuple(Expected(path=path, grade=grade) for path, grade in grades.items())
        return GoldenQuery(id=query, query=text, expected=expected)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise GoldenSetError(f"{folder}: judged query {query!r}: {reason}") from error


def _judgements(folder: Path, split: str) -> dict[str, dict[str, int]]:
    path = folder / "qrels" / f"{split}.tsv"
    if not path.is_file():
        splits = ", ".join(sorted(one.stem for one in path.parent.glob("*.tsv"))) or "none"
        raise GoldenSetError(f"no split {split!r} in {folder}; splits: {splits}")
    judged: dict[str, dict[str, int]] = {}
    for number, line in _lines(path):
        parts = line.split("\t")
        if number == 1 and not parts[-1].strip().lstrip("-").isdigit():
            continue  # the header
        try:
            query, document, grade = parts
            judged.setdefault(query, {})[document] = min(MAX_GRADE, max(0, int(grade)))
        except ValueError as error:
            raise GoldenSetError(f"{path} line {number}: {error}") from error
    return judged


def _queries(path: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    for number, line in _lines(path):
        try:
            row = json.loads(line)
            texts[str(row["_id"])] = row["text"]
        except (ValueError, KeyError, TypeError) as error:
            raise GoldenSetError(f"{path} line {number}: {error!r}") from error
    return texts


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that hold something, numbered as in the file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise GoldenSetError(f"cannot read {path}: {error}") from error
    return ((n, line) for n, line in enumerate(text.split("\n"), start=1) if line.strip())
