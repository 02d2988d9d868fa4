"""Reading what a user typed: plain words, quoted phrases, ``-exclusions``."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query taken apart.

    ``text`` is what both legs search for: the words and the phrases' words, without the
    exclusions. ``phrases`` must stand in a lexical hit, ``exclusions`` in no hit at all.
    """

    original: str
    text: str
    phrases: tuple[str, ...] = ()
    exclusions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def parse_query(query: str, *, max_chars: int) -> ParsedQuery:
    """Trim, compose (NFC), cut to ``max_chars`` and take apart.

    ``"…"`` is a phrase when the quotes are balanced and it holds two words or more; ``-word``
    and ``-"a phrase"`` exclude when the minus starts a word of two letters or more. Every other
    character is plain text. Raises :class:`QueryError` when nothing is left to look for.
    """
    text = unicodedata.normalize("NFC", _printable(query)).strip()
    notes: list[str] = []
    if len(text) > max_chars:
        notes.append(f"query cut from {len(text):,} to {max_chars:,} characters")
        text = text[:max_chars]
    if text == "":
        raise QueryError("the query is empty")
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
    remaining = " ".join(" ".join(wanted).split())
    if remaining == "":
        raise QueryError("the query only excludes: say what to look for, too")
    if exclusions:
        notes.append(f"excluding {', '.join(exclusions)}")
    return ParsedQuery(text, remaining, tuple(phrases), tuple(exclusions), tuple(notes))


def _printable(query: str) -> str:
    """Control characters become spaces, what cannot be stored a replacement character."""
    return storable("".join(" " if unicodedata.category(char) == "Cc" else char for char in query))
