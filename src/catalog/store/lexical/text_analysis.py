"""The tokens of each passage in its own language, and of a query in all that a dataset holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from catalog.core.ids import sha1_hex
from catalog.store.lexical.analysis import Analyzer, raw_words, word_forms
from catalog.store.lexical.languages import (
    LANGUAGES,
    LATIN_LANGUAGES,
    detect_language,
    stop_words,
    word_rules,
)

RULES = 2  # raise it whenever the same text would give other tokens

_NOT_LATIN = frozenset(LANGUAGES) - frozenset(LATIN_LANGUAGES)
Term = tuple[str, ...]  # the tokens of one word in several languages


@dataclass(frozen=True, slots=True)
class TextAnalyzer:
    """Analyse texts in the languages they are in; ``language`` is one to take for all of them.

    ``stop_words`` are dropped and ``stemming`` is done unless switched off. Safe to share between
    threads.
    """

    language: str | None = None
    stop_words: bool = True
    stemming: bool = True
    _analyzers: dict[tuple[str, bool], Analyzer] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.language is not None:
            word_rules(self.language)  # raises ConfigError for one that has no stemmer

    @property
    def fingerprint(self) -> str:
        """Name the tokens this analyzer makes: an index of another fingerprint is of no use."""
        lists = [" ".join(sorted(stop_words(language))) for language in LANGUAGES]
        return sha1_hex(f"{RULES}|{self.language}|{self.stop_words}|{self.stemming}|{lists}")

    def language_of(self, text: str) -> str | None:
        """Return the language that a text is analysed in, ``None`` where its words do not tell."""
        return self.language or detect_language(text, raw_words(text))

    def analyse(
        self, text: str, otherwise: Callable[[], str | None]
    ) -> tuple[str | None, list[str]]:
        """Return the language of a passage, and its tokens as often as they occur.

        ``otherwise`` is asked for the language where the passage's own words do not tell.
        """
        raws = raw_words(text)
        language = self.language or detect_language(text, raws) or otherwise()
        return language, self._analyzer(language, singles=True).tokens_of(raws)

    def query_terms(self, text: str, languages: Iterable[str]) -> list[Term]:
        """Return the words of a query, each by its tokens in the languages, as often as they occur.

        Stop words are left out: those of each language, and those that all the languages have to
        which most of the query's words belong, unless it has no others.
        """
        languages = languages if self.language is None else (self.language,)
        spoken = dict.fromkeys(_latin(language) for language in languages) or {"english": None}
        analyzers = [self._analyzer(language, singles=False) for language in spoken]
        raws = raw_words(text)
        common = self._common_words(raws, tuple(spoken))
        terms = [term for raw in raws for term in _terms_of(raw, analyzers, common)]
        return terms or [term for raw in raws for term in _terms_of(raw, analyzers, frozenset())]

    def _analyzer(self, language: str | None, *, singles: bool) -> Analyzer:
        key = (_latin(language or ""), singles)
        if key not in self._analyzers:
            of_language = Analyzer(key[0], self.stop_words, self.stemming, singles=singles)
            self._analyzers[key] = of_language
        return self._analyzers[key]

    def _common_words(self, raws: Sequence[str], languages: tuple[str, ...]) -> frozenset[str]:
        """Return the stop words of the languages that have most of them in the query."""
        if len(languages) == 1 or not self.stop_words:
            return frozenset()
        words = {raw.casefold() for raw in raws}
        counts = {language: len(words & stop_words(language)) for language in languages}
        most = max(counts.values())
        likely = [stop_words(language) for language, count in counts.items() if count == most]
        return frozenset.intersection(*likely) if most else frozenset()


def _terms_of(raw: str, analyzers: Sequence[Analyzer], dropped: frozenset[str]) -> list[Term]:
    terms = []
    for form, is_plain in word_forms(raw, accents=True):
        if form == "" or (is_plain and form in dropped):
            continue
        tokens = (analyzer.token(form, is_plain=is_plain) for analyzer in analyzers)
        term = tuple(dict.fromkeys(token for token in tokens if token))
        if term:
            terms.append(term)
    return terms


def _latin(language: str) -> str:
    """Return the language whose rules Latin letters follow in a text of that one."""
    return "english" if language in _NOT_LATIN else language
