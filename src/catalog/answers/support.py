"""Check whether a passage supports a sentence, without a language model.

Two things are checked. First, the share of the sentence's words, stemmed like in the keyword leg,
that the passage has in one place: scattered words do not make a statement. Words alone would accept
a sentence with one changed number. So, second, its details and negations are checked one by one:
each must be in the passage; if the passage has another one between the same words, it is a mistake.
``docs/evidence/abstention.md`` says how well this works.
"""

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from catalog.answers.details import Date, Detail, MeasurementUnit, Quantity, find_details, is_name
from catalog.ingest.chunking.boundaries import sentence_spans
from catalog.retrieval.query_words import language_of_words
from catalog.store.lexical.analysis import WORD, Analyzer, analyzers_of, fold

_NOT_TEXT = (
    "not no never without cannot none nobody nothing neither nor hardly barely unable lack lacks "
    "lacked lacking fail fails failed non absence"
)
_NOT = frozenset(_NOT_TEXT.split())
_QUOTES = "\"'`“‘"  # "None" is a value, and NO a gas
BOUNDARY = "."
"""Stands in ``forms`` between sentences."""


@dataclass(frozen=True, slots=True)
class TextWord:
    """A word: ``form`` is for comparisons of neighbours; ``tokens`` are its content.

    A stop word has no tokens.
    """

    start: int
    text: str
    form: str
    tokens: frozenset[str]
    is_negation: bool
    ends_clause: bool


@dataclass(frozen=True)
class AnalysedText:
    """A text with its words, one list for each sentence; ``details`` are for the whole text."""

    text: str
    sentences: tuple[tuple[TextWord, ...], ...]
    details: tuple[Detail, ...]

    @cached_property
    def tokens(self) -> frozenset[str]:
        """Return the content tokens of all sentences."""
        return frozenset().union(*map(tokens_of, self.sentences))

    @cached_property
    def words(self) -> frozenset[str]:
        """Return the folded words of the text and their parts, stop words included."""
        return frozenset(
            part
            for match in WORD.finditer(self.text)
            for part in (fold(match[1]), *re.split(r"[\W_]+", fold(match[1])))
        )

    @cached_property
    def forms(self) -> tuple[list[str], list[int]]:
        """Return all words' forms in a row, with a boundary around sentences, and their starts."""
        forms, starts = [BOUNDARY], [-1]
        for sentence in self.sentences:
            for word in sentence:
                forms.append(word.form)
                starts.append(word.start)
            forms.append(BOUNDARY)
            starts.append(starts[-1])
        return forms, starts

    def around(self, detail: Detail, reach: int) -> tuple[list[str], list[str]]:
        """Return the forms before a detail, nearest first, and those after it."""
        forms, starts = self.forms
        first, last = bisect_left(starts, detail.start), bisect_left(starts, detail.end)
        before = forms[max(0, first - reach) : first][::-1]
        if first < last and forms[last - 1] == BOUNDARY:
            last -= 1
        return before, forms[last : last + reach]


def tokens_of(words: Sequence[TextWord]) -> frozenset[str]:
    """Return the content tokens of words."""
    return frozenset(token for word in words for token in word.tokens)


@lru_cache(maxsize=128)
def analyse_text(text: str, language: str | None = None) -> AnalysedText:
    """Read a text; words are stemmed in the text's own language, or in ``language`` if given."""
    details = find_details(text)
    [analyzer] = analyzers_of([language or language_of_words(text)])
    masks = {
        at: detail.kind
        for detail in details
        if detail.kind in ("number", "date")
        for at in range(detail.start, detail.end)
    }
    sentences = []
    for start, end in sentence_spans(text):
        matches = list(WORD.finditer(text, start, end))
        ends = [*(match.start() for match in matches[1:]), *([end] if matches else [])]
        sentences.append(
            tuple(
                _read_word(text, match, following, masks.get(match.start()), analyzer)
                for match, following in zip(matches, ends, strict=True)
            )
        )
    return AnalysedText(text, tuple(sentences), tuple(details))


def _read_word(
    text: str, match: re.Match[str], following: int, mask: str | None, analyzer: Analyzer
) -> TextWord:
    whole = match.group().lower().replace("\u2019", "'")
    tokens = frozenset() if mask else frozenset(analyzer.tokens(match[1]))
    is_negation = whole.endswith("n't") or (
        fold(match[1]) in _NOT
        and match[1] != "NO"
        and text[max(0, match.start() - 1) : match.start()] not in tuple(_QUOTES)
    )
    return TextWord(
        start=match.start(),
        text=match.group(),
        form=f"#{mask}" if mask else min(tokens, default=fold(match[1])),
        tokens=frozenset() if is_negation else tokens,
        is_negation=is_negation,
        ends_clause=any(mark in text[match.end() : following] for mark in ",;:()–—"),
    )


_SCOPE = 4  # content words behind a negation that it may be about
_AROUND = 6  # content words on either side that say which sentence is meant
_ALIKE = 0.6  # of a sentence's words that another must have to be about the same


def find_contradictions(claim: AnalysedText, source: AnalysedText) -> Iterator[str]:
    """Describe where one of two texts denies the other.

    A word is compared with the same word in the sentence of the passage that shares most of the
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


def _nearest(
    word: TextWord, around: Sequence[TextWord], source: AnalysedText
) -> list[Sequence[TextWord]]:
    """Return the sentences with the word that share most neighbours; ``[]`` if too few."""
    forms = {one.form for one in around}
    others = [
        (len(forms & its), other)
        for other in source.sentences
        for its in [{one.form for one in other if one.tokens}]
        if word.form in its
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
    """Return whether a negation refers mainly to that word, at whichever place in the sentence."""
    denied = {id(word) for scope in _scopes(sentence) for word in scope}
    others = [word for word in sentence if word.form == form and id(word) not in denied]
    return form in _heads(sentence) and not others


def _scopes(sentence: Sequence[TextWord]) -> list[list[TextWord]]:
    scopes = (_scope(sentence, at) for at, word in enumerate(sentence) if word.is_negation)
    return [scope for scope in scopes if scope]


def _scope(sentence: Sequence[TextWord], at: int) -> list[TextWord]:
    """Return the content words to which a negation refers: the next ones, else the one before."""
    scope: list[TextWord] = []
    for word in sentence[at + 1 :]:
        if word.tokens:
            scope.append(word)
        if len(scope) == _SCOPE or (scope and word.ends_clause):
            break
    return scope or [word for word in sentence[:at] if word.tokens][-1:]


_LEAST = 30  # words of a stretch
_TIMES = 1.5  # as many words as the sentence, or clause, has
_ELSEWHERE = 0.15  # of a sentence's content that may stand only outside the stretch
_CLAUSE = 4  # content words: a shorter clause is read with the next


def is_scattered(
    claim: AnalysedText, source: AnalysedText, *, headings: int, stretches: int
) -> bool:
    """Return whether too much of a claim is found only outside a passage's best stretches.

    A long passage has most words that a sentence about its subject could use. So the words are
    searched in a stretch half as long again as the sentence. A sentence may join two statements, so
    each of its clauses is searched as well. The first ``headings`` characters of ``source`` apply
    to all of it, and ``stretches`` is how many stretches may be combined.
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
    """Return the tokens of the ``size`` consecutive words with most different ``wanted`` ones."""
    held: Counter[str] = Counter()
    best: frozenset[str] = frozenset()
    for at, tokens in enumerate(words):
        held.update(tokens & wanted)
        if at >= size:
            held -= Counter(words[at - size] & wanted)
        if len(held) > len(best):
            best = frozenset(held)
    return best


# Chosen on the first four collections of benchmarks/support_checks.py; two others judge them.
THRESHOLD, _SHORT = 0.6, 3  # least share of the words; letters of a name that may be a part
_MOST_DETAILS = 40  # of a sentence: each is compared with all of the passage
_REACH = 3  # words on either side that say which of several details is meant
_WEIGHTS = (3, 2, 1)  # of the nearest word, the next and the third
_SAME_PLACE = 8  # of 12: the words around agree so far that the same detail must stand there


@dataclass(frozen=True, slots=True)
class Support:
    """Whether a passage supports a sentence; ``score`` (0 to 1) is its share of the words.

    ``reasons`` are objections; a supported sentence has none. Each begins with the thing compared:
    ``words``, ``number``, ``date``, ``unit``, ``name`` or ``negation``.
    """

    supported: bool
    score: float
    reasons: tuple[str, ...] = ()


def check_support(
    sentence: str,
    passage: str,
    *,
    headings: str = "",
    stretches: int = 1,
    threshold: float = THRESHOLD,
) -> Support:
    """Check whether a passage supports a sentence without citations.

    ``headings`` apply to all of the passage: their words count anywhere in it. ``stretches`` (1 or
    more) is the number of stretches from which the words may come: one for each passage if several
    are checked as one. ``threshold`` is the least score (0 to 1) for the words.
    """
    language = language_of_words(passage)
    claim = analyse_text(sentence, language)
    source = analyse_text(f"{headings}\n{passage}" if headings else passage, language)
    score = 1.0 if claim.details else 0.0
    if claim.tokens:
        score = len(claim.tokens & source.tokens) / len(claim.tokens)
    reasons = []
    if not claim.tokens and not claim.details:
        reasons.append("words: it has no words to look up")
    elif score < threshold:
        reasons.append(
            f"words: {score:.2f} of them are in the passage, and {threshold:.2f} is needed"
        )
    elif is_scattered(claim, source, headings=len(headings), stretches=stretches):
        reasons.append("words: they are scattered over the passage, not in one place")
    if len(claim.details) > _MOST_DETAILS:
        reasons.append(
            f"words: it has more than {_MOST_DETAILS} details, the most that are checked"
        )
    else:
        reasons += _differences(claim, source)
    return Support(not reasons, score, tuple(reasons))


def _differences(claim: AnalysedText, source: AnalysedText) -> Iterator[str]:
    """Name details that the passage lacks, or has another of in the same place."""
    quantities = {one.start: one for one in claim.details if isinstance(one.value, Quantity)}
    for detail in claim.details:
        shown = claim.text[detail.start : detail.end]
        if detail.kind == "number" and detail.start in quantities:
            continue  # it is looked at with its unit
        if detail.certain and not _is_stated(detail, source):
            yield f"{_kind_to_blame(detail, source)}: {shown} is not in the passage"
        elif (other := _displaced(detail, claim, source)) is not None:
            has = source.text[other.start : other.end]
            yield f"{detail.kind}: {shown}, where the passage has {has}"
    yield from find_contradictions(claim, source)


def _kind_to_blame(detail: Detail, source: AnalysedText) -> str:
    """Return ``unit`` for a quantity only if its number is right."""
    if not isinstance(detail.value, Quantity):
        return detail.kind
    numbers = (one.value for one in source.details if one.kind == "number")
    return "unit" if any(_equal(detail.value.value, number) for number in numbers) else "number"


def _is_stated(detail: Detail, source: AnalysedText) -> bool:
    """Return whether the passage has such a detail anywhere."""
    value = detail.value
    if is_name(value):
        is_short = len(value) > 2 and _initials(value) in source.words
        return is_short or all(_is_word(word, source) for word in value)
    same_kind = [one for one in source.details if one.kind == detail.kind]
    if any(_agrees(value, one.value) for one in same_kind):
        return True
    if isinstance(value, Date):
        years = [one.value for one in source.details if one.kind == "number"]
        return value == Date(value.year) and any(value.year == year for year in years)
    if isinstance(value, MeasurementUnit):  # alone: wrong only where the passage has another
        units = [one.value for one in source.details if one.kind == "unit"]
        mentioned = [one.unit if isinstance(one, Quantity) else one for one in units]
        families = {one.family for one in mentioned if isinstance(one, MeasurementUnit)}
        return value in mentioned or value.family not in families
    if isinstance(value, Quantity):
        plain = [one for one in source.details if one.kind == "number"]
        with_unit = {one.start for one in same_kind}
        return any(
            _equal(value.value, one.value) or _equal(value.value * value.unit.factor, one.value)
            for one in plain
            if one.start not in with_unit
        )
    return False


def _equal(one: object, other: object) -> bool:
    return isinstance(one, float) and isinstance(other, float) and math.isclose(one, other)


def _agrees(value: object, other: object) -> bool:
    """Return whether two values of one kind are the same; a date may leave out parts of another."""
    if isinstance(value, Date) and isinstance(other, Date):
        return all(mine in (None, its) for mine, its in zip(value, other, strict=True))
    if isinstance(value, Quantity) and isinstance(other, Quantity):
        if value.unit.dimension != other.unit.dimension:
            return False
        mine, its = value.value * value.unit.factor, other.value * other.unit.factor
        return math.isclose(mine, its, rel_tol=1e-6)
    if is_name(value) and is_name(other):
        joined = "".join(value)
        is_part = len(joined) > _SHORT and joined in "".join(other)  # blanks are easily lost
        return is_part or set(value) <= set(other)
    return _equal(value, other) or value == other


def _is_word(word: str, source: AnalysedText) -> bool:
    """Return whether the passage has a word, or the words it abbreviates."""
    if word in source.words:
        return True
    parts = "".join(mark if mark.isalnum() else " " for mark in word).split()
    if len(parts) > 1 and all(part in source.words for part in parts):
        return True
    names = [one.value for one in source.details if one.kind == "name"]
    return 2 < len(word) < 7 and any(is_name(one) and _initials(one) == word for one in names)


def _initials(words: tuple[str, ...]) -> str:
    return "".join(word[0] for word in words)


def _displaced(detail: Detail, claim: AnalysedText, source: AnalysedText) -> Detail | None:
    """Return another detail that the passage has between the same words, if any.

    A number taken from elsewhere in the passage has other words around it there.
    """
    mine = claim.around(detail, _REACH)
    best, best_other, other = 0, 0, None
    for one in source.details:
        if one.kind != detail.kind:
            continue
        if detail.kind == "unit" and type(one.value) is not type(detail.value):
            continue
        sides = zip(mine, source.around(one, _REACH), strict=True)
        pairs = (pair for side in sides for pair in zip(_WEIGHTS, *side, strict=False))
        likeness = sum(weight for weight, word, its in pairs if word == its)
        if _agrees(detail.value, one.value):
            best = max(best, likeness)
        elif likeness > best_other and (detail.certain or one.certain):
            best_other, other = likeness, one
    return other if best_other >= _SAME_PLACE and 2 * best <= best_other else None
