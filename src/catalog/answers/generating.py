"""Generating an artifact from documents: search for each section, write, check.

``docs/decisions/0028-agents-and-artifacts.md`` has the reasons.
"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from catalog.answers.answerable import why_not_answered
from catalog.answers.answering import (
    CITES_NOTHING,
    MODEL_ABSTAINS,
    NONE_SUPPORTED,
    choose_llm,
    search_params,
)
from catalog.answers.cited_sources import Sources
from catalog.answers.claims import split_claims
from catalog.answers.neutralising import neutralise
from catalog.answers.prompting import artifact_rules, ask_for_headings, find_misses, split_sections
from catalog.answers.writing import CheckedWriter
from catalog.core.agents import ARTIFACT_TEMPERATURES, Agent, read_agent, with_agent
from catalog.core.answers import AnswerSentence, Artifact, ArtifactSection, TokenCounts
from catalog.core.arguments import takes
from catalog.core.bounded_calls import WHOLE
from catalog.core.errors import ArtifactSchemaError, ConfigError, InputError
from catalog.core.params import KINDS, ArtifactKind, GenerateParams
from catalog.core.retrieval_events import asked_at
from catalog.core.text import clean
from catalog.llm import LanguageModel
from catalog.retrieval.parts import StageLog
from catalog.retrieval.query_words import query_coverage
from catalog.retrieval.shared import shared_service

if TYPE_CHECKING:
    from catalog.core.results import SearchResult, SearchResults
    from catalog.core.settings import AnswerSettings
    from catalog.retrieval.search import Searcher

    _Found = tuple[SearchResults, str | None]  # the reason why a section's results are no evidence


SCHEMAS: Mapping[ArtifactKind, Mapping[str, str]] = tomllib.loads(  # type: ignore[assignment]
    files("catalog.answers").joinpath("schemas.toml").read_text("utf-8")
)
"""Of each kind, its headings in order, and the question that finds what a section is made of."""
MAX_TOKENS: Mapping[ArtifactKind, int] = dict(zip(SCHEMAS, (1600, 2000, 1200, 1600), strict=True))
"""How long a model may write each kind, in its tokens."""
_MOST_OF_WINDOW = 2  # the reply may take one part in so many of what a model reads at once
_NOTHING = "no evidence"


class ArtifactDraft(NamedTuple):
    """The checked sentences under each heading, and their tokens.

    No passage supports any sentence that the model wrote under the ``doubted`` headings.
    """

    sections: Mapping[str, tuple[AnswerSentence, ...]]
    tokens: TokenCounts
    passages: int
    dropped: int
    is_cut: bool
    doubted: frozenset[str]
    cites_nothing: bool


def write_sections(
    llm: LanguageModel,
    kind: ArtifactKind,
    topic: str,
    sections: Mapping[str, bool],
    results: Sequence[SearchResult],
    settings: AnswerSettings,
    seconds: float,
    agent: Agent,
) -> ArtifactDraft:
    """Return the model's sentences under each heading; ``sections`` say which have passages.

    A section without a supported sentence is empty. Raises :class:`ArtifactSchemaError`, with the
    draft, for Markdown with other headings even after one repair, and :class:`LLMError` kinds for
    a model that fails.
    """
    most = llm.context_tokens // _MOST_OF_WINDOW
    agent = agent.model_copy(update={"max_tokens": min(agent.max_tokens or most, most)})
    writer = CheckedWriter(llm, results, settings, seconds, agent, whole=WHOLE * seconds)
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
                f"{misses}; wanted: {', '.join(sections)}",
                neutralise(clean(draft), results),
            )
    checked = {name: list(_check(body, writer)) for name, body in split_sections(draft)}
    kept = {name: _keep(sentences, settings) for name, sentences in checked.items()}
    dropped = sum(len(checked[name]) - len(kept[name]) for name in checked)
    doubted = frozenset(name for name in checked if checked[name] and not kept[name])
    cites_nothing = not any(one.citations for body in checked.values() for one in body)
    return ArtifactDraft(
        kept, writer.tokens, passages, dropped, writer.is_cut, doubted, cites_nothing
    )


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


@takes(GenerateParams)
def generate(params: GenerateParams) -> Artifact:
    """Return an artifact on a topic: sections of checked sentences, or marked as without evidence.

    Uses the effective settings and the service that ``catalog.search_v2.search`` uses. Raises what
    a search raises, :class:`ConfigError` without a language model, and
    :class:`ArtifactSchemaError`, with the draft, where a model keeps to no schema.

    Examples:
        >>> from catalog.search_v2 import generate
        >>> artifact = generate("workflow", topic="rotating API keys", dataset="notes")
        >>> print(artifact.sections[0].sentences[0].text)
        Rotate the API keys every ninety days with the keys command.
    """
    with asked_at("python"):
        return generate_artifact(shared_service(), params)


def generate_artifact(
    service: Searcher, params: GenerateParams, *, llm: LanguageModel | None = None
) -> Artifact:
    """Return an artifact; ``llm`` writes in place of the model that params and settings name.

    A call at an edge is logged.
    """
    if not params.topic.strip():
        raise InputError("the topic is empty: say what it is about")
    with service.library.log.watching(params) as note:
        agent = _agent_for(service, params)
        artifact = _generate(service, with_agent(params, agent), llm, agent)
        note(artifact, agent=params.agent, profile=agent.profile)
    return artifact


def _generate(
    service: Searcher, params: GenerateParams, llm: LanguageModel | None, agent: Agent
) -> Artifact:
    started = time.perf_counter()
    llm = llm or choose_llm(service.library, params.model, agent.profile)
    if llm is None:
        raise ConfigError(
            "generate needs a language model: set IDX_LLM__PROVIDER; "
            "ask quotes the documents without one"
        )
    stages = StageLog(strict=params.strict)
    found, reason = _search_topic(service, params, stages)
    notes = list(found.notes)
    draft: ArtifactDraft | None = None
    results: list[SearchResult] = []
    if reason is not None:
        why = _no_evidence(reason)
        sections = [
            ArtifactSection(heading=one, sentences=(), reason=why) for one in SCHEMAS[params.kind]
        ]
    else:
        evidence = dict(_search_sections(service, params, stages))
        searches = [one for one, why in evidence.values() if why is None]
        results = _number([found, *searches])
        has_passages = {heading: why is None for heading, (_, why) in evidence.items()}
        settings = service.parts.settings
        with stages.run("write") as told:
            about, seconds = (params.kind, params.topic, has_passages), settings.llm.timeout_seconds
            draft = write_sections(llm, *about, results, settings.answers, seconds, agent)
            told.append(f"{draft.passages} passages")
        if draft.dropped:
            notes.append(f"unsupported sentences left out: {draft.dropped}")
        if draft.is_cut:
            notes.append("the model's reply was cut: raise the agent's max_tokens")
        sections = _written(evidence, draft)
    sources = Sources(results, service.parts.settings.answers.citations)
    sections = [
        section.model_copy(update={"sentences": tuple(map(sources.cite, section.sentences))})
        for section in sections
    ]
    sentences = [one for section in sections for one in section.sentences]
    return Artifact(
        kind=params.kind,
        topic=params.topic,
        sections=tuple(sections),
        citations=sources.of(sentences),
        datasets=found.datasets,
        results=tuple(results),
        model=None if draft is None else llm.name,
        stages=stages.reports,
        tokens=None if draft is None else draft.tokens,
        elapsed_ms=round((time.perf_counter() - started) * 1000, 3),
        notes=tuple(dict.fromkeys(notes)),
    )


def _agent_for(service: Searcher, params: GenerateParams) -> Agent:
    """Return the agent with temperature and longest reply as artifacts have them."""
    if params.kind not in KINDS:
        raise InputError(f"no kind {params.kind!r}; kinds: {', '.join(KINDS)}")
    agent = read_agent(service.parts.settings, params.agent)
    if agent.output not in (None, params.kind):
        raise InputError(f"the agent {params.agent!r} writes {agent.output}, not {params.kind}")
    least, most = ARTIFACT_TEMPERATURES
    temperature = least if agent.temperature is None else agent.temperature
    temperature, tokens = min(max(temperature, least), most), MAX_TOKENS[params.kind]
    kept = {"temperature": temperature, "max_tokens": agent.max_tokens or tokens}
    return agent.model_copy(update=kept)


def _search_topic(service: Searcher, params: GenerateParams, stages: StageLog) -> _Found:
    """Search for the topic; return the results, and the reason if they are no evidence.

    They always are if one heading of the documents has all words of the topic.
    """
    settings = service.parts.settings.answers
    with stages.run("search topic") as notes:
        found = service.run(search_params(params, params.topic))
        reason = why_not_answered(found, found.confidence, settings.answered_from)
        if any(query_coverage(params.topic, "", (it.title, *it.sections)) == 1.0 for it in found):
            reason = None
        notes.append(reason or f"{len(found)} passages")
    return found, reason


def _search_sections(
    service: Searcher, params: GenerateParams, stages: StageLog
) -> Iterator[tuple[str, _Found]]:
    """Yield each heading with what its own search found."""
    settings = service.parts.settings.answers
    for heading, question in SCHEMAS[params.kind].items():
        with stages.run(f"search {heading}") as notes:
            query = question.format(topic=params.topic)
            results = service.run(search_params(params, query))
            reason = why_not_answered(results, results.confidence, settings.answered_from)
            notes.append(reason or f"{len(results)} passages")
        yield heading, (results, reason)


def _number(searches: Sequence[SearchResults]) -> list[SearchResult]:
    """Return the passages of all searches, the best of each first, with one number each."""
    numbered: dict[str, SearchResult] = {}
    for row in zip_longest(*(search.results for search in searches)):
        for result in row:
            if result is not None and result.chunk_id not in numbered:
                own = {"rank": len(numbered) + 1, "evidence": None, "evidence_at": None}
                numbered[result.chunk_id] = result.model_copy(update=own)
    return list(numbered.values())


def _written(evidence: Mapping[str, _Found], draft: ArtifactDraft) -> list[ArtifactSection]:
    """Return the sections that a model wrote, and why those without sentences have none."""
    doubt = CITES_NOTHING if draft.cites_nothing else NONE_SUPPORTED
    reasons = {
        heading: doubt if heading in draft.doubted else _no_evidence(why or MODEL_ABSTAINS)
        for heading, (_, why) in evidence.items()
    }
    return [
        ArtifactSection(heading=one, sentences=said, reason=None if said else reasons[one])
        for one, said in ((heading, draft.sections[heading]) for heading in evidence)
    ]


def _no_evidence(reason: str) -> str:
    return f"no evidence in the documents: {reason}"
