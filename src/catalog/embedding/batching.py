"""Embedding many texts so that one bad text costs only itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from catalog.core.errors import CatalogError, EmbeddingError

if TYPE_CHECKING:
    from catalog.embedding.encoder import Vector

    Encode = Callable[[Sequence[str]], list[Vector]]

PROBE = "probe"


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors in the order of the texts (``None`` where it failed), and why each one failed."""

    vectors: tuple[Vector | None, ...]
    failures: Mapping[int, str]


def embed_resiliently(
    encode: Encode,
    texts: Sequence[str],
    *,
    dim: int,
    batch_size: int,
    on_batch: Callable[[int], None] | None = None,
) -> Embedded:
    """Embed in batches of texts of like length; a failing batch is halved down to the bad text.

    ``on_batch`` is told how many texts each finished batch held. When every text fails and so
    does a harmless probe, the model itself is down: :class:`EmbeddingError`, and nothing is
    recorded against the texts.
    """
    vectors: list[Vector | None] = [None] * len(texts)
    failures: dict[int, str] = {}
    by_length = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    for start in range(0, len(by_length), batch_size):
        batch = by_length[start : start + batch_size]
        _embed_or_halve(encode, texts, batch, dim, vectors, failures)
        if on_batch is not None:
            on_batch(len(batch))
    if texts and len(failures) == len(texts):
        _require_alive(encode, dim, next(iter(failures.values())))
    return Embedded(tuple(vectors), failures)


def _embed_or_halve(
    encode: Encode,
    texts: Sequence[str],
    batch: Sequence[int],
    dim: int,
    vectors: list[Vector | None],
    failures: dict[int, str],
) -> None:
    try:
        found = _checked(encode([texts[index] for index in batch]), len(batch), dim)
    except CatalogError as error:
        if not isinstance(error, EmbeddingError):
            raise
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - any model may raise anything; it is recorded
        reason = f"{type(error).__name__}: {error}"
    else:
        for index, vector in zip(batch, found, strict=True):
            vectors[index] = vector
        return
    if len(batch) == 1:
        failures[batch[0]] = reason
        return
    middle = len(batch) // 2
    for half in (batch[:middle], batch[middle:]):
        _embed_or_halve(encode, texts, half, dim, vectors, failures)


def _checked(found: Sequence[Vector], count: int, dim: int) -> Sequence[Vector]:
    import numpy as np

    if len(found) != count:
        raise EmbeddingError(f"the model answered {len(found)} vectors for {count} texts")
    for vector in found:
        if np.shape(vector) != (dim,):
            raise EmbeddingError(f"the model answered a vector of shape {np.shape(vector)}")
        if not np.isfinite(vector).all() or not np.any(vector):
            raise EmbeddingError("the model answered a vector that is zero or not finite")
    return found


def _require_alive(encode: Encode, dim: int, reason: str) -> None:
    try:
        _checked(encode([PROBE]), 1, dim)
    except Exception as error:
        raise EmbeddingError(f"the embedding model does not answer: {reason}") from error
