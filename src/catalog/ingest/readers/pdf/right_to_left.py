"""Put lines with Hebrew or Arabic letters in the order in which they are read.

A PDF places letters on the page, and each program draws them in an order of its own. So only their
places count: from left to right they are the visual order, which the Unicode Bidirectional
Algorithm turns into the logical one.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import add

_LETTERS = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff"
RIGHT_TO_LEFT = re.compile(f"[{_LETTERS}]")
_LAM = "\u0644"
STRETCH = "\u0640"  # the line that makes an Arabic word longer
_PRESENTATION_FORM = re.compile("[\ufb1d-\ufdff\ufe70-\ufefc]")
_MARKS = (
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed"
)
_MARKS_FIRST = re.compile(f"([{_MARKS}]+)([{_LETTERS}])")
_MIRRORED = dict(zip("()[]{}«»", ")(][}{»«", strict=True))
_WRONG_BRACKET = re.compile(
    r"(?<![^\s(\[{«\"])[)\]}»](?=[\w\"])|(?<=[\w.%!?\"'׳״])[(\[{«](?=[\s.,;:!?،؛؟)\]}»\"]|$)"
)
"""A bracket that closes before a word, or opens after one: drawn as its mirror image."""
_LAST_LETTERS = frozenset("ךםןףץةى")  # that only end words


def count_directions(text: str) -> tuple[int, int]:
    """Return how many letters are written from right to left, and how many from left to right."""
    counts = Counter(map(unicodedata.bidirectional, text))
    return counts["R"] + counts["AL"], counts["L"]


def is_logical(words: Iterable[str]) -> bool:
    """Return whether words that are spelled from left to right are already in logical order.

    Some programs draw Hebrew as if it were Latin. Letters that only end words give this away.
    """
    ends = [(word[0] in _LAST_LETTERS, word[-1] in _LAST_LETTERS) for word in words if word[1:]]
    return sum(last for _, last in ends) > sum(first for first, _ in ends)


def join_letters(letters: Sequence[tuple[str, float, float]], gap: float) -> str:
    """Return letters as words, from left to right: ``gap`` is the least space between words.

    A letter is its text and its edges. Vowels and accents follow the letters above or below which
    they are. Of a ligature in one place, lam comes last.
    """
    letters = sorted(letters, key=lambda letter: (letter[1] + letter[2], letter[0] == _LAM))
    bases = [letter for letter in letters if not unicodedata.combining(letter[0][0])]
    if not bases:
        return "".join(text for text, _, _ in letters)
    texts = [text for text, _, _ in bases]
    at = 0
    for text, x0, x1 in letters:
        if unicodedata.combining(text[0]):
            while at + 1 < len(bases) and _distance(bases[at + 1], x0 + x1) <= _distance(
                bases[at], x0 + x1
            ):
                at += 1
            texts[at] += text
    spaced = [" " * (after[1] - before[2] > gap) for before, after in pairwise(bases)]
    return texts[0] + "".join(map(add, spaced, texts[1:]))


def _distance(letter: tuple[str, float, float], twice_middle: float) -> float:
    return abs(letter[1] + letter[2] - twice_middle)


def to_logical(visual: str, *, is_in_latin: bool) -> str:
    """Return a line in the order of reading; ``visual`` has its letters from left to right.

    Words and numbers that run from left to right keep doing so. Presentation forms become letters.
    ``is_in_latin``: the paragraph around it runs from left to right.
    """
    from bidi import get_display

    # The letter in front decides how an Arabic line treats the numbers at its left end.
    lead = "\u0627" if any(unicodedata.bidirectional(one) == "AL" for one in visual) else "\u05d0"
    if is_in_latin:
        text = str(get_display(visual, base_dir="L"))
    else:
        text = str(get_display(lead + visual, base_dir="R")).removesuffix(lead)
    text = text.replace(STRETCH, "")
    text = _MARKS_FIRST.sub(lambda match: match[2] + match[1][::-1], text)
    text = _PRESENTATION_FORM.sub(
        lambda match: unicodedata.normalize("NFKC", match[0]).strip(), text
    )
    return unicodedata.normalize("NFC", text)


def mend_brackets(text: str) -> str:
    """Return a line with the brackets turned that PDFium mirrored."""
    return _WRONG_BRACKET.sub(lambda match: _MIRRORED[match[0]], text)
