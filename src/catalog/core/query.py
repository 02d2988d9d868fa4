"""Reading what a user typed: plain words, quoted phrases, ``-exclusions``, typed sub-queries."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from catalog.core.errors import QueryError
from catalog.core.text import storable

_PART = re.compile(
    r"""
    (?P<minus>(?<!\S)-(?=["\w]))?            # a minus right before a word or a quote
    (?: "(?P<phrase>[^"]*)" | (?P<word>[^\s"]+) | (?P<quote>") )
    """,
    re.VERBOSE,
)
_LETTERS = re.compile(r"\w{2,}")


_TYPED = re.compile(r"(?:^|[\r\n]|\s/\s)\s*(lex|vec|hyde):", re.IGNORECASE)

Kind = Literal["lex", "vec", "hyde"]
Origin = Literal["original", "expansion"]


@dataclass(frozen=True, slots=True)
class SubQuery:
    """One thing to look for in one leg.

    ``lex`` goes to the lexical leg, ``vec`` to the vector leg embedded as a query, ``hyde`` to
    the vector leg embedded as a document. ``phrases`` must stand in each lexical hit.
    """

    kind: Kind
    text: str
    phrases: tuple[str, ...] = ()
    origin: Origin = "original"


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query taken apart.

    ``text`` is what it is about: the words and the phrases' words, without the exclusions.
    ``parts`` say what each leg looks for. ``exclusions`` stand in no hit at all. ``is_typed``:
    the user wrote the parts.
    """

    original: str
    text: str
    parts: tuple[SubQuery, ...]
    exclusions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_typed: bool = False

    @property
    def phrases(self) -> tuple[str, ...]:
        """Every phrase that a lexical part requires."""
        return tuple(phrase for part in self.parts for phrase in part.phrases)


def parse_query(query: str, *, max_chars: int) -> ParsedQuery:
    """Trim, compose (NFC), cut to ``max_chars`` and take apart.

    ``"…"`` is a phrase when the quotes are balanced and it holds two words or more; ``-word``
    and ``-"a phrase"`` exclude when the minus starts a word of two letters or more. Every other
    character is plain text.

    A text that begins with ``lex:``, ``vec:`` or ``hyde:`` is typed: each part, on its own line
    or after `` / ``, goes to the leg it names; only ``lex:`` has phrases and exclusions. The
    first part of a leg counts as the user's own query there, the others as expansions of it.
    Raises :class:`QueryError` when nothing is left to look for, and for a typed part without a
    text.
    """
    text = unicodedata.normalize("NFC", _printable(query)).strip()
    notes: list[str] = []
    if len(text) > max_chars:
        notes.append(f"query cut from {len(text):,} to {max_chars:,} characters")
        text = text[:max_chars]
    if text == "":
        raise QueryError("the query is empty")
    typed = _typed(text)
    read: list[tuple[Kind, _Read]] = [
        (kind, _read(part) if kind == "lex" else _Read(part)) for kind, part in typed
    ] or [("lex", _read(_one_line(text)))]
    for kind, part in read:
        if part.wanted == "":
            named = f"{kind}: " if typed else ""
            raise QueryError(f"the query {named}only excludes: say what to look for, too")
    exclusions = tuple(word for _, part in read for word in part.exclusions)
    if exclusions:
        notes.append(f"excluding {', '.join(exclusions)}")
    if not typed:
        only = read[0][1]
        both = (SubQuery("lex", only.wanted, only.phrases), SubQuery("vec", only.wanted))
        return ParsedQuery(text, only.wanted, both, exclusions, tuple(notes))
    notes.append(", ".join(f"{kind}: {part.wanted}" for kind, part in read))
    parts = tuple(_typed_parts(read))
    about = min(parts, key=lambda part: ("vec", "lex", "hyde").index(part.kind)).text
    return ParsedQuery(text, about, parts, exclusions, tuple(notes), is_typed=True)


@dataclass(frozen=True, slots=True)
class _Read:
    wanted: str
    phrases: tuple[str, ...] = ()
    exclusions: tuple[str, ...] = ()


def _read(text: str) -> _Read:
    wanted: list[str] = []
    phrases: list[str] = []
    exclusions: list[str] = []
    for part in _PART.finditer(text):
        content = part["phrase"] if part["phrase"] is not None else part["word"] or ""
        if part["minus"] and _LETTERS.search(content):
            exclusions.append(content)
            continue
        wanted.append(content if part["phrase"] is not None else part.group())
        if part["phrase"] is not None and len(content.split()) > 1:
            phrases.append(" ".join(content.split()))
    return _Read(" ".join(" ".join(wanted).split()), tuple(phrases), tuple(exclusions))


def _typed(text: str) -> list[tuple[Kind, str]]:
    """The typed parts of a text that begins with one, else nothing."""
    starts = list(_TYPED.finditer(text))
    if not starts or starts[0].start() > 0:
        return []
    ends = [start.start() for start in starts[1:]] + [len(text)]
    found: list[tuple[Kind, str]] = []
    for start, end in zip(starts, ends, strict=True):
        kind: Kind = start[1].lower()  # type: ignore[assignment]  # the pattern has only these
        part = _one_line(text[start.end() : end])
        if part == "":
            raise QueryError(f"the query names {kind}: without a text")
        found.append((kind, part))
    return found


def _typed_parts(read: Sequence[tuple[Kind, _Read]]) -> list[SubQuery]:
    seen: set[bool] = set()
    parts: list[SubQuery] = []
    for kind, part in read:
        lexical = kind == "lex"
        origin: Origin = "expansion" if lexical in seen else "original"
        seen.add(lexical)
        parts.append(SubQuery(kind, part.wanted, part.phrases, origin))
    return parts


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _printable(query: str) -> str:
    """Control characters become spaces, what cannot be stored a replacement character."""
    kept = "\r\n"  # they part typed sub-queries
    return storable(
        "".join(
            " " if unicodedata.category(char) == "Cc" and char not in kept else char
            for char in query
        )
    )
