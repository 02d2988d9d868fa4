"""Check whether the vectors of a dataset agree with its words, and find the useless leg if not.

The text of some passages is searched by its words. Most results in other documents are about the
same topic, so vectors with any meaning are nearer to them than to passages in general:

    agreement = mean over the passages of (mean cosine of the best 3 by words - mean) / deviation

Vectors that have nothing to do with their texts have an agreement of 0; so have words that find
random passages. If the agreement is low, a stretch from the middle of each passage is searched by
its words. If the first hit usually contains it, the words work and the vectors are useless;
otherwise the words are. No model is called.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np

from catalog.core.errors import StoreDamagedError
from catalog.core.ids import sha256_hex
from catalog.store.chunks import load_chunks
from catalog.store.engine_types import Restriction
from catalog.store.vectors.flat import draw_passages, read_windows

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from catalog.core.documents import Chunk
    from catalog.library.library import Library
    from catalog.store import Database

LEAST_AGREEMENT = 0.5  # of useful vectors: chance gives at most .2, any text 1.2 or more
LEAST_FOUND = 0.5  # by useful words: .86 or more of any text, by stop words at most .3
PASSAGES = 64  # to ask with
LEAST_PASSAGES = 32  # with neighbours
_NEIGHBOURS = 3
_DEPTH = 20  # hits among which neighbours of other documents are looked for
_CHARACTERS = 1_000  # of a passage's text, to ask with
_STRETCH = 80  # characters from its middle

RowOf = Callable[[int], int]
UselessLeg = Literal["lexical", "vector"]


def _itself(seq: int) -> int:
    return seq


def refresh_agreement(library: Library, dataset: str) -> None:
    """Measure and save the agreement, unless it was measured on the same passages before.

    Raises like ``Indexes.sample``, and :class:`~catalog.core.errors.StoreError`.
    """
    with library.database.read() as connection:
        names = [probe.chunk_id for probe in _probes(connection, dataset)]
    state = sha256_hex(json.dumps([library.wanted_model.fingerprint, names]))
    kept = _read(library.database, dataset)
    if kept.get("state") != state or kept.get("agreement") is None or "useless" not in kept:
        agreement = measure_agreement(library, dataset)
        useless = find_useless_leg(library, dataset, agreement)
        entry = json.dumps({"state": state, "agreement": agreement, "useless": useless})
        library.database.set_meta(_key(dataset), entry)


def read_useless_leg(database: Database, dataset: str) -> UselessLeg | None:
    """Return the one leg that the last check found useless, ``None`` for both or neither."""
    useless = _read(database, dataset).get("useless")
    return "lexical" if useless == "lexical" else "vector" if useless == "vector" else None


def find_useless_leg(
    library: Library, dataset: str, agreement: float | None, words_of: RowOf = _itself
) -> UselessLeg | None:
    """Return the leg that causes such an agreement, ``None`` if it is high enough."""
    if agreement is None or agreement >= LEAST_AGREEMENT:
        return None
    return "lexical" if measure_found(library, dataset, words_of) < LEAST_FOUND else "vector"


def measure_found(library: Library, dataset: str, words_of: RowOf = _itself) -> float:
    """Return the share of passages whose middle is found by its words as first hit, 0 to 1.

    ``words_of`` maps a hit's row number to the passage to take for it.
    """
    lexical, within = library.indexes.lexical(dataset), Restriction(dataset)
    with library.database.read() as connection:
        texts = [probe.text for probe in _probes(connection, dataset)]
        starts = [max(0, len(text) - _STRETCH) // 2 for text in texts]
        asked = [text[at : at + _STRETCH] for text, at in zip(texts, starts, strict=True)]
        first = [[words_of(hit.seq) for hit in lexical.search(a, 1, within)] for a in asked]
        chunks = load_chunks(connection, dataset, {seq for seqs in first for seq in seqs})
    found = [
        any(stretch in chunks[seq].text for seq in seqs if seq in chunks)
        for stretch, seqs in zip(asked, first, strict=True)
    ]
    return sum(found) / max(1, len(found))


def measure_agreement(
    library: Library, dataset: str, vector_of: RowOf = _itself, words_of: RowOf = _itself
) -> float | None:
    """Return the agreement, ``None`` if too few passages have neighbours.

    ``vector_of`` maps a passage's row number to the one whose vectors to use; ``words_of`` maps a
    hit by words to the passage to take for it.
    """
    lexical, sample = library.indexes.lexical(dataset), library.indexes.sample(dataset)
    with library.database.read() as connection:
        probes = _probes(connection, dataset)
        if len(probes) < LEAST_PASSAGES:
            return None
        texts = [probe.text[:_CHARACTERS] for probe in probes]
        hits = [lexical.search(text, _DEPTH, Restriction(dataset)) for text in texts]
        found = [[words_of(hit.seq) for hit in some] for some in hits]
        hit = load_chunks(connection, dataset, {seq for seqs in found for seq in seqs}, damaged=[])
        near = [
            [seq for seq in seqs if seq in hit and hit[seq].source_doc_id != probe.source_doc_id][
                :_NEIGHBOURS
            ]
            for probe, seqs in zip(probes, found, strict=True)
        ]
        asked = [probe.seq for probe in probes]
        wanted = {vector_of(seq) for seqs in (asked, *near) for seq in seqs}
        windows = read_windows(connection, wanted)
    rows = {seq: windows.rows[windows.seqs == seq] for seq in set(windows.seqs.tolist())}
    standings = []
    for seq, others in zip(asked, near, strict=True):
        own = rows.get(vector_of(seq))
        neighbours = [rows[vector_of(other)] for other in others if vector_of(other) in rows]
        if own is not None and neighbours:
            cosine = np.mean([(windows @ own[0]).max() for windows in neighbours])
            standings.append(sample.spread(own[0])[1].standardize(float(cosine)))
    return float(np.mean(standings)) if len(standings) >= LEAST_PASSAGES else None


def _probes(connection: Connection, dataset: str) -> list[Chunk]:
    """Return the passages to ask with, the same ones until the dataset changes."""
    seqs = draw_passages(connection, dataset, PASSAGES)
    stored = load_chunks(connection, dataset, seqs, damaged=[])
    return [stored[seq] for seq in seqs if seq in stored]


def _read(database: Database, dataset: str) -> dict[str, str | float | None]:
    try:
        return database.note(_key(dataset), "the agreement of words and vectors", dict) or {}
    except StoreDamagedError:  # the next update measures it again
        return {}


def _key(dataset: str) -> str:
    return f"agreement:{dataset}"
