"""The interface of lexical engines; ``catalog.testing`` tests every engine against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from catalog.store.engine_types import Hits, Restriction, best_first, join_spreads
from catalog.store.filter_sql import DatasetNames


class LexicalEngine(Protocol):
    """Keyword search over one dataset's chunks."""

    @property
    def name(self) -> str:
        """Return the engine's name in settings, stages and explanations."""
        ...

    @property
    def dataset(self) -> DatasetNames:
        """Return the dataset, or the datasets, that it searches."""
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
        """Return whether the text has a word that is no stop word."""
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

    def join(self, others: Sequence[LexicalEngine]) -> LexicalEngine:
        """Return one engine over this dataset and those of engines of the same name.

        :class:`JoinedEngines` is one for engines that have no statistics to share.
        """
        ...

    def refresh(self) -> None:
        """Bring what is derived up to date and persist it; searching without it is only slower.

        What a server has of a dataset that was removed is dropped.
        """
        ...

    def verify(self) -> int:
        """Return the number of derived files that are not as they were written."""
        ...

    def close(self) -> None:
        """Release files and memory."""
        ...


def join_names(engines: Sequence[LexicalEngine]) -> tuple[str, ...]:
    """Return the datasets of all the engines."""
    return tuple(name for engine in engines for name in Restriction(engine.dataset).datasets)


class JoinedEngines:
    """Keyword search over the datasets of ``engines``, each by its own words.

    How rare a word is, and how long a passage is on average, are those of its own dataset. The
    engines stay their owner's to close.
    """

    def __init__(self, engines: Sequence[LexicalEngine]) -> None:
        self._engines = tuple(engines)
        self.dataset: DatasetNames = join_names(engines)

    @property
    def name(self) -> str:
        """Return the name of the engines."""
        return self._engines[0].name

    def search(self, text: str, k: int, restriction: Restriction) -> Hits:
        """Search as :class:`LexicalEngine` says; one to other datasets finds nothing."""
        if restriction.dataset != self.dataset:
            return Hits()
        found = [
            (engine, engine.search(text, k, replace(restriction, dataset=engine.dataset)))
            for engine in self._engines
        ]
        fallback = next((hits.fallback for _, hits in found if hits.fallback), "")
        spreads = [(engine.document_counts(())[0], hits.spread) for engine, hits in found]
        hits = best_first((hit for _, hits in found for hit in hits), k)
        return Hits(hits, join_spreads(spreads), fallback)

    def is_searchable(self, text: str) -> bool:
        """Return whether the text has a word to look for in any of the datasets."""
        return any(engine.is_searchable(text) for engine in self._engines)

    def document_counts(self, words: Sequence[str]) -> tuple[int, list[int]]:
        """Return the sum of the engines' counts."""
        counted = [engine.document_counts(words) for engine in self._engines]
        each = zip(*(numbers for _, numbers in counted), strict=True)
        return sum(size for size, _ in counted), [sum(numbers) for numbers in each]

    def correct(self, text: str, restriction: Restriction) -> dict[str, str]:
        """Return ``{}``: a word that one dataset lacks may be right in another."""
        del text, restriction
        return {}

    def languages(self) -> dict[str, int]:
        """Return the languages of the passages of all datasets."""
        counts: Counter[str] = Counter()
        for engine in self._engines:
            counts.update(engine.languages())
        return dict(counts)

    def join(self, others: Sequence[LexicalEngine]) -> LexicalEngine:
        """Return one engine over these datasets and the other engines' ones."""
        return JoinedEngines([*self._engines, *others])

    def refresh(self) -> None:
        """Bring the index of each dataset up to date."""
        for engine in self._engines:
            engine.refresh()

    def verify(self) -> int:
        """Return the number of derived files, or points, that are not as they were written."""
        return sum(engine.verify() for engine in self._engines)

    def close(self) -> None:
        """Do nothing: the engines stay open."""
