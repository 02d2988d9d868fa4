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
from collections.abc import Callable
from pathlib import Path

from catalog.core.settings import load_settings
from catalog.evaluation.tool_choice import RoutingReport, read_prompts, routing_report
from catalog.interfaces.agents import AGENT_TOOLS, agent_guidance
from catalog.llm import complete, get_llm

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))
from interfaces.agents.stub_router import StubRouter  # noqa: E402

DESCRIPTIONS = {name: AGENT_TOOLS[name].description for name in ("search_chunks", "query_catalog")}
NEITHER = "neither"


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
