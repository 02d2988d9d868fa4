"""Pseudo-relevance feedback: words for a second query, learnt from the first answer's texts.

RM3 (Abdul-Jaleel et al. 2004) mixes the query with the relevance model of Lavrenko and Croft
(2001), estimated from the texts d that answered it:

    P(w|R)   = Σ_d P(w|d) · score(d) / Σ_d score(d),  P(w|d) = tf(w, d) / |d|
    RM3(w)   = (1 - λ) · P(w|R) + λ · P(w|q)

with P(w|R) cut to its best words and scaled to sum to 1. A word that every text repeats is as
likely as any other here: the definition knows no document frequency.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from catalog.store.lexical.analysis import Analyzer, raw_words


def relevance_model(
    query_tokens: Sequence[str],
    documents: Sequence[tuple[Sequence[str], float]],
    *,
    terms: int = 10,
    original_weight: float = 0.5,
) -> dict[str, float]:
    """RM3: words with their probabilities, which sum to 1, best first, ties by word.

    ``documents`` are the feedback texts as tokens, each with its score; ``terms`` is how many
    words of them count, ``original_weight`` the λ of the formula, in 0..1. Tokens of a single
    character or of digits only are left out unless the query has them. A document without a
    token or with a score that is not positive teaches nothing. When the documents or the query
    give nothing, the other stands alone; empty when both do. Words of probability 0 are absent.
    """
    asked = _frequencies(query_tokens)
    learnt = _best(_learnt(documents, set(asked)), terms)
    share = original_weight if asked and learnt else float(bool(asked))
    mixed = {
        word: (1 - share) * learnt.get(word, 0.0) + share * asked.get(word, 0.0)
        for word in learnt.keys() | asked.keys()
    }
    return {word: mixed[word] for word in _ranked(mixed) if mixed[word] > 0}


def expansion_text(
    analyzer: Analyzer,
    query: str,
    texts: Sequence[str],
    scores: Sequence[float],
    *,
    terms: int = 10,
) -> str:
    """The words of the ``terms`` best feedback terms that the query lacks, best first.

    ``scores`` has one number for each text (``ValueError`` otherwise). A term is shown as the
    word of the texts that most often stands for it, ties alphabetical. A compound, whose tokens
    are several, stands for one of them only where no simple word does. No word comes twice, and
    none that shares a token with the query; "" when nothing is left.
    """
    words = [raw_words(text) for text in texts]
    counts = Counter(word for of_text in words for word in of_text)
    tokens = {word: analyzer.tokens(word) for word in counts}
    documents = [[token for word in of_text for token in tokens[word]] for of_text in words]
    asked = analyzer.tokens(query)
    model = relevance_model(asked, list(zip(documents, scores, strict=True)), terms=terms)
    is_new = set(asked).isdisjoint
    new = {word: of_word for word, of_word in tokens.items() if is_new(of_word)}
    forms = _surface_forms(model.keys(), new, counts)
    return " ".join(dict.fromkeys(forms[term] for term in model if term in forms))


def _frequencies(tokens: Sequence[str]) -> dict[str, float]:
    return {word: count / len(tokens) for word, count in Counter(tokens).items()}


def _learnt(documents: Sequence[tuple[Sequence[str], float]], asked: set[str]) -> dict[str, float]:
    useful = [(tokens, score) for tokens, score in documents if tokens and 0 < score < math.inf]
    total = sum(score for _, score in useful)
    learnt: dict[str, float] = {}
    for tokens, score in useful:
        for word, frequency in _frequencies(tokens).items():
            learnt[word] = learnt.get(word, 0.0) + frequency * score / total
    return {
        word: weight
        for word, weight in learnt.items()
        if word in asked or not (len(word) == 1 or word.isdigit())
    }


def _best(weights: Mapping[str, float], terms: int) -> dict[str, float]:
    best = _ranked(weights)[:terms]
    total = sum(weights[word] for word in best)
    return {word: weights[word] / total for word in best}


def _ranked(weights: Mapping[str, float]) -> list[str]:
    return sorted(weights, key=lambda word: (-weights[word], word))


def _surface_forms(
    wanted: AbstractSet[str], tokens: Mapping[str, Sequence[str]], counts: Mapping[str, int]
) -> dict[str, str]:
    """The word to show for each wanted token that a word of ``tokens`` has."""
    useful = [word for word, of_word in tokens.items() if not wanted.isdisjoint(of_word)]
    useful.sort(key=lambda word: (len(set(tokens[word])) > 1, -counts[word], word))
    forms: dict[str, str] = {}
    for word in useful:
        for token in tokens[word]:
            forms.setdefault(token, word)
    return forms
