"""Turning text into the tokens that the index counts, the same for documents and queries.

A raw word is a run of letters, digits, underscores and combining marks, joined to the next
one by a single dot or hyphen, with a leading dot (``.net``) or a trailing ``++`` or ``#``
(``c++``, ``f#``). An English ending after an apostrophe (``user's``, ``don't``) is dropped.
Every pattern here takes time linear in the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from catalog.core.text import limit_marks
from catalog.store.lexical.languages import SCRIPTS, WordRules, word_rules

_CACHED = 50_000  # raw words whose tokens are kept
MAX_LENGTH = 128  # characters of a token: beyond it, a word is found by its first ones

# Marks of scripts that write vowels as combining characters, which Python's \w leaves out.
_MARKS = "\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u06d6-\u06ed"
_INDIC = "\u0900-\u0963\u0966-\u0dff\u0e00-\u0e3a\u0e40-\u0eff\u1000-\u109f\u1780-\u17d3"
WORD_CHARACTERS = rf"\w{_MARKS}{_INDIC}"  # for use inside a regex character class
_W = f"[{WORD_CHARACTERS}]"
WORD = re.compile(
    rf"((?:(?<![\w.])\.(?=\w))?{_W}+(?:[.\-\u2010]{_W}+)*(?:\+\+|#(?!\w))?)"
    r"(?:['\u2019](?i:s|t|d|m|ll|re|ve)\b)?"
)
_JOINT = re.compile(r"[.\-\u2010+#]+")
# Scripts written without spaces between words, and Korean, whose words carry their particles.
UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_HAN = "\u3005-\u3007\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_HAN_OR_HANGUL = re.compile(f"[{_HAN}\uac00-\ud7af]")
_LONE_HAN = re.compile(f"(?<![{_HAN}])[{_HAN}](?![{_HAN}])")
_CASED = re.compile(
    r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z][a-z0-9]*|[A-Z0-9]+|[^A-Za-z0-9]+"
)
_STROKES = str.maketrans("łøđı", "lodi")
_ACCENTS = re.compile("[\u0300-\u036f]")


def raw_words(text: str) -> list[str]:
    """Return the raw words of a text in order, compatibility forms unified (NFKC), case kept."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", limit_marks(text))
    return WORD.findall(text)


def fold(word: str) -> str:
    """Remove case and accents, so that ``Éclair`` and ``eclair`` are one word."""
    return _without_accents(word).casefold()


def strip_accents(word: str) -> str:
    """Remove accents from a word in lower case, strokes and the Turkish dotless i included."""
    return word if word.isascii() else _without_accents(word).translate(_STROKES)


def _without_accents(word: str) -> str:
    if word.isascii():
        return word
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", word)))


def word_forms(
    raw: str, *, accents: bool = False, singles: bool = False
) -> Iterator[tuple[str, bool]]:
    """Yield the searchable forms of a raw word, case folded, each with whether it is a plain word.

    A compound comes whole first, then by its parts: ``foo.barBaz`` gives ``foo.barbaz``,
    ``foo``, ``barbaz``, ``bar``, ``baz``. Only plain words may be stemmed or be stop words.
    ``accents`` keeps accents. Of the scripts without spaces come pairs of characters, and those
    Han characters alone that stand between others, which may be a word; with ``singles``, as
    passages are indexed, each Han and Hangul character.
    """
    raw = raw if accents else _without_accents(raw)
    pieces = [piece for piece in _JOINT.split(raw) if piece]
    if pieces != [raw] and len(raw) <= MAX_LENGTH:
        yield raw.casefold().replace("\u2010", "-"), False
    for piece in pieces:
        yield from _underscored(piece, singles=singles)


def _underscored(piece: str, *, singles: bool) -> Iterator[tuple[str, bool]]:
    names = [name for name in piece.split("_") if name]
    if names != [piece] and names and len(piece) <= MAX_LENGTH:
        yield piece.casefold(), False
    for name in names:
        if UNSPACED.search(name):
            yield from _unspaced(name, singles=singles)
        else:
            yield from _cased(name)


def _cased(name: str) -> Iterator[tuple[str, bool]]:
    yield name.casefold()[:MAX_LENGTH], True
    if name.islower() or name.isupper() or len(name) > MAX_LENGTH:
        return
    humps = _CASED.findall(_without_accents(name))  # [A-Z] knows no accented capitals
    if len(humps) > 1:
        yield from ((hump.casefold(), True) for hump in humps if len(hump) > 1)


def _unspaced(name: str, *, singles: bool) -> Iterator[tuple[str, bool]]:
    """Yield overlapping pairs of characters of unspaced scripts, and letters between as words."""
    end = 0
    for run in UNSPACED.finditer(name):
        if run.start() > end:
            yield from _cased(name[end : run.start()])
        end = run.end()
        letters = run.group().casefold()
        if len(letters) == 1:
            yield letters, False
        else:
            alone = _HAN_OR_HANGUL if singles else _LONE_HAN
            yield from ((letter, False) for letter in alone.findall(letters))
        yield from ((letters[at : at + 2], False) for at in range(len(letters) - 1))
    if end < len(name):
        yield from _cased(name[end:])


@dataclass(frozen=True, slots=True)
class Analyzer:
    """Fold words, drop stop words and stem the rest; take compound words also by their parts.

    ``language`` is a Snowball name such as ``english`` or ``german``, for words in its letters;
    another one raises :class:`ConfigError`. Words in letters of another stemmer go to that one.
    ``singles`` as in :func:`word_forms`.
    Single letters and digits are words like any other. Safe to share between threads.
    """

    language: str = "english"
    stop_words: bool = True
    stemming: bool = True
    singles: bool = False
    _rules: WordRules = field(init=False, repr=False, compare=False)
    _cache: dict[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rules", word_rules(self.language))
        object.__setattr__(self, "_cache", {})

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of a text in order, as often as they occur, in linear time."""
        return self.tokens_of(raw_words(text))

    def tokens_of(self, raws: Iterable[str]) -> list[str]:
        """Return the tokens of a text's raw words."""
        cache = self._cache
        tokens: list[str] = []
        for raw in raws:
            cached = cache.get(raw)
            tokens += self._analyse(raw) if cached is None else cached
        return tokens

    def token(self, form: str, *, is_plain: bool) -> str | None:
        """Return the token of a form with accents (:func:`word_forms`); ``None``: a stop word."""
        if not is_plain:
            return strip_accents(form)
        rules = self._rules
        if not form.isascii():
            form = form.replace("i\u0307", "i")  # what is left of a Turkish capital
            script = SCRIPTS.match(form)
            rules = word_rules(script.lastgroup) if script and script.lastgroup else rules
        if rules.language == "english":
            form = strip_accents(form)
        if self.stop_words and form in rules.stop_words:
            return None
        return strip_accents(rules.stem(form)) if self.stemming else strip_accents(form)

    def _analyse(self, raw: str) -> tuple[str, ...]:
        forms: Iterable[tuple[str, bool]] = ((raw, True),)  # of most words, which have one
        if not (raw.isascii() and raw.isalnum() and raw.islower() and len(raw) <= MAX_LENGTH):
            forms = word_forms(raw, accents=True, singles=self.singles)
        analysed = [self.token(form, is_plain=plain) for form, plain in forms if form]
        tokens = tuple([token for token in analysed if token])
        if len(self._cache) >= _CACHED:
            self._cache.clear()
        if len(raw) <= 64:
            self._cache[raw] = tokens
        return tokens
