"""What each stage is worth: which searches are asked, and how they are told apart."""

import json

import pytest

from catalog.core.errors import BlindComparisonError
from catalog.core.settings import LLMSettings, Settings
from catalog.evaluation.ablation import (
    ablation_dict,
    ablation_lines,
    build_variants,
    score_variants,
)
from catalog.evaluation.backends import Backends
from catalog.evaluation.runs import run_backends
from evaluation.stubs import TableBackend, golden, question, ticking
from fakes import open_library

WITHOUT_MODEL = [
    "hybrid",
    "lexical leg alone",
    "vector leg alone",
    "fusion rrf",
    "fusion relative_score",
    "best chunk by keywords",
    "+ router",
    "+ rerank",
]
LLM = {"provider": "openai", "url": "http://localhost:1/v1", "model": "m"}
QUESTIONS = golden(*(question(number) for number in range(4)))
FOUND = {f"q{number}": ["right.md"] for number in range(4)}
OTHERS_FIRST = {name: ["a.md", "b.md", "right.md"] for name in FOUND}


def names(**settings):
    return list(build_variants(Settings(**settings)))


def changes(spec):
    return dict(part.split("=") for part in spec.partition(":")[2].split(","))


def rows(*tables, asked=QUESTIONS, repeats=1):
    """Rows of searches named a, b, … that answer from these tables."""
    made = [
        table if isinstance(table, TableBackend) else TableBackend(name, table)
        for name, table in zip("abcd", tables, strict=False)
    ]
    runs = run_backends(made, asked, dataset="d", top_k=10, repeats=repeats, clock=ticking())
    return score_variants([backend.name for backend in made], runs, asked)


def test_without_a_language_model_nothing_is_expanded(tmp_path):
    assert names(home=tmp_path) == WITHOUT_MODEL


def test_with_a_language_model_expansion_is_measured_alone_and_before_the_reranker(tmp_path):
    assert names(home=tmp_path, llm=LLMSettings(**LLM)) == [
        *WITHOUT_MODEL,
        "+ expansion",
        "+ expansion + rerank",
    ]


def test_every_variant_differs_from_the_plain_search_in_what_its_name_says(tmp_path):
    listed = build_variants(Settings(home=tmp_path, llm=LLMSettings(**LLM)))
    bases = {name: spec.partition(":")[0] for name, spec in listed.items()}
    assert bases.pop("lexical leg alone") == "lexical"
    assert bases.pop("vector leg alone") == "vector"
    assert set(bases.values()) == {"v2"}
    plain = changes(listed["hybrid"])
    different = {name: dict(changes(spec).items() - plain.items()) for name, spec in listed.items()}
    assert different == {
        "hybrid": {},
        "lexical leg alone": {},
        "vector leg alone": {},
        "fusion rrf": {"fusion_mode": "rrf"},
        "fusion relative_score": {"fusion_mode": "relative_score"},
        "best chunk by keywords": {"chunk_selection": "keyword"},
        "+ router": {"router_enabled": "true"},
        "+ rerank": {"rerank_enabled": "true"},
        "+ expansion": {"expansion_enabled": "true"},
        "+ expansion + rerank": {"expansion_enabled": "true", "rerank_enabled": "true"},
    }


def test_the_plain_search_has_every_optional_stage_off_whatever_the_settings(tmp_path):
    on = {
        "rerank_enabled": True,
        "expansion_enabled": True,
        "chunk_selection": "keyword",
        "similarity_threshold": 0.9,
        "token_budget": 7,
        "router_enabled": True,
        "lexical_weight": 3.0,
    }
    with open_library(tmp_path / "home", **on) as library, Backends(library) as backends:
        told = [
            backends.load(spec).identity["rag_v2"]
            for spec in build_variants(library.settings).values()
        ]
    plain = told[0]
    off = {name: plain[name] for name in on}
    assert off == {
        "rerank_enabled": False,
        "expansion_enabled": False,
        "chunk_selection": "fused",
        "similarity_threshold": 0.0,
        "token_budget": 0,
        "router_enabled": False,
        "lexical_weight": 3.0,
    }
    assert [one["rerank_enabled"] for one in told] == [False] * 7 + [True]


def test_every_row_is_compared_with_the_first():
    first, worse, same = rows(FOUND, OTHERS_FIRST, FOUND)
    assert (first.mean, first.test.difference) == (1.0, 0.0)
    # the right document is third: 1 / log2(4)
    assert (worse.mean, worse.test.difference) == (pytest.approx(0.5), pytest.approx(-0.5))
    assert worse.test.wins_ties_losses.losses == 4
    assert (same.mean, same.test.p) == (1.0, 1.0)
    assert worse.latency.p50 == pytest.approx(4.0)


def test_a_table_names_the_metric_and_gives_the_first_row_no_difference():
    head, first, worse = ablation_lines(rows(FOUND, OTHERS_FIRST))
    assert head.split()[0] == "nDCG@10"
    assert first.split() == ["a", "1.0000", "n", "=", "4", "4.0", "4.0"]
    # all 4 differences are -.5: of 16 patterns of signs 2 are as extreme
    assert worse.split() == [
        "b", "0.5000", "-0.5000", "[-0.5000,", "-0.5000]", "0.125", "4.0", "4.0"
    ]  # fmt: skip


def test_a_search_that_was_not_timed_has_no_latency():
    (row,) = rows(FOUND, repeats=0)
    assert row.latency is None
    assert list(ablation_lines([row]))[1].split()[-2:] == ["–", "–"]


def test_a_search_that_fails_is_reported_and_scores_0_there():
    broken = {**FOUND, "q2": ConnectionError("no answer"), "q3": ConnectionError("no answer")}
    listed = rows(FOUND, broken)
    assert (listed[1].failed, listed[1].mean) == (2, 0.5)
    assert list(ablation_lines(listed))[-1] == "! b failed on 2 queries, which score 0"
    assert len([line for line in ablation_lines(rows(FOUND, FOUND)) if line[0] == "!"]) == 0


def test_as_numbers_it_is_json():
    told = json.loads(json.dumps(ablation_dict(rows(FOUND, OTHERS_FIRST))))
    assert (told["metric"], told["compared_with"]) == ("nDCG@10", "a")
    assert [one["name"] for one in told["rows"]] == ["a", "b"]
    assert told["rows"][1]["test"]["interval"] == {"low": -0.5, "high": -0.5}
    assert told["rows"][1]["latency"]["p50"] == pytest.approx(4.0)


def test_queries_without_answers_alone_can_show_nothing():
    nothing = golden(question(1, kind="unanswerable", expected=[]))
    with pytest.raises(BlindComparisonError, match="golden"):
        rows(FOUND, asked=nothing)
