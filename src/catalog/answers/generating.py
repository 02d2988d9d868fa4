"""Generating an artifact from documents: search for each section, write or extract, check.

``docs/decisions/0028-agents-and-artifacts.md`` has the reasons.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from catalog.answers.answerable import why_not_answered
from catalog.answers.answering import (
    HOW_TO_CONFIGURE,
    NONE_SUPPORTED,
    choose_llm,
    choose_summariser,
    search_params,
)
from catalog.answers.cited_sources import Sources
from catalog.answers.claims import split_claims
from catalog.answers.extracting import extract_sentences
from catalog.answers.neutralising import neutralise
from catalog.answers.prompting import artifact_rules, ask_for_headings
from catalog.answers.writing import CheckedWriter
from catalog.core.agent_calls import read_agent, with_agent
from catalog.core.agents import ARTIFACT_TEMPERATURES, Agent
from catalog.core.answers import AnswerSentence, Artifact, ArtifactSection, TokenCounts
from catalog.core.errors import ArtifactSchemaError, ConfigError, InputError, LLMError
from catalog.core.param_fields import takes
from catalog.core.params import KINDS, ArtifactKind, GenerateParams
from catalog.core.retrieval_events import asked_at
from catalog.core.text import clean
from catalog.llm import LanguageModel
from catalog.retrieval.query_words import query_coverage
from catalog.retrieval.shared import shared_service
from catalog.retrieval.stages import StageLog, span

if TYPE_CHECKING:
    from catalog.core.answers import AnswerSentence
    from catalog.core.results import SearchResult, SearchResults
    from catalog.core.settings import AnswerSettings
    from catalog.retrieval.searcher import Searcher


SCHEMAS: Mapping[ArtifactKind, Mapping[str, str]] = {
    "blueprint": {
        "# Overview": "what is {topic}",
        "## Goals": "what are the goals of {topic}",
        "## Architecture": "what is the architecture of {topic}",
        "## Features": "which features does {topic} have",
        "## Risks": "what are the risks of {topic}",
        "## Next Steps": "what are the next steps for {topic}",
    },
    "pdr": {
        "# Summary": "what is {topic}",
        "## Problem": "which problem does {topic} solve",
        "## Users": "who are the users of {topic}",
        "## Requirements": "what are the requirements of {topic}",
        "## Design": "what is the design of {topic}",
        "## Constraints": "what are the limits of {topic}",
        "## Open Questions": "which questions about {topic} are open",
    },
    "workflow": {
        "# Purpose": "what is the purpose of {topic}",
        "## Roles": "who is responsible for {topic}",
        "## Inputs": "what is needed before {topic}",
        "## Steps": "what are the steps of {topic}",
        "## Outputs": "what is the result of {topic}",
        "## Exceptions": "what can fail in {topic}",
    },
    "build-plan": {
        "# Scope": "what is {topic}",
        "## Milestones": "what are the milestones of {topic}",
        "## Tasks": "what are the tasks of {topic}",
        "## Dependencies": "what does {topic} depend on",
        "## Testing": "how is {topic} tested",
        "## Risks": "what are the risks of {topic}",
    },
}
"""Of each kind, its headings in order, and the question that finds what a section is made of."""
MAX_TOKENS: Mapping[ArtifactKind, int] = {
    "blueprint": 1600,
    "pdr": 2000,
    "workflow": 1200,
    "build-plan": 1600,
}
"""How long a model may write each kind, in its tokens."""
_HEADING = re.compile(r"(#{1,6})[ \t]+(\S.*)")
_FENCE = re.compile(r"\s*```\w*\s*")
_DECORATION = " \t*_:#"


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


def find_misses(headings: Sequence[str], schema: Sequence[str]) -> list[str]:
    """Say how headings differ from those of a schema: nothing if they are the same, in order."""
    misses = [f"{one} is missing" for one in schema if one not in headings]
    for at, one in enumerate(headings):
        if not one:
            misses.append(f"there is text before {schema[0]}")
        elif one not in schema:
            misses.append(f"{one} is no heading of it")
        elif one in headings[:at]:
            misses.append(f"{one} is there twice")
    if not misses and list(headings) != list(schema):
        misses.append(f"the order is not {', '.join(schema)}")
    return misses


_MOST_OF_WINDOW = 2  # the reply may take one part in so many of what a model reads at once
_NOTHING = "no evidence"


class ArtifactDraft(NamedTuple):
    """The checked sentences under each heading, and their tokens."""

    sections: Mapping[str, tuple[AnswerSentence, ...]]
    tokens: TokenCounts
    passages: int
    dropped: int
    is_cut: bool


def write_sections(
    llm: LanguageModel,
    kind: ArtifactKind,
    topic: str,
    sections: Mapping[str, bool],
    results: Sequence[SearchResult],
    settings: AnswerSettings,
    seconds: float,
    agent: Agent,
    summariser: LanguageModel | None,
) -> ArtifactDraft:
    """Return the model's sentences under each heading; ``sections`` say which have passages.

    A section without a supported sentence is empty. Raises :class:`ArtifactSchemaError`, with the
    draft, for Markdown with other headings even after one repair, and :class:`LLMError` kinds for
    a model that fails.
    """
    most = llm.context_tokens // _MOST_OF_WINDOW
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


_WIDER = 4  # times as many sentences are looked at as a section may have
_LEAST_OF_TOPIC = 0.5  # share of its words
_OFF_TOPIC = "no sentence of the documents speaks of it under that heading"
_USED = "what the documents say of it stands in the sections above"


class _Evidence(NamedTuple):
    """The passages found for one section, or the reason why they are no evidence."""

    results: SearchResults
    extracted: tuple[AnswerSentence, ...]
    reason: str | None


@takes(GenerateParams)
def generate(params: GenerateParams) -> Artifact:
    """Return an artifact on a topic: sections of checked sentences, or marked as without evidence.

    Uses the effective settings and the service that ``catalog.search_v2.search`` uses. Without a
    language model the sentences are the documents' own. Raises what a search raises, and
    :class:`ArtifactSchemaError`, with the draft, where a model keeps to no schema.

    Examples:
        >>> from catalog.search_v2 import generate
        >>> artifact = generate("workflow", topic="rotating API keys", dataset="notes")
        >>> print(artifact.sections[0].text)
        # Purpose
        <BLANKLINE>
        Rotate the API keys every ninety days with the keys command. [1]
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
    with span("generate"), service.library.log.watching(params) as note:
        agent = _agent_for(service, params)
        artifact = _generate(service, with_agent(params, agent), llm, agent)
        note(artifact, agent=params.agent, profile=agent.profile)
    return artifact


def _generate(
    service: Searcher, params: GenerateParams, llm: LanguageModel | None, agent: Agent
) -> Artifact:
    started = time.perf_counter()
    stages = StageLog(strict=params.strict)
    evidence = dict(_search_sections(service, params, stages))
    results = _number([one.results for one in evidence.values() if one.reason is None])
    draft: ArtifactDraft | None = None
    notes = [note for one in evidence.values() for note in one.results.notes]
    if results:
        draft, llm, note = _write(service, params, evidence, results, stages, llm, agent)
        notes.append(note)
    sections = _extract(evidence, results) if draft is None else _written(evidence, draft)
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
        datasets=next(iter(evidence.values())).results.datasets,
        results=tuple(results),
        model=None if draft is None or llm is None else llm.name,
        stages=stages.reports,
        tokens=None if draft is None else draft.tokens,
        elapsed_ms=round((time.perf_counter() - started) * 1000, 3),
        notes=tuple(dict.fromkeys(filter(None, notes))),
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
    return agent.model_copy(
        update={
            "temperature": min(max(temperature, least), most),
            "max_tokens": agent.max_tokens or MAX_TOKENS[params.kind],
        }
    )


def _search_sections(
    service: Searcher, params: GenerateParams, stages: StageLog
) -> Iterator[tuple[str, _Evidence]]:
    """Yield each heading with what its own search found."""
    settings = service.parts.settings.answers
    for heading, question in SCHEMAS[params.kind].items():
        with stages.run(f"search {heading}") as notes:
            query = question.format(topic=params.topic)
            results = service.run(search_params(params, query))
            wide = _WIDER * settings.sentences
            extracted = extract_sentences(query, results.results, wide)
            reason = why_not_answered(results, results.confidence, settings.answered_from)
            notes.append(reason or f"{len(results)} passages")
        by_rank = {result.rank: result for result in results}
        on_topic = tuple(
            one for one in extracted if _speaks_of(params.topic, one, by_rank[one.citations[0]])
        )
        yield heading, _Evidence(results, on_topic[: settings.sentences], reason)


def _speaks_of(topic: str, sentence: AnswerSentence, passage: SearchResult) -> bool:
    """Return whether a sentence, with its headings, has enough of the topic's words.

    Else one with the words of the section's question alone would do: any risk of anything.
    """
    headings = (passage.title, *passage.sections)
    return query_coverage(topic, sentence.text, headings) >= _LEAST_OF_TOPIC


def _number(searches: Sequence[SearchResults]) -> list[SearchResult]:
    """Return the passages of all searches, the best of each first, with one number each."""
    numbered: dict[str, SearchResult] = {}
    for row in zip_longest(*(search.results for search in searches)):
        for result in row:
            if result is not None and result.chunk_id not in numbered:
                own = {"rank": len(numbered) + 1, "evidence": None, "evidence_at": None}
                numbered[result.chunk_id] = result.model_copy(update=own)
    return list(numbered.values())


def _write(
    service: Searcher,
    params: GenerateParams,
    evidence: Mapping[str, _Evidence],
    results: Sequence[SearchResult],
    stages: StageLog,
    llm: LanguageModel | None,
    agent: Agent,
) -> tuple[ArtifactDraft | None, LanguageModel | None, str]:
    """Return the model's draft, if any, the model, and a note on it."""
    started = time.perf_counter()
    settings = service.parts.settings
    try:
        llm = llm or choose_llm(service.library, params.model, agent.profile)
        if llm is None:
            return None, None, HOW_TO_CONFIGURE

        has_passages = {heading: one.reason is None for heading, one in evidence.items()}
        seconds = settings.llm.timeout_seconds
        draft = write_sections(
            llm,
            params.kind,
            params.topic,
            has_passages,
            results,
            settings.answers,
            seconds,
            agent,
            choose_summariser(service, llm),
        )
    except ArtifactSchemaError:
        raise
    except (LLMError, ConfigError) as error:
        stages.failed("write", (time.perf_counter() - started) * 1000, error)
        return None, None, f"{error}; these are the documents' own sentences instead"
    stages.ran("write", (time.perf_counter() - started) * 1000, f"{draft.passages} passages")
    notes = [f"unsupported sentences left out: {draft.dropped}"] if draft.dropped else []
    notes += ["the model's reply was cut: raise the agent's max_tokens"] if draft.is_cut else []
    return draft, llm, "; ".join(notes)


def _written(evidence: Mapping[str, _Evidence], draft: ArtifactDraft) -> list[ArtifactSection]:
    return [
        ArtifactSection(
            heading=heading,
            sentences=draft.sections[heading],
            reason=None if draft.sections[heading] else one.reason or NONE_SUPPORTED,
        )
        for heading, one in evidence.items()
    ]


def _extract(
    evidence: Mapping[str, _Evidence], results: Sequence[SearchResult]
) -> list[ArtifactSection]:
    """Return sections of the documents' own sentences, each sentence in the first that has it."""
    numbers = {result.chunk_id: result.rank for result in results}
    used: set[str] = set()
    sections = []
    for heading, one in evidence.items():
        chunks = {result.rank: result.chunk_id for result in one.results}
        sentences: list[AnswerSentence] = []
        for sentence in one.extracted if one.reason is None else ():
            if sentence.text not in used:
                cited = tuple(numbers[chunks[rank]] for rank in sentence.citations)
                own = {"citations": cited, "breaks": "\n\n" if sentences else ""}
                sentences.append(sentence.model_copy(update=own))
                used.add(sentence.text)
        why = one.reason or (_USED if one.extracted else _OFF_TOPIC)
        reason = None if sentences else why
        sections.append(ArtifactSection(heading=heading, sentences=tuple(sentences), reason=reason))
    return sections
