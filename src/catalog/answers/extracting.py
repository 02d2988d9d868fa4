"""The best sentences of the passages found, word for word: an answer without a model."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

from catalog.answers.neutralising import Addressed, neutralise
from catalog.answers.statements import Statement, read_statements, turns_meaning
from catalog.answers.support import check_support
from catalog.core.answers import AnswerSentence
from catalog.retrieval.query_words import Word, has_word, language_of_words, query_words, unite

_PASSAGES = 10  # that sentences are taken from
_LEAST = 0.9  # of the best sentence's score, for a further one: it has to answer as well
_NEAR = 1.0  # of the cross-encoder's scores, for the same
_SHOWN = 3  # headings and lead-ins that are shown with an item
_OF_CONTEXT, _OF_TITLE = 0.8, 0.5  # what a word that stands only there counts
_WORD = re.compile(r"\w+")
_VALUE = re.compile(" is not in the passage|, where the passage ")  # what comes before is a value
_YEAR = re.compile(r"(?:19|20)\d\d")
_VERSIONS = frozenset(["v", "V", "version", "Version", "draft", "Draft"])
_COMPARED = 8  # best statements, with which the best one is compared
_SAME, _SOME = 0.75, 0.4  # of the words of one, and of the other: two statements on one thing
_VALUES = ({"date"}, {"number", "unit", "negation"})  # both sets: of another day, for example


class SentenceSource(Addressed, Protocol):
    """A passage from which sentences are taken, such as a result; ``rank`` is its number.

    ``relevance`` (0 to 1), or else ``score``, is its strength compared with the rest.
    """

    @property
    def rank(self) -> int: ...
    @property
    def title(self) -> str: ...
    @property
    def sections(self) -> Sequence[str]: ...
    @property
    def score(self) -> float: ...
    @property
    def relevance(self) -> float | None: ...


class Candidate(NamedTuple):
    """A statement that may answer, in the passage of rank ``n``: ``text[start:end]``.

    ``share`` (0 to 1) is how much of the question's words it has with its context, and ``read`` is
    both as a model reads them. ``context`` is the part of it to show, and ``under`` all of it but
    the document's title. ``read_score`` is the cross-encoder's, ``None`` without one.
    """

    score: float
    share: float
    n: int
    start: int
    end: int
    text: str
    context: str
    read: str
    under: str
    read_score: float | None = None


def rank_candidates(query: str, sources: Sequence[SentenceSource]) -> list[Candidate]:
    """Return the statements of the first ten passages, those that answer best first.

    The score of a statement is the share of the question's words in it and its context, rare ones
    among the passages counting more, times how relevant its passage is.
    """
    found = _candidates(query, sources[:_PASSAGES])
    return sorted(found, key=lambda one: (-one.score, one.n, one.start))


def find_conflict(
    candidates: Sequence[Candidate], sources: Iterable[SentenceSource] = ()
) -> tuple[Candidate, str] | None:
    """Return the statement that says otherwise than the best one, and the two values.

    Both have nearly the same words. Each has a number, a date or a unit that the other lacks, or
    one denies the other. Only the best eight are compared, and none with one of another document
    of a series, such as *Contract 1* and *Contract 2*, whose ``sources`` are these.

    >>> find_conflict([])
    """
    of = {source.rank: source for source in sources}
    for other in candidates[1:_COMPARED]:
        best = candidates[0]
        if other.n == best.n or (best.under and other.under and best.under != other.under):
            continue  # medical and dental insurance may pay differently
        if {best.n, other.n} <= of.keys() and _are_of_series(of[best.n], of[other.n]):
            continue
        there = check_support(best.text, other.text, threshold=_SOME)
        back = check_support(other.text, best.text, threshold=_SOME)
        kinds = {one.partition(":")[0] for one in (*there.reasons, *back.reasons)}
        is_same = max(there.score, back.score) >= _SAME and any(kinds <= one for one in _VALUES)
        if is_same and there.reasons and back.reasons:
            values = [_VALUE.split(one.reasons[0].partition(": ")[2])[0] for one in (there, back)]
            return other, ", ".join(dict.fromkeys(values))
    return None


def _are_of_series(one: SentenceSource, other: SentenceSource) -> bool:
    """Return whether two titles differ only by a name or a number that is no year or version."""
    titles = [re.findall(r"[^\W\d_]+|\d+", it.title) for it in (one, other)]
    common = {*titles[0]} & {*titles[1]}
    own = [[word for word in title if word not in common] for title in titles]
    text = {*_WORD.findall(f"{one.text} {other.text}")}
    is_alike = any(map(str.isalpha, common)) and all(own) and _VERSIONS.isdisjoint(common)
    return is_alike and not any(
        word.islower() or _YEAR.fullmatch(word) or (word.isalpha() and word.lower() in text)
        for word in chain(*own)
    )


def choose_sentences(
    candidates: Sequence[Candidate],
    most: int,
    also: Candidate | None = None,
    *,
    is_likely: bool = True,
) -> tuple[AnswerSentence, ...]:
    """Return the first candidates, up to ``most``, that answer as well as the best one.

    They have .9 of its score at least, or a score of the cross-encoder at most 1 below its, and
    none is part of an earlier one; without ``is_likely`` any score does. ``also`` is the second.
    """
    chosen: list[AnswerSentence] = []
    shown: list[str] = []
    if also is not None:
        candidates = [candidates[0], also, *(one for one in candidates[1:] if one != also)]
        most = max(most, 2)
    for candidate in candidates:
        folded = f" {_folded(f'{candidate.context} {candidate.text}')} "
        if len(chosen) >= most:
            break
        best, read = candidates[0], candidate.read_score
        if best.read_score is None:
            is_close = candidate.score >= _LEAST * best.score
        else:
            is_close = read is not None and read >= best.read_score - _NEAR
        is_part = any(folded in other or other in folded for other in shown)
        if candidate != also and (is_part or (is_likely and not is_close)):
            continue
        shown.append(folded)
        sentence = AnswerSentence(
            text=candidate.text,
            context=candidate.context,
            citations=(candidate.n,),
            supported=True,
            breaks="\n" if chosen else "",
            span=(candidate.start, candidate.end),
        )
        chosen.append(sentence)
    return tuple(chosen)


def _candidates(query: str, passages: Sequence[SentenceSource]) -> Iterator[Candidate]:
    weights = _word_weights(query, passages)
    strongest = max((_strength(passage) for passage in passages), default=0.0)
    for passage in passages:
        words = query_words(query, language_of_words(passage.text))
        strength = _strength(passage) / strongest if strongest > 0 else 1.0
        titles = (passage.title, *passage.sections)
        of_titles = unite(match.tokens for one in titles for match in words.matches(one))
        folded_titles = {_folded(one) for one in titles}
        for statement in read_statements(passage.text, passage.sections):
            text = neutralise(statement.text, [passage])
            if not text or _folded(text) in folded_titles:
                continue
            own = unite(match.tokens for match in words.matches(text))
            parts = [
                (part, unite(match.tokens for match in words.matches(part)))
                for part in statement.context
            ]
            around = own | unite(bits for _, bits in parts)
            share, with_context, with_title = (
                _share(words.words, bits, weights) for bits in (own, around, around | of_titles)
            )
            share += _OF_CONTEXT * (with_context - share)
            share += _OF_TITLE * (with_title - with_context)
            yield Candidate(
                score=(0.1 + share) * (0.5 + 0.5 * strength),
                share=with_context,
                n=passage.rank,
                start=statement.start,
                end=statement.end,
                text=text,
                context=neutralise(_shown_context(statement, own, parts), [passage]),
                read="\n".join((*statement.context, text)),
                under="\n".join(part for part in statement.context if part != passage.title),
            )


def _shown_context(statement: Statement, own: int, parts: Sequence[tuple[str, int]]) -> str:
    """Return the parts of the context without which the sentence would not answer.

    They are those that have words of the question which the sentence lacks, those that may turn
    its meaning, and the last three of an item.
    """
    shown = [
        part
        for at, (part, bits) in enumerate(parts, start=1)
        if bits & ~own or turns_meaning(part) or (statement.depends and at > len(parts) - _SHOWN)
    ]
    return " › ".join(shown)


def _strength(passage: SentenceSource) -> float:
    return passage.score if passage.relevance is None else passage.relevance


def _word_weights(query: str, passages: Sequence[SentenceSource]) -> list[float]:
    """Return ln(1 + N / n) for each word of the query: n of the N passages contain it."""
    holding: dict[int, int] = {}
    for passage in passages:
        words = query_words(query, language_of_words(passage.text))
        bits = unite(match.tokens for match in words.matches(passage.text))
        for at, word in enumerate(words.words):
            holding[at] = holding.get(at, 0) + has_word(word, bits)
    return [math.log(1 + len(passages) / max(1, count)) for _, count in sorted(holding.items())]


def _share(words: Sequence[Word], bits: int, weights: Sequence[float]) -> float:
    """Return the weighted share of the words that is among the bits; 1 without words."""
    pairs = list(zip(words, weights, strict=False))
    whole = sum(weight for _, weight in pairs)
    if whole <= 0:
        return 1.0
    return sum(weight for word, weight in pairs if has_word(word, bits)) / whole


def _folded(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))
