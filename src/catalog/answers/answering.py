"""Answer a question from documents: search, abstain or write, check each sentence, tell.

``docs/decisions/0027-answers.md`` has the flow.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from catalog.answers.cited_sources import cite_sources
from catalog.answers.extracting import extract_sentences
from catalog.answers.refusing import refuse, why_not_answered
from catalog.core.answers import Answer, AnswerEvent, AnswerSentence
from catalog.core.param_fields import takes
from catalog.core.params import AskParams, SearchParams
from catalog.search_v2.shared import shared_service
from catalog.search_v2.stages import StageLog

if TYPE_CHECKING:
    from catalog.search_v2.service import SearchServiceV2

HOW_TO_CONFIGURE = (
    "sentences of the documents, word for word: for an answer that a language model writes, "
    "set IDX_LLM__PROVIDER (docs/answers.md)"
)


@takes(AskParams)
def ask(params: AskParams) -> Answer:
    """Return the answer to a question, or an answer that says why there is none.

    Uses the effective settings and the service that ``catalog.search_v2.search`` uses. Without a
    language model (``IDX_LLM__PROVIDER``) it is made of the documents' own sentences. Raises what
    a search raises.
    """
    return answer_question(shared_service(), params)


def answer_question(service: SearchServiceV2, params: AskParams) -> Answer:
    """Return the last of :func:`answer_events`, the whole answer."""
    *_, last = answer_events(service, params)
    assert last.answer is not None
    return last.answer


def answer_events(service: SearchServiceV2, params: AskParams) -> Iterator[AnswerEvent]:
    """Yield the results, each sentence as soon as it is checked, and then the whole answer."""
    started = time.perf_counter()
    results = service.run(search_params(params))
    yield AnswerEvent("results", results=results)
    stages = StageLog(strict=params.strict)
    answer = Answer(params.question, (), (), results)
    most = service.parts.settings.answers.sentences
    with stages.run("extract"):
        sentences, covered = extract_sentences(results, most)
    with stages.run("abstain") as notes:
        reason = why_not_answered(results, covered)
        notes.extend([reason] if reason else [])
    if reason is not None:
        answer = replace(answer, abstained=refuse(results, reason))
    else:
        yield from (AnswerEvent("sentence", sentence=one) for one in sentences)
        answer = replace(_answered(answer, sentences), notes=(HOW_TO_CONFIGURE,))
    elapsed_ms = round((time.perf_counter() - started) * 1000, 3)
    whole = replace(
        answer,
        stages=(*results.stages, *stages.reports),
        elapsed_ms=elapsed_ms,
        notes=(*results.notes, *answer.notes),
    )
    yield AnswerEvent("answer", answer=whole)


def search_params(params: AskParams) -> SearchParams:
    """Return the search that a question asks for."""
    shared = {field.name for field in fields(SearchParams)} & {
        field.name for field in fields(AskParams)
    }
    return SearchParams(params.question, **{name: getattr(params, name) for name in shared})


def _answered(answer: Answer, sentences: tuple[AnswerSentence, ...]) -> Answer:
    """Return the answer of these sentences with its sources."""
    citations = cite_sources(answer.question, answer.results, sentences)
    return replace(answer, sentences=sentences, citations=citations)
