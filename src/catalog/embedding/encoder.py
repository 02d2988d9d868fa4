"""Encoders turn texts into vectors, in batches in which a bad text affects only itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from catalog.core.errors import CatalogError, ConfigError, EmbeddingError, EmbeddingServerError
from catalog.core.ids import sha256_hex
from catalog.core.tokens import TokenCounter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float32]
    Encode = Callable[[Sequence[str]], list[Vector]]


@dataclass(frozen=True, slots=True)
class EmbeddingUsage:
    """Counts of some work; subtract the counts before from the counts after.

    ``retries`` are requests that repeat a failed one, ``waited_seconds`` the time between them.
    ``tokens`` are the server's counts, or estimates for the ``estimated`` requests without one.
    ``cost`` is in the currency of the price in the settings, ``None`` without a price.
    """

    requests: int = 0
    retries: int = 0
    estimated: int = 0
    tokens: int = 0
    cost: float | None = None
    waited_seconds: float = 0.0

    def __add__(self, other: EmbeddingUsage) -> EmbeddingUsage:
        """Return the sum of both."""
        return EmbeddingUsage(*map(_sum, astuple(self), astuple(other)))

    def __sub__(self, before: EmbeddingUsage) -> EmbeddingUsage:
        """Return the counts added since ``before``."""
        less = (count and -count for count in astuple(before))
        return EmbeddingUsage(*map(_sum, astuple(self), less))

    def __str__(self) -> str:
        """Return the counts as the report of a run shows them."""
        about = "about " if self.estimated else ""
        text = f"{_count(self.requests, 'request')}, {about}{_count(self.tokens, 'token')}"
        if self.cost:
            text += (
                f", {about}{self.cost:,.2f} to pay" if self.cost >= 0.01 else ", under 0.01 to pay"
            )
        if self.retries:
            repeated = f"{_count(self.retries, 'request')} repeated"
            text += f", {repeated} after {self.waited_seconds:.0f} s of waiting"
        return text


def _sum(one: Any, another: Any) -> Any:
    """Return the sum of two numbers, either of which may be ``None`` (unknown)."""
    return another if one is None else one if another is None else one + another


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


class Encoder(Protocol):
    """One embedding model. It is cheap to make; the model loads at its first use."""

    @property
    def model(self) -> str:
        """The model's name, as set."""
        ...

    @property
    def fingerprint(self) -> str:
        """Identify the exact weights and their use: equal fingerprints give comparable vectors."""
        ...

    @property
    def dim(self) -> int:
        """Length of every vector."""
        ...

    @property
    def max_tokens(self) -> int:
        """Tokens that the model reads, including special ones; it would silently drop the rest."""
        ...

    @property
    def counter(self) -> TokenCounter:
        """The model's own tokenizer."""
        ...

    def encode(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector of shape ``(dim,)`` for each text, in order."""
        ...


def make_fingerprint(*parts: object) -> str:
    """Hash everything that decides a model's vectors: 16 hex digits."""
    return sha256_hex("|".join(str(part) for part in parts))[:16]


PROBE = "probe"


@dataclass(frozen=True, slots=True)
class EmbeddingResult:
    """Vectors in the order of the texts, ``None`` for a failed one, and the reasons."""

    vectors: tuple[Vector | None, ...]
    failures: Mapping[int, str]


def embed_in_batches(
    encode: Encode,
    texts: Sequence[str],
    *,
    dim: int,
    batch_size: int,
) -> EmbeddingResult:
    """Embed in batches of texts of similar length; halve a failing batch to find the bad text.

    If every text fails, and a harmless probe as well, the model itself is down: then
    :class:`EmbeddingError` is raised, and no text is blamed. If a server fails on a batch, the
    batch is halved only if the probe succeeds then. Otherwise no more requests are sent, and every
    text without a vector counts as failed; if these are all texts, :class:`EmbeddingServerError` is
    raised.
    """
    vectors: list[Vector | None] = [None] * len(texts)
    failures: dict[int, str] = {}
    by_length = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    for start in range(0, len(by_length), batch_size):
        batch = by_length[start : start + batch_size]
        try:
            _embed_or_halve(encode, texts, batch, dim, vectors, failures)
        except EmbeddingServerError as error:
            if all(vector is None for vector in vectors):
                raise
            missing = (index for index, vector in enumerate(vectors) if vector is None)
            failures |= {index: str(error) for index in missing if index not in failures}
            return EmbeddingResult(tuple(vectors), failures)
    if texts and len(failures) == len(texts):
        _require_alive(encode, dim, next(iter(failures.values())))
    return EmbeddingResult(tuple(vectors), failures)


def _embed_or_halve(
    encode: Encode,
    texts: Sequence[str],
    batch: Sequence[int],
    dim: int,
    vectors: list[Vector | None],
    failures: dict[int, str],
) -> None:
    try:
        answered = encode([texts[index] for index in batch])
        _check(answered, len(batch), dim)
    except CatalogError as error:
        if not isinstance(error, EmbeddingError):
            raise
        reason = str(error)
        if isinstance(error, EmbeddingServerError):
            if len(texts) == 1:
                raise
            # Otherwise a dead server would be asked 63 times for a batch of 32 texts.
            _require_alive(encode, dim, reason)
    except Exception as error:  # noqa: BLE001 - any model may raise anything; it is recorded
        reason = f"{type(error).__name__}: {error}"
    else:
        for index, vector in zip(batch, answered, strict=True):
            vectors[index] = vector
        return
    if len(batch) == 1:
        failures[batch[0]] = reason
        return
    middle = len(batch) // 2
    for half in (batch[:middle], batch[middle:]):
        _embed_or_halve(encode, texts, half, dim, vectors, failures)


def _check(vectors: Sequence[Vector], count: int, dim: int) -> None:
    import numpy as np

    if len(vectors) != count:
        raise EmbeddingError(f"the model returned {len(vectors)} vectors for {count} texts")
    for vector in vectors:
        if np.shape(vector) != (dim,):
            shape = np.shape(vector)
            raise EmbeddingError(f"the model returned a vector of shape {shape}, not ({dim},)")
        if not np.isfinite(vector).all() or not np.any(vector):
            raise EmbeddingError("the model returned a vector that is zero or not finite")


def _require_alive(encode: Encode, dim: int, reason: str) -> None:
    try:
        _check(encode([PROBE]), 1, dim)
    except ConfigError:
        raise
    except Exception as error:
        kind = EmbeddingServerError if isinstance(error, EmbeddingServerError) else EmbeddingError
        raise kind(f"the embedding model does not answer: {reason}") from error
