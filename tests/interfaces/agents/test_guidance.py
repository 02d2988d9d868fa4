"""The guidance tells the tools apart, and a router that reads nothing else chooses by it."""

import re
import sys
from pathlib import Path

import pytest

from catalog.interfaces.guidance import MAX_GUIDANCE, agent_guidance
from catalog.interfaces.tools import LISTED_TOOLS, TOOLS
from interfaces.agents.stub_router import StubRouter
from tables import table

BENCHMARKS = str(Path(__file__).parents[3] / "benchmarks")
sys.path.append(BENCHMARKS)
from tool_routing import read_prompts, routing_report  # noqa: E402

sys.path.remove(BENCHMARKS)  # its ingest.py would hide tests/ingest

PROMPTS = Path(__file__).parents[3] / "golden_queries" / "tool_routing.jsonl"
DESCRIPTIONS = {name: TOOLS[name].description for name in ("search_chunks", "query_catalog")}


@pytest.fixture(scope="module")
def prompts():
    return read_prompts(PROMPTS)


def routed(prompts, guidance):
    return routing_report(prompts, StubRouter.of(guidance, DESCRIPTIONS).choose)


def without(line_start):
    """The guidance without one of its lines."""
    kept = [line for line in agent_guidance().split("\n") if not line.startswith(line_start)]
    guidance = "\n".join(kept)
    assert guidance != agent_guidance()
    return guidance


def test_the_seeds_sentences_stand_in_the_guidance():
    assert (
        "Use search_chunks when answering questions about document content (what, how, why). "
        "Use query_catalog to discover which files exist or filter by type/name."
    ) in agent_guidance()


def test_every_tool_that_is_listed_is_named_and_no_other():
    words = set(re.findall(r"\w+", agent_guidance()))
    assert words >= set(LISTED_TOOLS)
    assert not words & {"search", "vsearch", "query", "status"}


@table("said")
def test_the_guidance_says_what_to_make_of_answers(said):
    assert said in agent_guidance()


def test_the_guidance_is_short_however_many_datasets_there_are():
    names = [f"{number}{'long' * 30}" for number in range(100)]
    for count in range(2, 100):
        assert len(agent_guidance(names[:count])) <= MAX_GUIDANCE
    assert re.search(r"all are searched: 0long.* and 9\d more\.\n$", agent_guidance(names))


def test_several_datasets_are_named_and_one_is_not():
    assert agent_guidance(["notes"]) == agent_guidance()
    assert agent_guidance(["notes", "vault\n"]).endswith(
        "Without `dataset` all are searched: notes, vault.\n"
    )


def test_nine_of_ten_prompts_go_to_the_right_tool(prompts):
    report = routed(prompts, agent_guidance())
    assert report.total >= 60
    assert report.accuracy >= 0.9, report.misses


def test_without_the_guidance_far_fewer_do(prompts):
    assert routed(prompts, "").accuracy < 0.75


@pytest.mark.parametrize("rule", ["- In the text:", "- In the list:", "- For files people"])
def test_each_rule_carries_its_weight(prompts, rule):
    lost = routed(prompts, agent_guidance()).right - routed(prompts, without(rule)).right
    assert lost >= 3


@pytest.mark.parametrize("kind", ["list", "count", "name", "type", "date", "size", "tag", "exists"])
def test_questions_of_discovery_stay_with_the_catalog(prompts, kind):
    of_kind = [prompt for prompt in prompts if prompt.kind == f"discovery_{kind}"]
    assert {prompt.tool for prompt in of_kind} == {"query_catalog"}
    assert routed(of_kind, agent_guidance()).accuracy >= 0.8
