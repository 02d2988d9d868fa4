"""What of the results a language model is given: cut to its tokens, without repeats, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from catalog.answers.extracting import sentence_bounds
from catalog.core.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llama_index.core.llms import LLM

    from catalog.core.results import SearchResult

_CHARS_PER_TOKEN = 3  # fewer than most have: a prompt that is too long fails whole
_LEAST_RELEVANCE = 0.1  # of the best passage's
_ALWAYS = 3  # passages that are given, however relevant
_LEAST_PART = 40  # tokens: less of a passage is not worth giving


class ContextPassage(NamedTuple):
    """A passage as a model is given it: the rank of its result, its source, its text."""

    number: int
    source: str
    text: str

    def __str__(self) -> str:
        return f"[{self.number}] {self.source}\n{self.text}"


def choose_context(
    results: Sequence[SearchResult], count: Callable[[str], int], *, most: int, tokens: int
) -> list[ContextPassage]:
    """Return the passages that fit in so many tokens, those of one document together, in its order.

    Taken best first, at most ``most``; after the third none that is a tenth as relevant as the
    best. Text that an earlier one of the same document has is left out, and the last one is cut
    after a sentence.
    """
    chosen: list[tuple[SearchResult, ContextPassage]] = []
    left = tokens
    best = max((result.relevance or 0.0 for result in results), default=0.0)
    for result in results[:most]:
        is_weak = result.relevance is not None and result.relevance < _LEAST_RELEVANCE * best
        if len(chosen) >= _ALWAYS and is_weak:
            continue
        text = clean(_without_repeats(result, [one for one, _ in chosen])).strip()
        source = clean(" ".join(f"{result.citation} {' > '.join(result.sections)}".split()))
        if not text:
            continue
        needed = count(f"{ContextPassage(result.rank, source, text)}\n\n")
        if needed > left:  # the last one
            text = _beginning(text, left - count(f"[{result.rank}] {source}\n\n\n"), count)
            needed = left
        if text:
            chosen.append((result, ContextPassage(result.rank, source, text)))
        left -= needed
        if left < _LEAST_PART:
            break
    first: dict[str, int] = {}
    for result, _ in chosen:
        first.setdefault(result.source_doc_id, result.rank)
    chosen.sort(key=lambda one: (first[one[0].source_doc_id], one[0].start_offset))
    return [passage for _, passage in chosen]


def token_counter(llm: LLM) -> tuple[Callable[[str], int], bool]:
    """Return what counts a text in the model's tokens, and whether it only estimates them.

    The model's own tokenizer counts where it has one (``tokenizer``, or ``count_tokens``), else
    three characters are a token.
    """
    count = getattr(llm, "count_tokens", None)
    if callable(count):
        return count, False
    try:
        tokenizer: Any = getattr(llm, "_tokenizer", None) or getattr(llm, "tokenizer", None)
    except Exception:  # noqa: BLE001 - it may have to be loaded, and its package be absent
        tokenizer = None
    encode = getattr(tokenizer, "encode", tokenizer)
    if callable(encode):
        return (lambda text: len(encode(text))), False
    return (lambda text: -(-len(text) // _CHARS_PER_TOKEN)), True


def _without_repeats(result: SearchResult, others: Sequence[SearchResult]) -> str:
    """Return the text of a passage less what others of the same document begin or end with."""
    start, end = result.start_offset, result.end_offset
    for other in others:
        if other.text == result.text:
            return ""
        if other.source_doc_id != result.source_doc_id:
            continue
        if other.start_offset <= start < other.end_offset:
            start = min(end, other.end_offset)
        if other.start_offset < end <= other.end_offset:
            end = max(start, other.start_offset)
    return result.text[start - result.start_offset : end - result.start_offset]


def _beginning(text: str, room: int, count: Callable[[str], int]) -> str:
    """Return the sentences from the beginning that fit in so many tokens."""
    if room < _LEAST_PART:
        return ""
    kept = 0
    for end in _ends(text):
        if count(text[:end]) > room:
            break
        kept = end
    return text[:kept]


def _ends(text: str) -> Iterator[int]:
    return (end for _, end in sentence_bounds(text))
