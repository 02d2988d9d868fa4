"""Generating an artifact from documents: search for each section, write or extract, check.

``docs/decisions/0028-agents-and-artifacts.md`` has the reasons.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
from catalog.answers.extracting import rank_candidates
from catalog.answers.neutralising import neutralise
from catalog.answers.prompting import (
    artifact_rules,
    ask_for_headings,
    find_misses,
    split_sections,
)
from catalog.answers.statements import Statement, read_statements
from catalog.answers.writing import CheckedWriter
from catalog.core.agents import ARTIFACT_TEMPERATURES, Agent, read_agent, with_agent
from catalog.core.answers import (
    NO_EVIDENCE,
    AnswerSentence,
    Artifact,
    ArtifactSection,
    TokenCounts,
)
from catalog.core.arguments import takes
from catalog.core.bounded_calls import WHOLE
from catalog.core.errors import ArtifactSchemaError, ConfigError, InputError, LLMError
from catalog.core.params import KINDS, ArtifactKind, GenerateParams
from catalog.core.retrieval_events import asked_at
from catalog.core.text import clean
from catalog.llm import LanguageModel
from catalog.retrieval.query_words import query_coverage, query_words
from catalog.retrieval.shared import shared_service
from catalog.retrieval.stages import StageLog

if TYPE_CHECKING:
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
                f"{'; '.join(misses)}",
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


_HEADED = 0.6  # share of the topic's words in a passage with its headings, if it is about it
_NEAR, _LEAST_RELEVANCE = 0.3, 0.15  # a smaller share does for a passage that the search finds near
_LEAST_OF_TOPIC = 0.5  # share of its words in a sentence that stands under no heading
_OWN_HEADINGS, _UNDER_ONE = 5, 8  # headings of documents in a section, and sentences under one
_NEEDS_MODEL = (
    "the documents have no heading or sentence of this kind: a language model may write it"
)
_OFF_TOPIC = "no sentence of the passages found speaks of the topic"
_NO_MODEL = (
    "sentences of the documents, word for word: for all sections, written by a language model, "
    "set IDX_LLM__PROVIDER (docs/how-to/generate.md)"
)
_INSTEAD = "these are the documents' own sentences instead"
_NUMBERED = re.compile(r"[ \t]*+\d{1,3}[.)][ \t]")
_FOLDED = re.compile(r"\w+")
_TELLING: Mapping[str, str] = {
    "Architecture": "architecture design structure components parts",
    "Constraints": "constraint limit restriction rule forbidden condition",
    "Dependencies": "dependency depends requires requirement",
    "Design": "design architecture solution approach",
    "Exceptions": "exception fail failure error trouble problem wrong quirk",
    "Features": "feature function offer included",
    "Goals": "goal aim objective purpose target",
    "Inputs": "before input need required preparation materials prerequisites",
    "Milestones": "milestone timetable schedule date deadline phase",
    "Next Steps": "next plan roadmap action todo",
    "Open Questions": "open question unclear undecided",
    "Outputs": "after output result deliverable",
    "Problem": "problem issue complaint trouble",
    "Requirements": "requirement required must need",
    "Risks": "risk danger hazard warning safety",
    "Roles": "role responsible responsibility owner participants",
    "Steps": "step procedure process instructions start",
    "Tasks": "task todo action step work",
    "Testing": "test testing acceptance check",
    "Users": "user customer member participant audience",
}
"""Of a section, the words that a document's heading of that kind has.

The first section of each kind has none: it takes what belongs to no other.
"""
_OF_NUMBERED = ("Steps", "Tasks")  # sections that a numbered list of the documents belongs to


class _Evidence(NamedTuple):
    """The passages found for one section, or the reason why they are no evidence."""

    results: SearchResults
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
    stages = StageLog(strict=params.strict)
    found, reason = _search_topic(service, params, stages)
    notes = list(found.notes)
    draft: ArtifactDraft | None = None
    results: list[SearchResult] = []
    if reason is not None:
        sections = [_section(one, (), _no_evidence(reason)) for one in SCHEMAS[params.kind]]
    else:
        evidence = dict(_search_sections(service, params, stages))
        searches = [one.results for one in evidence.values() if one.reason is None]
        results = _number([found, *searches])
        draft, llm, note = _write(service, params, evidence, results, stages, llm, agent)
        notes.append(note)
        if draft is None:
            settings = service.parts.settings.answers
            about = _about(params.topic, results, found)
            sections = _extract(params, about, settings.sentences)
        else:
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


def _search_topic(
    service: Searcher, params: GenerateParams, stages: StageLog
) -> tuple[SearchResults, str | None]:
    """Search for the topic; return the results, and the reason if they are no evidence.

    They always are if one heading of the documents has all words of the topic.
    """
    settings = service.parts.settings.answers
    with stages.run("search topic") as notes:
        found = service.run(search_params(params, params.topic))
        reason = why_not_answered(found, found.confidence, settings.answered_from)
        if any(_coverage(params.topic, one, "") == 1.0 for one in found):
            reason = None
        notes.append(reason or f"{len(found)} passages")
    return found, reason


def _search_sections(
    service: Searcher, params: GenerateParams, stages: StageLog
) -> Iterator[tuple[str, _Evidence]]:
    """Yield each heading with what its own search found."""
    settings = service.parts.settings.answers
    for heading, question in SCHEMAS[params.kind].items():
        with stages.run(f"search {heading}") as notes:
            query = question.format(topic=params.topic)
            results = service.run(search_params(params, query))
            reason = why_not_answered(results, results.confidence, settings.answered_from)
            notes.append(reason or f"{len(results)} passages")
        yield heading, _Evidence(results, reason)


def _coverage(topic: str, passage: SearchResult, text: str) -> float:
    """Return the share of the topic's words in a text and the headings of its passage."""
    return query_coverage(topic, text, (passage.title, *passage.sections))


def _about(topic: str, results: Sequence[SearchResult], found: SearchResults) -> list[SearchResult]:
    """Return the passages on the topic: with most of its words, or near to it for the search."""
    near = {one.chunk_id for one in found if (one.relevance or 0.0) >= _LEAST_RELEVANCE}
    shares = ((one, _coverage(topic, one, one.text)) for one in results)
    return [
        one
        for one, share in shares
        if share >= _HEADED or (share >= _NEAR and one.chunk_id in near)
    ]


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
            return None, None, _NO_MODEL

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
        )
    except ArtifactSchemaError:
        raise
    except (LLMError, ConfigError) as error:
        stages.failed("write", (time.perf_counter() - started) * 1000, error)
        return None, None, f"{error}; {_INSTEAD}"
    stages.ran("write", (time.perf_counter() - started) * 1000, f"{draft.passages} passages")
    if draft.doubted and not any(draft.sections.values()):
        why = CITES_NOTHING if draft.cites_nothing else NONE_SUPPORTED
        return None, None, f"{why}; {_INSTEAD}"
    notes = [f"unsupported sentences left out: {draft.dropped}"] if draft.dropped else []
    notes += ["the model's reply was cut: raise the agent's max_tokens"] if draft.is_cut else []
    return draft, llm, "; ".join(notes)


def _written(evidence: Mapping[str, _Evidence], draft: ArtifactDraft) -> list[ArtifactSection]:
    """Return the sections that a model wrote, and why those without sentences have none."""
    why = {
        heading: NONE_SUPPORTED
        if heading in draft.doubted
        else _no_evidence(one.reason or MODEL_ABSTAINS)
        for heading, one in evidence.items()
    }
    return [_section(heading, draft.sections[heading], why[heading]) for heading in evidence]


def _section(heading: str, sentences: Sequence[AnswerSentence], why: str) -> ArtifactSection:
    """Return a section; ``why`` is the reason if it has no sentences."""
    reason = None if sentences else why
    return ArtifactSection(heading=heading, sentences=tuple(sentences), reason=reason)


def _no_evidence(reason: str) -> str:
    return f"{NO_EVIDENCE}: {reason}"


def _extract(
    params: GenerateParams, passages: Sequence[SearchResult], sentences: int
) -> list[ArtifactSection]:
    """Return sections of the documents' own sentences, under the documents' own headings.

    A statement goes to the section that its heading names (:data:`_TELLING`), else to the first.
    Sentences without a heading follow: up to ``sentences`` in each section.
    """
    excerpts = _Excerpts(params, sentences)
    for passage in passages:
        for statement in read_statements(passage.text, passage.sections):
            excerpts.add(passage, statement)
    for heading, question in SCHEMAS[params.kind].items():
        excerpts.fill(heading, question, passages)
    why = _NEEDS_MODEL if any(excerpts.sections.values()) else _no_evidence(_OFF_TOPIC)
    return [_section(heading, chosen, why) for heading, chosen in excerpts.sections.items()]


class _Excerpts:
    """Collect statements of passages in the sections of one kind, each statement once."""

    def __init__(self, params: GenerateParams, sentences: int) -> None:
        self._topic, self._sentences = params.topic, sentences
        self.sections: dict[str, list[AnswerSentence]] = {one: [] for one in SCHEMAS[params.kind]}
        self._first = next(iter(self.sections))
        self._telling = {
            heading: query_words(_TELLING[title])
            for heading in self.sections
            if (title := heading.lstrip("# ")) in _TELLING
        }
        self._under: dict[str, Counter[str]] = {one: Counter() for one in self.sections}
        self._used: list[str] = []

    def add(self, passage: SearchResult, statement: Statement) -> None:
        """Add a statement that stands under a heading, unless the section has enough of them."""
        if not passage.sections:
            return
        headings = statement.context or passage.sections
        if not self._is_on_topic((passage.title, *headings), statement.text):
            return
        section = (
            self._told([one for one in headings if one in passage.sections])
            or self._of_list(passage, statement)
            or self._told(headings)
            or self._first
        )
        own = neutralise(" › ".join(dict.fromkeys((*passage.sections[:1], *headings))), [passage])
        counts = self._under[section]
        is_prose = section == self._first and not statement.depends
        most = self._sentences if is_prose else _UNDER_ONE
        if counts[own] < most and (counts[own] or len(+counts) < _OWN_HEADINGS):
            text = neutralise(statement.text, [passage])
            counts[own] += self._append(
                section, passage, text, own, (statement.start, statement.end)
            )

    def fill(self, heading: str, question: str, passages: Sequence[SearchResult]) -> None:
        """Add the sentences without headings that answer the section's question.

        If the section is empty, sentences under the headings of other sections do as well.
        """
        query = question.format(topic=self._topic)
        usable = [one for one in passages if not (one.sections and self.sections[heading])]
        by_rank = {one.rank: one for one in usable}
        title = "" if heading == self._first else heading.lstrip("# ")
        for candidate in rank_candidates(query, usable):
            if len(self.sections[heading]) >= self._sentences:
                break
            passage = by_rank[candidate.n]
            is_told = not title or query_coverage(title, candidate.read, ()) == 1.0
            if is_told and self._is_on_topic((passage.title,), candidate.read, _LEAST_OF_TOPIC):
                span = (candidate.start, candidate.end)
                self._append(heading, passage, candidate.text, candidate.context, span)

    def _is_on_topic(self, headings: Sequence[str], text: str, under: float = _NEAR) -> bool:
        """Return whether the headings have the share ``under`` of the topic's words.

        Half of them in the headings and the text will do as well.
        """
        if query_coverage(self._topic, "", headings) >= under:
            return True
        return query_coverage(self._topic, text, headings) >= _LEAST_OF_TOPIC

    def _told(self, headings: Sequence[str]) -> str | None:
        """Return the section that the innermost of the headings names, if any does."""
        for own in reversed(headings):
            for section, words in self._telling.items():
                if any(words.matches(own)):
                    return section
        return None

    def _of_list(self, passage: SearchResult, statement: Statement) -> str | None:
        line = passage.text.rfind("\n", 0, statement.start) + 1
        if not _NUMBERED.match(passage.text, line, statement.start):
            return None
        return next((one for one in self.sections if one.lstrip("# ") in _OF_NUMBERED), None)

    def _append(
        self, section: str, passage: SearchResult, text: str, context: str, span: tuple[int, int]
    ) -> bool:
        folded = f" {' '.join(_FOLDED.findall(text.casefold()))} "
        chosen = self.sections[section]
        if not folded.strip() or any(folded in other for other in self._used):
            return False
        longer = bool(chosen and self._used and self._used[-1] in folded)
        if longer:  # with the sentence before it, which it refers to
            chosen.pop()
        self._used.append(folded)
        sentence = AnswerSentence(
            text=text,
            context=context,
            citations=(passage.rank,),
            supported=True,
            breaks="\n\n" if chosen else "",
            span=span,
        )
        chosen.append(sentence)
        return not longer
