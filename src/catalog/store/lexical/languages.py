"""Detect the language of a text; give each language's stop words and stemmer.

Languages have their Snowball names; those without a stemmer have their English names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from operator import itemgetter
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from catalog.core.errors import ConfigError

if TYPE_CHECKING:
    from Stemmer import Stemmer

# Words around a question. The longer published lists also drop "while", "from", "all" or the D
# of "vitamin D", but some passages are about just these.
_ENGLISH_QUESTION_WORDS = """
    i me my we us our you your he him his she her its them what which who whom whose when where
    why how do does did am been were has have had can could should would may might
    isn aren wasn weren doesn didn hasn haven hadn couldn shouldn wouldn
"""
# Words that distinguish English from other languages, in addition to its stop words.
_ENGLISH_FUNCTION_WORDS = """
    about after all also any because before being between both each from here how just more most
    only other over same so some than those through under until up very while
"""
LATIN_LANGUAGES = (
    "english", "german", "french", "spanish", "italian", "portuguese", "dutch", "swedish",
    "danish", "norwegian", "turkish", "catalan", "finnish", "hungarian", "romanian",
)  # fmt: skip
# Letters of a single stemmer: words in them go to it, whatever the language of the text.
SCRIPTS = re.compile(
    "(?P<russian>[\u0400-\u04ff]+)|(?P<greek>[\u0370-\u03ff\u1f00-\u1fff]+)"
    "|(?P<arabic>[\u0600-\u06ff\u0750-\u077f]+)|(?P<armenian>[\u0531-\u058f]+)"
    "|(?P<hindi>[\u0900-\u097f]+)|(?P<tamil>[\u0b80-\u0bff]+)"
)
_LETTERS = (  # compiled when needed: that takes milliseconds
    f"{SCRIPTS.pattern}|(?P<japanese>[\u3040-\u30ff]+)|(?P<chinese>[\u3400-\u4dbf\u4e00-\u9fff]+)"
    "|(?P<korean>[\uac00-\ud7af]+)|(?P<thai>[\u0e00-\u0e7f]+)|(?P<hebrew>[\u0590-\u05ff]+)"
)
_NOT_RUSSIAN = re.compile("[\u0402-\u040c\u040e\u040f\u0452-\u045f\u0460-\u052f]")
_NOT_LATIN = "[\u0370-\u1cff\u1f00-\u1fff\u3040-\ud7af]+"
_LATIN = re.compile("[A-Za-z\u00c0-\u024f]+")
_MOST_SPACES = 8  # a text in non-Latin letters has at most this many characters for each letter
# Index files store positions in this list: append, never insert.
LANGUAGES = (
    "", *LATIN_LANGUAGES, "russian", "greek", "arabic", "armenian", "hindi", "tamil",
    "japanese", "chinese", "korean", "thai", "hebrew", "cyrillic",
)  # fmt: skip

_DENSE = frozenset({"japanese", "chinese", "korean"})
_LETTERS_OF_DENSE = 2.5  # Latin letters for the content of one such character
_MOST_FOREIGN = 0.01  # share of letters in a Russian text that Russian lacks
_LEAST_KANA = 0.1  # share of kana in a Japanese text
_LEAST_SCORE = 1.0  # function words; one of n languages counts 1/n for each
_LEAST_LEAD = 1.5  # ratio to the score of the next language
_SURELY = 6  # English function words, and their ratio to other function words
_LEAST_SHARE = 0.04  # of the text's distinct words


def detect_language(text: str, words: Iterable[str]) -> str | None:
    """Return the language of a text with these words, ``None`` if it is not clear.

    Texts in other than Latin letters go by their letters: Cyrillic is Russian unless it has letters
    that Russian lacks (then ``cyrillic``), Arabic letters are Arabic, Devanagari is Hindi. Texts in
    Latin letters go by their distinct function words; a word of several languages counts for each
    in equal parts. Takes time linear in the text.
    """
    if language := language_of_letters(text):
        return language
    (profiles, of_english), words = _profiles(), tuple(words)
    common = profiles.keys() & words
    english = len(common & of_english)
    if english >= _SURELY and english >= _SURELY * (len(common) - english):
        return "english"  # a shortcut with the same result: most texts are English
    scores: defaultdict[str, float] = defaultdict(float)
    for word in common:
        for language in profiles[word]:
            scores[language] += 1 / len(profiles[word])
    first = max(scores, key=scores.__getitem__, default="")
    score = scores.pop(first, 0.0)
    is_enough = score >= max(_LEAST_SCORE, _LEAST_SHARE * len({*words}))
    is_clear = score >= _LEAST_LEAD * max(scores.values(), default=0.0)
    return first if is_enough and is_clear else None


def language_of_letters(text: str) -> str | None:
    """Return the language of most of a text's letters, ``None`` if they are Latin."""
    if text.isascii() or len("".join(re.findall(_NOT_LATIN, text))) * _MOST_SPACES < len(text):
        return None
    letters: defaultdict[str, float] = defaultdict(float)
    for run in re.finditer(_LETTERS, text):
        name = run.lastgroup or ""
        letters[name] += len(run.group()) * (_LETTERS_OF_DENSE if name in _DENSE else 1)
    kana, han = letters["japanese"], letters["chinese"]
    if kana > _LEAST_KANA * (kana + han):
        letters |= {"japanese": kana + han, "chinese": 0}
    language, most = max(letters.items(), key=itemgetter(1))
    if language == "russian" and len(_NOT_RUSSIAN.findall(text)) > _MOST_FOREIGN * most:
        language = "cyrillic"  # not Russian, so that no model is taken to know it
    return language if most > sum(map(len, _LATIN.findall(text))) else None


@cache
def _profiles() -> tuple[dict[str, list[str]], frozenset[str]]:
    """Return the languages in Latin letters of each function word, and the English words."""
    lists = {language: set(stop_words(language)) for language in LATIN_LANGUAGES}
    lists["english"] |= set(_ENGLISH_FUNCTION_WORDS.split())
    languages: defaultdict[str, list[str]] = defaultdict(list)
    for language, words in lists.items():
        for word in words:
            if len(word) > 1 or not word.isascii():  # a letter may be a name or a symbol
                languages[word].append(language)
    return dict(languages), frozenset(lists["english"])


@cache
def stop_words(language: str) -> frozenset[str]:
    """Return the lower-case stop words of a language; empty if there is no list for it."""
    listed = Path(__file__).with_name("stop_words.txt").read_text(encoding="utf-8")
    words = listed.partition(f"\n[{language}]")[2].partition("\n[")[0].split()
    return frozenset(words + _ENGLISH_QUESTION_WORDS.split() * (language == "english"))


@dataclass(frozen=True, slots=True)
class WordRules:
    """The stop words and the stemmer of one language; safe to share between threads."""

    language: str
    stop_words: frozenset[str]
    _stemmer: Stemmer = field(repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def stem(self, word: str) -> str:
        """Return the stem of a lower-case word with its accents."""
        with self._lock:  # a Snowball stemmer serves one thread at a time
            return str(self._stemmer.stemWord(word))


@cache
def word_rules(language: str) -> WordRules:
    """Return the rules of a language; raise :class:`ConfigError` if Snowball has no stemmer."""
    import Stemmer

    try:
        return WordRules(language, stop_words(language), Stemmer.Stemmer(language, 0))
    except KeyError:
        languages = ", ".join(sorted(Stemmer.algorithms()))
        raise ConfigError(f"no stemmer for language {language!r}; languages: {languages}") from None
