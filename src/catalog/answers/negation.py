"""Whether a sentence denies what a passage says, or says what it denies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from catalog.answers.analysed_text import AnalysedText, TextWord
from catalog.store.lexical.analysis import Analyzer

_SCOPE = 4  # content words behind a negation that it may be about
_AROUND = 6  # content words on either side that say which sentence is meant
_ALIKE = 0.6  # of a sentence's words that another must have to be about the same
_OPPOSITES = """
    increase/decrease increase/reduce raise/lower rise/fall grow/shrink gain/lose high/low
    higher/lower highest/lowest more/less more/fewer most/least greater/smaller greater/less
    larger/smaller above/below before/after earlier/later always/never all/none enable/disable
    allow/prevent allow/forbid permit/forbid include/exclude accept/reject true/false
    positive/negative improve/worsen best/worst better/worse maximum/minimum success/failure
    succeed/fail required/optional same/different start/stop begin/end open/close first/last
    present/absent valid/invalid possible/impossible supported/unsupported upper/lower
    significant/insignificant able/unable likely/unlikely known/unknown safe/unsafe public/private
    strong/weak old/new add/remove show/hide early/late promote/inhibit activate/inhibit
    upregulate/downregulate upregulated/downregulated first/second first/third second/third
    day/week day/month night/week week/month week/year month/year daily/weekly daily/monthly
    weekly/monthly monthly/yearly
"""


def find_contradictions(claim: AnalysedText, source: AnalysedText) -> Iterator[str]:
    """Say where one of two texts denies what the other says.

    A word is compared with the same word in that sentence of the passage which shares most of the
    words around it, if it shares enough.
    """
    denied_heads = {head for other in source.sentences for head in _heads(other)}
    for sentence in claim.sentences:
        heads = {id(scope[0]) for scope in _scopes(sentence)}
        denied = _denied(sentence)
        content = [word for word in sentence if word.tokens]
        for at, word in enumerate(content):
            around = content[max(0, at - _AROUND) : at + _AROUND + 1]
            if id(word) in heads:
                nearest = _nearest(word, around, source)
                is_contrary = nearest and not any(word.form in _denied(one) for one in nearest)
            elif word.form in denied_heads and word.form not in denied:
                nearest = _nearest(word, around, source)
                is_contrary = nearest and all(_always_denies(one, word.form) for one in nearest)
            else:
                continue
            if is_contrary:
                yield f"negation: only one of the two denies {word.text!r}"
                break
        else:
            yield from _find_opposite(sentence, content, source)


def _nearest(
    word: TextWord | None, around: Sequence[TextWord], source: AnalysedText
) -> list[Sequence[TextWord]]:
    """Return the sentences with the word that share most of those around it, none if not many."""
    forms = {one.form for one in around}
    others = [
        (len(forms & its), other)
        for other in source.sentences
        for its in [{one.form for one in other if one.tokens}]
        if word is None or word.form in its
    ]
    most = max((n for n, _ in others), default=0)
    if most < max(_ALIKE * len(forms), 2):
        return []
    return [other for n, other in others if n == most]


def _denied(sentence: Sequence[TextWord]) -> frozenset[str]:
    return frozenset(word.form for scope in _scopes(sentence) for word in scope)


def _heads(sentence: Sequence[TextWord]) -> frozenset[str]:
    return frozenset(scope[0].form for scope in _scopes(sentence))


def _always_denies(sentence: Sequence[TextWord], form: str) -> bool:
    """Return whether a negation is first of all about that word, wherever the word stands."""
    denied = {id(word) for scope in _scopes(sentence) for word in scope}
    others = [word for word in sentence if word.form == form and id(word) not in denied]
    return form in _heads(sentence) and not others


def _scopes(sentence: Sequence[TextWord]) -> list[list[TextWord]]:
    scopes = (_scope(sentence, at) for at, word in enumerate(sentence) if word.is_negation)
    return [scope for scope in scopes if scope]


def _scope(sentence: Sequence[TextWord], at: int) -> list[TextWord]:
    """Return the content words that a negation is about: the next ones, else the one before."""
    scope: list[TextWord] = []
    for word in sentence[at + 1 :]:
        if word.tokens:
            scope.append(word)
        if len(scope) == _SCOPE or (scope and word.ends_clause):
            break
    return scope or [word for word in sentence[:at] if word.tokens][-1:]


def _find_opposite(
    sentence: Sequence[TextWord], content: Sequence[TextWord], source: AnalysedText
) -> Iterator[str]:
    """Say which word has its opposite in the sentence of the passage that is otherwise alike."""
    mine = {word.form for word in sentence}
    for word in sentence:
        opposites: set[str] = _opposites().get(word.form, set()) - mine
        if not opposites:
            continue
        near = [one for one in content if one is not word]
        near.sort(key=lambda one: abs(one.start - word.start))
        nearest = _nearest(None, near[: 2 * _AROUND], source)
        for other in sorted(opposites) if nearest else ():
            forms = [{one.form for one in its} for its in nearest]
            if all(other in its and word.form not in its for its in forms):
                yield f"negation: {word.text!r}, where the passage has the opposite"
                return


@cache
def _opposites() -> dict[str, set[str]]:
    analyzer = Analyzer("english")
    opposites: dict[str, set[str]] = {}
    for pair in _OPPOSITES.split():
        one, other = (min(analyzer.tokens(word), default=word) for word in pair.split("/"))
        opposites.setdefault(one, set()).add(other)
        opposites.setdefault(other, set()).add(one)
    return opposites
