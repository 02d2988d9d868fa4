"""An artifact that a language model writes: asked once for all sections, checked, repaired once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from catalog.answers.artifact_schemas import find_misses, split_sections
from catalog.answers.claims import split_claims
from catalog.answers.neutralising import neutralise
from catalog.answers.prompting import artifact_rules, ask_for_headings
from catalog.answers.writing import CheckedWriter
from catalog.core.agents import Agent
from catalog.core.answers import AnswerSentence, TokenCounts
from catalog.core.errors import ArtifactSchemaError
from catalog.core.params import ArtifactKind
from catalog.core.text import clean

if TYPE_CHECKING:
    from llama_index.core.llms import LLM

    from catalog.core.results import SearchResult
    from catalog.core.settings import AnswerSettings

_MOST_OF_WINDOW = 2  # the reply may take one part in so many of what a model reads at once
_NOTHING = "no evidence"


class ArtifactDraft(NamedTuple):
    """The sentences under each heading, checked, and what they took."""

    sections: Mapping[str, tuple[AnswerSentence, ...]]
    tokens: TokenCounts
    passages: int
    dropped: int
    is_cut: bool


def write_sections(
    llm: LLM,
    kind: ArtifactKind,
    topic: str,
    sections: Mapping[str, bool],
    results: Sequence[SearchResult],
    settings: AnswerSettings,
    seconds: float,
    agent: Agent,
    summariser: LLM | None,
) -> ArtifactDraft:
    """Return what the model writes under each heading; ``sections`` say which have passages.

    A section without a supported sentence is empty. Raises :class:`ArtifactSchemaError`, with the
    draft, for Markdown with other headings even after one repair, and :class:`LLMError` kinds for
    a model that fails.
    """
    most = llm.metadata.context_window // _MOST_OF_WINDOW
    agent = agent.model_copy(update={"max_tokens": min(agent.max_tokens or most, most)})
    writer = CheckedWriter(llm, results, settings, seconds, agent, summariser)
    messages, passages = writer.prompt(
        f"Generate a {kind} on: {topic}", artifact_rules(kind, sections), parts=len(sections)
    )
    draft = writer.reply(messages)
    if misses := find_misses([name for name, _ in split_sections(draft)], list(sections)):
        draft = writer.reply(ask_for_headings(messages, draft, misses, list(sections)))
        misses = find_misses([name for name, _ in split_sections(draft)], list(sections))
        if misses:
            cut = " (its reply was cut: raise max_tokens of the agent)" if writer.is_cut else ""
            raise ArtifactSchemaError(
                f"the language model did not write a {kind}, nor when asked again{cut}: "
                f"{'; '.join(misses)}",
                neutralise(clean(draft), results),
            )
    checked = {name: list(_check(body, writer)) for name, body in split_sections(draft)}
    kept = {name: _keep(sentences, settings) for name, sentences in checked.items()}
    dropped = sum(len(checked[name]) - len(kept[name]) for name in checked)
    return ArtifactDraft(kept, writer.tokens, passages, dropped, writer.is_cut)


def _check(body: str, writer: CheckedWriter) -> Iterator[AnswerSentence]:
    for claim in split_claims(body):
        if not claim.text.strip(" *_-.").casefold().startswith(_NOTHING):
            yield writer.check(claim)


def _keep(
    sentences: Sequence[AnswerSentence], settings: AnswerSettings
) -> tuple[AnswerSentence, ...]:
    """Return the sentences of a section that stay: none where none is supported."""
    supported = tuple(one for one in sentences if one.supported)
    return tuple(sentences) if supported and settings.unsupported == "mark" else supported
