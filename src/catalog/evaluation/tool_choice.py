"""Whether agents choose the right tool: labelled prompts, and how often a chooser meets them.

One JSON object a line: ``id, prompt, tool, kind``. See ``golden_queries/README.md``.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from catalog.core.errors import GoldenSetError
from catalog.evaluation.golden import Problem, read_lines

_Z95 = 1.959963984540054
_SHOWN = 20


class RoutingPrompt(BaseModel):
    """What somebody asks of an agent, and the tool that should be called for it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(min_length=1)
    prompt: str = Field(min_length=1, pattern=r"\S")
    tool: str = Field(min_length=1)
    kind: str = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Miss:
    """A prompt for which another tool was chosen."""

    prompt: RoutingPrompt
    chosen: str


@dataclass(frozen=True, slots=True)
class RoutingReport:
    """How a chooser did over ``total`` prompts, at least one.

    ``interval`` is Wilson's 95 % interval of the accuracy. ``confusion`` counts pairs of the right
    and the chosen tool; ``kinds`` has the right choices and the prompts of each kind.
    """

    total: int
    right: int
    interval: tuple[float, float]
    confusion: dict[tuple[str, str], int]
    kinds: dict[str, tuple[int, int]]
    misses: tuple[Miss, ...]

    @property
    def accuracy(self) -> float:
        """The share of prompts that were met, 0 to 1."""
        return self.right / self.total

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
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
            "misses": [miss.prompt.model_dump() | {"chosen": miss.chosen} for miss in self.misses],
        }


def read_prompts(path: Path) -> tuple[RoutingPrompt, ...]:
    """The prompts in a JSON Lines file; raises :class:`GoldenSetError` naming every bad line."""
    prompts: list[RoutingPrompt] = []
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            prompt = RoutingPrompt.model_validate(json.loads(line))
        except ValidationError as error:
            told = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
            problems.append(Problem(number, "; ".join(told)))
        except (ValueError, RecursionError) as error:
            problems.append(Problem(number, f"not JSON: {error}"))
        else:
            if prompt.id in seen:
                reason = f"id {prompt.id!r} stands in line {seen[prompt.id]}"
                problems.append(Problem(number, reason))
            seen.setdefault(prompt.id, number)
            prompts.append(prompt)
    if problems:
        shown = "\n  ".join(map(str, problems[:_SHOWN]))
        raise GoldenSetError(f"{path} has {len(problems)} bad lines:\n  {shown}")
    if not prompts:
        raise GoldenSetError(f"{path} holds no prompt")
    return tuple(prompts)


def routing_report(prompts: Sequence[RoutingPrompt], choose: Callable[[str], str]) -> RoutingReport:
    """How often ``choose`` names the right tool for a prompt; prompts must not be empty."""
    if not prompts:
        raise GoldenSetError("there are no prompts to choose for")
    chosen = [choose(prompt.prompt) for prompt in prompts]
    pairs = list(zip(prompts, chosen, strict=True))
    asked = Counter(prompt.kind for prompt in prompts)
    met = Counter(prompt.kind for prompt, tool in pairs if tool == prompt.tool)
    return RoutingReport(
        total=len(prompts),
        right=met.total(),
        interval=wilson_interval(met.total(), len(prompts)),
        confusion=dict(Counter((prompt.tool, tool) for prompt, tool in pairs)),
        kinds={kind: (met[kind], count) for kind, count in asked.items()},
        misses=tuple(Miss(prompt, tool) for prompt, tool in pairs if tool != prompt.tool),
    )


def wilson_interval(right: int, total: int, z: float = _Z95) -> tuple[float, float]:
    """The score interval of a share (Wilson 1927), within 0 to 1; 95 % unless ``z`` says other.

    ``total`` is at least 1 and ``right`` from 0 to ``total``.
    """
    share, square = right / total, z * z
    middle = (share + square / (2 * total)) / (1 + square / total)
    spread = math.sqrt(share * (1 - share) / total + square / (4 * total * total))
    half = z * spread / (1 + square / total)
    return max(0.0, middle - half), min(1.0, middle + half)
