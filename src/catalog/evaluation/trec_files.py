"""TREC run files: ``query Q0 document rank score tag``, one hit a line.

Columns are parted by white space, so a path that holds some is percent-encoded where it does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, unquote

from catalog.core.errors import GoldenSetError

Ranked = Sequence[tuple[str, float]]
_COLUMNS = 6


def write_run(folder: Path, name: str, lists: Mapping[str, Sequence[str]]) -> Path:
    """Write ranked documents by query id as ``NAME.run``; the file.

    Scores fall with the rank, so that every tool keeps the order. Raises
    :class:`GoldenSetError` when the folder or a path (not Unicode) cannot be written.
    """
    tag = quote(name, safe="=,-_") or "run"
    path = folder / f"{tag}.run"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(path, lists, tag)
    except OSError as error:
        raise GoldenSetError(f"cannot write {path}: {error.strerror}") from error
    except UnicodeEncodeError as error:
        raise GoldenSetError(f"cannot write {path}: {error}") from error
    return path


def _write(path: Path, lists: Mapping[str, Sequence[str]], tag: str) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for query, documents in lists.items():
            for rank, document in enumerate(documents, start=1):
                name = _encoded(document)
                file.write(f"{query} Q0 {name} {rank} {len(documents) - rank + 1} {tag}\n")


def read_run(path: Path) -> dict[str, list[tuple[str, float]]]:
    """Documents with their scores by query id, by falling score, ties by the rank column.

    Raises :class:`GoldenSetError` naming a line that is not TREC's.
    """
    lists: dict[str, dict[str, tuple[float, int]]] = {}
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        parts = line.split()
        score = _score(parts)
        if score is None or not parts[3].lstrip("-").isdecimal():
            raise GoldenSetError(f"{path} line {number} is not 'query Q0 document rank score tag'")
        place = (-score, int(parts[3]))
        lists.setdefault(parts[0], {}).setdefault(unquote(parts[2]), place)
    return {
        query: [(name, -found[name][0]) for name in sorted(found, key=found.__getitem__)]
        for query, found in lists.items()
    }


def _encoded(name: str) -> str:
    return "".join(quote(char) if char.isspace() or char == "%" else char for char in name)


def _score(parts: Sequence[str]) -> float | None:
    if len(parts) != _COLUMNS:
        return None
    try:
        score = float(parts[4])
    except ValueError:
        return None
    return score if math.isfinite(score) else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise GoldenSetError(f"cannot read the run {path}: {error}") from error
