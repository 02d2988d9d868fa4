"""The one prompt: rules as the system's message, passages as data, then the question."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from catalog.answers.statements import sentence_bounds
from catalog.core.text import clean, mark_as_data
from catalog.llm import LanguageModel, Message

if TYPE_CHECKING:
    from catalog.core.answers import AnswerSentence
    from catalog.core.params import ArtifactKind
    from catalog.core.results import SearchResult


_CHARS_PER_TOKEN = 3  # fewer than most have: a prompt that is too long fails whole
_LEAST_RELEVANCE = 0.1  # of the best passage's
_ALWAYS = 3  # passages that are given, however relevant
_LEAST_PART = 40  # tokens: less of a passage is not worth giving
_HEADING = re.compile(r"(#{1,6})[ \t]+(\S.*)")
_FENCE = re.compile(r"\s*```\w*\s*")
_DECORATION = " \t*_:#"


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
    """Return the passages that fit in ``tokens`` tokens, those of one document together, in its
    order.

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


def token_counter(llm: LanguageModel) -> tuple[Callable[[str], int], bool]:
    """Return what counts a text in the model's tokens, and whether it only estimates them.

    The model's ``count_tokens`` counts where it has one, else three characters are a token.
    """
    count = getattr(llm, "count_tokens", None)
    if callable(count):
        return count, False
    return (lambda text: -(-len(text) // _CHARS_PER_TOKEN)), True


def _without_repeats(result: SearchResult, others: Sequence[SearchResult]) -> str:
    """Return a passage's text without the parts that its document's other passages repeat."""
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
    """Return the first sentences that fit in a number of tokens."""
    if room < _LEAST_PART:
        return ""
    kept = 0
    for _, end in sentence_bounds(text):
        if count(text[:end]) > room:
            break
        kept = end
    return text[:kept]


NO_ANSWER = "NO ANSWER"
_NO_EVIDENCE = "No evidence."
_PROMPTS = tomllib.loads(files("catalog.answers").joinpath("prompts.toml").read_text("utf-8"))
RULES = _PROMPTS["answer"].format(**_PROMPTS, no_answer=NO_ANSWER)
JUDGE_RULES: str = _PROMPTS["judge"]
_TEMPLATE_MARKS = re.compile(
    r"<(?=\|)|\|(?=>)|<(?=/?s>|<SYS>>|</SYS>>|/?(?:start|end)_of_turn>)|\[(?=/?INST\])", re.I
)


def build_messages(
    question: str, passages: Sequence[ContextPassage], *, rules: str = RULES
) -> list[Message]:
    """Return the messages of a question over these passages; equal ones make equal messages.

    ``rules`` are the system's message. The passages are between two lines with a number, computed
    from the text itself, so that nobody who writes a document can know it. Marks that tell a model
    who is speaking are broken up.
    """
    text = _TEMPLATE_MARKS.sub(r"\g<0> ", "\n\n".join(map(str, passages)))
    numbers = _numbers_of(f"{question}\0{text}")
    quoted = mark_as_data(text, lambda: next(numbers))
    return [Message("system", rules), Message("user", f"{quoted}\n\nQuestion: {question}")]


def artifact_rules(kind: ArtifactKind, sections: Mapping[str, bool]) -> str:
    """Return the system's message for an artifact; ``sections`` say which have passages."""
    headings = "\n".join(
        heading if has_passages else f"{heading}\n(no passages: write {_NO_EVIDENCE})"
        for heading, has_passages in sections.items()
    )
    rules: str = _PROMPTS["artifact"].format(
        **_PROMPTS, kind=kind, headings=headings, no_evidence=_NO_EVIDENCE
    )
    return rules


def ask_for_headings(
    messages: Sequence[Message], reply: str, misses: str, schema: Sequence[str]
) -> list[Message]:
    """Return the messages that ask once more for the headings of a schema."""
    headings = "\n".join(schema)
    again = (
        f"The headings are not those that were asked for ({misses}).\n"
        f"Write all of it again by the same rules, under just these headings:\n\n{headings}"
    )
    return _go_on(messages, reply, again)


def ask_again(
    messages: Sequence[Message], reply: str, unsupported: Sequence[AnswerSentence]
) -> list[Message]:
    """Return the messages that ask for the answer again, without its unsupported sentences."""
    wrong = "\n".join(f"- {one.text} ({'; '.join(one.reasons)})" for one in unsupported)
    again = (
        f"The passages do not support these sentences:\n{wrong}\n"
        "Write the whole answer again by the same rules, with what the passages say instead of "
        f"them, or {NO_ANSWER}."
    )
    return _go_on(messages, reply, again)


def _go_on(messages: Sequence[Message], reply: str, again: str) -> list[Message]:
    """Return the conversation with the model's reply and the user's answer to it."""
    return [*messages, Message("assistant", reply), Message("user", again)]


def _numbers_of(text: str) -> Iterator[str]:
    number = hashlib.sha256(text.encode("utf-8", "replace"))
    while True:
        number.update(b"\0")
        yield number.hexdigest()[:16]


def split_sections(text: str) -> list[tuple[str, str]]:
    """Return each heading of a Markdown text, plain, and what stands under it.

    What stands before the first is under the heading "". Fences of code around all are left out.
    """
    sections: list[tuple[str, list[str]]] = [("", [])]
    for line in text.splitlines():
        heading = _HEADING.fullmatch(line.strip())
        if heading is not None:
            sections.append((f"{heading[1]} {heading[2].strip(_DECORATION)}", []))
        elif not _FENCE.fullmatch(line):
            sections[-1][1].append(line)
    bodies = [(heading, "\n".join(lines).strip()) for heading, lines in sections]
    return bodies if bodies[0][1] else bodies[1:]


def find_misses(headings: Sequence[str], schema: Sequence[str]) -> str:
    """Say which headings stand in place of those of a schema; "" if they are the same, in order."""
    return "" if [*headings] == [*schema] else f"its headings: {', '.join(headings) or 'none'}"
