"""A table of metrics beside their targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["met", "missed", "elsewhere", "part of it"]
HEADER = ("metric", "measured", "target", "met")


@dataclass(frozen=True)
class Row:
    """One metric; ``note`` is what a reader must know to trust the number."""

    metric: str
    measured: str
    target: str
    outcome: Outcome
    note: str = ""

    @classmethod
    def of(cls, metric: str, measured: str, target: str, met: bool, note: str = "") -> Row:
        """A metric that was measured here."""
        return cls(metric, measured, target, "met" if met else "missed", note)


Section = tuple[str, Sequence[Row]]


def share(part: int, whole: int) -> str:
    """``99.2 % (124 of 125)``."""
    return f"{part / whole:.1%} ({part:,} of {whole:,})" if whole else "none to count"


def print_table(sections: Sequence[Section]) -> None:
    """Every row with its note below it."""
    cells = [(row.metric, row.measured, row.target) for _, rows in sections for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, HEADER[:3], strict=True)]
    for title, rows in sections:
        print(f"\n{title}")
        names = (f"{name:{width}}" for name, width in zip(HEADER[:3], widths, strict=True))
        print(f"  {' | '.join(names)} | {HEADER[3]}")
        for row in rows:
            named = (row.metric, row.measured, row.target)
            shown = " | ".join(f"{cell:{width}}" for cell, width in zip(named, widths, strict=True))
            print(f"  {shown} | {row.outcome}")
            if row.note:
                print(f"      {row.note}")
