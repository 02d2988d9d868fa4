"""How a score came about and how the search went, for a person to follow in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from catalog.core.results import Contribution, Explanation, Reranked, StageReport
from catalog.interfaces.terminal.plain import one_line

_QUERY_SHOWN = 60  # characters of an expansion


@dataclass(frozen=True, slots=True)
class _Branch:
    text: str
    leaves: tuple[str, ...] = ()


def explanation_lines(explain: Explanation) -> Iterator[str]:
    """The score as a tree of its parts, six decimals each, so that the last may be a digit off."""
    reranked = explain.rerank
    lists = (*map(_list_line, explain.contributions), *_bonus(explain))
    if reranked is None:
        yield f"score {explain.score:.6f} ({explain.fusion})"
        yield from _tree([_Branch(one) for one in lists])
        return
    yield f"score {explain.score:.6f}"
    fused = (
        f"fused ({explain.fusion}) {explain.fused:.6f} → {reranked.fused_part:.6f} "
        f"of the {reranked.blend} blend"
    )
    yield from _tree([_Branch(fused, lists), _Branch(_rerank_line(reranked))])


def stage_lines(stages: Iterable[StageReport]) -> Iterator[str]:
    """One line for each step: name, status, milliseconds and note."""
    listed = list(stages)
    width = max((len(stage.name) for stage in listed), default=0)
    for stage in listed:
        note = one_line(stage.note)
        yield f"{stage.name:<{width}}  {stage.status:<7}  {stage.ms:8.1f} ms  {note}".rstrip()


def _tree(branches: Sequence[_Branch]) -> Iterator[str]:
    for number, branch in enumerate(branches, start=1):
        fork, bar = ("└─", "  ") if number == len(branches) else ("├─", "│ ")
        yield f"{fork} {branch.text}"
        yield from (f"{bar} {line}" for line in _tree([_Branch(leaf) for leaf in branch.leaves]))


def _list_line(part: Contribution) -> str:
    expansion = f", expansion {_short(part.query)}," if part.origin == "expansion" else ""
    return (
        f"{part.contribution:+.6f}  {part.leg} ({part.engine}){expansion} rank {part.rank}, "
        f"score {part.raw_score:.4f}, weight {part.weight:.4g}"
    )


def _bonus(explain: Explanation) -> tuple[str, ...]:
    return (f"{explain.bonus:+.6f}  top-rank bonus",) if explain.bonus else ()


def _rerank_line(reranked: Reranked) -> str:
    model = reranked.model.rsplit("/", 1)[-1]
    said = "not read" if reranked.raw_score is None else f"score {reranked.raw_score:.4f}"
    if reranked.relevance is not None:
        said += f", relevance {100 * reranked.relevance:.0f} %"
    return f"reranked ({model}) rank {reranked.rank} before, {said} → {reranked.rerank_part:+.6f}"


def _short(query: str) -> str:
    line = one_line(query)
    return f'"{line}"' if len(line) <= _QUERY_SHOWN else f'"{line[: _QUERY_SHOWN - 1].rstrip()}…"'
