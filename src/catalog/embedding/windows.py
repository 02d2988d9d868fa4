"""Count with a model's own tokenizer, and cut a passage into windows that fit the model."""

from __future__ import annotations

import math
import re
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from catalog.core.lru_cache import LRUCache
from catalog.core.tokens import TokenCounter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import numpy.typing as npt
    from tokenizers import Tokenizer


_BLOCK = 100_000  # characters tokenised at once: an encoding costs some 100 bytes a token
_KEPT = 100_000  # tokens with cached offsets, 16 bytes each
_SPACE = re.compile(r"\s")


class ModelTokenCounter:
    """Count with a ``tokenizer.json``; long texts are tokenised in blocks cut at white space."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self.name = name
        self._counted: LRUCache[str, npt.NDArray[np.int64]] = LRUCache(
            _KEPT, lambda it: 1 + len(it)
        )

    def __reduce__(self) -> tuple[type[ModelTokenCounter], tuple[Path, str]]:
        """Return how to pickle the counter: by its arguments, without the loaded tokenizer."""
        return ModelTokenCounter, (self._path, self.name)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self._path))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the numbers of each text's tokens, without special ones."""
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def spans(self, text: str) -> npt.NDArray[np.int64]:
        """Return the character offsets of all but special tokens: shape ``(n, 2)``, ascending."""
        spans = self._counted.get(text)  # of one chunk a document is counted, and then that chunk
        if spans is None:
            spans = self._spans(text)
            self._counted.put(text, spans)
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


SPECIAL_TOKENS = 2  # [CLS] and [SEP], or their like
_SPARE = 8  # tokens by which a cut text may be longer than the tokens of the whole that it holds


def split_into_windows(
    text: str, counter: TokenCounter, max_tokens: int, lead: str = "", *, tokens: int | None = None
) -> list[str]:
    """Cut ``text`` into pieces, each with ``lead`` before it, none over ``max_tokens``.

    A passage that fits is one window. A longer one is cut into as few windows as possible, of about
    equal size, if possible between words. A lead that would take most of the window is cut.
    ``tokens`` is the size of the text if it was already counted as part of a longer one; then a
    text that is sure to fit is not counted again.
    """
    room = max_tokens - SPECIAL_TOKENS
    sure = room - _SPARE - _count_bytes(lead)  # any token has at least a byte
    if sure >= max_tokens // 2 and (0 < (tokens or 0) <= sure or _count_bytes(text) <= sure):
        return [lead + text]
    lead_tokens = len(counter.spans(lead)) if lead else 0
    if lead and room - lead_tokens < max_tokens // 2:
        keep = max_tokens // 2 - SPECIAL_TOKENS
        lead, lead_tokens = lead[: int(counter.spans(lead)[keep - 1, 1])] + "\n", keep + 1
    room -= lead_tokens
    spans = counter.spans(text)
    if len(spans) <= room:
        return [lead + text]
    pieces = math.ceil(len(spans) / room)
    bounds = [0]
    for piece in range(1, pieces):
        target = round(piece * len(spans) / pieces)
        lowest = max(bounds[-1] + 1, int(spans[target - room // 8, 0]))
        bounds.append(_word_start(text, lowest, int(spans[target, 0])))
    parts = (text[start:end].strip() for start, end in pairwise([*bounds, len(text)]))
    return [window for part in parts if part for window in _fit(lead + part, counter, max_tokens)]


def _count_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _word_start(text: str, lowest: int, target: int) -> int:
    """Return the last place from ``lowest`` to ``target`` where a word begins, or ``target``."""
    last = max(text.rfind(space, lowest, target) for space in " \n\t")
    return target if last < 0 else last + 1


def _fit(window: str, counter: TokenCounter, max_tokens: int) -> list[str]:
    """Return the window, or its halves if cut words make it longer than ``max_tokens``."""
    spans = counter.spans(window)
    if len(spans) + SPECIAL_TOKENS <= max_tokens:
        return [window]
    middle = int(spans[len(spans) // 2, 0])
    return [
        part
        for half in (window[:middle], window[middle:])
        for part in _fit(half, counter, max_tokens)
    ]
