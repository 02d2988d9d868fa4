"""Whether the vectors of a dataset agree with its words: what they are worth, without labels.

The text of some passages is looked for by its words. What is found in other documents is mostly
about the same, so vectors that carry any meaning set it apart from passages in general:

    agreement = mean over the passages of (mean cosine of the best 3 by words - mean) / deviation

Vectors that have nothing to do with their texts agree by 0; no model is asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from catalog.core.ids import sha256_hex
from catalog.store.engine_types import Restriction
from catalog.store.vectors.probes import read_document_ids, read_probes, read_windows

if TYPE_CHECKING:
    from catalog.library.library import Library
    from catalog.store import Database

LEAST_AGREEMENT = 0.5  # of vectors that are of use: chance gives at most .2, any text 1.2 or more
PASSAGES = 64  # to ask with
LEAST_PASSAGES = 32  # with neighbours
_NEIGHBOURS = 3
_DEPTH = 20  # hits among which neighbours of other documents are looked for
_CHARACTERS = 1_000  # of a passage's text, to ask with


def refresh_agreement(library: Library, dataset: str) -> None:
    """Measure the agreement and keep it, unless it was on the same passages before.

    Raises as ``Indexes.sample`` does, and :class:`~catalog.core.errors.StoreError`.
    """
    with library.database.read() as connection:
        probes = read_probes(connection, dataset, PASSAGES)
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
        probes = read_probes(connection, dataset, PASSAGES)
        if len(probes) < LEAST_PASSAGES:
            return None
        hits = [
            lexical.search(probe.text[:_CHARACTERS], _DEPTH, Restriction(dataset))
            for probe in probes
        ]
        documents = read_document_ids(connection, {hit.seq for some in hits for hit in some})
        near = [
            [hit.seq for hit in some if documents.get(hit.seq) not in (None, probe.document_id)]
            for probe, some in zip(probes, hits, strict=True)
        ]
        near = [others[:_NEIGHBOURS] for others in near]
        asked = [probe.seq for probe in probes]
        rows = read_windows(connection, {vector_of(seq) for seqs in (asked, *near) for seq in seqs})
    standings = []
    for seq, others in zip(asked, near, strict=True):
        own = rows.get(vector_of(seq))
        neighbours = [rows[vector_of(other)] for other in others if vector_of(other) in rows]
        if own is not None and neighbours:
            cosine = np.mean([(windows @ own[0]).max() for windows in neighbours])
            standings.append(sample.spread(own[0]).standardize(float(cosine)))
    return float(np.mean(standings)) if len(standings) >= LEAST_PASSAGES else None


def _read(database: Database, dataset: str) -> dict[str, str | float | None]:
    stored = database.meta(_key(dataset))
    return {} if stored is None else dict(json.loads(stored))


def _key(dataset: str) -> str:
    return f"agreement:{dataset}"
