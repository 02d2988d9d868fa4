"""Count text in a model's own tokens, or as four characters a token."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

CHARS_PER_TOKEN = 4
_SCRIPTS = 0x0E00  # from here on scripts have about a token a letter


class TokenCounter(Protocol):
    """Find the offsets of a model's tokens in a text."""

    @property
    def name(self) -> str:
        """Return the tokenizer's name, so that a change of tokenizer is noticed."""
        ...

    def spans(self, text: str) -> npt.NDArray[np.int64]:
        """Return character offsets of every token but special ones: shape ``(n, 2)``, ascending."""
        ...


class CharTokenCounter:
    """Count every four characters as a token; used if a model's tokenizer fails."""

    name = f"chars/{CHARS_PER_TOKEN}"

    def spans(self, text: str) -> npt.NDArray[np.int64]:
        """Return offsets of consecutive runs of four characters, the last one shorter."""
        import numpy as np

        return _runs(np.arange(0, len(text), CHARS_PER_TOKEN), text)


class EstimatedTokenCounter:
    """Count four letters as a token, and every digit, mark or sign as one.

    A letter beyond ASCII counts half a token, one of a script without blanks a whole token. The
    estimate is usually too high; docs/how-to/embedding-model.md says how often it is not.
    """

    name = f"letters/{CHARS_PER_TOKEN}"

    def spans(self, text: str) -> npt.NDArray[np.int64]:
        """Return offsets of runs of characters that count as a token each; the last is shorter."""
        import numpy as np

        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        quarters = _quarters()[np.minimum(points, _SCRIPTS)]
        token_of = np.concatenate(([-1], (np.cumsum(quarters) - 1) // CHARS_PER_TOKEN))
        return _runs(np.flatnonzero(np.diff(token_of)), text)


def _runs(starts: npt.NDArray[np.int64], text: str) -> npt.NDArray[np.int64]:
    import numpy as np

    return np.stack([starts, np.append(starts[1:], len(text))[: len(starts)]], axis=1)


@cache
def _quarters() -> npt.NDArray[np.int64]:
    """Return the quarters of a token that each character up to :data:`_SCRIPTS` counts."""
    import numpy as np

    ascii_ones = [1 if chr(point).isalpha() or point == 32 else 4 for point in range(128)]
    return np.array([*ascii_ones, *[2] * (_SCRIPTS - 128), CHARS_PER_TOKEN])


class FallbackCounter:
    """Count with a tokenizer; a text on which it fails counts four characters a token."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter, self.name = counter, counter.name

    def spans(self, text: str) -> npt.NDArray[np.int64]:
        """Return the offsets like :class:`TokenCounter`; never raise."""
        try:
            return self._counter.spans(text)
        except Exception:  # noqa: BLE001 - tokenizers raise anything; the chunker reports it
            return CharTokenCounter().spans(text)
