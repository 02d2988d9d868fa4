"""Find places to break a text: lines, sentences, and other places from best to worst.

``str.splitlines`` also breaks at form feeds and Unicode separators, which would make every later
line number wrong. A sentence ends at ``. ! ? …`` before white space, or at ``。！？`` anywhere, and
includes closing quotes. Every pattern is possessive, so that it takes linear time.

Every ``last_`` function searches ``(low, high]`` and returns an offset where a new passage may
start, or ``None``. ``high`` is the first character that no longer fits.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

_BREAK = re.compile(r"\r\n?|\n")


class Line(NamedTuple):
    """One line: ``text[start:end]`` without its break; the next one starts at ``next``."""

    start: int
    end: int
    next: int


def iter_lines(text: str, start: int = 0) -> Iterator[Line]:
    """Yield the lines from ``start`` on, without the empty line after a final break."""
    for line_break in _BREAK.finditer(text, start):
        yield Line(start, line_break.start(), line_break.end())
        start = line_break.end()
    if start < len(text):
        yield Line(start, len(text), len(text))


END_MARK = re.compile("[.!?…。！？｡]")  # no sentence ends without one of these
_END = re.compile(  # a search skips quickly to its first character
    r"""[.!?…。！？｡](?:(?<=[.!?…])(?<![.!?…].)[.!?…]*+["'”’»)\]]*+(?=\s|\Z)"""
    r"""|(?<=[。！？｡])[。！？｡]*+[」』”’）】]*+)"""  # Chinese, Japanese
)
_TEXT = re.compile(r"\S")
_WORD_BEFORE = re.compile(r"[^\s(\[\"'“‘«]*\Z")
_LONGEST_ABBREVIATION = 12
_ABBREVIATIONS_TEXT = """
    al approx bzw ca cf ch chap co corp cp dept dr ed eds eq eqn eqs esp est et etc
    fig figs gen gov hr inc jr lt ltd mr mrs ms mt nr op p pp prof ref
    refs rep resp rev sec sect sr st str supp tab tel univ v viz vol vols vs
    jan feb mar apr jun jul aug sep sept oct nov dec
    a.k.a a.m b.c d.h e.g e.v i.a i.e p.m p.s ph.d s.a u.a u.k u.s u.s.a usw vgl z.b"""
_ABBREVIATIONS = frozenset(_ABBREVIATIONS_TEXT.split())
_GERMAN_MONTH = re.compile(
    r"(?:Jan(?:uar)?|Jänner|Feb(?:ruar)?|März|Apr(?:il)?|Mai|Jun[io]?|Jul[io]?|Aug(?:ust)?"
    r"|(?:Sept?|Okto?|Nov|Dez)(?:em)?(?:ber)?)\b"
)


def sentence_starts(text: str, start: int, end: int) -> Iterator[int]:
    """Yield offsets in ``(start, end)`` where a further sentence of ``text[start:end]`` begins."""
    for mark in _END.finditer(text, start, end):
        at = skip_space(text, mark.end(), end)
        if at < end and not unicodedata.combining(text[at]) and _ends_sentence(text, mark, at):
            yield at


def sentence_spans(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield the sentences of ``text[start:end]`` without the white space around them."""
    stop = len(text) if end is None else end
    first = _TEXT.search(text, start, stop)
    if first is None:
        return
    begin = first.start()
    for following in sentence_starts(text, begin, stop):
        yield begin, begin + len(text[begin:following].rstrip())
        begin = following
    yield begin, begin + len(text[begin:stop].rstrip())


def _ends_sentence(text: str, terminator: re.Match[str], following: int) -> bool:
    """Return whether a terminator ends a sentence; only a lone full stop may not."""
    if terminator.group()[0] != "." or terminator.group()[:2] == "..":
        return True
    if text[following].islower():
        return False
    dot = terminator.start()
    if dot > 7 and text[dot - 7 : dot].isalpha():  # no abbreviation is so long
        return True
    match = _WORD_BEFORE.search(text[max(0, dot - _LONGEST_ABBREVIATION) : dot])
    word = match.group().casefold() if match else ""
    if word.isdigit():  # in a list, or a German date: am 30. Mai
        begins_line = text[max(0, dot - len(word) - 8) : dot - len(word)].rstrip(" \t")[-1:]
        is_day = len(word) < 3 and _GERMAN_MONTH.match(text, following) is not None
        return not (is_day or begins_line in ("", "\n", "\r"))
    if word in ("no", "nos"):
        return not text[following].isdigit()
    is_initial = len(word) == 1 and text[dot - 1].isupper()
    return not (is_initial or word in _ABBREVIATIONS)


_BLANK_LINES = re.compile(r"(?>\r\n?|\n)[^\S\r\n]*+(?>\r\n?|\n)\s*+|\f\s*+")
_LINE_START = re.compile(r"[\r\n]\s*+")
_WORD_START = re.compile(r"\s(?=\S)")
_JOINER = "\u200d"
_WIDEST = 200  # characters of an indentation
_SKIN_TONES = range(0x1F3FB, 0x1F400)


def skip_space(text: str, start: int, end: int) -> int:
    """Return the first offset in ``[start, end)`` that is not white space, or ``end``."""
    match = _TEXT.search(text, start, end)
    return end if match is None else match.start()


def indentation_start(text: str, start: int, least: int) -> int:
    """Return where the line begins if only its indentation is before ``start``, else ``start``."""
    before = text[max(least, start - _WIDEST) : start]
    at = start - len(before) + len(before.rstrip(" \t"))
    return at if at == 0 or text[at - 1] in "\r\n" else start


def trim_end(text: str, start: int, end: int) -> int:
    """Return the end of ``text[start:end]`` without the white space at its end."""
    return start + len(text[start:end].rstrip())


def last_paragraph(text: str, low: int, high: int) -> int | None:
    """Find the last start of a paragraph (after a blank line or a form feed)."""
    return max((blank.end() for blank in _BLANK_LINES.finditer(text, low, high)), default=None)


def last_sentence(text: str, low: int, high: int) -> int | None:
    """Find the last start of a sentence."""
    return max(sentence_starts(text, low, min(high + 1, len(text))), default=None)


def last_line(text: str, low: int, high: int) -> int | None:
    """Find the last start of a line that is not blank."""
    at = max(text.rfind("\n", low, high), text.rfind("\r", low, high))
    return None if at < 0 else skip_space(text, at + 1, high)


def last_word(text: str, low: int, high: int) -> int | None:
    """Find the last start of a word."""
    window = text[low:high]
    at = high if window[-1:].isspace() else high - len(window.rsplit(None, 1)[-1])
    return at if at > low and not is_joined(text, at) else None


def last_character(text: str, low: int, high: int) -> int:
    """Return ``high``, or less if that would separate a character from its marks."""
    at = high
    while at > low and is_joined(text, at):
        at -= 1
    return at if at > low else high


def overlap_starts(text: str, low: int, high: int, *, lines_first: bool) -> Iterator[int]:
    """Yield offsets in ``[low, high)`` where an overlap may start, the best kind first."""
    begin = max(0, low - 4)
    sentences = sentence_starts(text, begin, high)
    lines = (match.end() for match in _LINE_START.finditer(text, begin, high))
    words = (match.end() for match in _WORD_START.finditer(text, begin, high))
    for kind in (lines, sentences, words) if lines_first else (sentences, lines, words):
        yield from (at for at in kind if low <= at < high and not is_joined(text, at))
    if not any(character.isspace() for character in text[low:high]):
        # The passage before ended inside one long word: there is no better place.
        yield from (at for at in range(low, high) if not is_joined(text, at))


def is_joined(text: str, at: int) -> bool:
    """Return whether a cut at ``at`` would split one visible character."""
    if at <= 0 or at >= len(text):
        return False
    before, after = text[at - 1], text[at]
    if before == "\r":
        return after == "\n"
    return (
        _JOINER in (before, after)
        or ord(after) in _SKIN_TONES
        or (ord(after) > 0x2FF and unicodedata.category(after)[0] == "M")
    )
