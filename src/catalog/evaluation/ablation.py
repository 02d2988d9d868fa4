"""Ablation: compare the plain hybrid search with versions in which one stage differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from catalog.core.errors import BlindComparisonError, CatalogError
from catalog.core.settings import Settings
from catalog.core.text import counted
from catalog.evaluation.golden import GoldenSet
from catalog.evaluation.metrics import PRIMARY, Timing, score_run
from catalog.evaluation.runs import Allowed, BackendRun
from catalog.evaluation.significance import PairedTest, paired_test

if TYPE_CHECKING:
    from catalog.library.library import Library

_PLAIN = {
    "rerank_enabled": "false",
    "expansion_enabled": "false",
    "chunk_selection": "fused",
    "similarity_threshold": "0",
    "token_budget": "0",
    "router_enabled": "false",
}
Variants = Mapping[str, str]
"""What ``Backends.load`` takes, by names for people; the first is compared with the others."""


@dataclass(frozen=True, slots=True)
class AblationRow:
    """One variant compared with the plain hybrid search; ``latency`` in milliseconds."""

    name: str
    mean: float
    test: PairedTest
    latency: Timing | None
    failed: int


def build_variants(settings: Settings) -> Variants:
    """Build the plain hybrid search first, then one configuration for each stage.

    All other settings stay. Expansion is included only with a language model.
    """
    variants: dict[str, tuple[str, dict[str, str]]] = {
        "hybrid": ("v2", {}),
        "lexical leg alone": ("lexical", {}),
        "vector leg alone": ("vector", {}),
        "fusion rrf": ("v2", {"fusion_mode": "rrf"}),
        "fusion relative_score": ("v2", {"fusion_mode": "relative_score"}),
        "best chunk by keywords": ("v2", {"chunk_selection": "keyword"}),
        "+ router": ("v2", {"router_enabled": "true"}),
        "+ rerank": ("v2", {"rerank_enabled": "true"}),
    }
    if settings.llm.provider != "none":
        expansion = {"expansion_enabled": "true"}
        variants["+ expansion"] = ("v2", expansion)
        variants["+ expansion + rerank"] = ("v2", {**expansion, "rerank_enabled": "true"})
    return {
        name: f"{base}:" + ",".join(f"{key}={value}" for key, value in (_PLAIN | changes).items())
        for name, (base, changes) in variants.items()
    }


def available_variants(library: Library, variants: Variants) -> tuple[Variants, dict[str, str]]:
    """Return the configurations whose models are installed; by name, why the rest cannot run."""
    problems = {
        "rerank_enabled=true": _try_model(lambda: _reranker_fingerprint(library)),
        "expansion_enabled=true": _try_model(lambda: library.llm),
    }
    left_out = {
        name: problem
        for name, spec in variants.items()
        for setting, problem in problems.items()
        if problem and setting in spec
    }
    return {name: spec for name, spec in variants.items() if name not in left_out}, left_out


def _reranker_fingerprint(library: Library) -> str:
    from catalog.retrieval.search_parts import SearchParts

    return SearchParts(library).reranker.fingerprint


def _try_model(use: Callable[[], object]) -> str:
    """Return why a model cannot be used, "" if it can."""
    try:
        use()
    except CatalogError as error:
        return str(error)
    return ""


def score_variants(
    names: Sequence[str],
    runs: Sequence[BackendRun],
    golden: GoldenSet,
    allowed: Allowed | None = None,
) -> list[AblationRow]:
    """Score every variant's run and test it against the first.

    Raises :class:`BlindComparisonError` when no query has an answer.
    """
    if not golden.answerable:
        raise BlindComparisonError("no query of the golden set has an answer")
    all_scores = [score_run(run, golden, allowed) for run in runs]
    ids = [query.id for query in golden.answerable]
    columns = [[scores.per_query[PRIMARY][query] for query in ids] for scores in all_scores]
    return [
        AblationRow(
            name,
            scores.means[PRIMARY],
            paired_test(columns[0], column),
            scores.latency,
            scores.failed,
        )
        for name, scores, column in zip(names, all_scores, columns, strict=True)
    ]


def ablation_lines(rows: Sequence[AblationRow]) -> Iterator[str]:
    """Yield a table for a terminal; the first row is the baseline."""
    yield f"{'':26}{PRIMARY:>8}  {'difference, 95 % interval':26}{'p':>6}{'p50 ms':>9}{'p95 ms':>9}"
    for number, row in enumerate(rows):
        test = row.test
        ends = f"{test.difference:+.4f} [{test.interval.low:+.4f}, {test.interval.high:+.4f}]"
        p = "<.001" if test.p < 0.001 else f"{test.p:.3f}"
        result = f"{ends:26}{p:>6}" if number else f"{f'n = {test.n}':26}{'':>6}"
        ms = f"{row.latency.p50:9.1f}{row.latency.p95:9.1f}" if row.latency else f"{'–':>9}{'–':>9}"
        yield f"{row.name:26}{row.mean:8.4f}  {result}{ms}"
        if row.failed:
            yield f"! {row.name} failed on {counted(row.failed, 'query')}, which score 0"


def ablation_dict(rows: Sequence[AblationRow]) -> dict[str, Any]:
    """Return the same as numbers."""
    return {"metric": PRIMARY, "compared_with": rows[0].name, "rows": [asdict(row) for row in rows]}
