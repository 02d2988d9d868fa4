"""Select the passages to keep."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType

from catalog.core.text import limit_marks
from catalog.core.tokens import TokenCounter
from catalog.retrieval.passages import Passage
from catalog.retrieval.recordings import frame_text
from catalog.store.lexical.analysis import WORD_CHARACTERS


def keep_distinct(passages: Sequence[Passage]) -> list[Passage]:
    """Keep the first of the passages that say the same; the rest become its ``copies``.

    Two passages say the same if their words are equal, in order. White space, signs around words,
    bullets, emphasis and heading marks do not count. Case counts, and so does every number, name
    and word: two versions of a contract are both kept. A passage without text equals no other. In a
    video frame, the heading with its time does not count, so a slide that stays on the screen is
    one text. What a mail quotes is a copy of the passage whose words it quotes, in any place.

    >>> keep_distinct([])
    []
    """
    passages = _fold_quotes(passages)
    texts = [_text_shown(passage) for passage in passages]
    compared = _compared_forms(texts)
    selected: list[Passage] = []
    first_with: dict[str, int] = {}
    for passage, text in zip(passages, texts, strict=True):
        words = compared[text]
        first = first_with.setdefault(words, len(selected)) if words.strip() else len(selected)
        if first == len(selected):
            selected.append(passage)
        else:
            one = selected[first]
            selected[first] = one._replace(copies=(*one.copies, *passage.chunks))
    return selected


def _fold_quotes(passages: Sequence[Passage]) -> Sequence[Passage]:
    """Make quotations copies of the passages that contain their words, if those are there."""
    quotes = [one for one in passages if one.chunk.modality == "quote"]
    if not quotes:
        return passages
    kept = [one for one in passages if one.chunk.modality != "quote"]
    said = [f" {_letters_and_digits(one.chunk.text)} " for one in kept]
    left: list[Passage] = []
    for quote in quotes:
        words = f" {_letters_and_digits(_quoted_text(quote.chunk.text))} "
        at = next((at for at, text in enumerate(said) if words.strip() and words in text), None)
        if at is None:
            left.append(quote)
        else:
            kept[at] = kept[at]._replace(copies=(*kept[at].copies, *quote.chunks))
    places = {id(one.chunk): at for at, one in enumerate(passages)}
    return sorted((*kept, *left), key=lambda one: places[id(one.chunk)])


def _quoted_text(text: str) -> str:
    """Return the lines that a mail itself quotes: those with fewest ``>``, else all after a gap."""
    lines = [line for line in text.split("\n") if line.startswith(">")]
    if not lines:
        return text.partition("\n\n")[2] or text
    depths = [len(_QUOTE_MARKS.match(line)[0].replace(" ", "")) for line in lines]  # type: ignore[index]
    return "\n".join(
        line for line, depth in zip(lines, depths, strict=True) if depth == min(depths)
    )


def _text_shown(passage: Passage) -> str:
    chunk = passage.chunk
    return frame_text(chunk.text) if chunk.modality == "video_frame" else chunk.text


_QUOTE_MARKS = re.compile(r"[> ]*")
_OPENING_WORDS = 8  # enough to distinguish most passages
_LETTERS_OR_DIGITS = re.compile(r"[^\W_]+")
_BULLET = re.compile(r"^[ \t]*[-+*•][ \t]+(?=[^\W\d_])", re.MULTILINE)  # "- 5" may be a number
_EMPHASIS = re.compile(r"(?<![\w*`])(\*{1,3}|`{1,2})(?=\S)([^*`\n]+)\1(?![\w*`])")
_SAME_SIGNS = str.maketrans("‘’“”‐‑–—−", "''\"\"-----")
_BEFORE_WORD, _AFTER_WORD, _AFTER_NUMBER = "\"'([{", "\"')]}.,;:", ".,;:"
_RULE = "|:-=~^*_#+"  # characters of rules, underlines and tables


def _compared_forms(texts: Iterable[str]) -> dict[str, str]:
    """Return each text in a form that is equal for texts that say the same.

    Removing signs takes 1 µs a word. So it is done only for texts with the same letters and digits,
    which are searched among texts with the same opening.
    """
    forms = {text: text for text in texts}
    for alike in _group_by(forms, _opening):
        for similar in _group_by(alike, _letters_and_digits):
            forms |= {text: _words_said(text) for text in similar}
    return forms


def _group_by(texts: Iterable[str], key: Callable[[str], str]) -> list[list[str]]:
    """Return the groups of two or more texts with the same key."""
    groups: dict[str, list[str]] = {}
    for text in texts:
        groups.setdefault(key(text), []).append(text)
    return [group for group in groups.values() if len(group) > 1]


def _opening(text: str) -> str:
    found = islice(_LETTERS_OR_DIGITS.finditer(text), _OPENING_WORDS)
    return " ".join([match[0] for match in found])


def _letters_and_digits(text: str) -> str:
    return " ".join(_LETTERS_OR_DIGITS.findall(text))


def _words_said(text: str) -> str:
    """Return the words that count in a comparison; see :func:`keep_distinct`."""
    plain = _EMPHASIS.sub(r"\2", _BULLET.sub("", text.translate(_SAME_SIGNS)))
    return " ".join(filter(None, map(_without_signs, plain.split())))


def _without_signs(word: str) -> str:
    """Remove the signs around a word; a sign that is a word, such as ``<``, stays."""
    if word.isalpha():
        return word
    if not any(map(str.isalnum, word)):
        is_markup = word in ("#", "##", "|") or (len(word) > 2 and not word.strip(_RULE))
        return "" if is_markup else word
    if any(map(str.isnumeric, word)):  # (5), 5" and -5 are not 5
        return word.rstrip(_AFTER_NUMBER)
    return word.lstrip(_BEFORE_WORD).rstrip(_AFTER_WORD)


_WORD = re.compile(rf"[{WORD_CHARACTERS}]+")
_LONGER_THAN = 2  # characters: shorter words are mostly articles and prepositions


def select_by_keyword(passages: Sequence[Passage], query: str | None) -> list[Passage]:
    """Keep the best passage of each document, at the place of the document's first passage.

    The best one has most occurrences of the query's terms: words of more than two characters,
    case-folded, found as whole words. Ties, also at zero, go by rank in the original query's vector
    leg, then by the given order. A query without such words leaves only the rule for ties; without
    a query the first passage is kept.

    This is qmd's rule to select a document's best chunk by keyword.
    """
    documents: dict[str, list[Passage]] = {}
    for passage in passages:
        documents.setdefault(passage.document, []).append(passage)
    if query is None:
        return [of_one[0] for of_one in documents.values()]
    terms = {word for word in _words(query) if len(word) > _LONGER_THAN}
    return [_best(of_one, terms) for of_one in documents.values()]


def _best(passages: Sequence[Passage], terms: set[str]) -> Passage:
    if len(passages) == 1:
        return passages[0]
    return min(passages, key=lambda one: (-_occurrences(one, terms), _vector_rank(one)))


def _occurrences(passage: Passage, terms: set[str]) -> int:
    return sum(word in terms for word in _words(passage.chunk.text))


def _vector_rank(passage: Passage) -> float:
    return min((part.rank for part in passage.fused.originals("vector")), default=math.inf)


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", limit_marks(text)).casefold())


def keep_few_of_each(
    passages: Sequence[Passage], limit: int, shares: Mapping[str, int] = MappingProxyType({})
) -> list[Passage]:
    """Keep at most ``limit`` passages of each document, in the given order; 0 keeps all.

    ``shares`` has the limits of some documents, by their keys.
    """
    if limit == 0:
        return list(passages)
    seen: Counter[str] = Counter()
    selected: list[Passage] = []
    for passage in passages:
        seen[passage.document] += 1
        if seen[passage.document] <= shares.get(passage.document, limit):
            selected.append(passage)
    return selected


def keep_relevant(
    passages: Sequence[Passage], minimum: float, *, keep_unjudged: bool = True
) -> list[Passage]:
    """Drop passages whose relevance is below ``minimum``, 0 to 1; 0 keeps all.

    A passage with the words of a keyword query as written, or with its quoted phrase, stays. A
    passage without a relevance stays unless ``keep_unjudged`` is off.
    """
    if minimum == 0:
        return list(passages)
    return [
        one
        for one in passages
        if one.certainty == "exact"
        or (keep_unjudged if one.relevance is None else one.relevance >= minimum)
    ]


def keep_within_budget(
    passages: Sequence[Passage], limit: int, counter: TokenCounter
) -> list[Passage]:
    """Keep passages in the given order while their texts fit into ``limit`` tokens; 0 keeps all.

    A passage that does not fit is left out, and the next one is tried.
    """
    if limit == 0:
        return list(passages)
    selected: list[Passage] = []
    for passage in passages:
        size = len(counter.spans(passage.chunk.text))
        if size <= limit:
            selected.append(passage)
            limit -= size
    return selected
