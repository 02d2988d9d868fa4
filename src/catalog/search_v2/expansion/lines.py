"""Which lines of a language model are worth asking: a small model repeats, rambles and leaks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from catalog.core.query import Kind
from catalog.search_v2.expansion.parsing import parse_lines
from catalog.search_v2.expansion.text import ExpansionLine, normalised, one_line, word_count
from catalog.store.lexical.analysis import Analyzer

__all__ = ["LONGEST", "ExpansionLine", "kept_lines", "parse_lines"]

LONGEST: Mapping[Kind, tuple[int, int]] = {"lex": (12, 120), "vec": (40, 300), "hyde": (200, 1500)}
"""Words and characters that a line of each kind may have."""
_SHORTEST: Mapping[Kind, int] = {"lex": 1, "vec": 2, "hyde": 4}
_LABEL = re.compile(r"\b(?:lex|vec|hyde)\s*:", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"<[^\W\d_][\w -]{0,40}>")
_ABOUT_ITSELF = re.compile(
    r"as an ai|as a language model|i (?:cannot|can't|am sorry|am unable)|i'm (?:sorry|unable)"
    r"|sorry,|here (?:are|is)\b|here's\b|sure\b(?!-)|certainly\b"
)
_LEAK_WORDS = 3  # a line of fewer words may stand in the prompt by chance
_LEAK_RUN = 5  # so many words in a row of a longer line stand there by no chance


def kept_lines(
    lines: Iterable[ExpansionLine],
    query: str,
    *,
    analyzer: Analyzer,
    lex_max: int,
    vec_max: int,
    hyde_max: int,
    prompt: str,
) -> tuple[list[ExpansionLine], dict[str, int]]:
    """The lines to ask, on one printable line each, and how many were dropped for which reason.

    Reasons: ``instructions`` (labels, placeholders, talk about itself, a line of 3 or 4 words or
    5 words in a row that stand in ``prompt`` but not in the query), ``too long``
    (:data:`LONGEST`), ``too short`` (under 2 words for vec unless the query is that short, 4 for
    hyde), ``echo`` (the query again), ``nothing new`` (only tokens of the query), ``no query
    term`` (a lex line without any of them), ``duplicate`` (also of a vec line as hyde), ``too
    many``.
    """
    asked = _Query(query, analyzer, normalised(prompt))
    room = {"lex": lex_max, "vec": vec_max, "hyde": hyde_max}
    kept: list[ExpansionLine] = []
    dropped: Counter[str] = Counter()
    seen: set[tuple[str, Collection[str]]] = set()
    for line in lines:
        line = ExpansionLine(line.kind, one_line(line.text))
        meaning = ("lex" if line.kind == "lex" else "vec", asked.meaning(line))
        reason = asked.objection(line)
        if reason is None and meaning in seen:
            reason = "duplicate"
        if reason is None and room[line.kind] <= 0:
            reason = "too many"
        if reason is not None:
            dropped[reason] += 1
            continue
        seen.add(meaning)
        room[line.kind] -= 1
        kept.append(line)
    return kept, dict(dropped)


@dataclass(frozen=True, slots=True)
class _Query:
    """A query as lines are measured by it; ``prompt`` is normalised."""

    text: str
    analyzer: Analyzer
    prompt: str
    plain: str = field(init=False)
    tokens: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plain", normalised(self.text))
        object.__setattr__(self, "tokens", frozenset(self.analyzer.tokens(self.text)))

    def objection(self, line: ExpansionLine) -> str | None:
        """Why the line is not worth asking, whatever the other lines are."""
        words, characters = LONGEST[line.kind]
        count = word_count(line.text)
        if self._is_leak(line.text):
            return "instructions"
        if count > words or len(line.text) > characters:
            return "too long"
        if count < self._shortest(line.kind) or normalised(line.text) == "":
            return "too short"
        if self._is_echo(line):
            return "echo"
        if line.kind == "lex" and self.tokens and not self.tokens & self._tokens(line):
            return "no query term"
        if self.tokens and self._tokens(line) <= self.tokens:
            return "nothing new"
        return None

    def meaning(self, line: ExpansionLine) -> Collection[str]:
        """Equal for lines of a kind that find the same."""
        return (self._tokens(line) if line.kind == "lex" else None) or normalised(line.text)

    def _tokens(self, line: ExpansionLine) -> frozenset[str]:
        return frozenset(self.analyzer.tokens(line.text))

    def _shortest(self, kind: Kind) -> int:
        least = _SHORTEST[kind]
        return min(least, max(1, word_count(self.text))) if kind == "vec" else least

    def _is_echo(self, line: ExpansionLine) -> bool:
        same_words = line.kind == "lex" and bool(self.tokens) and self._tokens(line) == self.tokens
        return same_words or normalised(line.text) == self.plain

    def _is_leak(self, text: str) -> bool:
        if _LABEL.search(text) or self._has_placeholder(text):
            return True
        spoken, asked = (one.casefold().replace("\u2019", "'") for one in (text, self.text))
        if _ABOUT_ITSELF.match(spoken) and not _ABOUT_ITSELF.match(asked):
            return True
        return self._repeats_prompt(normalised(text).split())

    def _repeats_prompt(self, words: list[str]) -> bool:
        length = min(len(words), _LEAK_RUN)
        if length < _LEAK_WORDS:
            return False
        starts = range(len(words) - length + 1)
        runs = (f" {' '.join(words[start : start + length])} " for start in starts)
        return any(run in f" {self.prompt} " and run not in f" {self.plain} " for run in runs)

    def _has_placeholder(self, text: str) -> bool:
        asked = self.text.casefold()
        return any(found.casefold() not in asked for found in _PLACEHOLDER.findall(text))
