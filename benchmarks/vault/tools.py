"""Checks of what agents get: cited passages, valid answers, the guidance."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from homes import DATASET
from rows import Row, share

from catalog.evaluation.golden import GoldenSet
from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.guidance import agent_guidance
from catalog.interfaces.tools import TOOLS, ToolResult

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "tests"), str(ROOT / "benchmarks")]
from interfaces.agents.stub_router import StubRouter  # noqa: E402
from tool_routing import read_prompts, routing_report  # noqa: E402

SEARCH, BROWSE = "search_chunks", "query_catalog"
SEEDS_SENTENCES = (
    "Use search_chunks when answering questions about document content (what, how, why).",
    "Use query_catalog to discover which files exist or filter by type/name.",
)
NOWHERE = ({"file_type_filter": "xlsx"}, {"doc_name_filter": "no such name"})
MOST_SECONDS = 2.0


def tool_rows(engine: LocalEngine, golden: GoldenSet) -> Iterator[Row]:
    """11.6: every labelled query put to ``search_chunks``; some of them where nothing is."""
    tool = TOOLS[SEARCH]
    answers, seconds = [], []
    for query in golden:
        started = time.perf_counter()
        answers.append(tool.call(engine, {"query": query.query, "dataset": DATASET}))
        seconds.append(time.perf_counter() - started)
    empty = [
        tool.call(engine, {"query": query.query, "dataset": DATASET, **where})
        for query in list(golden)[:30]
        for where in NOWHERE
    ]
    found = [one for answer in answers for one in answer.data["results"]]
    cited = [one for one in found if one["path"] and any(one["locator"].values())]
    yield Row.of(
        "citation completeness", share(len(cited), len(found)), "100 %", len(cited) == len(found),
        f"name and lines, page or times, over {len(answers)} answers",
    )  # fmt: skip
    p95 = sorted(seconds)[round(0.95 * (len(seconds) - 1))]
    yield Row.of(
        "tool latency", f"p95 {p95 * 1000:.0f} ms", "p95 <= 2.0 s", p95 <= MOST_SECONDS,
        "top_k 10, hybrid, not reranked",
    )  # fmt: skip
    told = [one for one in empty if _says_nothing_found(one)]
    yield Row.of(
        "empty-result behaviour", share(len(told), len(empty)), "100 %", len(told) == len(empty)
    )


def guidance_rows() -> Iterator[Row]:
    """11.8: the text, and what a deterministic router that reads it alone chooses."""
    guidance = agent_guidance()
    said = [sentence for sentence in SEEDS_SENTENCES if sentence in guidance]
    yield Row.of(
        "prompt completeness", share(len(said), 2), "tells the two tools apart", len(said) == 2
    )
    prompts = read_prompts(ROOT / "golden_queries" / "tool_routing.jsonl")
    described = {name: TOOLS[name].description for name in (SEARCH, BROWSE)}
    report = routing_report(prompts, StubRouter.of(guidance, described).choose)
    low, high = report.interval
    yield Row.of(
        "routing behaviour", f"{report.accuracy:.1%} (n {report.total})", ">= 90 %",
        report.accuracy >= 0.9,
        f"95 % interval {low:.1%} to {high:.1%}; benchmarks/tool_routing.py",
    )  # fmt: skip
    discovery = [prompt for prompt in prompts if prompt.kind.startswith("discovery")]
    kept = routing_report(discovery, StubRouter.of(guidance, described).choose)
    yield Row.of(
        "regression guard", f"{kept.accuracy:.1%} (n {kept.total})", "other flows unchanged",
        kept.accuracy >= 0.9, "prompts about which files exist stay with query_catalog",
    )  # fmt: skip


def _says_nothing_found(answer: ToolResult) -> bool:
    data = answer.data
    return data["status"] == "no_results" and not data["results"] and bool(data["message"])
