"""A language model as the reranker, with scripted answers."""

import threading

import pytest

from catalog.core.errors import ConfigError, LLMTimeoutError, RerankError
from catalog.core.settings import RAGv2Settings
from catalog.llm import ReplyPiece
from catalog.retrieval.rerank import get_reranker
from catalog.retrieval.rerank.llm import LLMReranker, parse_answer
from catalog.retrieval.rerank.scoring import as_rerank_errors
from tables import table

PASSAGES = ["about bread", "about keys", "about backups"]


class ScriptedLLM:
    """Gives its answers one after the other; an exception among them is raised."""

    reply_tokens = 200

    def __init__(self, *answers, name="scripted", identity="", context=8000):
        self.name, self.context_tokens = name, context
        self.identity = identity or f"ScriptedLLM {name}"
        self.answers, self.prompts = list(answers), []

    def stream(self, messages):
        (message,) = messages
        self.prompts.append(message.content)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        yield ReplyPiece(answer)


def test_a_good_answer_scores_what_it_lists_and_0_what_it_leaves_out():
    llm = ScriptedLLM("Doc: 2, Relevance: 7\nDoc: 3, Relevance: 4\n")
    reranker = LLMReranker(llm)
    passages = ["about bread", "a {query_str} {{ y }}", "about backups"]
    assert reranker.scores("rotate {x}?", passages) == [0.0, 7.0, 4.0]
    assert reranker.relevance(7.0) == 0.7
    (prompt,) = llm.prompts
    assert "Document 2:\na {query_str} {{ y }}" in prompt
    assert "rotate {x}?" in prompt


@table("answer, numbers, relevance", list)
def test_answers_are_read_in_many_forms(answer, numbers, relevance):
    assert parse_answer(answer, 3) == pytest.approx(dict(zip(numbers, relevance, strict=True)))


@table("answer")
def test_an_answer_without_a_usable_line_is_an_error(answer):
    with pytest.raises(RerankError, match="has no passage"):
        LLMReranker(ScriptedLLM(answer)).scores("q", PASSAGES)


@pytest.mark.parametrize("value", ["85", "-3", "12/10", "3/0"])
def test_a_relevance_off_the_scale_is_an_error(value):
    with pytest.raises(RerankError, match="scale"):
        parse_answer(f"Doc: 1, Relevance: {value}\nDoc: 2, Relevance: 5", 3)


def test_an_llm_that_raises_is_a_rerank_error():
    reranker = LLMReranker(ScriptedLLM(ConnectionError("no route")))
    with pytest.raises(RerankError, match="ConnectionError"), as_rerank_errors(reranker):
        reranker.scores("q", PASSAGES)


def test_the_fingerprint_changes_with_the_model_and_the_batch():
    one = LLMReranker(ScriptedLLM()).fingerprint
    assert one == LLMReranker(ScriptedLLM()).fingerprint
    assert one != LLMReranker(ScriptedLLM(name="other")).fingerprint
    assert one != LLMReranker(ScriptedLLM(), batch_size=5).fingerprint
    assert one != LLMReranker(ScriptedLLM(identity="other weights, or another server")).fingerprint


def test_a_model_that_does_not_answer_is_given_up():
    release = threading.Event()

    class Hanging(ScriptedLLM):
        def stream(self, messages):
            release.wait(20)
            yield ReplyPiece("Doc: 1, Relevance: 5")

    try:
        with pytest.raises(LLMTimeoutError, match=r"0\.05 s"):
            LLMReranker(Hanging(), timeout_seconds=0.05).scores("q", PASSAGES)
    finally:
        release.set()


def test_a_batch_of_passages_fits_a_small_context():
    # 2000 less 200 of output less 400 of prompt: 140 of four characters for each of ten
    reranker = LLMReranker(ScriptedLLM(context=2000))
    text, cut = reranker.fit("query", "some words " * 300)
    assert cut
    assert 400 < len(text) <= 140 * 4
    assert reranker.fit("query", "short") == ("short", False)


def test_the_llm_provider_needs_an_llm():
    rag = RAGv2Settings(rerank_provider="llm")
    with pytest.raises(ConfigError, match="IDX_LLM__PROVIDER"):
        get_reranker(rag)
    assert get_reranker(rag, llm=ScriptedLLM()).name == "scripted"
