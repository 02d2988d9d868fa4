"""Encoders turn texts into vectors, in batches in which a bad text affects only itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Protocol

from catalog.core.errors import CatalogError, EmbeddingError, EmbeddingServerError
from catalog.core.ids import sha256_hex
from catalog.core.tokens import TokenCounter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float32]
    Encode = Callable[[Sequence[str]], list[Vector]]

PROBE = "probe"  # a harmless text, which tells a bad text from a model that is down


@dataclass(frozen=True, slots=True)
class EmbeddingUsage:
    """Counts of some work; subtract the counts before from the counts after.

    ``retries`` are requests that repeat a failed one. ``tokens`` are estimates for the
    ``estimated`` requests without a server's count. ``cost`` is ``None`` without a price.
    """

    requests: int = 0
    retries: int = 0
    estimated: int = 0
    tokens: int = 0
    cost: float | None = None
    waited_seconds: float = 0.0

    def __add__(self, other: EmbeddingUsage) -> EmbeddingUsage:
        """Return the sum of both."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return EmbeddingUsage(*(one if two is None else two + (one or 0) for one, two in pairs))

    def __sub__(self, before: EmbeddingUsage) -> EmbeddingUsage:
        """Return the counts added since ``before``."""
        return self + EmbeddingUsage(*(count and -count for count in astuple(before)))

    def __str__(self) -> str:
        """Return the counts as the report of a run shows them."""
        about, s = "about " if self.estimated else "", "s" * (self.requests != 1)
        text = f"{self.requests:,} request{s}, {about}{self.tokens:,} tokens"
        if self.cost:
            price = f"{about}{self.cost:,.2f}" if self.cost >= 0.01 else "under 0.01"
            text += f", {price} to pay"
        if self.retries:
            text += f", {self.retries} repeated after {self.waited_seconds:.0f} s of waiting"
        return text


class Encoder(Protocol):
    """One embedding model. It is cheap to make; the model loads at its first use."""

    @property
    def model(self) -> str:
        """The model's name, as set."""

    @property
    def fingerprint(self) -> str:
        """Identify the exact weights and their use: equal fingerprints give comparable vectors."""

    @property
    def dim(self) -> int:
        """Length of every vector."""

    @property
    def max_tokens(self) -> int:
        """Tokens that the model reads, including special ones; it would silently drop the rest."""

    @property
    def counter(self) -> TokenCounter:
        """The model's own tokenizer."""

    def encode(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector of shape ``(dim,)`` for each text, in order."""


def make_fingerprint(*parts: object) -> str:
    """Hash everything that decides a model's vectors: 16 hex digits."""
    return sha256_hex("|".join(str(part) for part in parts))[:16]


@dataclass(frozen=True, slots=True)
class EmbeddingResult:
    """Vectors in the order of the texts, ``None`` for a failed one, and the reasons."""

    vectors: tuple[Vector | None, ...]
    failures: Mapping[int, str]


def embed_in_batches(
    encode: Encode, texts: Sequence[str], *, dim: int, batch_size: int
) -> EmbeddingResult:
    """Embed in batches of texts of similar length; halve a failing batch to find the bad text.

    Raises :class:`EmbeddingError` if every text fails and a harmless probe as well: the model is
    down then. A server that fails on a batch and on the probe is asked no more: the texts without a
    vector count as failed, and :class:`EmbeddingServerError` is raised if these are all texts.
    """
    vectors: list[Vector | None] = [None] * len(texts)
    failures: dict[int, str] = {}
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    starts = range(0, len(order), batch_size)
    waiting = [order[start : start + batch_size] for start in reversed(starts)]
    while waiting:
        batch = waiting.pop()
        try:
            try:
                answered = _ask(encode, [texts[index] for index in batch], dim)
            except EmbeddingServerError as error:
                if len(texts) == 1:
                    raise
                # Otherwise a dead server would be asked 63 times for a batch of 32 texts.
                _require_alive(encode, dim, str(error))
                raise EmbeddingError(str(error)) from error
        except EmbeddingServerError as error:
            if all(vector is None for vector in vectors):
                raise
            missing = (index for index, vector in enumerate(vectors) if vector is None)
            return EmbeddingResult(tuple(vectors), dict.fromkeys(missing, str(error)) | failures)
        except EmbeddingError as error:
            if len(batch) == 1:
                failures[batch[0]] = str(error)
            else:
                waiting += [batch[len(batch) // 2 :], batch[: len(batch) // 2]]
        else:
            for index, vector in zip(batch, answered, strict=True):
                vectors[index] = vector
    if texts and len(failures) == len(texts):
        _require_alive(encode, dim, next(iter(failures.values())))
    return EmbeddingResult(tuple(vectors), failures)


def _ask(encode: Encode, texts: Sequence[str], dim: int) -> list[Vector]:
    """Return a usable vector for each text; raise :class:`EmbeddingError` for anything else."""
    import numpy as np

    try:
        vectors = encode(texts)
    except CatalogError:
        raise
    except Exception as error:  # any model may raise anything
        raise EmbeddingError(f"{type(error).__name__}: {error}") from error
    if len(vectors) != len(texts):
        raise EmbeddingError(f"the model returned {len(vectors)} vectors for {len(texts)} texts")
    if any(np.shape(vector) != (dim,) for vector in vectors):
        raise EmbeddingError(f"the model returned a vector that has not {dim} numbers")
    if not all(np.isfinite(vector).all() and np.any(vector) for vector in vectors):
        raise EmbeddingError("the model returned a vector that is zero or not finite")
    return vectors


def _require_alive(encode: Encode, dim: int, reason: str) -> None:
    try:
        _ask(encode, [PROBE], dim)
    except EmbeddingError as error:
        raise type(error)(f"the embedding model does not answer: {reason}") from error
