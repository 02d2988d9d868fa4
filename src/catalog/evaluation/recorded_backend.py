"""Ranked lists that were recorded before, as a backend, and TREC run files to exchange them.

A run file has one hit a line: ``query Q0 document rank score tag``. Columns are separated by white
space, so a path that holds some is percent-encoded there.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from catalog.core.errors import BackendError, GoldenSetError, InputError, RunNotFoundError
from catalog.core.user_search import Ranking, to_ranking
from catalog.evaluation.golden import GoldenQuery, GoldenSet
from catalog.evaluation.golden_files import read_lines
from catalog.ingest.sync_report import Progress
from catalog.store import Database
from catalog.store.eval_runs import EvalRun, find_runs

_COLUMNS = 6


class RecordedBackend:
    """The lists of an earlier run or of a search that is not here; they take no time."""

    def __init__(
        self,
        name: str,
        lists: Mapping[str, Sequence[object]],
        identity: dict[str, Any],
        record: EvalRun | None = None,
    ) -> None:
        self.name, self._lists, self._identity = name, lists, identity
        self._record = record
        self._errors: Mapping[str, str] = record.summary.get("errors", {}) if record else {}

    @classmethod
    def from_file(cls, path: Path) -> RecordedBackend:
        """Read the lists of a TREC run file."""
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        return cls(unquote(path.stem), read_run(path), {"file": digest})

    @property
    def identity(self) -> dict[str, Any]:
        """Return a hash of the file, or the id of the run."""
        return self._identity

    def prepare(self, dataset: str, progress: Progress) -> None:
        """Do nothing."""

    def require(self, golden: GoldenSet, dataset: str, top_k: int) -> None:
        """Raise :class:`InputError` unless the lists are of these queries, and this deep."""
        record = self._record
        if record is not None and (record.labels, record.dataset) != (golden.digest, dataset):
            raise InputError(
                f"run {record.id} was made with {record.golden} on {record.dataset}, whose queries "
                "or labels are not these: measure again"
            )
        if record is not None and record.top_k < top_k:
            raise InputError(f"run {record.id} is {record.top_k} deep: use --top-k {record.top_k}")
        ids = [query.id for query in golden]
        absent = self._absent_queries(golden)
        # A run file has no line for a query on which nothing was found.
        if len(absent) > len(ids) / 2 or (absent and set(self._lists).difference(ids)):
            raise InputError(
                f"run {self.name} answers {len(ids) - len(absent)} of {len(ids)} queries "
                f"(not {', '.join(absent[:3])} …): it was made with another set"
            )

    def notes(self, golden: GoldenSet) -> tuple[str, ...]:
        """Say what is missing from the lists."""
        absent = self._absent_queries(golden)
        if not absent:
            return ()
        return (f"{self.name} has no list for {len(absent)} queries, which count as empty",)

    def search(self, query: GoldenQuery, *, dataset: str, top_k: int) -> Ranking:
        """Return the recorded list, or raise the recorded failure as :class:`BackendError`."""
        if query.id in self._errors:
            raise BackendError(f"failed when it was recorded: {self._errors[query.id]}")
        return to_ranking(self._lists.get(query.id, ()), dataset, top_k)

    def close(self) -> None:
        """Do nothing: nothing was opened."""

    def _absent_queries(self, golden: GoldenSet) -> list[str]:
        return [query.id for query in golden.answerable if query.id not in self._lists]


def require_run(database: Database, prefix: str) -> EvalRun:
    """Return the only run whose id starts so; raises :class:`RunNotFoundError`."""
    with database.read() as connection:
        runs = find_runs(connection, prefix)
    if len(runs) == 1:
        return runs[0]
    problem = "several runs start so" if runs else "no such run; 'catalog runs list' shows them"
    raise RunNotFoundError(f"{prefix!r}: {problem}")


def write_run(folder: Path, name: str, lists: Mapping[str, Sequence[str]]) -> Path:
    """Write ranked documents by query id as ``NAME.run`` and return the file's path.

    Scores fall with the rank, so that every tool keeps the order. Raises
    :class:`GoldenSetError` when the folder or a path (not Unicode) cannot be written.
    """
    tag = quote(name, safe="=,-_") or "run"
    path = folder / f"{tag}.run"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for query, documents in lists.items():
                for rank, document in enumerate(documents, start=1):
                    score = len(documents) - rank + 1
                    file.write(f"{query} Q0 {_encode_name(document)} {rank} {score} {tag}\n")
    except OSError as error:
        raise GoldenSetError(f"cannot write {path}: {error.strerror}") from error
    except UnicodeEncodeError as error:
        raise GoldenSetError(f"cannot write {path}: {error}") from error
    return path


def read_run(path: Path) -> dict[str, list[tuple[str, float]]]:
    """Read documents with their scores by query id, by falling score, ties by the rank column.

    Raises :class:`GoldenSetError` naming a line that is not TREC's, and as trec_eval does one that
    lists a document again: nobody can say which of its places counts.
    """
    lists: dict[str, dict[str, tuple[float, int]]] = {}
    lines: dict[tuple[str, str], int] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        columns = line.split()
        score = _parse_score(columns)
        if score is None or not columns[3].lstrip("-").isdecimal():
            raise GoldenSetError(f"{path} line {number} is not 'query Q0 document rank score tag'")
        query, document = columns[0], unquote(columns[2])
        first = lines.setdefault((query, document), number)
        if first != number:
            raise GoldenSetError(
                f"{path} line {number}: query {query!r} lists {document!r} again, after line "
                f"{first}; a run lists each document once for a query"
            )
        lists.setdefault(query, {})[document] = (-score, int(columns[3]))
    return {
        query: [
            (name, -positions[name][0]) for name in sorted(positions, key=positions.__getitem__)
        ]
        for query, positions in lists.items()
    }


def _encode_name(name: str) -> str:
    return "".join(quote(char) if char.isspace() or char == "%" else char for char in name)


def _parse_score(columns: Sequence[str]) -> float | None:
    if len(columns) != _COLUMNS:
        return None
    try:
        score = float(columns[4])
    except ValueError:
        return None
    return score if math.isfinite(score) else None
