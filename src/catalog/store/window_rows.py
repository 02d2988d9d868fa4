"""The windows that vectors hang on: the live ones, or those of a model that is tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog.store.schema import chunks, embeddings

if TYPE_CHECKING:
    from sqlalchemy import FromClause, Join


def join_embedded(windows: FromClause) -> Join:
    """Return the chunks with those of these windows that have a vector.

    ``windows`` has the columns of ``chunk_windows``, which for the live ones it is.
    """
    of_chunk = chunks.join(windows, windows.c.seq == chunks.c.seq)
    return of_chunk.join(embeddings, embeddings.c.embed_key == windows.c.embed_key)
