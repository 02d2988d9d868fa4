"""What each stage is worth: the plain hybrid search, with one stage more or other at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from catalog.core.errors import BlindComparisonError, CatalogError
from catalog.core.settings import Settings
from catalog.evaluation.golden import GoldenSet
from catalog.evaluation.metrics import PRIMARY, Allowed, Timing, score_run
from catalog.evaluation.runs import BackendRun
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


@dataclass(frozen=True, slots=True)
class Variant:
    """A search under a name for people; ``spec`` is what ``Backends.load`` takes."""

    name: str
    spec: str


@dataclass(frozen=True, slots=True)
class AblationRow:
    """One variant against the plain hybrid search; ``latency`` in milliseconds."""

    name: str
    mean: float
    test: PairedTest
    latency: Timing | None
    failed: int


def build_variants(settings: Settings) -> list[Variant]:
    """The plain hybrid search first, then every other; expansion only with a language model.

    All other settings are as they are.
    """
    chosen = [
        ("hybrid", "v2", {}),
        ("lexical leg alone", "lexical", {}),
        ("vector leg alone", "vector", {}),
        ("fusion rrf", "v2", {"fusion_mode": "rrf"}),
        ("fusion relative_score", "v2", {"fusion_mode": "relative_score"}),
        ("best chunk by keywords", "v2", {"chunk_selection": "keyword"}),
        ("+ router", "v2", {"router_enabled": "true"}),
        ("+ rerank", "v2", {"rerank_enabled": "true"}),
    ]
    if settings.llm.provider != "none":
        model = {"expansion_enabled": "true"}
        chosen.append(("+ expansion", "v2", model))
        chosen.append(("+ expansion + rerank", "v2", {**model, "rerank_enabled": "true"}))
    return [Variant(name, _spec(base, changes)) for name, base, changes in chosen]


def available_variants(
    library: Library, variants: Sequence[Variant]
) -> tuple[list[Variant], dict[str, str]]:
    """Those whose models can be had here, and by name why the others cannot be asked."""
    missing = {
        "rerank_enabled=true": _why_not(lambda: library.reranker.fingerprint),
        "expansion_enabled=true": _why_not(lambda: library.llm),
    }
    left_out = {
        variant.name: why
        for variant in variants
        for setting, why in missing.items()
        if why and setting in variant.spec
    }
    return [one for one in variants if one.name not in left_out], left_out


def score_variants(
    variants: Sequence[Variant],
    runs: Sequence[BackendRun],
    golden: GoldenSet,
    allowed: Allowed | None = None,
) -> list[AblationRow]:
    """Every run scored and tested against the first.

    Raises :class:`BlindComparisonError` when no query has an answer.
    """
    if not golden.answerable:
        raise BlindComparisonError("no query of the golden set has an answer to be found")
    scored = [score_run(run, golden, allowed) for run in runs]
    ids = [query.id for query in golden.answerable]
    columns = [[one.per_query[PRIMARY][name] for name in ids] for one in scored]
    return [
        AblationRow(
            variant.name,
            one.means[PRIMARY],
            paired_test(columns[0], column),
            one.latency,
            one.failed,
        )
        for variant, one, column in zip(variants, scored, columns, strict=True)
    ]


def ablation_lines(rows: Sequence[AblationRow]) -> Iterator[str]:
    """A table for a terminal; the first row is what the others are compared with."""
    yield f"{'':26}{PRIMARY:>8}  {'difference, 95 % interval':26}{'p':>6}{'p50 ms':>9}{'p95 ms':>9}"
    for number, row in enumerate(rows):
        test = row.test
        ends = f"{test.difference:+.4f} [{test.interval.low:+.4f}, {test.interval.high:+.4f}]"
        p = "<.001" if test.p < 0.001 else f"{test.p:.3f}"
        told = f"{ends:26}{p:>6}" if number else f"{f'n = {test.n}':26}{'':>6}"
        ms = f"{row.latency.p50:9.1f}{row.latency.p95:9.1f}" if row.latency else f"{'–':>9}{'–':>9}"
        yield f"{row.name:26}{row.mean:8.4f}  {told}{ms}"
        if row.failed:
            yield f"! {row.name} failed on {row.failed} queries, which score 0"


def ablation_dict(rows: Sequence[AblationRow]) -> dict[str, Any]:
    """The same as numbers."""
    return {"metric": PRIMARY, "compared_with": rows[0].name, "rows": [asdict(row) for row in rows]}


def _why_not(use: Callable[[], object]) -> str:
    try:
        use()
    except CatalogError as error:
        return str(error)
    return ""


def _spec(base: str, changes: dict[str, str]) -> str:
    return f"{base}:" + ",".join(f"{name}={value}" for name, value in (_PLAIN | changes).items())
