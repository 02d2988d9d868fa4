"""Whether a passage has the words of a sentence together, or only here and there.

A passage of many words has most of those that a sentence about its subject could be made of. So
those that it has are looked for in a stretch of it, half as long again as the sentence. A sentence
may join two statements: each of its clauses is looked for by itself too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from catalog.answers.analysed_text import AnalysedText, TextWord, tokens_of

_LEAST = 30  # words of a stretch
_TIMES = 1.5  # as many words as the sentence, or clause, has
_ELSEWHERE = 0.15  # of a sentence's content that may stand only outside the stretch
_CLAUSE = 4  # content words: a shorter clause is read with the next


def is_scattered(
    claim: AnalysedText, source: AnalysedText, *, headings: int, stretches: int
) -> bool:
    """Return whether more of a claim than may be stands only outside the best stretches.

    The first ``headings`` characters of ``source`` are over all of it, and ``stretches`` is how
    many of these may be put together.
    """
    words = [word for sentence in source.sentences for word in sentence]
    above = tokens_of([word for word in words if word.start < headings])
    text = [word.tokens - above for word in words if word.start >= headings]

    everything = frozenset[str]().union(*text)

    def is_elsewhere(part: Sequence[TextWord]) -> bool:
        tokens = tokens_of(part)
        size = max(_LEAST, round(_TIMES * len(part)))
        missing = tokens & everything
        for _ in range(stretches):
            missing -= _best_stretch(missing, text, size)
        return len(missing) > _ELSEWHERE * len(tokens)

    whole = [word for sentence in claim.sentences for word in sentence]
    return is_elsewhere(whole) and any(map(is_elsewhere, _clauses(whole)))


def _clauses(words: Sequence[TextWord]) -> Iterator[Sequence[TextWord]]:
    clauses: list[list[TextWord]] = [[]]
    for word in words:
        clauses[-1].append(word)
        if word.ends_clause and len(tokens_of(clauses[-1])) >= _CLAUSE:
            clauses.append([])
    if len(clauses) > 1 and len(tokens_of(clauses[-1])) < _CLAUSE:
        last = clauses.pop()
        clauses[-1] += last
    yield from clauses


def _best_stretch(
    wanted: frozenset[str], words: Sequence[frozenset[str]], size: int
) -> frozenset[str]:
    """Return the tokens that the ``size`` words in a row with most different ones of them have."""
    held: Counter[str] = Counter()
    best: frozenset[str] = frozenset()
    for at, tokens in enumerate(words):
        held.update(tokens & wanted)
        if at >= size:
            held -= Counter(words[at - size] & wanted)
        if len(held) > len(best):
            best = frozenset(held)
    return best
