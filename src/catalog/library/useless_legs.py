"""Check whether the vectors of a dataset agree with its words, and find the useless leg if not.

The text of some passages is searched by its words. Most results in other documents are about the
same topic, so vectors with any meaning are nearer to them than to passages in general:

    agreement = mean over the passages of (mean cosine of the best 3 by words - mean) / deviation

Vectors, or words, that have nothing to do with their texts have an agreement of 0. If it is low, a
stretch from the middle of each passage is searched by its words. If the first hit usually contains
it, the vectors are useless, otherwise the words are. No model is called.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from catalog.core.errors import StoreDamagedError
from catalog.store.chunks import load_chunks
from catalog.store.restriction import Restriction, read_chunk_ids
from catalog.store.vectors.flat import draw_passages, read_windows

if TYPE_CHECKING:
    from catalog.library.library import Library
    from catalog.store import Database

LEAST_AGREEMENT = 0.5  # of useful vectors: chance gives at most .2, any text 1.2 or more
LEAST_FOUND = 0.5  # by useful words: .86 or more of any text, by stop words at most .3
PASSAGES = 64  # to ask with
LEAST_PASSAGES = 32  # with neighbours
_NEIGHBOURS = 3
_DEPTH = 20  # hits among which neighbours of other documents are looked for
_CHARACTERS = 1_000  # of a passage's text, to ask with
_CHANGED = 4  # it is measured again if more than one in as many is new
_STRETCH = 80  # characters from its middle

RowOf = Callable[[int], int]
UselessLeg = Literal["lexical", "vector"]


def refresh_agreement(library: Library, dataset: str) -> None:
    """Measure and save the agreement, unless most passages drawn were drawn the last time, too."""
    model = library.wanted_model.fingerprint
    with library.database.read() as connection:
        seqs = draw_passages(connection, dataset, PASSAGES)
        is_enough = len(seqs) >= LEAST_PASSAGES
        drawn = sorted(read_chunk_ids(connection, dataset, seqs).values()) if is_enough else []
    kept = _read(library.database, dataset)
    is_known = kept.get("model") == model and kept.get("agreement") is not None
    known = len({*drawn} & {*kept.get("drawn", ())}) if is_known else 0
    if not is_enough:
        if kept:
            library.database.set_meta(f"agreement:{dataset}", "{}")
    elif len(drawn) - known > len(drawn) // _CHANGED:
        agreement, useless = find_useless_leg(library, dataset)
        entry = {"model": model, "drawn": drawn, "agreement": agreement, "useless": useless}
        library.database.set_meta(f"agreement:{dataset}", json.dumps(entry))


def read_useless_leg(database: Database, dataset: str) -> UselessLeg | None:
    """Return the one leg that the last check found useless, ``None`` for both or neither."""
    useless = _read(database, dataset).get("useless")
    return "lexical" if useless == "lexical" else "vector" if useless == "vector" else None


def find_useless_leg(
    library: Library, dataset: str, vector_of: RowOf = int, words_of: RowOf = int
) -> tuple[float | None, UselessLeg | None]:
    """Return the agreement, ``None`` if few passages have neighbours, and the leg to blame for it.

    ``vector_of`` maps a passage's row number to the one whose vectors to use; ``words_of`` maps a
    hit by words to the passage to take for it. ``None`` is to blame if the agreement is high.
    """
    lexical, within = library.indexes.lexical(dataset), Restriction(dataset)

    def search(text: str, k: int) -> list[int]:
        return [words_of(hit.seq) for hit in lexical.search(text, k, within)]

    with library.database.read() as connection:
        drawn = draw_passages(connection, dataset, PASSAGES)
        probes = load_chunks(connection, dataset, drawn, damaged=[])
        ranked = {seq: search(one.text[:_CHARACTERS], _DEPTH) for seq, one in probes.items()}
        hit = load_chunks(connection, dataset, {*chain(*ranked.values())}, damaged=[])
        near, standings = dict[int, list[int]](), list[float]()
        for seq, one in probes.items():
            own_id = one.source_doc_id
            rows = [row for row in ranked[seq] if row in hit and hit[row].source_doc_id != own_id]
            near[seq] = rows[:_NEIGHBOURS]
        asked = {vector_of(row) for seq, rows in near.items() for row in (seq, *rows)}
        windows = read_windows(connection, asked)
        for seq, rows in near.items():
            own = windows.rows[windows.seqs == vector_of(seq)]
            others = [windows.rows[windows.seqs == vector_of(row)] for row in rows]
            cosines = [(one @ own[0]).max() for one in others if len(one) and len(own)]
            if cosines:
                spread = library.indexes.sample(dataset).spread(own[0])[1]
                distance = float(np.mean(cosines)) - spread.mean
                standings.append(0.0 if spread.is_flat else distance / spread.deviation)
        agreement = float(np.mean(standings)) if len(standings) >= LEAST_PASSAGES else None
        if agreement is None or agreement >= LEAST_AGREEMENT:
            return agreement, None
        found = 0
        for one in probes.values():
            start = max(0, len(one.text) - _STRETCH) // 2
            stretch = one.text[start : start + _STRETCH]
            first = load_chunks(connection, dataset, search(stretch, 1), damaged=[])
            found += any(stretch in chunk.text for chunk in first.values())
    return agreement, "lexical" if found < LEAST_FOUND * len(probes) else "vector"


def _read(database: Database, dataset: str) -> dict[str, Any]:
    try:
        return database.note(f"agreement:{dataset}", "the agreement of legs", dict) or {}
    except StoreDamagedError:  # the next update measures it again
        return {}
