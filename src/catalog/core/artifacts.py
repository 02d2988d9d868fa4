"""A document in sections of checked sentences, as data; this is also the shape of its JSON."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, computed_field

from catalog.core.answers import AnswerCitation, AnswerSentence, TokenCounts
from catalog.core.params import ArtifactKind
from catalog.core.results import SearchResult, StageReport

NO_EVIDENCE = "No evidence in the documents."
EXTRACTED = "Sentences of the documents, word for word: no language model wrote this."


class ArtifactSection(BaseModel):
    """A heading with its marks, such as ``## Goals``, and the checked sentences under it.

    ``reason`` says why there are none, else ``None``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    heading: str
    sentences: tuple[AnswerSentence, ...]
    reason: str | None = None

    @property
    def text(self) -> str:
        """The section in Markdown; without sentences it says that there is no evidence."""
        body = "".join(f"{one.breaks}{one.marked()}" for one in self.sentences).strip()
        return f"{self.heading}\n\n{body or f'*{NO_EVIDENCE}*'}"


class Artifact(BaseModel):
    """A document of one kind about a topic; its sentences cite ``results`` by rank.

    ``model`` is ``None`` where the sentences are the documents' own, word for word. ``notes`` say
    what a user should know, such as how a model failed.
    """

    model_config = ConfigDict(frozen=True)

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
        """The sections, and then how they were made and their sources."""
        parts = [section.text for section in self.sections]
        if not self.abstained:
            parts += ["---", *([EXTRACTED] if self.model is None else []), "Sources:"]
            parts.append("\n".join(map(_source_line, self.citations)))
        return "\n\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that every edge gives."""
        return self.model_dump(mode="json")


def _source_line(citation: AnswerCitation) -> str:
    doubt = "" if citation.verified else " (does not say so)"
    path = f"{citation.dataset}:{citation.path}"
    return f"- [{citation.n}] {citation.citation} {path}{doubt}"
