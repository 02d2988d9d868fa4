"""A model that ends its process at certain words: for processes that may be killed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from catalog.core.tokens import CharTokenCounter
from fakes import WordEncoder
from lethal_work import die

FATAL = "ENDSITSPROCESS"


class LethalCounter(CharTokenCounter):
    """Ends the process that counts the tokens of a text with the word."""

    def spans(self, text: str) -> Any:
        if f"{FATAL} cut" in text:
            die()
        return super().spans(text)


class LethalEncoder(WordEncoder):
    """Ends the process that embeds a text with the word, or that cuts it where it says so.

    The first process that embeds the word ``once`` is ended, too, and leaves ``mark`` behind.
    """

    counter = LethalCounter()

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark = mark

    def encode(self, texts: Sequence[str]) -> list[Any]:
        if any(f"{FATAL} embedded" in text for text in texts):
            die()
        if any("once" in text for text in texts) and not self.mark.exists():
            self.mark.touch()
            die()
        return super().encode(texts)
