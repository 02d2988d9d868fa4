"""Answers and artifacts in checked sentences, as data; also the shapes of their JSON everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_type_hints

from pydantic import BaseModel, Field, computed_field, create_model
from pydantic_core import to_jsonable_python

from catalog.core.params import ArtifactKind, Mode
from catalog.core.results import (
    Certainty,
    Frozen,
    ResultLocator,
    SearchResult,
    SearchResults,
    StageReport,
)

EventKind = Literal["results", "sentence", "answer"]
MAY_NOT_ANSWER = "These documents may not answer it. Closest:\n"
NOT_QUOTED = "Not in the quoted text: {}.\n"
_NUMBER = re.compile(r"\[(\d+)\]")  # a document's own, which is no mark of the answer


class AnswerCitation(Frozen):
    """A source of an answer, cited as ``[n]``: one place in the result of that ``rank``.

    ``text`` is the part of the passage that supports the answer, word for word: from the first
    to the last sentence that cites it.
    ``verified`` says whether it supports any sentence that cites it.
    """

    n: int
    rank: int
    chunk_id: str
    dataset: str
    path: str
    title: str
    locator: ResultLocator
    citation: str
    link: str | None
    text: str
    verified: bool


class AnswerSentence(Frozen):
    """One sentence of an answer, without its ``[n]``, and the numbers that it cites.

    ``reasons`` say why its sources do not support it. ``breaks`` is the white space before it,
    :data:`MAY_NOT_ANSWER` or :data:`NOT_QUOTED`. ``context`` is what it depends on in its document:
    a heading, the lead-in of a list, or the question that it answers. ``span`` is where a quoted
    sentence stands in its passage.
    """

    text: str
    citations: tuple[int, ...]
    supported: bool
    reasons: tuple[str, ...] = ()
    breaks: str = ""
    cited_as: tuple[str, ...] = ()
    context: str = ""
    span: tuple[int, int] | None = Field(None, exclude=True)

    def marked(self) -> str:
        """Return the sentence with its context, its citations and, if unsupported, a mark.

        The sentence's own ``[1]`` is written ``[ 1 ]``: only a citation is a number in brackets.
        """
        before = self.context and self.context + (" " if self.context.endswith("?") else ": ")
        marks = self.cited_as or [f"[{number}]" for number in self.citations]
        doubt = [] if self.supported else ["[unsupported]"]
        return " ".join([_NUMBER.sub(r"[ \1 ]", before + self.text), *marks, *doubt])


class NearDocument(Frozen):
    """A document near to a question that no document answers."""

    source_doc_id: str
    path: str
    title: str
    relevance: float | None


class Abstained(Frozen):
    """An abstention: the reason, the nearest documents, and the remedy."""

    message: str
    reason: str
    nearest: tuple[NearDocument, ...] = ()
    ingest: str


class TokenCounts(Frozen):
    """Tokens of the prompt and of the reply; ``is_estimate``: counted by us, not by the model."""

    prompt: int
    reply: int
    is_estimate: bool


@dataclass(frozen=True)
class Answer:
    """An answer in checked sentences, or the reason for no answer, with its search results.

    ``model`` is ``None`` where the sentences are the documents' own, word for word. ``certainty``
    is ``exact`` for a count, ``likely`` for an answer, ``possible`` for the closest statements, and
    ``None`` without any; ``confidence`` is the probability, 0 to 1, that the passages answer.
    ``missing`` are words of the question that cited text and headings lack, or a judge misses.
    """

    question: str
    sentences: tuple[AnswerSentence, ...]
    citations: tuple[AnswerCitation, ...]
    results: SearchResults
    abstained: Abstained | None = None
    certainty: Certainty | None = None
    confidence: float | None = None
    missing: tuple[str, ...] = ()
    model: str | None = None
    stages: Sequence[StageReport] = ()
    tokens: TokenCounts | None = None
    elapsed_ms: float = 0.0
    notes: tuple[str, ...] = ()
    agent: str | None = None

    @property
    def text(self) -> str:
        """Return the sentences with their numbers, or the message when there is no answer."""
        return self.abstained.message if self.abstained else _join(self.sentences)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that the command line, HTTP and MCP give."""
        own = {"answer": self.text, "abstained": self.abstained is not None}
        own |= {"reason": self.abstained and self.abstained.reason, "abstention": self.abstained}
        of_search = ("datasets", "mode", "results")
        found = {name: found for name, found in self.results.to_dict().items() if name in of_search}
        shown = to_jsonable_python({**vars(self), "results": None, **own}) | found
        return {name: shown[name] for name in AnswerShape.model_fields}


_SHAPE: dict[str, Any] = {"question": str, "answer": str, "abstained": bool, "reason": str | None}
_SHAPE |= {"abstention": Abstained | None} | get_type_hints(Answer)
_SHAPE |= {"abstained": bool, "results": tuple[SearchResult, ...]}  # as to_dict gives them
_SHAPE |= {"datasets": tuple[str, ...], "mode": Mode}
_SHAPE |= {name: (value, ...) for name, value in _SHAPE.items()}
_ABOUT = "An answer in sentences that cite ``results`` by rank, or the reason for no answer."
AnswerShape = create_model("AnswerShape", __base__=Frozen, __doc__=_ABOUT, **_SHAPE)
"""The JSON object of an answer: ``answer`` is its text."""


@dataclass(frozen=True)
class AnswerEvent:
    """One event of a streamed answer; in order: its results, each checked sentence, the whole."""

    kind: EventKind
    results: SearchResults | None = None
    sentence: AnswerSentence | None = None
    answer: Answer | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the event as the JSON object that a stream gives: ``event`` and its content."""
        told: Any = getattr(self, self.kind)
        is_sentence = self.kind == "sentence"
        content = told.model_dump(mode="json") if is_sentence else told.to_dict()
        return {"event": self.kind, self.kind: content}


class ArtifactSection(Frozen):
    """A heading with its marks, such as ``## Goals``, and the checked sentences under it.

    ``reason`` says why the section has no sentences, else ``None``.
    """

    heading: str
    sentences: tuple[AnswerSentence, ...]
    reason: str | None = None

    @property
    def text(self) -> str:
        """The section in Markdown; without sentences it says why it has none."""
        body = _join(self.sentences) if self.reason is None else f"*{_as_sentence(self.reason)}*"
        return f"{self.heading}\n\n{body}"


class Artifact(BaseModel, frozen=True):
    """A document of one kind about a topic; its sentences cite ``citations`` by number.

    ``model`` is ``None`` where the documents have no evidence and no model was asked.
    """

    kind: ArtifactKind
    topic: str
    sections: tuple[ArtifactSection, ...]
    citations: tuple[AnswerCitation, ...]
    datasets: tuple[str, ...]
    results: tuple[SearchResult, ...]
    model: str | None
    stages: tuple[StageReport, ...]
    tokens: TokenCounts | None
    elapsed_ms: float
    notes: tuple[str, ...] = ()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def abstained(self) -> bool:
        """Whether no section has any evidence."""
        return not any(section.sentences for section in self.sections)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def markdown(self) -> str:
        """The sections and their sources; without any evidence one sentence that says why."""
        reasons = {section.reason for section in self.sections}
        if self.abstained and len(reasons) == 1:
            return _as_sentence(reasons.pop() or "")
        parts = [one.text for one in self.sections]
        if not self.abstained:
            sources = (
                f"- [{one.n}] {one.citation} {one.dataset}:{one.path}"
                + ("" if one.verified else " (does not support it)")
                for one in self.citations
            )
            parts += ["---", "Sources:", "\n".join(sources)]
        return "\n\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that every edge gives."""
        return self.model_dump(mode="json")


def _join(sentences: Iterable[AnswerSentence]) -> str:
    return "".join(f"{one.breaks}{one.marked()}" for one in sentences).strip()


def _as_sentence(reason: str) -> str:
    return f"{reason[:1].upper()}{reason[1:].rstrip('.')}."
