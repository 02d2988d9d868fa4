"""What a lexical engine must do; ``tests/contracts`` holds every engine to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from catalog.store.engine_types import Hits, Restriction


class LexicalEngine(Protocol):
    """Keyword search over one dataset's chunks."""

    @property
    def name(self) -> str:
        """Return the engine's name in settings, stages and explanations."""
        ...

    def search(self, text: str, k: int, restriction: Restriction) -> Hits:
        """Return the ``k`` best chunks holding at least one word of ``text``, best first.

        Any text is safe: no character acts as an operator. Every score is above zero; a text
        with no indexable word, an empty corpus or a scope of nothing answer ``[]``. A text of
        stop words alone finds passages with them, best in that order. The answer reflects the
        truth as committed when the call began. The spread is over all chunks of the dataset,
        allowed or not; one without any of the words scores 0.
        """
        ...

    def is_searchable(self, text: str) -> bool:
        """Tell whether the text has a word that is no stop word."""
        ...

    def document_counts(self, words: Sequence[str]) -> tuple[int, list[int]]:
        """Return the number of passages, and for each word how many of them contain it.

        ``words`` are raw words (:data:`catalog.store.lexical.analysis.WORD`). A stop word that is
        not searched for counts 0. An engine may stop counting a word at some thousands.
        """
        ...

    def correct(self, text: str, restriction: Restriction) -> dict[str, str]:
        """Return the words of a text that may be misspelt, each with the word that it may mean.

        A misspelt word is in no passage that the restriction allows, and what it may mean is in
        one, spelt so. An engine without a list of its words returns ``{}``.
        """
        ...

    def languages(self) -> dict[str, int]:
        """Return the languages that passages are known to be in, with how many are in each.

        ``""`` stands for unknown ones; an engine that takes all for one language returns ``{}``.
        """
        ...

    def refresh(self) -> None:
        """Bring what is derived up to date and persist it; searching without it is only slower."""
        ...

    def verify(self) -> int:
        """Return the number of derived files that are not as they were written."""
        ...

    def close(self) -> None:
        """Release files and memory."""
        ...


class EngineOfOne(LexicalEngine, Protocol):
    """A lexical engine that says of which dataset it is."""

    dataset: str


EngineT = TypeVar("EngineT", bound=EngineOfOne)


class JoinedEngines(Generic[EngineT]):
    """The base of an engine over several datasets, made of one for each of them."""

    def __init__(self, engines: Sequence[EngineT]) -> None:
        self._engines = tuple(engines)
        self._datasets = tuple(engine.dataset for engine in engines)

    def languages(self) -> dict[str, int]:
        """Return the languages of the passages of all datasets."""
        counts: Counter[str] = Counter()
        for engine in self._engines:
            counts.update(engine.languages())
        return dict(counts)

    def refresh(self) -> None:
        """Bring what is derived of each dataset up to date."""
        for engine in self._engines:
            engine.refresh()

    def verify(self) -> int:
        """Return the number of derived files, or points, that are not as they were written."""
        return sum(engine.verify() for engine in self._engines)
