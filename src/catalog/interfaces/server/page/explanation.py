"""Bars that explain a score and the time of a search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from catalog.interfaces.server.page.state import View

_LEGS = ("lexical", "vector")  # their stages run at the same time


def score_bars(explain: Mapping[str, Any]) -> list[View]:
    """Return groups of bars, each bar beginning where the last one ended.

    The bars of the first group add up to the fused score. If age or a reranker changed that, those
    of a second group add up to the score.
    """
    parts = [
        (
            f"{one['leg']}, rank {one['rank']}" + ", reworded" * (one["origin"] == "expansion"),
            one["contribution"],
            one["leg"],
            f"{one['engine']} score {one['raw_score']:.4g}, weight {one['weight']:.3g}"
            + ", from the list's floor in deviations" * (explain["fusion"] == "adaptive"),
        )
        for one in explain["contributions"]
    ]
    if explain["bonus"]:
        kind = "top-rank" if explain["fusion"] == "rrf" else "words"
        parts.append((f"{kind} bonus", explain["bonus"], "more", ""))
    groups = [_bars(f"score ({explain['fusion']} fusion)", parts, explain["fused"])]
    recency, rerank, parts = explain["recency"], explain["rerank"], []
    if rerank is not None:
        raw = "" if rerank["raw_score"] is None else f"{rerank['model']} {rerank['raw_score']:.4g}"
        parts += [
            (f"fused, rank {rerank['rank']}", rerank["fused_part"], "lexical", rerank["blend"]),
            ("reranker", rerank["rerank_part"], "more", raw),
        ]
    elif recency is not None:
        aged = f"half after {recency['half_life_days']:g} days"
        parts.append((f"{recency['age_days']:.0f} days old", explain["score"], "more", aged))
    return [*groups, _bars("score", parts, explain["score"])] if parts else groups


def _bars(title: str, parts: Iterable[tuple[str, float, str, str]], total: float) -> View:
    bars: list[View] = []
    at = 0.0
    for label, value, kind, note in parts:
        bars.append({"label": label, "value": value, "kind": kind, "note": note, "from": at})
        at += value
    return {"title": title, "bars": _placed(bars, "value"), "total": total}


def waterfall(stages: Iterable[Mapping[str, Any]]) -> list[View]:
    """Return a bar for each stage in order; the legs begin together, as they run together."""
    shown: list[View] = []
    at = 0.0
    for is_legs, together in groupby(stages, lambda one: one["name"] in _LEGS):
        ends = [at]
        for one in together:
            kind = one["name"] if is_legs else "more"
            shown.append({**one, "kind": kind, "from": at if is_legs else ends[-1]})
            ends.append(shown[-1]["from"] + one["ms"])
        at = max(ends)
    return _placed(shown, "ms")


def _placed(bars: list[View], length: str) -> list[View]:
    """Return the bars with place and width in percent; a bar of negative length goes back."""
    ends = [0.0, *(one["from"] + one[length] for one in bars)]
    least, width = min(ends), max(ends) - min(ends) or 1.0
    for one in bars:
        start = min(one["from"], one["from"] + one[length])
        one["x"] = round(100 * (start - least) / width, 2)
        one["width"] = round(100 * abs(one[length]) / width, 2)
    return bars
