"""What embedding on a server took: requests, tokens, waiting and cost."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class EmbeddingUsage:
    """Counts of a stretch of work; subtract what was before from what is after.

    ``retries`` are the requests that were repeats of one that failed, ``waited_seconds`` the time
    between them. ``tokens`` are as the server counted them, as estimated for the ``estimated`` of
    the requests of which it does not say. ``cost`` is in the currency of the price that is set,
    ``None`` where none is.
    """

    requests: int = 0
    retries: int = 0
    estimated: int = 0
    tokens: int = 0
    cost: float | None = None
    waited_seconds: float = 0.0

    def __add__(self, other: EmbeddingUsage) -> EmbeddingUsage:
        """Return both together."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return EmbeddingUsage(*(_sum(one, another) for one, another in pairs))

    def __sub__(self, before: EmbeddingUsage) -> EmbeddingUsage:
        """Return what was added since ``before``."""
        pairs = zip(astuple(self), astuple(before), strict=True)
        return EmbeddingUsage(*(_sum(one, another and -another) for one, another in pairs))

    def __str__(self) -> str:
        """Return the counts as the report of a run shows them."""
        about = "about " if self.estimated else ""
        parts = [f"{_count(self.requests, 'request')}, {about}{_count(self.tokens, 'token')}"]
        if self.cost:
            parts.append(
                f"{about}{self.cost:,.2f} to pay" if self.cost >= 0.01 else "under 0.01 to pay"
            )
        if self.retries:
            repeated = f"{_count(self.retries, 'request')} repeated"
            parts.append(f"{repeated} after {self.waited_seconds:.0f} s of waiting")
        return ", ".join(parts)


def _sum(one: Any, another: Any) -> Any:
    """Return the sum of what is known of two numbers."""
    return another if one is None else one if another is None else one + another


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
