"""Count with a model's own tokenizer, and cut a passage into windows that fit the model."""

from __future__ import annotations

import math
import re
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from catalog.core.kept import LRUCache
from catalog.core.tokens import TokenCounter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from tokenizers import Tokenizer

SPECIAL_TOKENS = 2  # [CLS] and [SEP], or their like
_SPARE = 8  # tokens by which a cut text may be longer than the tokens of the whole that it holds
# What is tokenised at once, up to white space: an encoding costs some 100 bytes a token.
_BLOCK = re.compile(r"[\s\S]{1,100000}\S{0,100000}")
_KEPT = 100_000  # tokens with cached offsets, 16 bytes each


@lru_cache(maxsize=4)
def _load_tokenizer(path: Path, changed: int) -> Tokenizer:  # noqa: ARG001 - part of the key
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


class ModelTokenCounter:
    """Count with a ``tokenizer.json``; long texts are tokenised in blocks cut at white space."""

    def __init__(self, path: Path, name: str) -> None:
        self._path, self.name = path, name
        self._counted = LRUCache[str, "npt.NDArray[np.int64]"](_KEPT, lambda it: 1 + len(it))

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, loaded at its first use."""
        return _load_tokenizer(self._path, self._path.stat().st_mtime_ns)

    def spans(self, text: str) -> npt.NDArray[np.int64]:
        """Return the character offsets of all but special tokens: shape ``(n, 2)``, ascending."""
        import numpy as np

        spans = self._counted.get(text)  # of one chunk a document is counted, and then that chunk
        if spans is None:
            parts = [np.empty((0, 2), dtype=np.int64)]
            for block in _BLOCK.finditer(text):
                encoding = self.tokenizer.encode(block[0], add_special_tokens=False)
                found = np.asarray(encoding.offsets, dtype=np.int64).reshape(-1, 2)
                parts.append(found + block.start())
            spans = np.concatenate(parts)
            self._counted.put(text, spans)
        return spans


def split_into_windows(
    text: str, counter: TokenCounter, max_tokens: int, lead: str = "", *, tokens: int | None = None
) -> list[str]:
    """Cut ``text`` into as few windows of about equal size as fit, each with ``lead`` before it.

    Windows begin at words where possible. A lead that takes most of a window is cut. ``tokens`` is
    the size of the text in a longer one: then a text that is sure to fit is not counted again.
    """
    room = max_tokens - SPECIAL_TOKENS
    sure = room - _SPARE - len(lead.encode("utf-8", "surrogatepass"))
    size = tokens or len(text.encode("utf-8", "surrogatepass"))  # any token has at least a byte
    if sure >= max_tokens // 2 and size <= sure:
        return [lead + text]
    lead_tokens = len(counter.spans(lead))
    if lead_tokens > room - max_tokens // 2:
        lead_tokens = max_tokens // 2 - 1  # the last one for a line break
        lead = lead[: int(counter.spans(lead)[lead_tokens - 2, 1])] + "\n"
    room -= lead_tokens
    spans = counter.spans(text)
    pieces = min(math.ceil(len(spans) / room), len(text))
    if pieces < 2:
        return [lead + text]
    bounds = [0]
    for target in (round(piece * len(spans) / pieces) for piece in range(1, pieces)):
        lowest, end = max(bounds[-1] + 1, int(spans[target - room // 8, 0])), int(spans[target, 0])
        word = 1 + max(text.rfind(space, lowest, end) for space in " \n\t")
        bounds.append(max(word or end, bounds[-1] + 1))
    parts = (text[start:end].strip() for start, end in pairwise([*bounds, len(text)]))
    # A part has more tokens than expected where a cut went through a word.
    cut = (split_into_windows(part, counter, max_tokens, lead) for part in parts if part)
    return [window for windows in cut for window in windows]
