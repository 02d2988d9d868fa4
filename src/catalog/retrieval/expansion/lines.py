"""Read the lines of an expansion from a model's reply, and decide which are worth a search."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast, get_args

from catalog.core.query import SubQueryKind
from catalog.store.lexical.analysis import Analyzer

LONGEST: Mapping[SubQueryKind, tuple[int, int]] = {
    "lex": (12, 120),
    "vec": (40, 300),
    "hyde": (200, 1500),
}
"""Words and characters that a line of each kind may have."""
_KINDS: tuple[SubQueryKind, ...] = get_args(SubQueryKind)
_LONGEST_REPLY = 20_000  # characters of a reply that are read
_LINE = re.compile(
    r"[\W_]{0,12}(?:\d{1,2}[\W_]{1,6})?(lex|vec|hyde)(?:\s?\d{1,2})?[\W_]{0,4}?[:\uff1a](.*)",
    re.IGNORECASE,
)
_QUOTES = {
    '"': '"',
    "'": "'",
    "`": "`",
    "\u201c": "\u201d",
    "\u2018": "\u2019",
    "\u00ab": "\u00bb",
}
# Two letters of a script that puts no spaces between words count as a word.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]"
)
_SHORTEST: Mapping[SubQueryKind, int] = {"lex": 1, "vec": 2, "hyde": 4}
_LABEL = re.compile(r"\b(?:lex|vec|hyde)\s*:", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"<[^\W\d_][\w -]{0,40}>")
_ABOUT_ITSELF = re.compile(
    r"as an ai|as a language model|i (?:cannot|can't|am sorry|am unable)|i'm (?:sorry|unable)"
    r"|sorry,|here (?:are|is)\b|here's\b|sure\b(?!-)|certainly\b"
)
_TOLD = 80  # characters of a dropped line in a report
_LEAK_WORDS = 3  # a line of fewer words may stand in the prompt by chance
_LEAK_RUN = 5  # this many words in a row are no coincidence


@dataclass(frozen=True, slots=True)
class ExpansionLine:
    """Another thing to search for: words, a question, or a passage that might answer the query."""

    kind: SubQueryKind
    text: str


def one_line(text: str) -> str:
    """Return the printable text with single spaces, without control and format characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def parse_lines(reply: str) -> list[ExpansionLine]:
    """Read the lines of a reply in order; skip lines of unknown form, and never raise.

    A line is ``lex:``, ``vec:`` or ``hyde:`` in any case followed by a text. Bullets, numbers, bold
    marks and quotes are removed. JSON, also inside other text, may be an object with these keys, or
    a list of objects with ``kind`` and ``text``.
    """
    reply = reply[:_LONGEST_REPLY]
    return _parse_json(reply) or [line for raw in reply.splitlines() for line in _parse_line(raw)]


def _parse_line(raw: str) -> Iterator[ExpansionLine]:
    match = _LINE.match(raw)
    if match is None:
        return
    text = _strip_marks(match[2])
    if text and text[0] not in "[{":  # a fragment of truncated JSON
        yield ExpansionLine(cast(SubQueryKind, match[1].lower()), text)


def _strip_marks(text: str) -> str:
    """Remove emphasis marks around a text, and quotes if one pair encloses all of it."""
    text = one_line(text).strip("*_ ")
    if text.endswith(('",', "',")):
        text = text[:-1]
    while len(text) > 1 and _QUOTES.get(text[0]) == text[-1]:
        inner = text[1:-1]
        if text[0] in inner or text[-1] in inner:
            break
        text = inner.strip("*_ ")
    return text


def _parse_json(reply: str) -> list[ExpansionLine]:
    for opening, closing in ("{}", "[]"):
        start, end = reply.find(opening), reply.rfind(closing)
        if start < 0 or end < start:
            continue
        try:
            value = json.loads(reply[start : end + 1])
        except (ValueError, RecursionError):
            continue
        items = value if isinstance(value, list) else [value]
        lines = [line for item in items for line in _parse_item(item)]
        if lines:
            return lines
    return []


def _parse_item(item: Any) -> Iterator[ExpansionLine]:
    if isinstance(item, str):
        yield from _parse_line(item)
    if not isinstance(item, Mapping):
        return
    texts = {key.strip().lower(): text for key, text in item.items()}
    kind = texts.get("kind", texts.get("type"))
    if isinstance(kind, str):
        texts = {kind.strip().lower(): texts.get("text")}
    for key, entry in texts.items():
        for text in entry if isinstance(entry, list) else [entry]:
            if key in _KINDS and isinstance(text, str) and _strip_marks(text):
                yield ExpansionLine(key, _strip_marks(text))


def filter_lines(
    lines: Iterable[ExpansionLine],
    query: str,
    *,
    analyzer: Analyzer,
    lex_max: int,
    vec_max: int,
    hyde_max: int,
    prompt: str,
) -> tuple[list[ExpansionLine], list[tuple[ExpansionLine, str]]]:
    """Return the lines to search, and the dropped lines, each with its reason.

    Reasons: ``instructions`` (labels, placeholders, the model talking about itself, a line of 3 or
    4 words or 5 words in a row that are in ``prompt`` but not in the query), ``too long``
    (:data:`LONGEST`), ``too short`` (under 2 words for vec unless the query is that short, 4 for
    hyde), ``echo`` (the query again), ``nothing new`` (only tokens of the query), ``no query term``
    (a lex line without any), ``duplicate`` (also a hyde line equal to a vec line), ``too many``.
    """
    check = _LineCheck(query, analyzer, prompt)
    room = {"lex": lex_max, "vec": vec_max, "hyde": hyde_max}
    kept: list[ExpansionLine] = []
    dropped: list[tuple[ExpansionLine, str]] = []
    seen: set[Hashable] = set()
    for raw in lines:
        line = ExpansionLine(raw.kind, one_line(raw.text))
        meaning = check.meaning(line)
        reason = check.objection(line)
        if reason is None and meaning in seen:
            reason = "duplicate"
        if reason is None and room[line.kind] <= 0:
            reason = "too many"
        if reason is not None:
            dropped.append((line, reason))
            continue
        seen.add(meaning)
        room[line.kind] -= 1
        kept.append(line)
    return kept, dropped


def describe_dropped(lines: Iterable[tuple[ExpansionLine, str]]) -> str:
    """Return ``dropped: vec "the line" (its reason), …``, long lines cut; "" without any."""
    told = [f'{line.kind} "{_shorten(line.text)}" ({reason})' for line, reason in lines]
    return f"dropped: {', '.join(told)}" if told else ""


def _shorten(text: str) -> str:
    return text if len(text) <= _TOLD else f"{text[: _TOLD - 1].rstrip()}…"


class _LineCheck:
    """The check of lines for one query."""

    def __init__(self, query: str, analyzer: Analyzer, prompt: str) -> None:
        self._query, self._analyzer = query, analyzer
        self._plain_query, self._plain_prompt = _normalise(query), _normalise(prompt)
        self._query_tokens = frozenset(analyzer.tokens(query))

    def objection(self, line: ExpansionLine) -> str | None:
        """Return why the line is not worth a search, regardless of other lines."""
        words, characters = LONGEST[line.kind]
        count, plain = count_words(line.text), _normalise(line.text)
        tokens, of_query = self._tokens(line), self._query_tokens
        if self._is_leak(line.text):
            return "instructions"
        if count > words or len(line.text) > characters:
            return "too long"
        if count < self._shortest(line.kind) or plain == "":
            return "too short"
        if plain == self._plain_query or (line.kind == "lex" and of_query and tokens == of_query):
            return "echo"
        if line.kind == "lex" and of_query and not of_query & tokens:
            return "no query term"
        if of_query and tokens <= of_query:
            return "nothing new"
        return None

    def meaning(self, line: ExpansionLine) -> Hashable:
        """Return a key that is equal for lines with the same results in the same leg."""
        if line.kind == "lex":
            return "lex", self._tokens(line) or _normalise(line.text)
        return "vec", _normalise(line.text)

    def _tokens(self, line: ExpansionLine) -> frozenset[str]:
        return frozenset(self._analyzer.tokens(line.text))

    def _shortest(self, kind: SubQueryKind) -> int:
        least = _SHORTEST[kind]
        return min(least, max(1, count_words(self._query))) if kind == "vec" else least

    def _is_leak(self, text: str) -> bool:
        folded, query = text.casefold(), self._query.casefold()
        placeholders = (match.casefold() for match in _PLACEHOLDER.findall(text))
        if _LABEL.search(text) or any(match not in query for match in placeholders):
            return True
        if _is_about_itself(folded) and not _is_about_itself(query):
            return True
        return self._repeats_prompt(_normalise(text).split())

    def _repeats_prompt(self, words: list[str]) -> bool:
        length = min(len(words), _LEAK_RUN)
        if length < _LEAK_WORDS:
            return False
        prompt, query = f" {self._plain_prompt} ", f" {self._plain_query} "
        starts = range(len(words) - length + 1)
        runs = (f" {' '.join(words[start : start + length])} " for start in starts)
        return any(run in prompt and run not in query for run in runs)


def _is_about_itself(folded: str) -> bool:
    return _ABOUT_ITSELF.match(folded.replace("\u2019", "'")) is not None


def _normalise(text: str) -> str:
    """Return the text in NFKC, case folded, without punctuation, with single spaces."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    plain = (" " if unicodedata.category(char)[0] in "PZC" else char for char in folded)
    return " ".join("".join(plain).split())


def count_words(text: str) -> int:
    """Count words between spaces; in scripts without spaces two letters count as a word."""
    return len(text.split()) + len(_UNSPACED.findall(text)) // 2
