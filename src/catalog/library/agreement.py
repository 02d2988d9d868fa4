"""Whether the vectors of a dataset agree with its words: what they are worth, without labels.

The text of some passages is looked for by its words. What is found in other documents is mostly
about the same, so vectors that carry any meaning set it apart from passages in general:

    agreement = mean over the passages of (mean cosine of the best 3 by words - mean) / deviation

Vectors that have nothing to do with their texts agree by 0; no model is asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING

import numpy as np
from sqlalchemy import Connection, Row, select

from catalog.core.ids import sha256_hex
from catalog.store.engine_types import Restriction
from catalog.store.schema import chunk_windows, chunks, embedded_windows
from catalog.store.vectors.exact import read_vectors

if TYPE_CHECKING:
    import numpy.typing as npt

    from catalog.library.library import Library
    from catalog.store import Database

    Floats = npt.NDArray[np.float32]

LEAST_AGREEMENT = 0.5  # of vectors that are of use: chance gives at most .2, any text 1.2 or more
PASSAGES = 64
LEAST_PASSAGES = 32  # with neighbours
_NEIGHBOURS = 3
_DEPTH = 20  # hits among which neighbours of other documents are looked for
_CHARACTERS = 1_000  # of a passage's text, to ask with


def refresh_agreement(library: Library, dataset: str) -> None:
    """Measure the agreement and keep it, unless it was on the same passages before.

    Raises as ``Indexes.sample`` does, and :class:`~catalog.core.errors.StoreError`.
    """
    with library.database.read() as connection:
        probes = _read_probes(connection, dataset)
    names = [probe.chunk_id for probe in probes]
    state = sha256_hex(json.dumps([library.wanted_model.fingerprint, names]))
    kept = _read(library.database, dataset)
    if kept.get("state") != state or kept.get("agreement") is None:
        agreement = measure_agreement(library, dataset)
        entry = json.dumps({"state": state, "agreement": agreement})
        library.database.set_meta(_key(dataset), entry)


def read_agreement(database: Database, dataset: str) -> float | None:
    """Return the agreement as it was last measured, ``None`` if it was not or could not be."""
    agreement = _read(database, dataset).get("agreement")
    return None if agreement is None else float(agreement)


def measure_agreement(
    library: Library, dataset: str, vector_of: Callable[[int], int] = lambda seq: seq
) -> float | None:
    """Return the agreement, ``None`` where too few passages have neighbours.

    ``vector_of`` says of a passage's row number which one's vectors to take for its own.
    """
    lexical, sample = library.indexes.lexical(dataset), library.indexes.sample(dataset)
    with library.database.read() as connection:
        probes = _read_probes(connection, dataset)
        if len(probes) < LEAST_PASSAGES:
            return None
        hits = [
            lexical.search(probe.text[:_CHARACTERS], _DEPTH, Restriction(dataset))
            for probe in probes
        ]
        documents = _read_documents(connection, {hit.seq for some in hits for hit in some})
        near = [
            [hit.seq for hit in some if documents.get(hit.seq) not in (None, probe.document_id)]
            for probe, some in zip(probes, hits, strict=True)
        ]
        near = [others[:_NEIGHBOURS] for others in near]
        asked = [probe.seq for probe in probes]
        rows = _read_rows(connection, {vector_of(seq) for seqs in (asked, *near) for seq in seqs})
    standings = []
    for seq, others in zip(asked, near, strict=True):
        own = rows.get(vector_of(seq))
        neighbours = [rows[vector_of(other)] for other in others if vector_of(other) in rows]
        if own is not None and neighbours:
            cosine = np.mean([(windows @ own[0]).max() for windows in neighbours])
            standings.append(sample.spread(own[0]).standardize(float(cosine)))
    return float(np.mean(standings)) if len(standings) >= LEAST_PASSAGES else None


def _read_probes(connection: Connection, dataset: str) -> Sequence[Row[int, str, int, str]]:
    """Return the passages to ask with: those of the first ids, which are hashes, so by chance."""
    columns = select(chunks.c.seq, chunks.c.chunk_id, chunks.c.document_id, chunks.c.text)
    of_dataset = columns.where(chunks.c.dataset == dataset)
    return connection.execute(of_dataset.order_by(chunks.c.chunk_id).limit(PASSAGES)).all()


def _read_documents(connection: Connection, seqs: Set[int]) -> dict[int, int]:
    """Return the document of each of these passages."""
    columns = select(chunks.c.seq, chunks.c.document_id)
    rows = connection.execute(columns.where(chunks.c.seq.in_(seqs)))
    return {row.seq: row.document_id for row in rows}


def _read_rows(connection: Connection, seqs: Set[int]) -> dict[int, Floats]:
    """Return the vectors of these passages' windows, as rows of length 1; none yet: left out."""
    is_wanted = chunks.c.seq.in_(seqs)
    matrix, is_whole, _ = read_vectors(connection, is_wanted)
    ordered = select(chunks.c.seq).select_from(embedded_windows).where(is_wanted)
    owners = connection.scalars(ordered.order_by(chunks.c.seq, chunk_windows.c.window)).all()
    rows: dict[int, list[int]] = {}
    for row in np.flatnonzero(is_whole).tolist():
        rows.setdefault(owners[row], []).append(row)
    return {seq: matrix[of_one] for seq, of_one in rows.items()}


def _read(database: Database, dataset: str) -> dict[str, str | float | None]:
    stored = database.meta(_key(dataset))
    return {} if stored is None else dict(json.loads(stored))


def _key(dataset: str) -> str:
    return f"agreement:{dataset}"
