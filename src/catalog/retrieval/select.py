"""Select the passages to keep."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, islice
from types import MappingProxyType
from typing import TYPE_CHECKING

from catalog.core.results import Recency
from catalog.core.text import limit_marks
from catalog.core.tokens import TokenCounter
from catalog.retrieval.fusion import AS_WRITTEN, HAS_WORDS
from catalog.retrieval.query_words import cover_of, how_written, keywords_of, looks_like_name
from catalog.retrieval.recordings import frame_text
from catalog.retrieval.snippets import Passage
from catalog.store.lexical.analysis import WORD_CHARACTERS
from catalog.store.lexical.languages import language_of_letters
from catalog.store.restriction import read_sizes

if TYPE_CHECKING:
    from catalog.retrieval.parts import SearchParts

ASKS_FOR_NEWEST = re.compile(
    r"\b(?:current(?:ly)?|latest|newest|most recent(?! call last)|now|aktuell\w*|neue?ste\w*)\b",
    re.IGNORECASE,
)
_NO_LONGER = frozenset(["archived", "deprecated", "obsolete", "superseded"])  # a document's status
MOST_KEYWORDS = 3  # of a query that puts passages with all words first
_LETTERS_READ = 1000  # characters of a passage that are read to find its script
LONG_DOCUMENT = 20  # passages for each that a document may give, if these are more than the setting


def keep_distinct(passages: Sequence[Passage]) -> list[Passage]:
    """Keep the first of the passages that say the same; the rest become its ``copies``.

    Two passages say the same if their words are equal, in order and case, without signs around
    them: two versions of a contract are both kept. A passage without text equals no other. Of a
    video frame the heading does not count. What a mail quotes is a copy of the passage whose words
    it quotes.
    """
    passages = _fold_quotes(passages)
    chunks = [passage.chunk for passage in passages]
    shown = [frame_text(one.text) if one.modality == "video_frame" else one.text for one in chunks]
    # Removing signs takes 1 µs a word, so only texts that begin alike are compared.
    words_in = _LETTERS_OR_DIGITS.finditer
    begins = [tuple(one[0] for one in islice(words_in(it), _OPENING_WORDS)) for it in shown]
    alike = Counter(begins)
    selected: list[Passage] = []
    first_with: dict[str, int] = {}
    for passage, text, begin in zip(passages, shown, begins, strict=True):
        words = text
        if alike[begin] > 1:
            plain = _EMPHASIS.sub(r"\2", _BULLET.sub("", text.translate(_SAME_SIGNS)))
            words = " ".join(filter(None, map(_without_signs, plain.split())))
        first = first_with.setdefault(words, len(selected)) if words.strip() else len(selected)
        if first == len(selected):
            selected.append(passage)
        else:
            one = selected[first]
            selected[first] = one._replace(copies=(*one.copies, *passage.chunks))
    return selected


def _fold_quotes(passages: Sequence[Passage]) -> Sequence[Passage]:
    """Make quotations copies of the passages that contain their words, if those are there."""
    kept = [one for one in passages if one.chunk.modality != "quote"]
    if len(kept) == len(passages):
        return passages
    said = [f" {_letters_and_digits(one.chunk.text)} " for one in kept]
    left: list[Passage] = []
    for quote in (one for one in passages if one.chunk.modality == "quote"):
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
    depths = [_QUOTE_MARKS.sub(r"\1", line).count(">") for line in lines]
    least = min(depths)
    return "\n".join(line for line, depth in zip(lines, depths, strict=True) if depth == least)


_QUOTE_MARKS = re.compile(r"([> ]*).*")
_OPENING_WORDS = 8  # enough to distinguish most passages
_LETTERS_OR_DIGITS = re.compile(r"[^\W_]+")
_BULLET = re.compile(r"^[ \t]*[-+*•][ \t]+(?=[^\W\d_])", re.MULTILINE)  # "- 5" may be a number
_EMPHASIS = re.compile(r"(?<![\w*`])(\*{1,3}|`{1,2})(?=\S)([^*`\n]+)\1(?![\w*`])")
_SAME_SIGNS = str.maketrans("‘’“”‐‑–—−", "''\"\"-----")
_BEFORE_WORD, _AFTER_WORD, _AFTER_NUMBER = "\"'([{", "\"')]}.,;:", ".,;:"
_RULE = "|:-=~^*_#+"  # characters of rules, underlines and tables


def _letters_and_digits(text: str) -> str:
    return " ".join(_LETTERS_OR_DIGITS.findall(text))


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

    The best one has most occurrences of the query's words of more than two characters. Ties go by
    rank in the query's vector leg, then by the given order; without a query the first is kept. This
    is qmd's rule to select a document's best chunk by keyword.
    """
    terms = {word for word in _words(query or "") if len(word) > _LONGER_THAN}

    def rank(passage: Passage) -> tuple[int, float]:
        held = sum(word in terms for word in _words(passage.chunk.text))
        ranks = (part.rank for part in passage.fused.originals("vector"))
        return -held, min(ranks, default=math.inf)

    documents: dict[str, list[Passage]] = {}
    for passage in passages:
        documents.setdefault(passage.document, []).append(passage)
    groups = documents.values()
    return [one[0] if query is None or len(one) == 1 else min(one, key=rank) for one in groups]


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", limit_marks(text)).casefold())


def keep_few_of_each(
    passages: Sequence[Passage], limit: int, shares: Mapping[str, int] = MappingProxyType({})
) -> list[Passage]:
    """Keep at most ``limit`` passages of each document, in the given order; 0 keeps all.

    ``shares`` has the limits of some documents, by their keys.
    """
    seen, selected = Counter[str](), list[Passage]()
    for passage in passages:
        document = passage.document
        seen[document] += 1
        if limit == 0 or seen[document] <= shares.get(document, limit):
            selected.append(passage)
    return selected


def keep_relevant(passages: Sequence[Passage], minimum: float) -> list[Passage]:
    """Drop passages whose relevance is below ``minimum``, 0 to 1.

    A passage with the words of a keyword query as written, or with its quoted phrase, stays.
    """
    return [one for one in passages if one.certainty == "exact" or (one.relevance or 0) >= minimum]


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
        if (size := len(counter.spans(passage.chunk.text))) <= limit:
            selected.append(passage)
            limit -= size
    return selected


def prefer_words(
    passages: Sequence[Passage],
    query: str,
    scale: float,
    known: Collection[str] = (),
    phrases: tuple[str, ...] = (),
    loose: tuple[str, ...] = (),
) -> list[Passage]:
    """Sort fused passages again by the words that they contain, best first.

    A query of one to three keywords, or with quoted ``phrases``, gives a bonus to passages that
    contain them. Passages gain by the share of ``loose`` phrases that they contain. ``scale`` is
    the weight of the keyword list. If the model knows only the languages ``known``, a passage in
    letters of neither these nor the query loses half of its score: its vector is mostly noise.
    """
    keywords, asked_in = phrases or keywords_of(query, MOST_KEYWORDS), language_of_letters(query)
    has_name, ordered = any(map(looks_like_name, keywords)), list[Passage]()
    for passage in passages:
        hit, text = passage.fused, passage.chunk.text
        by_words = hit.originals("lexical")
        letters = language_of_letters(text[:_LETTERS_READ])
        bonus = 0.0
        if keywords and by_words and cover_of(passage.chunk, query, by_words[0].source.words) == 1:
            written = how_written(passage.chunk, keywords)
            if written or not has_name:  # the parts of a name are not the name
                bonus = scale * (HAS_WORDS + AS_WRITTEN * written)
        elif not by_words and known and letters not in (None, asked_in, *known):
            bonus = -hit.score / 2
        if loose:
            held = sum(how_written(passage.chunk, [phrase]) == 1 for phrase in loose)
            bonus += scale * AS_WRITTEN * held / len(loose)
        if bonus:
            bonus += hit.bonus
            score = sum([part.contribution for part in hit.contributions]) + bonus
            hit = hit._replace(score=score, bonus=bonus)
            passage = passage._replace(fused=hit, score=hit.score)
        ordered.append(passage)
    return sorted(ordered, key=lambda one: (-one.score, one.chunk.chunk_id))


def favour_recent(
    passages: Sequence[Passage], half_life_days: float, now: float, *, fades: bool = False
) -> list[Passage]:
    """Return the passages with ``score * 2 ** (-age / half_life)``, best first.

    The age at the timestamp ``now`` is 0 without a date. Negative scores stay. With ``fades``
    archived and superseded documents are a half-life older.
    """
    aged = []
    for passage in passages:
        dated = now if passage.chunk.dated is None else passage.chunk.dated
        age_days, told = max(0.0, now - dated) / 86_400, passage.chunk.metadata
        is_old = "superseded_by" in told or str(told.get("status")).casefold() in _NO_LONGER
        age_days += half_life_days * (fades and is_old)
        factor = 2.0 ** (-age_days / half_life_days) if passage.score > 0 else 1.0
        recency = Recency(age_days=age_days, half_life_days=half_life_days, factor=factor)
        aged.append(passage._replace(score=passage.score * factor, recency=recency))
    return sorted(aged, key=lambda passage: -passage.score)


def share_of(size: int, cap: int) -> int:
    """Return how many passages a document of ``size`` passages may give; a cap of 1 stays 1."""
    return cap if cap <= 1 else max(cap, size // LONG_DOCUMENT)


def shares_of(parts: SearchParts, passages: Sequence[Passage], cap: int) -> dict[str, int]:
    """Return how many passages the documents with more than ``cap`` may give, by their keys."""
    files: dict[str, list[str]] = {}
    for passage in passages:
        files.setdefault(passage.document, []).append(passage.chunk.source_doc_id)
    full = {key: {*names} for key, names in files.items() if len(names) > cap > 1}
    if not full:
        return {}
    with parts.database.read() as connection:
        size = read_sizes(connection, chain.from_iterable(full.values()))
    return {
        key: share_of(sum(size.get(one, 0) for one in names), cap) for key, names in full.items()
    }
