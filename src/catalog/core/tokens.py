"""Counting text in a model's own tokens, and the fallback of four characters a token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

CHARS_PER_TOKEN = 4


class TokenCounter(Protocol):
    """Find the offsets of a model's tokens in a text."""

    @property
    def name(self) -> str:
        """Return the tokenizer's name, so that a change of it is noticed."""
        ...

    def spans(self, text: str) -> npt.NDArray[np.int64]:
        """Return character offsets of every token but special ones: shape ``(n, 2)``, ascending."""
        ...


class CharTokenCounter:
    """Take every four characters for one token; used when a model's tokenizer fails."""

    name = f"chars/{CHARS_PER_TOKEN}"

    def spans(self, text: str) -> npt.NDArray[np.int64]:
        """Return offsets of consecutive runs of four characters, the last one shorter."""
        import numpy as np

        starts = np.arange(0, len(text), CHARS_PER_TOKEN, dtype=np.int64)
        ends = np.minimum(starts + CHARS_PER_TOKEN, len(text))
        return np.stack([starts, ends], axis=1)


class FallbackCounter:
    """Count with a tokenizer, and four characters a token for any text that makes it fail."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self.name = counter.name

    def spans(self, text: str) -> npt.NDArray[np.int64]:
        """Return the offsets as :class:`TokenCounter` says; never raises."""
        try:
            return self._counter.spans(text)
        except Exception:  # noqa: BLE001 - tokenizers raise anything; the chunker reports it
            return CharTokenCounter().spans(text)
