"""Other words for a query: ask a language model, read its lines, and keep those worth a search.

The examples in the prompt are on subjects that hardly any collection has, so that a reply that
repeats them is recognised. The query comes last, because models cache the text before it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Protocol, get_args

from pydantic import BaseModel, Field

from catalog.core.bounded_calls import BoundedCalls
from catalog.core.errors import CatalogError, LLMError
from catalog.core.query import SubQueryKind
from catalog.embedding.encoder import make_fingerprint
from catalog.llm import LanguageModel, complete
from catalog.store.lexical.analysis import Analyzer
from catalog.store.llm_cache import CacheEntry, cache_key

if TYPE_CHECKING:
    from catalog.core.settings import RAGv2Settings
    from catalog.store.llm_cache import ModelCache

PROMPT = """\
Rewrite a search query so that a search engine finds passages that word it differently.
Write 1 to 3 lines that start with lex: and hold a few key words, names or synonyms,
1 to 3 lines that start with vec: and hold a rephrased question,
and at most one line that starts with hyde: and holds one or two sentences of a passage that
would answer it. Stay with the subject of the query. Write nothing else.

Query: cuckoo clock bellows squeak
lex: cuckoo clock bellows noise
lex: cuckoo clock lubrication
vec: why does a cuckoo clock squeak when the bird calls
hyde: A squeak of the cuckoo comes from dry bellow hinges. A little graphite silences them.

Query: how often to rosin a hurdy-gurdy wheel
lex: hurdy-gurdy wheel rosin interval
vec: when does the wheel of a hurdy-gurdy need fresh rosin
vec: rosining schedule for hurdy-gurdy players

Query: {query}
"""
# Least words, most words and most characters of a line. A vec line may be as short as the query.
LENGTHS: Mapping[SubQueryKind, tuple[int, int, int]] = {
    "lex": (1, 12, 120),
    "vec": (2, 40, 300),
    "hyde": (4, 200, 1500),
}
MOST: Mapping[SubQueryKind, int] = {"lex": 3, "vec": 3, "hyde": 1}  # lines of one expansion
_KINDS: tuple[SubQueryKind, ...] = get_args(SubQueryKind)
_ANALYZER = Analyzer()
_ABANDONED = 2  # hanging calls; with more, the source is not asked until one of them ends
_LONGEST_REPLY = 20_000  # characters of a reply that are read
_TOLD = 80  # characters of a dropped line in a report
_LEAK_WORDS = 3  # a line of fewer words may stand in the prompt by chance
_LEAK_RUN = 5  # this many words in a row are no coincidence
_LINE = re.compile(
    r"[\W_]{0,12}(?:\d{1,2}[\W_]{1,6})?(lex|vec|hyde)(?:\s?\d{1,2})?[\W_]{0,4}?[:\uff1a](.*)",
    re.IGNORECASE,
)
_QUOTES = dict(zip("\"'`\u201c\u2018\u00ab", "\"'`\u201d\u2019\u00bb", strict=True))
# Two letters of a script that puts no spaces between words count as a word.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]"
)
_LABEL = re.compile(r"\b(?:lex|vec|hyde)\s*:", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"<[^\W\d_][\w -]{0,40}>")
_ABOUT_ITSELF = re.compile(
    r"as an ai|as a language model|i (?:cannot|can['’]t|am sorry|am unable)|i['’]m (?:sorry|unable)"
    r"|sorry,|here (?:are|is)\b|here['’]s\b|sure\b(?!-)|certainly\b"
)


@dataclass(frozen=True, slots=True)
class ExpansionLine:
    """Another thing to search for: words, a question, or a passage that might answer the query."""

    kind: SubQueryKind
    text: str


Dropped = tuple[ExpansionLine, str]  # a line that is not searched, and the reason


class ExpansionReply(BaseModel):
    """Other wordings of a search query."""

    lex: list[str] = Field(description="1 to 3 short lists of key words, names or synonyms.")
    vec: list[str] = Field(description="1 to 3 rephrased questions.")
    hyde: str | None = Field(
        None, description="One or two sentences of a passage that would answer the query."
    )


class ExpansionSource(Protocol):
    """A source of other words for a query; it may be slow, be wrong, or raise.

    Sources of the same ``fingerprint`` share cached replies. Lines that repeat the ``prompt`` are
    recognised.
    """

    name: str  # for explanations
    fingerprint: str
    prompt: str

    def expand(self, query: str) -> list[ExpansionLine]:
        """Ask for unchecked lines; raises whatever the model raises."""


class LexVecSource:
    """Asks a language model for lex, vec and hyde lines; ``prompt`` has a place for ``{query}``.

    A model that takes a schema is asked for it, and again in plain text if that fails; any other
    reply is read as far as it can be.
    """

    def __init__(self, llm: LanguageModel, prompt: str = PROMPT) -> None:
        self._llm, self.name, self.prompt = llm, llm.name, prompt
        self.fingerprint = make_fingerprint("lines", llm.identity, prompt)

    def expand(self, query: str) -> list[ExpansionLine]:
        """Ask for lex, vec and hyde lines."""
        asked = self.prompt.replace("{query}", one_line(query))
        filled: list[ExpansionLine] = []
        if getattr(self._llm, "takes_schema", False):
            with suppress(Exception):  # models fail here in every way; plain text is next
                filled = parse_lines(complete(self._llm, asked, schema=ExpansionReply))
        return filled or parse_lines(complete(self._llm, asked))


class Expander:
    """Ask one source for lines within a time limit; safe to share between threads."""

    def __init__(self, source: ExpansionSource, cache: ModelCache, rag: RAGv2Settings) -> None:
        self._source, self._cache, self._rag = source, cache, rag
        self._calls = BoundedCalls(_ABANDONED)

    def expand(self, query: str) -> tuple[list[ExpansionLine], list[Dropped], str]:
        """Return the lines to search, the others, and their source; raise one of our errors."""
        source, seconds = self._source, self._rag.expansion_timeout_ms / 1000
        plain = " ".join(unicodedata.normalize("NFKC", query).casefold().split())
        try:
            identity = source.fingerprint
            key = cache_key("expansion", plain, identity)
            if cached := self._cache.get([key]).get(key):
                lines = [ExpansionLine(**line) for line in json.loads(cached)]
            else:
                lines = self._calls.call(lambda: source.expand(query), seconds)
        except (CatalogError, KeyboardInterrupt):
            raise
        except BaseException as error:  # whatever the source's code raises, even an exit
            name = type(source).__name__
            raise LLMError(f"{name}: {type(error).__name__}: {error}") from error
        if lines and not cached:
            entry = CacheEntry(json.dumps([asdict(line) for line in lines]), None)
            self._cache.put({key: entry}, model=identity)
        kept, dropped = filter_lines(lines, query, source.prompt)
        return kept, dropped, f"{source.name}{' (cached)' if cached else ''}"


def explain_strong_signal(scores: Sequence[float], *, score: float, gap: float) -> str:
    """Explain why the best lexical hit makes expansion unnecessary; "" if it does not.

    BM25 scores are mapped to 0-1 by ``s / (1 + s)``. The best must reach ``score`` and lead by
    ``gap`` over the second.
    """
    best, second = (*(raw / (1 + raw) for raw in scores[:2]), 0.0, 0.0)[:2]
    if not scores or best < score or best - second < gap:
        return ""
    return f"the best lexical hit is certain: {best:.2f}, {best - second:.2f} ahead"


def one_line(text: str) -> str:
    """Return the printable text with single spaces, without control and format characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def parse_lines(reply: str) -> list[ExpansionLine]:
    """Read the ``lex:``, ``vec:`` and ``hyde:`` lines of a reply in order, and never raise.

    Bullets, numbers, bold marks and quotes are removed. JSON, also inside other text, may be an
    object with these keys, or a list of objects with ``kind`` and ``text``.
    """
    reply = reply[:_LONGEST_REPLY]
    for opening, closing in ("{}", "[]"):
        value: Any = []
        with suppress(ValueError, RecursionError):
            value = json.loads(reply[reply.find(opening) : reply.rfind(closing) + 1])
        items = value if isinstance(value, list) else [value]
        if lines := [line for item in items for line in _parse_item(item)]:
            return lines
    return [line for raw in reply.splitlines() for line in _parse_item(raw)]


def _parse_item(item: Any) -> Iterator[ExpansionLine]:
    texts: dict[str, Any] = {}
    if isinstance(item, str) and (match := _LINE.match(item)):
        said = _strip_marks(match[2])
        texts = {match[1].lower(): said if said[:1] not in "[{" else ""}  # of truncated JSON
    elif isinstance(item, Mapping):
        texts = {key.strip().lower(): text for key, text in item.items()}
        kind = texts.get("kind", texts.get("type"))
        if isinstance(kind, str):
            texts = {kind.strip().lower(): texts.get("text")}
    for key, entry in texts.items():
        for text in entry if isinstance(entry, list) else [entry]:
            if key in _KINDS and isinstance(text, str) and (stripped := _strip_marks(text)):
                yield ExpansionLine(key, stripped)


def _strip_marks(text: str) -> str:
    """Remove emphasis marks around a text, and quotes if one pair encloses all of it."""
    text = one_line(text).strip("*_ ")
    if text.endswith(('",', "',")):
        text = text[:-1]
    while len(text) > 1 and _QUOTES.get(text[0]) == text[-1]:
        if text[0] in text[1:-1] or text[-1] in text[1:-1]:
            break
        text = text[1:-1].strip("*_ ")
    return text


def filter_lines(
    lines: Iterable[ExpansionLine], query: str, prompt: str
) -> tuple[list[ExpansionLine], list[Dropped]]:
    """Return the lines to search, at most :data:`MOST` of each kind, and the others with reasons.

    ``instructions``: labels, placeholders, the model talking about itself, words of the ``prompt``.
    """
    asked, left = frozenset(_ANALYZER.tokens(query)), dict(MOST)
    kept, dropped, seen = list[ExpansionLine](), list[Dropped](), set[Hashable]()
    for raw in lines:
        line = ExpansionLine(raw.kind, one_line(raw.text))
        tokens, plain = frozenset(_ANALYZER.tokens(line.text)), _normalise(line.text)
        # Lines with the same meaning find the same: as words, or as a text to embed.
        meaning = ("lex", tokens or plain) if line.kind == "lex" else ("vec", plain)
        least, most, characters = LENGTHS[line.kind]
        least = min(least, max(1, count_words(query))) if line.kind == "vec" else least
        has_length = least <= count_words(line.text) <= most and len(line.text) <= characters
        reason = ""
        if _is_leak(line.text, query, prompt):
            reason = "instructions"
        elif not plain or not has_length:
            reason = "length"
        elif line.kind == "lex" and asked and not asked & tokens:
            reason = "no query term"
        elif plain == _normalise(query) or (asked and tokens <= asked):
            reason = "nothing new"
        elif meaning in seen:
            reason = "duplicate"
        elif left[line.kind] <= 0:
            reason = "too many"
        if reason:
            dropped.append((line, reason))
        else:
            seen.add(meaning)
            left[line.kind] -= 1
            kept.append(line)
    return kept, dropped


def describe_dropped(dropped: Sequence[Dropped]) -> Iterator[str]:
    """Yield ``dropped: vec "the line" (its reason), …``, long lines cut, if there are any."""
    short = ((line, shorten(line.text, _TOLD, placeholder="…"), why) for line, why in dropped)
    told = [f'{line.kind} "{text}" ({why})' for line, text, why in short]
    if told:
        yield f"dropped: {', '.join(told)}"


def _is_leak(text: str, query: str, prompt: str) -> bool:
    """Return whether a line repeats the prompt, or is about the model itself."""
    folded, own = text.casefold(), query.casefold()
    if _LABEL.search(text) or any(it not in own for it in _PLACEHOLDER.findall(folded)):
        return True
    if _ABOUT_ITSELF.match(folded) and not _ABOUT_ITSELF.match(own):
        return True
    words = _normalise(text).split()
    length = min(len(words), _LEAK_RUN)
    told, known = f" {_normalise(prompt)} ", f" {_normalise(query)} "
    runs = (f" {' '.join(words[at : at + length])} " for at in range(len(words) - length + 1))
    return length >= _LEAK_WORDS and any(run in told and run not in known for run in runs)


def _normalise(text: str) -> str:
    """Return the text in NFKC, case folded, without punctuation, with single spaces."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    plain = (" " if unicodedata.category(char)[0] in "PZC" else char for char in folded)
    return " ".join("".join(plain).split())


def count_words(text: str) -> int:
    """Count words between spaces; in scripts without spaces two letters count as a word."""
    return len(text.split()) + len(_UNSPACED.findall(text)) // 2
