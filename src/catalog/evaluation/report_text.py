"""Text of a report: numbers as people read them, excerpts with marks, and nothing unshowable."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

NOT_TOLD = "not told"
NO_BREAK = "\u00a0"  # a space that holds a number and its unit together
EXCERPT_CHARS = 400
_SCANNED_CHARS = 20_000
_MOST_WORDS = 40
_PREFIX_CHARS = 4  # from this length on a query's word also marks longer words that begin with it
_TINY = 5e-4  # rounds to 0.000

# Control characters, lone surrogates, non-characters, and the marks that turn text around.
_UNSHOWABLE = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e"
    r"\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
_TURNS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_PLAIN_ID = re.compile(r"[A-Za-z0-9_.-]{1,80}")
_WORDS_OF_GRAMMAR = """
a an and any are as at be been but by can could did do does for from get had has have how i if in
into is it its me my no not of on or shall should so some than that the their them then there these
they this to was we were what when where which who why will with would you your
"""
_FUNCTION_WORDS = frozenset(_WORDS_OF_GRAMMAR.split())


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of an excerpt; ``marked`` ones are the query's words."""

    text: str
    marked: bool


def showable(text: str) -> str:
    """The text with every character that would be invisible, turn it around or break UTF-8 shown.

    Control characters become their pictures (␀), marks of direction their code in brackets, lone
    surrogates and what no text may hold the replacement character.
    """
    return _UNSHOWABLE.sub(lambda found: _picture(found.group()), text)


def _picture(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if char in _TURNS:
        return f"⟨U+{code:04X}⟩"
    return {0x7F: "␡", 0x2028: " ", 0x2029: " "}.get(code, "�")


def shortened(text: str, limit: int = EXCERPT_CHARS) -> str:
    """At most ``limit`` characters, the cut shown by an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def anchor(query_id: str, number: int) -> str:
    """An HTML id for a query: its own id where that is plain, else its number in the set."""
    return f"q-{query_id}" if _PLAIN_ID.fullmatch(query_id) else f"q-{number}~"


def score(value: float) -> str:
    """A score or mean to three digits, ``0.782``."""
    return f"{value:.3f}"


def signed(value: float) -> str:
    """A difference with its sign, a true minus, and no sign for what rounds to zero."""
    if abs(value) < _TINY:
        return "0.000"
    return f"{value:+.3f}".replace("-", "−")


def p_value(p: float) -> str:
    """``< .001`` or three digits, ``.018``; 1 is ``1.000``."""
    if p < 0.001:
        return "< .001"
    return f"{p:.3f}".removeprefix("0")


def chance(p: float) -> str:
    """A p-value as a share of cases, in words."""
    return (
        f"less than 0.1{NO_BREAK}% of cases"
        if p < 0.001
        else f"about {p * 100:.1f}{NO_BREAK}% of cases"
    )


def share(value: float | None) -> str:
    """A share, 0 to 1, in percent, ``70 %``; one that is not quite all or nothing never says so."""
    if value is None:
        return NOT_TOLD
    if 0 < value < 0.01 or 0.99 < value < 1:
        return f"{min(max(value * 100, 0.1), 99.9):.1f} %"
    return f"{value * 100:.0f} %"


def count(value: int | None) -> str:
    """A whole number, or that it is not told."""
    return NOT_TOLD if value is None else f"{value:,}"


def milliseconds(ms: float) -> str:
    """A time with the unit and digits a person would use: ``0.05 ms``, ``31 ms``, ``1.2 s``."""
    if ms >= 1000:
        return f"{ms / 1000:.3g} s" if ms < 999_500 else f"{ms / 1000:,.0f} s"
    if ms >= 10:
        return f"{ms:.0f} ms" if ms < 999.5 else "1 s"
    if 0 < ms < 0.005:
        return "< 0.01 ms"
    return f"{ms:.1f} ms" if ms >= 1 else f"{ms:.2f} ms" if ms else "0 ms"


def told(value: object, limit: int = 200) -> str:
    """Any value as a short text; nothing is a dash."""
    return "–" if value is None or value == "" else shortened(str(value), limit)


def filters_text(filters: Any) -> str:
    """A query's filters as they were written, several joined by 'and'; none are empty."""
    if not filters:
        return ""
    if isinstance(filters, list | tuple):
        return shortened(" and ".join(map(str, filters)))
    return shortened(str(filters))


def word_pattern(query: str) -> re.Pattern[str] | None:
    """A pattern of the query's words; function words only where there are no others."""
    words = dict.fromkeys(word.casefold() for word in re.findall(r"\w+", showable(query)))
    telling = [word for word in words if word not in _FUNCTION_WORDS] or list(words)
    if not telling:
        return None
    options = "|".join(
        re.escape(word) + (r"\w*" if len(word) >= _PREFIX_CHARS else "")
        for word in telling[:_MOST_WORDS]
    )
    return re.compile(rf"(?<!\w)(?:{options})(?!\w)", re.IGNORECASE)


def excerpt(
    text: str, words: re.Pattern[str] | None, limit: int = EXCERPT_CHARS
) -> tuple[TextPiece, ...]:
    """The part of a passage with most of the query's words, those marked; blanks are one space.

    At most ``limit`` characters, ellipses where something was cut. Of very long passages only the
    beginning is looked at. An empty text has no segments.
    """
    flat = showable(" ".join(text[:_SCANNED_CHARS].split()))
    found = list(words.finditer(flat)) if words is not None else []
    start = _best_start(found, flat, limit)
    shown = flat[start : start + limit]
    pieces = _segments(shown, words)
    if start and pieces:
        pieces = [TextPiece("… ", False), *pieces]
    if start + limit < len(flat) or len(text) > _SCANNED_CHARS:
        pieces.append(TextPiece(" …", False))
    return tuple(pieces)


def _best_start(found: Sequence[re.Match[str]], flat: str, limit: int) -> int:
    """Where to cut: before the densest run of different words; the earliest of equals."""
    if len(flat) <= limit:
        return 0
    best, most = 0, 0
    for index, first in enumerate(found):
        start = max(0, min(first.start() - limit // 6, len(flat) - limit))
        inside: set[str] = set()
        for match in found[index:]:
            if match.end() > start + limit:
                break
            inside.add(match.group().casefold())
        if len(inside) > most:
            best, most = start, len(inside)
    blank = flat.find(" ", best, best + limit // 6) if best else -1
    return best if blank < 0 else blank + 1


def _segments(shown: str, words: re.Pattern[str] | None) -> list[TextPiece]:
    pieces: list[TextPiece] = []
    end = 0
    for match in words.finditer(shown) if words is not None else ():
        pieces += [TextPiece(shown[end : match.start()], False), TextPiece(match.group(), True)]
        end = match.end()
    pieces.append(TextPiece(shown[end:], False))
    return [piece for piece in pieces if piece.text]
