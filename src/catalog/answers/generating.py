"""Generate an artifact from documents: search for each section, write or extract, check, tell.

``docs/decisions/0028-agents-and-artifacts.md`` says why it is made so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from catalog.answers.answering import HOW_TO_CONFIGURE, choose_llm, choose_summariser, search_params
from catalog.answers.artifact_schemas import MAX_TOKENS, SCHEMAS
from catalog.answers.cited_sources import cite_as, cite_sources
from catalog.answers.extracting import extract_sentences
from catalog.answers.refusing import NONE_SUPPORTED, why_not_answered
from catalog.core.agent_calls import read_agent, with_agent
from catalog.core.agents import ARTIFACT_TEMPERATURES, Agent
from catalog.core.answers import Artifact, ArtifactSection
from catalog.core.errors import ArtifactSchemaError, ConfigError, InputError, LLMError
from catalog.core.param_fields import takes
from catalog.core.params import KINDS, GenerateParams
from catalog.core.retrieval_events import asked_at
from catalog.llm import llm_name
from catalog.retrieval.query_words import query_coverage
from catalog.retrieval.shared import shared_service
from catalog.retrieval.spans import span
from catalog.retrieval.stages import StageLog

if TYPE_CHECKING:
    from llama_index.core.llms import LLM

    from catalog.answers.artifact_writing import ArtifactDraft
    from catalog.core.answers import AnswerSentence
    from catalog.core.results import SearchResult, SearchResults
    from catalog.retrieval.searcher import Searcher

_WIDER = 4  # times as many sentences are looked at as a section may have
_LEAST_OF_TOPIC = 0.5  # share of its words
_OFF_TOPIC = "no sentence of the documents speaks of it under that heading"
_USED = "what the documents say of it stands in the sections above"


class _Evidence(NamedTuple):
    """What the search of one section found, or why that is no evidence."""

    results: SearchResults
    extracted: tuple[AnswerSentence, ...]
    reason: str | None


@takes(GenerateParams)
def generate(params: GenerateParams) -> Artifact:
    """Return an artifact on a topic: sections of checked sentences, or marked as without evidence.

    Uses the effective settings and the service that ``catalog.search_v2.search`` uses. Without a
    language model the sentences are the documents' own. Raises what a search raises, and
    :class:`ArtifactSchemaError`, with the draft, where a model keeps to no schema.
    """
    with asked_at("python"):
        return generate_artifact(shared_service(), params)


def generate_artifact(
    service: Searcher, params: GenerateParams, *, llm: LLM | None = None
) -> Artifact:
    """Return an artifact; ``llm`` writes in place of the model that params and settings name.

    What was asked at an edge is logged.
    """
    if not params.topic.strip():
        raise InputError("the topic is empty: say what it is about")
    with span("generate"), service.library.log.watching(params) as note:
        agent = _agent_for(service, params)
        artifact = _generate(service, with_agent(params, agent), llm, agent)
        note(artifact, agent=params.agent, profile=agent.profile)
    return artifact


def _generate(service: Searcher, params: GenerateParams, llm: LLM | None, agent: Agent) -> Artifact:
    started = time.perf_counter()
    stages = StageLog(strict=params.strict)
    evidence = dict(_search_sections(service, params, stages))
    results = _number([one.results for one in evidence.values() if one.reason is None])
    draft: ArtifactDraft | None = None
    notes = [note for one in evidence.values() for note in one.results.notes]
    if results:
        draft, llm, note = _write(service, params, evidence, results, stages, llm, agent)
        notes.append(note)
    form = service.parts.settings.answers.citations
    sections = _extract(evidence, results, form) if draft is None else _written(evidence, draft)
    sentences = [one for section in sections for one in section.sentences]
    return Artifact(
        kind=params.kind,
        topic=params.topic,
        sections=tuple(sections),
        citations=cite_sources(results, sentences),
        datasets=next(iter(evidence.values())).results.datasets,
        results=tuple(results),
        model=None if draft is None or llm is None else llm_name(llm),
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
            extracted, _ = extract_sentences(query, results.results, wide)
            reason = why_not_answered(results, settings.answered_from)
            notes.append(reason or f"{len(results)} passages")
        by_rank = {result.rank: result for result in results}
        on_topic = tuple(
            one for one in extracted if _speaks_of(params.topic, one, by_rank[one.citations[0]])
        )
        yield heading, _Evidence(results, on_topic[: settings.sentences], reason)


def _speaks_of(topic: str, sentence: AnswerSentence, passage: SearchResult) -> bool:
    """Tell whether a sentence, under its headings, has enough of the topic's words.

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
    llm: LLM | None,
    agent: Agent,
) -> tuple[ArtifactDraft | None, LLM | None, str]:
    """Return what a model wrote, if any did, the model, and a note on it."""
    started = time.perf_counter()
    settings = service.parts.settings
    try:
        llm = llm or choose_llm(service.library, params.model, agent.profile)
        if llm is None:
            return None, None, HOW_TO_CONFIGURE
        from catalog.answers.artifact_writing import write_sections

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
    evidence: Mapping[str, _Evidence], results: Sequence[SearchResult], form: str
) -> list[ArtifactSection]:
    """Return sections of the documents' own sentences, each sentence in the first that has it."""
    numbers = {result.chunk_id: result.rank for result in results}
    by_number = {result.rank: result for result in results}
    used: set[str] = set()
    sections = []
    for heading, one in evidence.items():
        chunks = {result.rank: result.chunk_id for result in one.results}
        sentences: list[AnswerSentence] = []
        for sentence in one.extracted if one.reason is None else ():
            if sentence.text not in used:
                cited = tuple(numbers[chunks[rank]] for rank in sentence.citations)
                own = {"citations": cited, "breaks": "\n\n" if sentences else ""}
                sentences.append(cite_as(sentence.model_copy(update=own), by_number, form))
                used.add(sentence.text)
        why = one.reason or (_USED if one.extracted else _OFF_TOPIC)
        reason = None if sentences else why
        sections.append(ArtifactSection(heading=heading, sentences=tuple(sentences), reason=reason))
    return sections
