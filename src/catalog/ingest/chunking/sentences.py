"""Where sentences begin, by punctuation; careful with abbreviations, initials and numbers.

A sentence ends at ``. ! ? …`` before white space, or at ``。！？`` anywhere, closing quotes
included. Every pattern is possessive, so that the time is linear in the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

END_MARK = re.compile("[.!?…。！？｡]")  # no sentence ends without one of these
_END = re.compile(
    r"""(?<![.!?…])[.!?…]++["'”’»)\]]*+(?=\s|\Z)"""  # Latin, Cyrillic, Greek
    r"""|[。！？｡]++[」』”’）】]*+"""  # Chinese, Japanese
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


def sentence_starts(text: str, start: int, end: int) -> Iterator[int]:
    """Offsets in ``(start, end)`` where a further sentence of ``text[start:end]`` begins."""
    for found in _END.finditer(text, start, end):
        following = _TEXT.search(text, found.end(), end)
        if following is None:
            return
        if unicodedata.combining(following.group()):
            continue
        if _ends_sentence(text, found, text[following.start()]):
            yield following.start()


def sentence_spans(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
    """The sentences of ``text[start:end]`` without the white space around them."""
    stop = len(text) if end is None else end
    first = _TEXT.search(text, start, stop)
    if first is None:
        return
    begin = first.start()
    for following in sentence_starts(text, begin, stop):
        yield begin, begin + len(text[begin:following].rstrip())
        begin = following
    yield begin, begin + len(text[begin:stop].rstrip())


def _ends_sentence(text: str, found: re.Match[str], following: str) -> bool:
    """A lone full stop needs a second look; every other terminator is what it seems."""
    if found.group()[0] != "." or found.group()[:2] == "..":
        return True
    if following.islower():
        return False
    before = text[max(0, found.start() - _LONGEST_ABBREVIATION) : found.start()]
    match = _WORD_BEFORE.search(before)
    word = match.group() if match else ""
    if word.casefold() in _ABBREVIATIONS:
        return False
    is_initial = len(word) == 1 and word.isupper()
    is_list_number = word.isdigit() and _begins_line(text, found.start() - len(word))
    return not (is_initial or is_list_number)


def _begins_line(text: str, offset: int) -> bool:
    before = text[max(0, offset - 8) : offset].rstrip(" \t")
    return before[-1:] in ("", "\n", "\r")
