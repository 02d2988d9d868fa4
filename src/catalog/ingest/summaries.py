"""What a document is about, in its own sentences: its opening and the most central others.

TextRank (R. Mihalcea, P. Tarau: TextRank: Bringing Order into Texts, EMNLP 2004): sentences are
the nodes of a graph, the words two of them share the weight of the edge between them, and the
PageRank of a sentence its importance. No model, so that the same text has the same summary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import log
from typing import TYPE_CHECKING

from catalog.ingest.prose import first_lines, read_prose
from catalog.store.lexical.analysis import UNSPACED
from catalog.store.lexical.languages import stop_words

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_CHARS = 400
DAMPING = 0.85
MOST_SENTENCES, FIRST_SENTENCES = 150, 60
_STEPS = 30
_LEAST_RANK = 0.5  # of a sentence that has something in common with the others
_LEAST_PROSE = 0.1  # with less of the text in whole sentences the first words are the summary
_FEWEST_CHARS = 80  # of whole sentences; fewer may be a scrap of a text that is no prose
_SCRAP = 60  # characters; lines that may be prose and are fewer give way to the first lines
_LEAST_PLAIN = 0.5  # of the first lines; with less the lines that may be prose are a scrap
_WORD = re.compile(r"\w+")
_WIDE_END = re.compile("([。！？｡][」』”’）】]*)\n")


def summarise(text: str, *, max_chars: int = MAX_CHARS, headings: Sequence[str] = ()) -> str:
    """Return the opening sentence and the most central ones that have room, in order.

    One line of at most ``max_chars`` (at least 1) characters; a sentence too long for it is cut
    after a word, with ``…``. Lines that are one of the ``headings`` do not count, and neither do
    markup, code, tables, tables of contents, times, lists of links, repetitions, and a licence
    before other text. A text with no more than a scrap of whole sentences is summed up by its
    first words, one of nothing but markup or images by ``""``. Of a long text at most 150 sentences
    are compared, so that the time hardly grows with it.
    """
    prose = read_prose(text, headings)
    sentences = prose.sentences
    prose_chars = sum(map(len, sentences))
    if prose.share < _LEAST_PROSE or prose_chars < _FEWEST_CHARS:
        first = first_lines(text, 2 * max_chars)
        if prose.share < _LEAST_PROSE or prose_chars < _LEAST_PROSE * len(first):
            plain = prose.plain
            enough = min(_LEAST_PLAIN * len(first), _SCRAP)
            return _shorten(plain if len(plain) >= enough else first, max_chars)
    sentences = _thin_out(sentences)
    if prose_chars <= max_chars and len(joined := _join(sentences)) <= max_chars:
        return joined
    if len(sentences[0]) > max_chars:
        return _shorten(sentences[0], max_chars)
    chosen, summary = {0}, sentences[0]
    ranks = rank_sentences(sentences)
    central = (number for number, rank in enumerate(ranks) if rank >= _LEAST_RANK)
    for number in sorted(central, key=lambda number: (-ranks[number], number)):
        if len(summary) + len(sentences[number]) <= max_chars:
            longer = _join(sentences[index] for index in sorted(chosen | {number}))
            if len(longer) <= max_chars:
                summary = longer
                chosen.add(number)
    return summary


def rank_sentences(sentences: Sequence[str]) -> list[float]:
    """Return the TextRank of each sentence; the mean is 1.

    Similarity as in the paper: the number of words two sentences share, divided by the sum of
    the logarithms of their numbers of words. Stop words do not count.
    """
    import numpy as np

    word_sets = [_words(sentence) for sentence in sentences]
    weights = _count_shared(word_sets)
    sizes = np.array([log(1 + len(words)) for words in word_sets])
    weights /= np.maximum(sizes[:, None] + sizes[None, :], 1e-9)
    totals = weights.sum(axis=0)
    weights[:, totals <= 0] = 1.0  # what is like no other leads to all of them
    steps = weights * (DAMPING / weights.sum(axis=0))
    ranks = np.ones(len(word_sets))
    for _ in range(_STEPS):
        ranks = (1 - DAMPING) + steps @ ranks
    return [round(float(rank), 6) for rank in ranks]  # equal for a person, equal on any machine


def _count_shared(word_sets: Sequence[frozenset[str]]) -> npt.NDArray[np.float64]:
    """Count the words each pair of sentences shares; a sentence and itself share none."""
    import numpy as np

    numbers = {word: n for n, word in enumerate(sorted(frozenset().union(*word_sets)))}
    marks = np.zeros((len(word_sets), len(numbers)), dtype=np.float32)
    for row, words in enumerate(word_sets):
        marks[row, [numbers[word] for word in words]] = 1.0
    shared = (marks @ marks.T).astype(np.float64)
    np.fill_diagonal(shared, 0.0)
    return shared


def _words(sentence: str) -> frozenset[str]:
    folded = sentence.casefold()
    common = stop_words("english")
    words = {word for word in _WORD.findall(folded) if len(word) > 2 and word not in common}
    for run in () if folded.isascii() else UNSPACED.findall(folded):
        words.update(run[at : at + 2] for at in range(len(run) - 1))
    return frozenset(words)


def _thin_out(sentences: list[str]) -> list[str]:
    """Return the first sentences and evenly spaced ones of the others."""
    others = len(sentences) - FIRST_SENTENCES
    room = MOST_SENTENCES - FIRST_SENTENCES
    if others <= room:
        return sentences
    spaced = [sentences[FIRST_SENTENCES + number * others // room] for number in range(room)]
    return sentences[:FIRST_SENTENCES] + spaced


def _join(sentences: Iterable[str]) -> str:
    """Join sentences with a space, but with none after a full-width full stop."""
    return _WIDE_END.sub(r"\1", "\n".join(sentences)).replace("\n", " ")


def _shorten(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    start = text[: max_chars - 1]
    if not text[max_chars - 1].isspace() and not UNSPACED.match(text[max_chars - 1]):
        start = start.rpartition(" ")[0] or start
    return start.rstrip(" ,;:–—-") + "…"
