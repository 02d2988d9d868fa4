"""Reading from the truth what a lexical index of one dataset is made of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection, select

from catalog.store.lexical.postings import Int64
from catalog.store.schema import chunks

_BATCH = 500  # bound parameters in one statement


@dataclass(frozen=True, slots=True)
class LiveRows:
    """A dataset's chunks: row numbers, ascending, and the keys of their contents."""

    seqs: Int64
    keys: Int64


class ChunkText(NamedTuple):
    """What is indexed of one chunk."""

    seq: int
    key: int
    text: str


def read_rows(connection: Connection, dataset: str) -> LiveRows:
    """Every chunk of the dataset."""
    columns = select(chunks.c.seq, chunks.c.chunk_id).where(chunks.c.dataset == dataset)
    rows = connection.execute(columns.order_by(chunks.c.seq)).all()
    seqs = np.fromiter((seq for seq, _ in rows), dtype=np.int64, count=len(rows))
    keys = np.fromiter((_key(name) for _, name in rows), dtype=np.int64, count=len(rows))
    return LiveRows(seqs, keys)


def read_texts(connection: Connection, dataset: str, seqs: Int64) -> Iterator[ChunkText]:
    """The chunks of those row numbers (ascending) with their indexed text, in order."""
    columns = select(
        chunks.c.seq, chunks.c.chunk_id, chunks.c.title, chunks.c.headings, chunks.c.text
    ).order_by(chunks.c.seq)
    for start in range(0, len(seqs), _BATCH):
        batch = seqs[start : start + _BATCH].tolist()
        query = columns.where(chunks.c.dataset == dataset, chunks.c.seq.in_(batch))
        for seq, name, title, headings, text in connection.execute(query):
            yield ChunkText(seq, _key(name), indexed_text(title, json.loads(headings), text))


def indexed_text(title: str, headings: list[str], text: str) -> str:
    """The passage behind its title and headings, without those it holds itself."""
    above = list(dict.fromkeys([title, *headings]))
    return "\n".join([*(line for line in above if line and not _holds(text, line)), text])


def _holds(text: str, line: str) -> bool:
    """Whether the line stands in the text as whole words."""
    at = text.find(line)
    while at >= 0:
        end = at + len(line)
        if not (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum()):
            return True
        at = text.find(line, at + 1)
    return False


def _key(chunk_id: str) -> int:
    """A chunk id, which depends on the content, as a number: a row number alone may be reused
    once an older copy of the database is restored."""
    return int(chunk_id[:15], 16)
