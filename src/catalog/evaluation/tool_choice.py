"""Tests of tool choice: labelled prompts, and how often a chooser picks the right tool.

A file has one JSON object on each line: ``id, prompt, tool, kind``. See
``golden_queries/README.md``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from catalog.core.errors import GoldenSetError
from catalog.evaluation.golden_files import read_rows
from catalog.evaluation.significance import wilson_interval


class RoutingPrompt(BaseModel):
    """A request to an agent, and the tool to call for it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(min_length=1)
    prompt: str = Field(min_length=1, pattern=r"\S")
    tool: str = Field(min_length=1)
    kind: str = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class RoutingReport:
    """Result of a chooser over ``total`` prompts, at least one.

    ``interval`` is Wilson's 95 % interval of the accuracy. ``confusion`` counts pairs of right and
    chosen tool. ``kinds`` has right choices and prompts by kind. ``misses`` are the prompts with a
    wrong choice, with the chosen tool.
    """

    total: int
    right: int
    interval: tuple[float, float]
    confusion: dict[tuple[str, str], int]
    kinds: dict[str, tuple[int, int]]
    misses: tuple[tuple[RoutingPrompt, str], ...]

    @property
    def accuracy(self) -> float:
        """Return the share of prompts with the right tool chosen, 0 to 1."""
        return self.right / self.total

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "total": self.total,
            "right": self.right,
            "accuracy": self.accuracy,
            "interval": list(self.interval),
            "confusion": [
                {"tool": tool, "chosen": chosen, "prompts": count}
                for (tool, chosen), count in sorted(self.confusion.items())
            ],
            "kinds": {
                kind: {"right": right, "prompts": count}
                for kind, (right, count) in sorted(self.kinds.items())
            },
            "misses": [prompt.model_dump() | {"chosen": tool} for prompt, tool in self.misses],
        }


def read_prompts(path: Path) -> tuple[RoutingPrompt, ...]:
    """Read prompts from a JSON Lines file; raise :class:`GoldenSetError` naming every bad line."""
    return tuple(read_rows(path, RoutingPrompt, "prompt"))


def routing_report(prompts: Sequence[RoutingPrompt], choose: Callable[[str], str]) -> RoutingReport:
    """Count how often ``choose`` names the right tool; there must be at least one prompt."""
    if not prompts:
        raise GoldenSetError("there are no prompts to choose for")
    choices = [(prompt, choose(prompt.prompt)) for prompt in prompts]
    totals = Counter(prompt.kind for prompt in prompts)
    right = Counter(prompt.kind for prompt, tool in choices if tool == prompt.tool)
    return RoutingReport(
        total=len(prompts),
        right=right.total(),
        interval=wilson_interval(right.total(), len(prompts)),
        confusion=dict(Counter((prompt.tool, tool) for prompt, tool in choices)),
        kinds={kind: (right[kind], count) for kind, count in totals.items()},
        misses=tuple((prompt, tool) for prompt, tool in choices if tool != prompt.tool),
    )
