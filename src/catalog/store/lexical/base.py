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
        """Return the dataset, or the datasets, that the engine searches."""
        ...

    def search(self, text: str, k: int, restriction: Restriction) -> Hits:
        """Return the ``k`` best chunks with at least one word of ``text``, best first.

        Any text is safe: no character acts as an operator. Every score is above zero. A text
        without an indexable word, an empty corpus or an empty scope gives ``[]``. A text of stop
        words only finds passages with these words. The answer reflects the store as committed when
        the call began. The spread covers all chunks of the dataset, allowed or not; a chunk with
        none of the words scores 0.
        """
        ...

    def is_searchable(self, text: str) -> bool:
        """Return whether the text has a word that is not a stop word."""
        ...

    def document_counts(self, words: Sequence[str]) -> tuple[int, list[int]]:
        """Return the number of passages, and for each word the number of passages with it.

        ``words`` are raw words (:data:`catalog.store.lexical.analysis.WORD`). A stop word that is
        not searched counts 0. An engine may stop counting a word after some thousands.
        """
        ...

    def correct(self, text: str, restriction: Restriction) -> dict[str, str]:
        """Return words of a text that may be misspelt, each with a suggested word.

        A misspelt word occurs in no passage that the restriction allows; the suggested word does.
        An engine without a list of its words returns ``{}``.
        """
        ...

    def languages(self) -> dict[str, int]:
        """Return the number of passages by detected language.

        ``""`` is for passages of unknown language. An engine that treats all passages as one
        language returns ``{}``.
        """
        ...

    def join(self, others: Sequence[LexicalEngine]) -> LexicalEngine:
        """Return one engine for this dataset and those of other engines of the same name.

        Use :class:`JoinedEngines` for engines that cannot share statistics.
        """
        ...

    def refresh(self) -> None:
        """Bring derived files up to date and save them; without it, searches are only slower.

        On a server this also drops the data of a removed dataset.
        """
        ...

    def verify(self) -> int:
        """Return the number of derived files that changed since they were written."""
        ...

    def close(self) -> None:
        """Release files and memory."""
        ...


def join_names(engines: Sequence[LexicalEngine]) -> tuple[str, ...]:
    """Return the datasets of all the engines."""
    return tuple(name for engine in engines for name in Restriction(engine.dataset).datasets)


class JoinedEngines:
    """Keyword search over the datasets of ``engines``, each ranked by its own statistics.

    Rarity of words and average length of passages are counted per dataset. Closing this object
    leaves the engines open.
    """

    def __init__(self, engines: Sequence[LexicalEngine]) -> None:
        self._engines = tuple(engines)
        self.dataset: DatasetNames = join_names(engines)

    @property
    def name(self) -> str:
        """Return the name of the engines."""
        return self._engines[0].name

    def search(self, text: str, k: int, restriction: Restriction) -> Hits:
        """Search as :class:`LexicalEngine` says; a restriction to other datasets finds nothing."""
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
        """Return ``{}``: a word that one dataset lacks may occur in another."""
        del text, restriction
        return {}

    def languages(self) -> dict[str, int]:
        """Return the languages of the passages of all datasets."""
        counts: Counter[str] = Counter()
        for engine in self._engines:
            counts.update(engine.languages())
        return dict(counts)

    def join(self, others: Sequence[LexicalEngine]) -> LexicalEngine:
        """Return one engine for these datasets and those of the other engines."""
        return JoinedEngines([*self._engines, *others])

    def refresh(self) -> None:
        """Bring the index of each dataset up to date."""
        for engine in self._engines:
            engine.refresh()

    def verify(self) -> int:
        """Return the number of derived files, or points, that changed since they were written."""
        return sum(engine.verify() for engine in self._engines)

    def close(self) -> None:
        """Do nothing: the engines stay open."""
