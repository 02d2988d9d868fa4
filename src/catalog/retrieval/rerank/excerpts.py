"""Excerpts: a reranker reads the part of a long passage with the query's words, not the head.

If a model of 512 tokens read the head of an 800-token passage, it would miss every answer at the
end.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from catalog.core.tokens import TokenCounter
from catalog.retrieval.query_words import language_of_words, query_words

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Spans = npt.NDArray[np.int64]


EXCERPTS_VERSION = "2"  # raise it with every change that selects other runs
SPECIAL_TOKENS = 4  # that models add to a pair: 3 in BERT, 4 in RoBERTa
_SENTENCE_END = re.compile(r"""(?:\n|[.!?…]['"”’)\]]{0,8}\s|[。！？])\s{0,8}$""")
_LOOK_BACK = 8  # characters before a token to look for the end of a sentence


def fit_pair(
    query: str, passage: str, counter: TokenCounter, max_tokens: int, head: str = ""
) -> tuple[str, bool]:
    """Return ``head`` and the best run of ``passage`` that fit with the query, and if it is cut.

    The query counts as :func:`cut_query` cuts it. The head gets at most a quarter of
    ``max_tokens``; the rest of it is dropped.
    """
    query_tokens = len(counter.spans(cut_query(query, counter, max_tokens)))
    room = max(1, max_tokens - SPECIAL_TOKENS - query_tokens)
    if head:
        head = _first_tokens(head, counter, min(room // 2, max_tokens // 4)) + "\n"
        room = max(1, room - len(counter.spans(head)))
    text, was_cut = passage, False
    while True:  # a word that is cut may need more tokens than before
        run, is_shorter = best_window(text, query, room, counter.spans(text))
        if not is_shorter or len(run) == len(text):
            return head + text, was_cut
        text, was_cut = run, True


def cut_query(query: str, counter: TokenCounter, max_tokens: int) -> str:
    """Return the query's first tokens, at most half of ``max_tokens``."""
    return _first_tokens(query, counter, max_tokens // 2)


def _first_tokens(text: str, counter: TokenCounter, count: int) -> str:
    spans = counter.spans(text)
    count = max(1, count)
    return text if len(spans) <= count else text[: int(spans[count - 1, 1])]


def best_window(text: str, query: str, max_tokens: int, spans: Spans) -> tuple[str, bool]:
    """Return the run of ``max_tokens`` tokens with most distinct query words, and if it is cut.

    ``spans`` has the shape ``(n, 2)``: character offsets of the text's tokens, ascending. Query
    words are those of the keyword index: stemmed, without stop words. Among runs with equally many
    words the earliest stretch of neighbouring runs wins. In it the run is chosen that begins a
    sentence, a line or a word near the stretch's middle, so that text on both sides of the words is
    read. Without any query word the result is the head. Takes time linear in the text.
    """
    if len(spans) <= max_tokens:
        return text, False
    first, last = _best_starts(text, query, max_tokens, spans)
    start = _choose_start(text, spans, max_tokens, first, last)
    end = _choose_end(text, spans, start, min(start + max_tokens, len(spans)))
    return text[_token_start(text, spans, start) : int(spans[end - 1, 1])], True


def _best_starts(text: str, query: str, size: int, spans: Spans) -> tuple[int, int]:
    """Return the first and last start of the earliest stretch of runs with most query words.

    Runs that extend beyond the text count, too. So the middle of the stretch has the words in the
    middle of the run, even near the ends of the text.
    """
    words = _find_words(text, query, spans)
    held: Counter[int] = Counter()
    entering = leaving = 0
    most, first, last = 0, 0, 0
    for start in range(1 - size, len(spans)):
        while entering < len(words) and words[entering][1] < start + size:
            held[words[entering][2]] += 1
            entering += 1
        while leaving < entering and words[leaving][0] < start:
            word = words[leaving][2]
            held[word] -= 1
            if not held[word]:
                del held[word]
            leaving += 1
        if len(held) > most:
            most, first, last = len(held), start, start
        elif most and len(held) == most and last == start - 1:
            last = start
    return first, last


def _find_words(text: str, query: str, spans: Spans) -> list[tuple[int, int, int]]:
    """List the query's words in the text: first token, last token, and which word it is."""
    import numpy as np

    wanted = query_words(query, language_of_words(text))
    matches = wanted.matches(text)
    firsts = np.searchsorted(spans[:, 1], [match.start for match in matches], side="right")
    lasts = np.searchsorted(spans[:, 0], [match.end for match in matches], side="left") - 1
    return [
        (first, last, number)
        for first, last, match in zip(firsts.tolist(), lasts.tolist(), matches, strict=True)
        for number, word in enumerate(wanted.words)
        if first <= last and any(way & match.tokens for way in word)
    ]


def _choose_start(text: str, spans: Spans, size: int, first: int, last: int) -> int:
    """Return the best token from ``first`` to ``last`` to begin a run of ``size`` tokens with.

    It is within a quarter of the run around the stretch's middle. A run that reaches the end of the
    text is shortened at its beginning instead of its end.
    """
    latest = len(spans) - size
    middle = min(max((first + last) // 2, 0), latest)
    reach = size // 4 + 1
    lowest = latest if middle == latest else max(first, middle - reach, 0)
    highest = min(last, middle + reach)

    def rank(index: int) -> tuple[int, int]:
        return _rank_boundary(text, _token_start(text, spans, index)), -abs(index - middle)

    return max(range(lowest, highest + 1), key=rank)


def _rank_boundary(text: str, offset: int) -> int:
    """Return 2 at the beginning of a sentence or line, 1 at that of a word, else 0."""
    before = text[max(0, offset - _LOOK_BACK) : offset]
    if offset == 0 or _SENTENCE_END.search(before):
        return 2
    return 0 if _is_inside_word(text, offset) else 1


def _choose_end(text: str, spans: Spans, start: int, end: int) -> int:
    """Return ``end``, or the last token before it that ends a word."""
    for index in range(end, start, -1):
        if not _is_inside_word(text, int(spans[index - 1, 1])):
            return index
    return end


def _is_inside_word(text: str, offset: int) -> bool:
    return 0 < offset < len(text) and text[offset - 1].isalnum() and text[offset].isalnum()


def _token_start(text: str, spans: Spans, index: int) -> int:
    """Return the offset of the token's first character that is not white space; 0 for the first."""
    if index == 0:
        return 0
    start, end = int(spans[index, 0]), int(spans[index, 1])
    return next((at for at in range(start, end) if not text[at].isspace()), end)
