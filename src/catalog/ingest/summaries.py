"""What a document is about, in its own sentences: its opening and the most central others.

TextRank (R. Mihalcea, P. Tarau: TextRank: Bringing Order into Texts, EMNLP 2004): sentences are
the nodes of a graph, the words two of them share the weight of the edge between them, and the
PageRank of a sentence its importance. No model, so that the same text has the same summary.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import log
from typing import TYPE_CHECKING

from catalog.ingest.prose import first_lines, prose_sentences
from catalog.store.lexical.stop_words import stop_words
from catalog.store.lexical.words import UNSPACED

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_CHARS = 400
DAMPING = 0.85
MOST_SENTENCES, FIRST_SENTENCES = 150, 60
_STEPS = 30
_LEAST_RANK = 0.5  # of a sentence that has something in common with the others
_LEAST_PROSE = 0.1  # with less of the text in whole sentences it is told by its first words
_WORD = re.compile(r"\w+")


def summarise(text: str, *, max_chars: int = MAX_CHARS, headings: Sequence[str] = ()) -> str:
    """The opening sentence and the most central ones that have room, in the text's order.

    One line of at most ``max_chars`` (at least 1) characters; a sentence too long for it is cut
    after a word, with ``…``. Lines that are one of the ``headings`` do not count, and neither do
    markup, code, tables, times, lists of links and repetitions. A text without whole sentences
    is told by its first words, an empty one by ``""``. Of a long text at most 150 sentences are
    compared, so that the time hardly grows with it.
    """
    sentences, plain = prose_sentences(text, headings)
    found = sum(map(len, sentences))
    if not sentences or found < _LEAST_PROSE * len(plain):
        return _shortened(plain or first_lines(text, 4 * max_chars), max_chars)
    sentences = _thinned(sentences)
    if found <= max_chars and found + len(sentences) - 1 <= max_chars:
        return " ".join(sentences)
    if len(sentences[0]) > max_chars:
        return _shortened(sentences[0], max_chars)
    chosen = {0}
    ranks = sentence_ranks(sentences)
    central = (number for number, rank in enumerate(ranks) if rank >= _LEAST_RANK)
    for number in sorted(central, key=lambda one: (-ranks[one], one)):
        if _length(sentences, chosen | {number}) <= max_chars:
            chosen.add(number)
    return " ".join(sentences[number] for number in sorted(chosen))


def sentence_ranks(sentences: Sequence[str]) -> list[float]:
    """The TextRank of each sentence; the mean is 1.

    Similarity as in the paper: the number of words two sentences share, divided by the sum of
    the logarithms of their numbers of words. Stop words do not count.
    """
    import numpy as np

    listed = [_words(sentence) for sentence in sentences]
    weights = _overlaps(listed)
    sizes = np.array([log(1 + len(words)) for words in listed])
    weights /= np.maximum(sizes[:, None] + sizes[None, :], 1e-9)
    totals = weights.sum(axis=0)
    weights[:, totals <= 0] = 1.0  # what is like no other leads to all of them
    steps = weights * (DAMPING / weights.sum(axis=0))
    ranks = np.ones(len(listed))
    for _ in range(_STEPS):
        ranks = (1 - DAMPING) + steps @ ranks
    return [round(float(rank), 6) for rank in ranks]  # equal for a person, equal on any machine


def _overlaps(listed: Sequence[frozenset[str]]) -> npt.NDArray[np.float64]:
    """How many words each pair shares; a sentence and itself share none."""
    import numpy as np

    numbers = {word: n for n, word in enumerate(sorted(frozenset().union(*listed)))}
    marks = np.zeros((len(listed), len(numbers)), dtype=np.float32)
    for row, words in enumerate(listed):
        marks[row, [numbers[word] for word in words]] = 1.0
    shared = (marks @ marks.T).astype(np.float64)
    np.fill_diagonal(shared, 0.0)
    return shared


def _words(sentence: str) -> frozenset[str]:
    folded = sentence.casefold()
    common = stop_words("english")
    found = {word for word in _WORD.findall(folded) if len(word) > 2 and word not in common}
    for run in () if folded.isascii() else UNSPACED.findall(folded):
        found.update(run[at : at + 2] for at in range(len(run) - 1))
    return frozenset(found)


def _thinned(sentences: list[str]) -> list[str]:
    """The first sentences and evenly spaced ones of the others."""
    others = len(sentences) - FIRST_SENTENCES
    room = MOST_SENTENCES - FIRST_SENTENCES
    if others <= room:
        return sentences
    spaced = [sentences[FIRST_SENTENCES + number * others // room] for number in range(room)]
    return sentences[:FIRST_SENTENCES] + spaced


def _length(sentences: Sequence[str], chosen: set[int]) -> int:
    return sum(len(sentences[number]) for number in chosen) + len(chosen) - 1


def _shortened(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    kept = text[: max_chars - 1]
    if not text[max_chars - 1].isspace() and not UNSPACED.match(text[max_chars - 1]):
        kept = kept.rpartition(" ")[0] or kept
    return kept.rstrip(" ,;:–—-") + "…"
