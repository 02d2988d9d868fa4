"""Answer a question from documents: search, abstain or write, check each sentence.

``docs/decisions/0027-answers.md`` describes the steps.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from catalog.answers.answerable import (
    cited_parts,
    estimate_answer,
    find_absent,
    find_missing,
    is_sure,
    read_candidates,
    why_not_answered,
)
from catalog.answers.cited_sources import Sources
from catalog.answers.extracting import choose_sentences, find_conflict, rank_candidates
from catalog.answers.listing import answer_listing, read_listing
from catalog.core.agents import Agent, read_agent, with_agent
from catalog.core.answers import (
    MAY_NOT_ANSWER,
    NOT_QUOTED,
    Abstained,
    Answer,
    AnswerEvent,
    AnswerSentence,
    NearDocument,
)
from catalog.core.arguments import takes
from catalog.core.errors import ConfigError, InputError, LLMError, LLMTimeoutError
from catalog.core.params import AskParams, GenerateParams, SearchParams
from catalog.core.query import cut_position
from catalog.core.retrieval_events import asked_at
from catalog.library.names import roles_in_force
from catalog.llm import PROVIDERS, LanguageModel, get_llm
from catalog.retrieval.parts import StageLog
from catalog.retrieval.query_words import reword
from catalog.retrieval.shared import shared_service
from catalog.store.chunks import find_root

if TYPE_CHECKING:
    from catalog.answers.writing import Draft, Verdict
    from catalog.core.params import Profile
    from catalog.core.results import Certainty, SearchResults
    from catalog.core.settings import Settings
    from catalog.library.library import Library
    from catalog.retrieval.search import Searcher


NOTHING_RELATED = "I don't see an answer to that in these documents."
NOT_ENOUGH = "I don't see enough in these documents to answer that."
NONE_SUPPORTED = "no sentence of the language model is supported by the passages it cites"
CITES_NOTHING = "the language model cited no passage"
CUT = "the model repeated itself, or wrote as much as IDX_LLM__MAX_TOKENS allows"
MODEL_ABSTAINS = "the language model found no answer in the passages"
_NEAREST = 3
_CERTAINTIES: tuple[Certainty | None, ...] = (None, "possible", "likely")  # of a level
_LEADS: dict[Certainty | None, str] = {"possible": MAY_NOT_ANSWER}
_QUICK = 2.0  # seconds that a judge has whom nobody asked for
_SLOW: set[str] = set()  # models that take longer


def refuse(
    service: Searcher,
    params: AskParams,
    results: SearchResults,
    reason: str,
    *,
    had_passages: bool = False,
) -> Abstained:
    """Return the abstention; ``had_passages``: the passages found seemed to answer."""
    nearest: dict[str, NearDocument] = {}
    for result in results:
        near = NearDocument.model_validate(result, from_attributes=True)
        nearest.setdefault(result.source_doc_id, near)
    return Abstained(
        message=NOT_ENOUGH if had_passages else NOTHING_RELATED,
        reason=reason,
        nearest=tuple(nearest.values())[:_NEAREST],
        ingest=_how_to_add(service, params.role, results.datasets),
    )


def _how_to_add(service: Searcher, role: str | None, datasets: Sequence[str]) -> str:
    """Say how to add a document; the folders are left out if a role is in force."""
    names = " or ".join(datasets)
    with service.library.database.read() as connection:
        roots = [root for name in datasets if (root := find_root(connection, name))]
    if not roots:
        return f"add documents with the answer: catalog index build FOLDER --dataset {names}"
    is_limited = roles_in_force(service.parts.settings, role)
    folders = "the dataset's folder" if is_limited else " or ".join(dict.fromkeys(roots))
    return (
        f"put a document with the answer into {folders}, then: catalog index update "
        f"--dataset {names}"
    )


HOW_TO_CONFIGURE = "these sentences are quoted; for a written answer, set IDX_LLM__PROVIDER"


@takes(AskParams)
def ask(params: AskParams) -> Answer:
    """Return the answer to a question, or an abstention with its reason.

    Uses the effective settings and the service that ``catalog.search_v2.search`` uses. Without a
    language model (``IDX_LLM__PROVIDER``) it is made of the documents' own sentences. Raises what
    a search raises.

    Examples:
        >>> from catalog.search_v2 import ask
        >>> print(ask("how often are keys rotated", dataset="notes").text)
        Rotate the API keys every ninety days with the keys command. [1]
        >>> ask("who won the world cup", dataset="notes").abstained is None
        False
    """
    with asked_at("python"):
        return answer_question(shared_service(), params)


def answer_question(
    service: Searcher, params: AskParams, *, llm: LanguageModel | None = None
) -> Answer:
    """Return the last of :func:`answer_events`, the whole answer."""
    *_, last = answer_events(service, params, llm=llm)
    assert last.answer is not None
    return last.answer


def answer_events(
    service: Searcher, params: AskParams, *, llm: LanguageModel | None = None
) -> Iterator[AnswerEvent]:
    """Yield the results, each sentence when it is checked, and then the whole answer.

    ``llm`` writes instead of the model in params and settings. If a model fails meanwhile, the
    whole answer has other sentences than those before it. A question from an edge is logged, also
    with an error, and if nobody waits for the end.
    """
    with service.library.log.watching(params) as note:
        agent = read_agent(service.parts.settings, params.agent)
        if agent.output not in (None, "answer"):
            raise InputError(f"the agent {params.agent!r} writes {agent.output}, not answers")
        with closing(_events(service, with_agent(params, agent), llm, agent)) as events:
            for event in events:
                if event.answer is not None:
                    note(event.answer, agent=params.agent, profile=agent.profile)
                    break
                yield event
    yield event


def _events(
    service: Searcher, params: AskParams, llm: LanguageModel | None, agent: Agent
) -> Generator[AnswerEvent, None, None]:
    """Yield the events of :func:`answer_events`."""
    started = time.perf_counter()
    if llm is None and params.model not in (None, *PROVIDERS):  # it may be mistyped
        llm = choose_llm(service.library, params.model, agent.profile)
    most = service.parts.rag.max_query_chars  # as the search reads of it, and says
    asked = params.question[: cut_position(params.question, most)]
    listing, uncounted = read_listing(asked), None
    if listing is not None and params.docs is None:
        listed = yield from answer_listing(service, params, listing)
        uncounted = listed if isinstance(listed, str) else None
        if isinstance(listed, Answer):
            ms = round((time.perf_counter() - started) * 1000, 3)
            yield AnswerEvent("answer", answer=replace(listed, elapsed_ms=ms))
            return
    results = service.run(search_params(params, params.question))
    yield AnswerEvent("results", results=results)
    stages = StageLog(strict=params.strict)
    answer = Answer(params.question, (), (), results, agent=params.agent)
    settings = service.parts.settings
    with stages.run("extract"):
        ranked = rank_candidates(asked, results.results)
        candidates = read_candidates(service.parts, asked, results, ranked)
        conflict = find_conflict(candidates, results.results)
        also, is_likely = conflict and conflict[0], is_sure(results, candidates)
        extracted = choose_sentences(
            candidates, settings.answers.sentences, also, is_likely=is_likely
        )
    with stages.run("abstain") as notes:
        estimate = estimate_answer(service.parts, asked, results, candidates)
        reason = why_not_answered(results, estimate, settings.answers.answered_from)
        notes.extend([reason] if reason else [])
    absent, answer = list[str](), replace(answer, confidence=round(estimate, 3))
    wordings = reword(asked, service.library.settings.home)
    chosen = None
    with suppress(LLMError, ConfigError):  # of which writing tells
        chosen = llm or choose_llm(service.library, params.model, agent.profile)
    verdict = _judge(settings, params, results, stages, chosen)
    # of what a model writes and of what is quoted: 2 answers, 1 may answer, 0 does not
    levels = [0, 0] if reason else [2, 1 + is_likely]
    if verdict is not None:
        # a document may talk a model into a verdict, so it raises a level by one step at most
        if verdict.level is not None:
            levels = [min(verdict.level, level + 1) for level in levels]
        answer = replace(answer, tokens=verdict.tokens, model=verdict.model)
    if levels[0] == 0:
        refused = refuse(service, params, results, reason or MODEL_ABSTAINS)
        answer = replace(answer, abstained=refused)
    else:
        absent = find_absent(service, search_params(params, asked), results)
        levels = [1, 1] if absent else levels
        answer = replace(answer, certainty=_CERTAINTIES[levels[0]])
        written = yield from _write(service, params, answer, stages, llm, agent)
        if isinstance(written, Answer):
            answer = written
        else:
            certainty = _CERTAINTIES[levels[1]]
            sources = Sources(results, settings.answers.citations)
            cited = tuple(map(sources.cite, extracted))
            answer = replace(answer, sentences=cited, citations=sources.of(cited), model=None)
            lacking = ", ".join(find_missing(asked, cited_parts(answer), wordings))
            lead = lacking and NOT_QUOTED.format(lacking)
            extracted = _led(cited, _LEADS.get(certainty, lead))
            yield from (AnswerEvent("sentence", sentence=one) for one in extracted)
            notes = [written]
            if conflict is not None:
                one, other = (
                    "".join(one.cited_as) or f"[{one.citations[0]}]" for one in extracted[:2]
                )
                notes.append(f"{one} and {other} say different things: {conflict[1]}")
            answer = replace(answer, sentences=extracted, notes=tuple(notes), certainty=certainty)
    missing = find_missing(asked, cited_parts(answer), wordings) if answer.citations else ()
    left = ", ".join(word for word in missing if word not in absent)
    left = "" if NOT_QUOTED.format(left) in answer.text else left
    notes = [f'no document mentions "{word}"' for word in absent]
    notes += [*results.notes, *answer.notes, *([f"not in the quoted text: {left}"] if left else [])]
    if verdict is not None and verdict.missing:  # of its text, no word but the question's
        told = find_missing(asked, [verdict.missing])
        judged_missing = [word for word in find_missing(asked, []) if word not in told]
        notes += [f"the language model misses: {', '.join(judged_missing)}"] * bool(judged_missing)
        missing = tuple(dict.fromkeys((*missing, *judged_missing)))
    notes += [uncounted] if uncounted else []
    whole = replace(
        answer,
        missing=missing,
        stages=(*results.stages, *stages.reports),
        elapsed_ms=round((time.perf_counter() - started) * 1000, 3),
        notes=tuple(notes),
    )
    yield AnswerEvent("answer", answer=whole)


def _judge(
    settings: Settings,
    params: AskParams,
    results: SearchResults,
    stages: StageLog,
    llm: LanguageModel | None,
) -> Verdict | None:
    """Return a model's verdict on the passages that it may cite, ``None`` without one.

    Unless the call or the settings ask for it, the model has two seconds; one that takes longer is
    not asked again by this process.
    """
    wanted = settings.answers.judge if params.judge is None else params.judge
    if llm is None and params.judge:
        raise ConfigError("judge needs a language model: set IDX_LLM__PROVIDER")
    if llm is None or wanted is False or not len(results) or (llm.identity in _SLOW and not wanted):
        return None
    from catalog.answers.writing import VERDICTS, CheckedWriter

    seconds = settings.llm.timeout_seconds
    seconds = seconds if wanted else min(_QUICK, seconds)
    writer, verdict = CheckedWriter(llm, results.results, settings.answers, seconds, Agent()), None
    with stages.run("judge", survives=LLMError) as notes:
        try:
            verdict = writer.judge(params.question)
            notes.append("no verdict" if verdict.level is None else VERDICTS[verdict.level])
        except LLMError as error:
            if wanted:
                raise
            _SLOW.update([llm.identity] if isinstance(error, LLMTimeoutError) else [])
            notes.append(f"{error}; --judge gives it more time")
    return verdict


def _write(
    service: Searcher,
    params: AskParams,
    answer: Answer,
    stages: StageLog,
    llm: LanguageModel | None,
    agent: Agent,
) -> Generator[AnswerEvent, None, Answer | str]:
    """Yield the sentences of a language model; return the answer, or a note on its failure.

    With ``strict`` a failure of the model is raised.
    """
    started = time.perf_counter()
    settings = service.parts.settings
    try:
        llm = llm or choose_llm(service.library, params.model, agent.profile)
        if llm is None:
            return HOW_TO_CONFIGURE
        from catalog.answers.writing import write_answer

        asked = (answer.question, answer.results, settings.answers, settings.llm.timeout_seconds)
        writing = write_answer(llm, *asked, agent=agent, tokens=answer.tokens)
        sources = Sources(answer.results, settings.answers.citations)
        draft = yield from _as_events(writing, sources, answer.certainty)
    except (LLMError, ConfigError) as error:
        stages.failed("write", (time.perf_counter() - started) * 1000, error)
        return f"{error}; sentences of the documents are shown instead"
    ms = (time.perf_counter() - started) * 1000
    supported = sum(one.supported for one in draft.sentences)
    count = len(draft.sentences) + draft.dropped
    stages.ran(
        "write", ms, f"{supported} of {count} sentences supported, {draft.passages} passages"
    )
    answer = replace(answer, model=llm.name, tokens=draft.tokens)
    if not supported:
        if not count and not draft.is_cut:
            refused = refuse(service, params, answer.results, MODEL_ABSTAINS, had_passages=True)
            return replace(answer, abstained=refused, certainty=None)
        why = CITES_NOTHING if draft.cites_nothing else NONE_SUPPORTED
        return f"{why}; sentences of the documents are shown instead"
    notes = [f"unsupported sentences left out: {draft.dropped}"] if draft.dropped else []
    notes += [CUT] if draft.is_cut else []
    sentences = _led(tuple(map(sources.cite, draft.sentences)), _LEADS.get(answer.certainty, ""))
    cited = sources.of(sentences)
    return replace(answer, sentences=sentences, citations=cited, notes=tuple(notes))


def _led(sentences: tuple[AnswerSentence, ...], lead: str) -> tuple[AnswerSentence, ...]:
    """Return the sentences, the first one led in by what makes the reply doubtful."""
    if not lead or not sentences:
        return sentences
    return (sentences[0].model_copy(update={"breaks": lead}), *sentences[1:])


def _as_events(
    writing: Generator[AnswerSentence, None, Draft], sources: Sources, certainty: Certainty | None
) -> Generator[AnswerEvent, None, Draft]:
    while True:
        try:
            sentence = next(writing)
        except StopIteration as ended:
            draft: Draft = ended.value
            return draft
        [cited] = _led((sources.cite(sentence),), _LEADS.get(certainty, ""))
        certainty = None  # of those that follow
        yield AnswerEvent("sentence", sentence=cited)


def choose_llm(library: Library, provider: str | None, profile: Profile) -> LanguageModel | None:
    """Return the language model of a provider, or the profile's; ``None`` for the provider
    ``none``.

    Raises :class:`ConfigError` kinds for one that is not available.
    """
    if provider is None or provider == library.settings.llm.provider != "none":
        return library.llm_of(profile)
    return get_llm(library.settings.llm.model_copy(update={"provider": provider}))


def search_params(params: AskParams | GenerateParams, query: str) -> SearchParams:
    """Return the search for a query with the parameters of a question."""
    names = {one.name for one in fields(SearchParams)} - {"agent"}  # whose parameters these are
    shared = {name: getattr(params, name) for name in names if hasattr(params, name)}
    return SearchParams(query, **shared)
