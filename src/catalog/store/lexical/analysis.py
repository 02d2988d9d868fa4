"""Turning text into the tokens that the index counts, the same for documents and queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from catalog.core.errors import ConfigError
from catalog.core.ids import sha1_hex
from catalog.store.lexical.stop_words import stop_words
from catalog.store.lexical.words import parts, raw_words

if TYPE_CHECKING:
    from Stemmer import Stemmer

RULES = 1  # raise it whenever the same text would give other tokens
_REMEMBERED = 50_000  # raw words whose tokens are kept


@dataclass(frozen=True, slots=True)
class Analyzer:
    """Words folded, stop words dropped, the rest stemmed, compound words also by their parts.

    ``language`` is a Snowball name such as ``english`` or ``german``; another one raises
    :class:`ConfigError`. Single letters and digits are words like any other. Safe to share
    between threads.
    """

    language: str = "english"
    stop_words: bool = True
    stemming: bool = True
    _dropped: frozenset[str] = field(init=False, repr=False, compare=False)
    _stemmer: Stemmer = field(init=False, repr=False, compare=False)
    _known: dict[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    _lock: Lock = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        dropped = stop_words(self.language) if self.stop_words else frozenset[str]()
        object.__setattr__(self, "_dropped", dropped)
        object.__setattr__(self, "_stemmer", _stemmer(self.language))
        object.__setattr__(self, "_known", {})
        object.__setattr__(self, "_lock", Lock())

    @property
    def fingerprint(self) -> str:
        """Names the tokens this analyzer makes: an index of another fingerprint is of no use."""
        about = f"{RULES}|{self.language}|{self.stemming}|{' '.join(sorted(self._dropped))}"
        return sha1_hex(about)

    def tokens(self, text: str) -> list[str]:
        """The tokens of a text in order, as often as they occur; in time linear in the text."""
        known = self._known
        out: list[str] = []
        for raw in raw_words(text):
            found = known.get(raw)
            out += self._analyse(raw) if found is None else found
        return out

    def _analyse(self, raw: str) -> tuple[str, ...]:
        kept = [
            (word, plain)
            for word, plain in parts(raw)
            if word != "" and not (plain and word in self._dropped)
        ]
        with self._lock:  # a Snowball stemmer serves one thread at a time
            stem = self._stemmer.stemWord
            found = tuple(stem(word) if plain and self.stemming else word for word, plain in kept)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            if len(raw) <= 64:
                self._known[raw] = found
        return found


def _stemmer(language: str) -> Stemmer:
    import Stemmer

    try:
        return Stemmer.Stemmer(language, 0)
    except KeyError:
        known = ", ".join(sorted(Stemmer.algorithms()))
        raise ConfigError(f"no stemmer for language {language!r}; languages: {known}") from None
