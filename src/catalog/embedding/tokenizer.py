"""A model's own tokenizer as a :class:`~catalog.core.tokens.TokenCounter`."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt
    from tokenizers import Tokenizer

_BLOCK = 100_000  # characters tokenised at once: an encoding costs some 100 bytes a token
_SPACE = re.compile(r"\s")


class ModelTokenCounter:
    """Counts with a ``tokenizer.json``; long texts are tokenised in blocks cut at white space."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self.name = name
        self._last: tuple[str, npt.NDArray[np.int64]] | None = None

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self._path))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    def spans(self, text: str) -> npt.NDArray[np.int64]:
        """Character offsets of every token but special ones: shape ``(n, 2)``, ascending."""
        last = self._last  # a document of one chunk is counted whole, and then as that chunk
        if last is not None and last[0] == text:
            return last[1]
        spans = self._spans(text)
        self._last = (text, spans)
        return spans

    def _spans(self, text: str) -> npt.NDArray[np.int64]:
        import numpy as np

        parts = [np.empty((0, 2), dtype=np.int64)]
        for start, end in _blocks(text):
            encoding = self._tokenizer.encode(text[start:end], add_special_tokens=False)
            if encoding.offsets:
                parts.append(np.asarray(encoding.offsets, dtype=np.int64) + start)
        return np.concatenate(parts)


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(text):
        end = min(start + _BLOCK, len(text))
        if end < len(text):
            space = _SPACE.search(text, end, end + _BLOCK)
            end = space.start() if space else min(end + _BLOCK, len(text))
        yield start, end
        start = end
