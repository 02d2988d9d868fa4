"""Cutting a passage into windows that a model reads whole."""

from __future__ import annotations

import math

from catalog.core.tokens import TokenCounter

SPECIAL_TOKENS = 2  # [CLS] and [SEP], or their like
_MIN_ROOM = 16


def window_texts(text: str, counter: TokenCounter, max_tokens: int, lead: str = "") -> list[str]:
    """Consecutive pieces of ``text``, each with ``lead`` before it, none over ``max_tokens``.

    A passage that fits is one window. Others are cut into as few windows as do, of about equal
    size, between words where there are any. A lead that would take most of the window is cut.
    """
    spans = counter.spans(text)
    lead_tokens = len(counter.spans(lead)) if lead else 0
    room = max_tokens - SPECIAL_TOKENS - lead_tokens
    if room < max(_MIN_ROOM, max_tokens // 2) and lead:
        keep = max_tokens // 2 - SPECIAL_TOKENS
        lead = lead[: int(counter.spans(lead)[keep - 1, 1])] + "\n"
        room = max_tokens - SPECIAL_TOKENS - keep - 1
    if len(spans) <= room:
        return [lead + text]
    pieces = math.ceil(len(spans) / room)
    starts = [0]
    for piece in range(1, pieces):
        target = round(piece * len(spans) / pieces)
        starts.append(_word_start(text, spans, target, max(starts[-1] + 1, target - room // 8)))
    bounds = [int(spans[start, 0]) for start in starts[1:]]
    cuts = zip([0, *bounds], [*bounds, len(text)], strict=True)
    parts = [text[start:end].strip() for start, end in cuts]
    return _fitting([lead + part for part in parts if part], counter, max_tokens)


def _word_start(text: str, spans: object, target: int, lowest: int) -> int:
    """The last token at or before ``target`` that begins a word; ``target`` when none does."""
    import numpy as np

    offsets = np.asarray(spans)
    for index in range(target, lowest - 1, -1):
        start = int(offsets[index, 0])
        if start == 0 or text[start - 1].isspace():
            return index
    return target


def _fitting(windows: list[str], counter: TokenCounter, max_tokens: int) -> list[str]:
    """Halve any window that grew over the limit because a word tokenises otherwise when cut."""
    result: list[str] = []
    for window in windows:
        spans = counter.spans(window)
        if len(spans) + SPECIAL_TOKENS <= max_tokens:
            result.append(window)
            continue
        middle = int(spans[len(spans) // 2, 0])
        result += _fitting([window[:middle], window[middle:]], counter, max_tokens)
    return result
