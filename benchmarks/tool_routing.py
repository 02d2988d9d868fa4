"""Whether a language model calls the right tool after reading the guidance.

    IDX_LLM__PROVIDER=openai IDX_LLM__URL=… IDX_LLM__MODEL=… python benchmarks/tool_routing.py
    python benchmarks/tool_routing.py --prompts golden_queries/tool_routing.jsonl --limit 40

Asks the model of the settings for every labelled prompt which tool it would call, with and without
the guidance, and prints the share of right choices with Wilson's 95 % interval, next to the
deterministic router of the tests, which reads the same guidance by its words alone. An
answer that names neither tool, or both, is a wrong choice. Without a model only the router is
asked.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from catalog.core.errors import GoldenSetError
from catalog.core.settings import load_settings
from catalog.evaluation.significance import wilson_interval
from catalog.interfaces.guidance import agent_guidance
from catalog.interfaces.tools import TOOLS
from catalog.llm import complete, get_llm

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))
from interfaces.agents.stub_router import StubRouter  # noqa: E402

DESCRIPTIONS = {name: TOOLS[name].description for name in ("search_chunks", "query_catalog")}
NEITHER = "neither"


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


def read_prompts(path: Path) -> tuple[RoutingPrompt, ...]:
    """Read prompts, one JSON object on each line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(map(RoutingPrompt.model_validate_json, lines))


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    prompts_file = ROOT / "golden_queries" / "tool_routing.jsonl"
    parser.add_argument("--prompts", type=Path, default=prompts_file)
    parser.add_argument("--limit", type=int, help="only so many prompts, spread over the file")
    options = parser.parse_args()
    prompts = read_prompts(options.prompts)
    if options.limit:
        prompts = prompts[:: max(1, len(prompts) // options.limit)][: options.limit]
    told = {"with the guidance": agent_guidance(), "descriptions alone": ""}
    for name, guidance in told.items():
        report = routing_report(prompts, StubRouter.of(guidance, DESCRIPTIONS).choose)
        print_report(f"router of the tests, {name}", report)
    llm = get_llm(load_settings().settings.llm)
    if llm is None:
        print("no language model is set (IDX_LLM__PROVIDER): nothing else to ask")
        return
    for name, guidance in told.items():
        report = routing_report(prompts, chooser(lambda text: complete(llm, text), guidance))
        print_report(f"{llm.name}, {name}", report)


def chooser(complete: Callable[[str], str], guidance: str) -> Callable[[str], str]:
    """Asks a model for the name of a tool."""
    tools = "\n".join(f"- {name}: {text}" for name, text in DESCRIPTIONS.items())

    def choose(prompt: str) -> str:
        answer = complete(
            f"You have two tools.\n{tools}\n\n{guidance}\n"
            f"A user asks: {prompt}\n\n"
            "Which tool do you call first? Answer with its name alone: "
            f"{' or '.join(DESCRIPTIONS)}.\n"
        )
        named = [name for name in DESCRIPTIONS if name in answer.casefold()]
        return named[0] if len(named) == 1 else NEITHER

    return choose


def print_report(name: str, report: RoutingReport) -> None:
    low, high = report.interval
    right = f"{report.right} of {report.total} right"
    print(f"{name}: {right}, {report.accuracy:.3f} [{low:.3f}, {high:.3f}]")
    for kind, (met, count) in sorted(report.kinds.items()):
        if met < count:
            print(f"  {kind}: {met} of {count}")
    for (tool, chosen), count in sorted(report.confusion.items()):
        if tool != chosen:
            print(f"  {count} for {tool} went to {chosen}")


if __name__ == "__main__":
    main()
