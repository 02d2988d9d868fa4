"""An artifact that a language model writes: asked once for all sections, checked, repaired once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from catalog.answers.agents import Agent
from catalog.answers.artifact_schemas import find_misses, split_sections
from catalog.answers.cited_sources import cite_as
from catalog.answers.claims import check_claim, split_claims, without_thoughts
from catalog.answers.context import choose_context, token_counter
from catalog.answers.prompting import artifact_rules, ask_for_headings, build_messages
from catalog.core.answers import AnswerSentence, TokenCounts
from catalog.core.errors import ArtifactSchemaError, LLMError
from catalog.core.param_types import ArtifactKind
from catalog.llm.replies import Reply

if TYPE_CHECKING:
    from llama_index.core.llms import LLM, ChatMessage

    from catalog.core.results import SearchResult
    from catalog.core.settings import AnswerSettings

_OF_FORM = 60  # tokens that the parts of a conversation take besides their text
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
) -> ArtifactDraft:
    """Return what the model writes under each heading; ``sections`` say which have passages.

    A section without a supported sentence is empty. Raises :class:`ArtifactSchemaError`, with the
    draft, for Markdown with other headings even after one repair, and :class:`LLMError` kinds for
    a model that fails.
    """
    writer = _ArtifactWriter(llm, settings, seconds, agent)
    request = f"Generate a {kind} on: {topic}"
    messages, given = writer.prompt(request, kind, sections, results)
    draft = writer.reply(messages)
    if misses := find_misses([name for name, _ in split_sections(draft)], list(sections)):
        draft = writer.reply(ask_for_headings(messages, draft, misses, list(sections)))
        misses = find_misses([name for name, _ in split_sections(draft)], list(sections))
        if misses:
            cut = " (its reply was cut: raise max_tokens of the agent)" if writer.is_cut else ""
            raise ArtifactSchemaError(
                f"the language model did not write a {kind}, nor when asked again{cut}: "
                f"{'; '.join(misses)}",
                draft,
            )
    checked = {name: list(_check(body, given, settings)) for name, body in split_sections(draft)}
    kept = {name: _keep(sentences, settings) for name, sentences in checked.items()}
    dropped = sum(len(checked[name]) - len(kept[name]) for name in checked)
    return ArtifactDraft(kept, writer.tokens, len(given), dropped, writer.is_cut)


def _check(
    body: str, given: Mapping[int, SearchResult], settings: AnswerSettings
) -> Iterator[AnswerSentence]:
    for claim in split_claims(body):
        if not claim.text.strip(" *_-.").casefold().startswith(_NOTHING):
            yield cite_as(check_claim(claim, given), given, settings.citations)


def _keep(
    sentences: Sequence[AnswerSentence], settings: AnswerSettings
) -> tuple[AnswerSentence, ...]:
    """Return the sentences of a section that stay: none where none is supported."""
    supported = tuple(one for one in sentences if one.supported)
    return tuple(sentences) if supported and settings.unsupported == "mark" else supported


class _ArtifactWriter:
    def __init__(self, llm: LLM, settings: AnswerSettings, seconds: float, agent: Agent) -> None:
        self._llm, self._settings, self._seconds = llm, settings, seconds
        self._count, self._estimates = token_counter(llm)
        window = llm.metadata.context_window
        self._longest = min(agent.max_tokens or window, window // _MOST_OF_WINDOW)
        self._agent = agent.model_copy(update={"max_tokens": self._longest})
        self.tokens = TokenCounts(prompt=0, reply=0, is_estimate=self._estimates)
        self.is_cut = False

    def prompt(
        self,
        request: str,
        kind: ArtifactKind,
        sections: Mapping[str, bool],
        results: Sequence[SearchResult],
    ) -> tuple[list[ChatMessage], dict[int, SearchResult]]:
        """Return the messages of a request, and the passages that they hold by number."""
        rules = artifact_rules(self._agent.persona, kind, sections)
        fixed = self._count(rules) + self._count(request) + _OF_FORM
        room = self._llm.metadata.context_window - self._longest - fixed
        passages = choose_context(
            results,
            self._count,
            most=self._settings.context_passages * len(sections),
            tokens=min(self._settings.context_tokens, room),
        )
        if not passages:
            raise LLMError(
                f"the language model reads {self._llm.metadata.context_window} tokens at once, too "
                f"few for a {kind}: take another model"
            )
        by_number = {result.rank: result for result in results}
        given = {one.number: by_number[one.number] for one in passages}
        return build_messages(request, passages, rules=rules), given

    def reply(self, messages: Sequence[ChatMessage]) -> str:
        """Return a whole reply, without thoughts, and count its tokens."""
        reply = Reply(self._llm, messages, self._seconds, **self._agent.options())
        said = "".join(reply)
        self.is_cut = reply.is_cut
        prompt, written = reply.usage or (
            sum(self._count(message.content or "") for message in messages),
            self._count(said),
        )
        self.tokens = TokenCounts(
            prompt=self.tokens.prompt + prompt,
            reply=self.tokens.reply + written,
            is_estimate=reply.usage is None and self._estimates,
        )
        return without_thoughts(said).strip()
