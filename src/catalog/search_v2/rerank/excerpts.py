"""Which part of a long passage a reranker reads: not its head but the run that holds the query.

A model of 512 tokens that is given the head of an 800-token passage misses every answer that
stands at its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from catalog.core.tokens import TokenCounter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Spans = npt.NDArray[np.int64]


SPECIAL_TOKENS = 4  # what models put around a pair: 3 in BERT, 4 in RoBERTa
_WORD = re.compile(r"\w+")
_DIGIT = re.compile(r"\d")
_SHORTEST_WORD = 3
_SENTENCE_END = re.compile(r"""(?:\n|[.!?…]['"”’)\]]*\s|[。！？])\s*$""")
_LOOK_BACK = 8  # characters before a token that tell whether a sentence begins there


def fit_pair(
    query: str, passage: str, counter: TokenCounter, max_tokens: int, head: str = ""
) -> tuple[str, bool]:
    """``head`` and the best run of ``passage`` that fit beside the query, and if it was cut.

    Counts the query as :func:`cut_query` leaves it, and a head of a quarter of ``max_tokens``
    at most: what is longer of it is left out.
    """
    taken = len(counter.spans(cut_query(query, counter, max_tokens)))
    room = max(1, max_tokens - SPECIAL_TOKENS - taken)
    if head:
        head = _first(head, counter, min(room // 2, max_tokens // 4)) + "\n"
        room = max(1, room - len(counter.spans(head)))
    text, cut = passage, False
    while True:  # a word that is cut may come apart into more tokens than it had
        run, shorter = best_window(text, query, room, counter.spans(text))
        if not shorter or len(run) == len(text):
            return head + text, cut
        text, cut = run, True


def cut_query(query: str, counter: TokenCounter, max_tokens: int) -> str:
    """The query's first tokens, half of ``max_tokens`` at most."""
    return _first(query, counter, max_tokens // 2)


def _first(text: str, counter: TokenCounter, count: int) -> str:
    spans = counter.spans(text)
    count = max(1, count)
    return text if len(spans) <= count else text[: int(spans[count - 1, 1])]


def best_window(text: str, query: str, max_tokens: int, spans: Spans) -> tuple[str, bool]:
    """The run of at most ``max_tokens`` tokens with most different query words, and if it is cut.

    ``spans`` has the shape ``(n, 2)``: character offsets of the text's tokens, ascending. Query
    words are compared whole and case-folded; those under three characters count only with a
    digit in them. Of runs with equally many words the earliest stretch wins, and in it the run
    that begins a sentence or line, or else a word, near the stretch's middle, so that the text
    on both sides of the words is read. Without any query word it is the head.
    Takes time linear in the text.
    """
    if len(spans) <= max_tokens:
        return text, False
    first, last = _best_starts(text, query, max_tokens, spans)
    start = _begin(text, spans, max_tokens, first, last)
    end = _end(text, spans, start, min(start + max_tokens, len(spans)))
    return text[_from(text, spans, start) : int(spans[end - 1, 1])], True


def _best_starts(text: str, query: str, size: int, spans: Spans) -> tuple[int, int]:
    """The earliest stretch of starts, first and last, whose runs hold most query words.

    Runs that reach over either end of the text count too, so that the stretch's middle has the
    words in the middle of the run wherever they stand.
    """
    found = list(_occurrences(text, query, spans))
    held: dict[str, int] = {}
    entering = leaving = 0
    most, first, last = 0, 0, 0
    for start in range(1 - size, len(spans)):
        while entering < len(found) and found[entering][1] < start + size:
            word = found[entering][2]
            held[word] = held.get(word, 0) + 1
            entering += 1
        while leaving < entering and found[leaving][0] < start:
            word = found[leaving][2]
            held[word] -= 1
            if not held[word]:
                del held[word]
            leaving += 1
        if len(held) > most:
            most, first, last = len(held), start, start
        elif most and len(held) == most and last == start - 1:
            last = start
    return first, last


def _occurrences(text: str, query: str, spans: Spans) -> Iterator[tuple[int, int, str]]:
    """First token, last token and case-folded form of every query word in the text, in order."""
    import numpy as np

    wanted = {word for word in map(str.casefold, _WORD.findall(query)) if _counts(word)}
    found = [match for match in _WORD.finditer(text) if match[0].casefold() in wanted]
    firsts = np.searchsorted(spans[:, 1], [match.start() for match in found], side="right")
    lasts = np.searchsorted(spans[:, 0], [match.end() for match in found], side="left") - 1
    for match, first, last in zip(found, firsts.tolist(), lasts.tolist(), strict=True):
        if first <= last:
            yield first, last, match[0].casefold()


def _counts(word: str) -> bool:
    return len(word) >= _SHORTEST_WORD or _DIGIT.search(word) is not None


def _begin(text: str, spans: Spans, size: int, first: int, last: int) -> int:
    """Of the tokens ``first`` to ``last`` the one that a run of ``size`` best begins with.

    It is looked for within a quarter of the run around the stretch's middle. A run that reaches
    the end of the text is rather made shorter at its beginning than cut at its end.
    """
    latest = len(spans) - size
    middle = min(max((first + last) // 2, 0), latest)
    reach = size // 4 + 1
    lowest = latest if middle == latest else max(first, middle - reach, 0)
    highest = min(last, middle + reach)

    def goodness(index: int) -> tuple[int, int]:
        return _boundary(text, _from(text, spans, index)), -abs(index - middle)

    return max(range(lowest, highest + 1), key=goodness)


def _boundary(text: str, at: int) -> int:
    """2 where a sentence or line begins, 1 where a word does, else 0."""
    before = text[max(0, at - _LOOK_BACK) : at]
    if at == 0 or _SENTENCE_END.search(before):
        return 2
    return 0 if _inside_word(text, at) else 1


def _end(text: str, spans: Spans, start: int, end: int) -> int:
    """``end``, or the last token before it that ends a word."""
    for index in range(end, start, -1):
        if not _inside_word(text, int(spans[index - 1, 1])):
            return index
    return end


def _inside_word(text: str, at: int) -> bool:
    return 0 < at < len(text) and text[at - 1].isalnum() and text[at].isalnum()


def _from(text: str, spans: Spans, index: int) -> int:
    """Where the token's first character stands that is no white space; 0 for the first token."""
    if index == 0:
        return 0
    start, end = int(spans[index, 0]), int(spans[index, 1])
    return next((at for at in range(start, end) if not text[at].isspace()), end)
