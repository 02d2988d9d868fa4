"""Turning text into the tokens that the index counts, the same for documents and queries.

A raw word is a run of letters, digits, underscores and combining marks, joined to the next
one by a single dot or hyphen, with a leading dot (``.net``) or a trailing ``++`` or ``#``
(``c++``, ``f#``). An English ending after an apostrophe (``user's``, ``don't``) is dropped.
Every pattern here takes time linear in the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING

from catalog.core.errors import ConfigError
from catalog.core.ids import sha1_hex

if TYPE_CHECKING:
    from Stemmer import Stemmer


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
_CASED = re.compile(
    r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z][a-z0-9]*|[A-Z0-9]+|[^A-Za-z0-9]+"
)
_ACCENTS = re.compile("[\u0300-\u036f]")


def raw_words(text: str) -> list[str]:
    """Return the raw words of a text in order, compatibility forms unified (NFKC), case kept."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return WORD.findall(text)


def fold(word: str) -> str:
    """Remove case and accents, so that ``Éclair`` and ``eclair`` are one word."""
    return _without_accents(word).casefold()


def _without_accents(word: str) -> str:
    if word.isascii():
        return word
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", word)))


def word_forms(raw: str) -> Iterator[tuple[str, bool]]:
    """Yield the searchable forms of a raw word, folded, each with whether it is a plain word.

    A compound comes whole first, then by its parts: ``foo.barBaz`` gives ``foo.barbaz``,
    ``foo``, ``barbaz``, ``bar``, ``baz``. Only plain words may be stemmed or be stop words.
    """
    raw = _without_accents(raw)  # before looking for capitals, of which [A-Z] knows no accented
    pieces = [piece for piece in _JOINT.split(raw) if piece]
    if pieces != [raw] and len(raw) <= MAX_LENGTH:
        yield raw.casefold().replace("\u2010", "-"), False
    for piece in pieces:
        yield from _underscored(piece)


def _underscored(piece: str) -> Iterator[tuple[str, bool]]:
    names = [name for name in piece.split("_") if name]
    if names != [piece] and names and len(piece) <= MAX_LENGTH:
        yield piece.casefold(), False
    for name in names:
        if UNSPACED.search(name):
            yield from _unspaced(name)
        else:
            yield from _cased(name)


def _cased(name: str) -> Iterator[tuple[str, bool]]:
    yield name.casefold()[:MAX_LENGTH], True
    if name.islower() or name.isupper() or len(name) > MAX_LENGTH:
        return
    humps = _CASED.findall(name)
    if len(humps) > 1:
        yield from ((hump.casefold(), True) for hump in humps if len(hump) > 1)


def _unspaced(name: str) -> Iterator[tuple[str, bool]]:
    """Yield overlapping pairs of characters of unspaced scripts, and letters between as words."""
    end = 0
    for run in UNSPACED.finditer(name):
        if run.start() > end:
            yield from _cased(name[end : run.start()])
        end = run.end()
        letters = run.group().casefold()
        if len(letters) == 1:
            yield letters, False
        yield from ((letters[at : at + 2], False) for at in range(len(letters) - 1))
    if end < len(name):
        yield from _cased(name[end:])


# What people put around a question. Not the longer published lists: those also drop "while",
# "from", "all" or the D of "vitamin D", which are what some passages are about.
_ENGLISH_QUESTION_WORDS = """
    i me my we us our you your he him his she her its them what which who whom whose when where
    why how do does did am been were has have had can could should would may might
    isn aren wasn weren doesn didn hasn haven hadn couldn shouldn wouldn
"""


@cache
def stop_words(language: str) -> frozenset[str]:
    """Return the stop words of a language, lower case; none for a language that has no list."""
    if language == "english":
        return frozenset(_bm25s_lists().STOPWORDS_EN) | set(_ENGLISH_QUESTION_WORDS.split())
    return frozenset(getattr(_bm25s_lists(), f"STOPWORDS_{language.upper()}", ()))


@cache
def _bm25s_lists() -> ModuleType:
    """Read the lists of bm25s from their own file: importing the package would load scipy."""
    package = find_spec("bm25s")
    if package is None or not package.submodule_search_locations:
        raise ConfigError("bm25s is not installed: run pip install bm25s")
    file = Path(package.submodule_search_locations[0]) / "stopwords.py"
    spec = spec_from_file_location("catalog_bm25s_stopwords", file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"the stop word lists cannot be read from {file}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RULES = 1  # raise it whenever the same text would give other tokens
_CACHED = 50_000  # raw words whose tokens are kept


@dataclass(frozen=True, slots=True)
class Analyzer:
    """Fold words, drop stop words and stem the rest; take compound words also by their parts.

    ``language`` is a Snowball name such as ``english`` or ``german``; another one raises
    :class:`ConfigError`. Single letters and digits are words like any other. Safe to share
    between threads.
    """

    language: str = "english"
    stop_words: bool = True
    stemming: bool = True
    _dropped: frozenset[str] = field(init=False, repr=False, compare=False)
    _stemmer: Stemmer = field(init=False, repr=False, compare=False)
    _cache: dict[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    _lock: Lock = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        dropped = stop_words(self.language) if self.stop_words else frozenset[str]()
        object.__setattr__(self, "_dropped", dropped)
        object.__setattr__(self, "_stemmer", _stemmer(self.language))
        object.__setattr__(self, "_cache", {})
        object.__setattr__(self, "_lock", Lock())

    @property
    def fingerprint(self) -> str:
        """Name the tokens this analyzer makes: an index of another fingerprint is of no use."""
        identity = f"{RULES}|{self.language}|{self.stemming}|{' '.join(sorted(self._dropped))}"
        return sha1_hex(identity)

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of a text in order, as often as they occur, in linear time."""
        cache = self._cache
        tokens: list[str] = []
        for raw in raw_words(text):
            cached = cache.get(raw)
            tokens += self._analyse(raw) if cached is None else cached
        return tokens

    def _analyse(self, raw: str) -> tuple[str, ...]:
        words = [
            (word, plain)
            for word, plain in word_forms(raw)
            if word != "" and not (plain and word in self._dropped)
        ]
        with self._lock:  # a Snowball stemmer serves one thread at a time
            stem = self._stemmer.stemWord
            tokens = tuple(stem(word) if plain and self.stemming else word for word, plain in words)
            if len(self._cache) >= _CACHED:
                self._cache.clear()
            if len(raw) <= 64:
                self._cache[raw] = tokens
        return tokens


def _stemmer(language: str) -> Stemmer:
    import Stemmer

    try:
        return Stemmer.Stemmer(language, 0)
    except KeyError:
        languages = ", ".join(sorted(Stemmer.algorithms()))
        raise ConfigError(f"no stemmer for language {language!r}; languages: {languages}") from None
