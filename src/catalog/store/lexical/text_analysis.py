"""The tokens of each passage in its own language, and of a query in all that a dataset holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from catalog.core.ids import sha1_hex
from catalog.store.lexical.analysis import (
    Analyzer,
    capital_name,
    is_in_capitals,
    join_neighbours,
    join_parts,
    number_within,
    raw_words,
    split_runs,
    word_forms,
)
from catalog.store.lexical.languages import (
    LANGUAGES,
    LATIN_LANGUAGES,
    detect_language,
    stop_words,
    word_rules,
)

RULES = 5  # raise it whenever the same text would give other tokens

_LETTERS = re.compile(r"[^\W\d_]+")
_CAPITALS = 3  # words of a query that is in capitals as a whole: fewer are names

_NOT_LATIN = frozenset(LANGUAGES) - frozenset(LATIN_LANGUAGES)
Term = tuple[str, ...]
"""The ways to write one word: tokens, in several languages. ``rtx 4090`` stands for both tokens."""


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
        tokens = self._analyzer(language, is_passage=True).tokens_of(raws)
        if is_in_capitals(raws):
            tokens = [token for token in tokens if not token.isupper()]
        return language, tokens

    def find_spellings(self, text: str, token: str) -> Iterator[str]:
        """Yield the words of a passage that have the token, as written there."""
        raws = raw_words(text)
        analyzer = self._analyzer(self.language or detect_language(text, raws), is_passage=True)
        for raw in dict.fromkeys(raws):
            if token in analyzer.tokens_of([raw]):
                yield from (
                    word for word in _LETTERS.findall(raw) if token in analyzer.tokens_of([word])
                )

    def query_terms(self, text: str, languages: Iterable[str]) -> list[Term]:
        """Return the words of a query, each by its tokens in the languages, as often as they occur.

        Stop words are left out: those of each language, and those that all the languages have to
        which most of the query's words belong. One in capitals is a name.
        """
        languages = languages if self.language is None else (self.language,)
        spoken = dict.fromkeys(_latin(language) for language in languages) or {"english": None}
        analyzers = [self._analyzer(language, is_passage=False) for language in spoken]
        raws = raw_words(text)
        common = self._common_words(raws, tuple(spoken))
        return [term for terms in terms_of_words(raws, analyzers, common) for term in terms]

    def _analyzer(self, language: str | None, *, is_passage: bool) -> Analyzer:
        key = (_latin(language or ""), is_passage)
        if key not in self._analyzers:
            of_language = Analyzer(key[0], self.stop_words, self.stemming, is_passage=is_passage)
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


def other_spellings(text: str) -> list[str]:
    """Return how names in a query may be joined or split otherwise: for engines with own words.

    ``RTX 4090`` gives ``rtx4090``, and ``XK-320`` gives ``xk320``, ``xk 320``.
    """
    raws = raw_words(text)
    spellings = []
    for raw in raws:
        joined = join_parts(raw)
        spellings += [joined, " ".join(split_runs(raw)), number_within(raw)]
    spellings += [joined for _, joined in join_neighbours(raws)]
    written = {raw.casefold() for raw in raws}
    return [one for one in dict.fromkeys(spellings) if one and one not in written]


def terms_of_words(
    raws: Sequence[str], analyzers: Sequence[Analyzer], dropped: frozenset[str] = frozenset()
) -> list[list[Term]]:
    """Return the terms of each raw word of a query; a stop word has none.

    ``dropped`` are further stop words. The first term of a word is the whole word, joined or
    split: ``RTX4090``, ``RTX-4090`` and ``RTX 4090`` find one another. Its parts follow.
    """
    has_names = len(raws) < _CAPITALS or not is_in_capitals(raws)
    by_word = [_terms_of(raw, analyzers, dropped, has_names=has_names) for raw in raws]
    for places, joined in join_neighbours(raws):
        if by_word[places[0]] and (len(places) == 2 or by_word[places[1]]):
            also = _tokens_of(joined, analyzers)
            for terms in (by_word[place] for place in places if by_word[place]):
                terms[0] = tuple(dict.fromkeys((*terms[0], *also)))
    return by_word


def _terms_of(
    raw: str, analyzers: Sequence[Analyzer], dropped: frozenset[str], *, has_names: bool
) -> list[Term]:
    terms: list[Term] = []
    name = capital_name(raw) if has_names else ""
    if name and any(
        analyzer.token(name.casefold(), is_plain=True) is None for analyzer in analyzers
    ):
        terms.append((name,))
    for form, is_plain in word_forms(raw, accents=True):
        if form == "" or (is_plain and form in dropped):
            continue
        term = _tokens_of(form, analyzers, is_plain=is_plain)
        if term:
            terms.append(term)
    if terms and not raw.isalpha():
        apart = [_tokens_of(run, analyzers)[:1] for run in split_runs(raw)]
        if apart and all(apart):
            terms[0] = (*terms[0], " ".join(run for (run,) in apart))
        number = number_within(raw)
        if number and (number,) not in terms:
            terms.append((number,))
    return terms


def _tokens_of(form: str, analyzers: Sequence[Analyzer], *, is_plain: bool = True) -> Term:
    tokens = (analyzer.token(form, is_plain=is_plain) for analyzer in analyzers)
    return tuple(dict.fromkeys(token for token in tokens if token))


def _latin(language: str) -> str:
    """Return the language whose rules Latin letters follow in a text of that one."""
    return "english" if language in _NOT_LATIN else language
