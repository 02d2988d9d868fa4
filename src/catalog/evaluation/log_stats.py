"""Statistics of the log: times, abstentions, failures and cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from catalog.evaluation.metrics import timing
from catalog.store.log_entries import LogEntry

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_MOST = 10


def log_stats(entries: Iterable[LogEntry]) -> dict[str, Any]:
    """Return counts, percentiles, shares and sums of entries as a JSON object.

    Times are medians and 95th percentiles in milliseconds, ``null`` without a timed entry.
    ``abstained`` is the share, 0 to 1, of questions that did not fail. Reasons are counted without
    the numbers in them. Failures are counted by class, with their stage if the search still
    answered. Unanswered questions are counted by their words, or by hash if the words are not
    logged. ``cost`` is the known sum, for ``priced`` of the ``written`` answers.
    """
    entries = list(entries)
    answered = [entry for entry in entries if entry.verb != "search" and not _is_failed(entry)]
    abstained = [entry for entry in answered if entry.abstained is not None]
    written = [entry for entry in entries if entry.prompt_tokens is not None]
    priced = [entry.cost for entry in written if entry.cost is not None]
    return {
        "entries": len(entries),
        "by_verb": _count(entries, lambda entry: entry.verb),
        "by_edge": _count(entries, lambda entry: entry.edge),
        "by_model": _count(entries, lambda entry: entry.model),
        "elapsed_ms": _percentiles(entry.elapsed_ms for entry in entries),
        "retrieval_ms": _percentiles(entry.retrieval_ms for entry in entries),
        "generation_ms": _percentiles(entry.generation_ms for entry in entries),
        "abstained": len(abstained) / len(answered) if answered else None,
        "abstention_reasons": _count(
            abstained, lambda entry: _NUMBER.sub("#", entry.abstained or "")
        ),
        "abstained_queries": _count(abstained, lambda entry: entry.query or entry.query_hash),
        "failed": sum(map(_is_failed, entries)),
        "errors": dict(Counter(one for entry in entries for one in entry.errors).most_common()),
        "prompt_tokens": sum(entry.prompt_tokens or 0 for entry in written),
        "reply_tokens": sum(entry.reply_tokens or 0 for entry in written),
        "written": len(written),
        "priced": len(priced),
        "cost": sum(priced) if priced else None,
    }


def log_stats_lines(stats: Mapping[str, Any]) -> Sequence[str]:
    """Return the statistics as lines for people."""
    share = stats["abstained"]
    lines = [f"entries        {stats['entries']:,}  {_counts(stats['by_verb'])}".rstrip()]
    lines += [f"asked at       {_counts(stats['by_edge'])}"] if stats["by_edge"] else []
    for name in ("elapsed", "retrieval", "generation"):
        if times := stats[f"{name}_ms"]:
            lines.append(f"{name:14} p50 {times['p50']:,.0f} ms, p95 {times['p95']:,.0f} ms")
    if share is not None:
        lines.append(f"not answered   {share:.1%} of questions")
        lines += _listed("  reason", stats["abstention_reasons"])
        lines += _listed("  asked", stats["abstained_queries"])
    if stats["errors"]:
        lines.append(f"failed         {stats['failed']:,} without an answer")
        lines += _listed("  error", stats["errors"])
    if stats["written"]:
        prompt, reply = stats["prompt_tokens"], stats["reply_tokens"]
        lines.append(f"tokens         {prompt:,} of prompts, {reply:,} of replies")
        cost = "unknown: set IDX_LLM__PRICES"
        if stats["cost"] is not None:
            cost = f"{stats['cost']:,.4f} for {stats['priced']:,} of {stats['written']:,} answers"
        lines.append(f"cost           {cost}")
    return lines


def _is_failed(entry: LogEntry) -> bool:
    """Return whether an entry has neither an answer nor a result."""
    return entry.retrieval_ms is None


def _count(entries: Iterable[LogEntry], what: Callable[[LogEntry], str | None]) -> dict[str, int]:
    counts = Counter(what(entry) for entry in entries)
    return {name: count for name, count in counts.most_common() if name is not None}


def _percentiles(milliseconds: Iterable[float | None]) -> dict[str, float] | None:
    times = timing(ms for ms in milliseconds if ms is not None)
    return None if times is None else {"p50": round(times.p50, 3), "p95": round(times.p95, 3)}


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _listed(what: str, counts: Mapping[str, int]) -> list[str]:
    """Return the most frequent items as lines."""
    some = list(counts.items())[:_MOST]
    return [f"{what:15}{count:>6,}  {' '.join(name.split())}" for name, count in some]
