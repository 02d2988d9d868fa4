"""Collections in BEIR layout: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/SPLIT.tsv``."""

from __future__ import annotations

import json
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
    try:
        queries = tuple(
            GoldenQuery(
                id=query,
                query=texts[query],
                expected=tuple(
                    Expected(path=document, grade=grade) for document, grade in grades.items()
                ),
            )
            for query, grades in judged.items()
        )
    except ValidationError as error:
        raise GoldenSetError(f"{folder}: {error.errors()[0]['msg']}") from error
    return GoldenSet(f"{folder.name}-{split}", queries)


def _judgements(folder: Path, split: str) -> dict[str, dict[str, int]]:
    path = folder / "qrels" / f"{split}.tsv"
    if not path.is_file():
        splits = ", ".join(sorted(one.stem for one in path.parent.glob("*.tsv"))) or "none"
        raise GoldenSetError(f"no split {split!r} in {folder}; splits: {splits}")
    judged: dict[str, dict[str, int]] = {}
    for number, line in enumerate(_lines(path), start=1):
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
    for number, line in enumerate(_lines(path), start=1):
        try:
            row = json.loads(line)
            texts[str(row["_id"])] = row["text"]
        except (ValueError, KeyError, TypeError) as error:
            raise GoldenSetError(f"{path} line {number}: {error!r}") from error
    return texts


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise GoldenSetError(f"cannot read {path}: {error}") from error
    return [line for line in text.split("\n") if line.strip()]
