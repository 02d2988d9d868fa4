"""Find places to break a text: lines, sentences, and other places from best to worst.

``str.splitlines`` also breaks at form feeds and Unicode separators, which would make every later
line number wrong. Every pattern is possessive, so that it takes linear time.

Every ``last_`` function searches ``(low, high]`` and returns an offset where a new passage may
start, or ``None``. ``high`` is the first character that no longer fits.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files
from itertools import chain
from typing import NamedTuple

from catalog.core.text import storable

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


END_MARK = re.compile("[.!?…。！？｡।॥؟۔։;]")  # no sentence ends without one of these
_TEXT = re.compile(r"\S")
_SPACE = re.compile(r"\s")  # the library knows the plain space
# It finds no end between brackets or quotes: it sees none, and a stop before one behind it.
_HIDDEN = str.maketrans('…({<)"`', "....---")
_CLOSED = re.compile(r"""(?<![.!?])(?<!\betc)(?<!\bal)([.!?]++)(["')])(?=\s)""")
_NO = re.compile(r"\.(?<=\b[Nn]o\.)(?=\s\D)")
_STOPS = re.compile(r"""(?<![.!?…])[.!?…]++["'”’»)\]]*+\s*+\Z""")
_WORD = re.compile(r"\b(?:[^\W\d_]++|\d++)(?=\.\Z)")
_ORDINAL = re.compile(  # im 19. Jahrhundert, dem 1. und 2. Tag
    r"(?i:\b(?:d(?:er|ie|as|em|en|es)|[ai][mn]s?|zu[mr]|vom|beim|ab|seit|(?:jed|dies|[mdsk]?ein|ihr"
    r"|unser)e?[rsmn]?)|\d\. ?(?:und|bis|oder|u\.))\s+\Z"
)
_MONTH = re.compile(
    "(?:J[aä]n|Feb|März|Apr|Mai|Ju[nl]|Aug|Sep|Okt|Nov|Dez)(?:[a-z]*[rlt]|[io]?)\\b"
)
_COUNT = re.compile(r"\d\d?|[IVX]+")
_LOOK_BACK, _AT_ONCE = 24, 2_000  # characters; for some texts the library takes quadratic time
_CODES = "en en de fr es it pt nl sv da nb tr ca fi hu ro ru el ar hy hi ta ja zh ko th he uk"


def sentence_starts(text: str, start: int, end: int) -> Iterator[int]:
    """Yield offsets in ``(start, end)`` where a further sentence of ``text[start:end]`` begins.

    The library sentencex finds them by the rules of the text's language, and ours leave out some
    (``docs/decisions/0055-where-a-sentence-ends.md``).
    """
    from sentencex import segment

    code = _code(text)
    while start < end:
        part = text[start : min(start + _AT_ONCE, end)]
        shown = _SPACE.sub(" ", _NO.sub("!", _CLOSED.sub(r"\2\1", part)))
        *pieces, last = segment(code, storable(shown.translate(_HIDDEN)))
        for piece in pieces:
            start += len(piece)
            at = skip_space(text, start, end)
            if at < end and _ends_sentence(text, at, code):
                yield at
        if not pieces or start + len(last) == end:  # else it may go on behind this part
            is_cut = start + len(last) < end
            start += (is_cut and len(last.rpartition(" ")[0])) or len(last)


@lru_cache(maxsize=16)
def _code(text: str) -> str:
    """Return the library's name of the language of a text; English if it is not clear."""
    from catalog.store.lexical.languages import LANGUAGES, detect_language

    language = detect_language(text[:20_000], text[:20_000].split())
    return _CODES.split()[LANGUAGES.index(language or "")]


def sentence_spans(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield the sentences of ``text[start:end]`` without the white space around them."""
    stop = len(text) if end is None else end
    begin = skip_space(text, start, stop)
    for following in chain(sentence_starts(text, begin, stop), [stop]):
        if begin < following:
            yield begin, trim_end(text, begin, following)
        begin = following


@cache
def _abbreviations(code: str) -> frozenset[str]:
    """Return what ends no sentence in a language: those of any and its own."""
    lines = files("catalog.ingest.chunking").joinpath("abbreviations.txt").read_text("utf-8")
    rows = [line.split() for line in lines.splitlines()]
    return frozenset(word for of, *words in rows if of in ("any", code) for word in words)


def _ends_sentence(text: str, following: int, code: str) -> bool:
    """Return whether a sentence ends before ``following``, where the library lets one end."""
    before = text[max(0, following - _LOOK_BACK) : following]
    stops = _STOPS.search(before)
    if stops is None:  # a mark of other letters, or [1] after one
        return before.rstrip().endswith(("]", ";")) or not before.rstrip()[-1:].isascii()
    mark = stops.group().rstrip()
    is_lower = text[following].islower() and mark[-1] not in "!?"
    if is_lower or not before[-1].isspace() or unicodedata.combining(text[following]):
        return False
    word = _WORD.search(before, 0, stops.start() + 1)
    if word is None or mark.startswith(".."):
        return True
    ahead = before[: word.start()]
    if code == "de" and _COUNT.fullmatch(word[0]) and _ORDINAL.search(ahead):
        return False
    if word[0].isdigit():  # in a list, or a German date: am 30. Mai
        is_day = len(word[0]) < 3 and _MONTH.match(text, following) is not None
        return not is_day and ahead.rstrip(" \t")[-1:] not in ("", "\n", "\r")
    form = word[0].lower() if word[0][1:].islower() else word[0]
    if form in _abbreviations(code) or (len(form) == 1 and form.isupper()):
        return False  # also an initial
    return form not in _abbreviations("number") or not text[following].isdigit()


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
    is_mark = ord(after) in _SKIN_TONES or unicodedata.category(after)[0] == "M"
    return after == "\n" if before == "\r" else is_mark or _JOINER in (before, after)
