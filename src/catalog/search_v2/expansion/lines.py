"""Lines of an expansion: reading them out of a model's reply, and which are worth asking."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from catalog.core.query import SubQueryKind
from catalog.store.lexical.analysis import Analyzer

KINDS: tuple[SubQueryKind, ...] = get_args(SubQueryKind)
# Two letters of a script that puts no spaces between words count as a word.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]"
)


@dataclass(frozen=True, slots=True)
class ExpansionLine:
    """One thing to ask beside the query: words, a question, or a passage that might answer it."""

    kind: SubQueryKind
    text: str


def one_line(text: str) -> str:
    """Printable text with single spaces; control, format and unassigned characters go."""
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def normalised(text: str) -> str:
    """NFKC, case folded, without punctuation, single spaces: equal for texts that say the same."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    plain = (" " if unicodedata.category(one)[0] in "PZC" else one for one in folded)
    return " ".join("".join(plain).split())


def word_count(text: str) -> int:
    """Words between spaces, plus one for every two letters of scripts without spaces."""
    return len(text.split()) + len(_UNSPACED.findall(text)) // 2


_LONGEST = 20_000  # characters of a reply that are read
_LINE = re.compile(
    r"[\W_]{0,12}(?:\d{1,2}[\W_]{1,6})?(lex|vec|hyde)(?:\s?\d{1,2})?[\W_]{0,4}?[:\uff1a](.*)",
    re.IGNORECASE,
)
_PAIRS = {'"': '"', "'": "'", "`": "`", "\u201c": "\u201d", "\u2018": "\u2019", "\u00ab": "\u00bb"}


def parse_lines(reply: str) -> list[ExpansionLine]:
    """The lines of a reply in their order; never raises, and what has no known form is left out.

    A line is ``lex:``, ``vec:`` or ``hyde:`` in any case and a text, behind bullets, numbers or
    bold marks, its quotes taken off. JSON, alone or between other text, is an object with these
    keys, or a list of objects with ``kind`` and ``text``.
    """
    reply = reply[:_LONGEST]
    return _from_json(reply) or [line for raw in reply.splitlines() for line in _from_line(raw)]


def _from_line(raw: str) -> Iterator[ExpansionLine]:
    match = _LINE.match(raw)
    if match is None:
        return
    text = _bare(match[2])
    if text and text[0] not in "[{":  # what is left of JSON cut short
        yield ExpansionLine(cast(SubQueryKind, match[1].lower()), text)


def _bare(text: str) -> str:
    """Without emphasis marks around it, and without quotes when one pair holds all of it."""
    text = one_line(text).strip("*_ ")
    if text.endswith(('",', "',")):
        text = text[:-1]
    while len(text) > 1 and _PAIRS.get(text[0]) == text[-1]:
        inner = text[1:-1]
        if text[0] in inner or text[-1] in inner:
            break
        text = inner.strip("*_ ")
    return text


def _from_json(reply: str) -> list[ExpansionLine]:
    for opening, closing in ("{}", "[]"):
        start, end = reply.find(opening), reply.rfind(closing)
        if start < 0 or end < start:
            continue
        try:
            read = json.loads(reply[start : end + 1])
        except (ValueError, RecursionError):
            continue
        lines = list(_from_value(read))
        if lines:
            return lines
    return []


def _from_value(value: Any) -> Iterator[ExpansionLine]:
    if isinstance(value, list):
        for item in value:
            if isinstance(item, str):
                yield from _from_line(item)
            elif isinstance(item, Mapping):
                yield from _from_object(item)
    elif isinstance(value, Mapping):
        yield from _from_object(value)


def _from_object(value: Mapping[str, Any]) -> Iterator[ExpansionLine]:
    named = {key.strip().lower(): item for key, item in value.items()}
    kind = named.get("kind", named.get("type"))
    if isinstance(kind, str):
        named = {kind.strip().lower(): named.get("text")}
    for key, item in named.items():
        if key not in KINDS:
            continue
        for text in item if isinstance(item, list) else [item]:
            if isinstance(text, str) and _bare(text):
                yield ExpansionLine(key, _bare(text))


__all__ = ["LONGEST", "ExpansionLine", "filter_lines", "parse_lines"]

LONGEST: Mapping[SubQueryKind, tuple[int, int]] = {
    "lex": (12, 120),
    "vec": (40, 300),
    "hyde": (200, 1500),
}
"""Words and characters that a line of each kind may have."""
_SHORTEST: Mapping[SubQueryKind, int] = {"lex": 1, "vec": 2, "hyde": 4}
_LABEL = re.compile(r"\b(?:lex|vec|hyde)\s*:", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"<[^\W\d_][\w -]{0,40}>")
_ABOUT_ITSELF = re.compile(
    r"as an ai|as a language model|i (?:cannot|can't|am sorry|am unable)|i'm (?:sorry|unable)"
    r"|sorry,|here (?:are|is)\b|here's\b|sure\b(?!-)|certainly\b"
)
_LEAK_WORDS = 3  # a line of fewer words may stand in the prompt by chance
_LEAK_RUN = 5  # so many words in a row of a longer line stand there by no chance


def filter_lines(
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

    def _shortest(self, kind: SubQueryKind) -> int:
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
