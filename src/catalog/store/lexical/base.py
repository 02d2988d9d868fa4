"""The interface of lexical engines; ``catalog.testing`` tests every engine against it."""

from __future__ import annotations

from collections.abc import Sequence
from math import log1p
from typing import Protocol

from catalog.store.engine_types import Hits, Restriction
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
        """Return one engine for this dataset and those of other engines of the same name."""
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


def term_weight(passages: int, holding: int) -> float:
    """Return the idf of a term that ``holding`` of the passages contain; always above zero."""
    return log1p((passages - holding + 0.5) / (holding + 0.5))


def join_names(engines: Sequence[LexicalEngine]) -> tuple[str, ...]:
    """Return the datasets of all the engines."""
    return tuple(name for engine in engines for name in Restriction(engine.dataset).datasets)
