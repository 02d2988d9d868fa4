"""Models that do as told: rerankers, sources of expansions and a language model."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from catalog.answers.generating import SCHEMAS
from catalog.llm import Message, ReplyPiece
from catalog.retrieval.expansion import PROMPT, ExpansionLine, parse_lines
from catalog.retrieval.rerank.scoring import sigmoid


class ScriptedReranker:
    """Gives each text its score; one text at a time, so that budgets have something to cut."""

    batch_size = 1
    name = "scripted"

    def __init__(
        self,
        scores: Mapping[str, float] | float,
        *,
        fingerprint: str = "1",
        error: Exception | None = None,
    ) -> None:
        self.fingerprint = f"scripted-{fingerprint}"
        self._scores, self._error = scores, error
        self.asked: list[str] = []

    def fit(self, query: str, passage: str, *, head: str = "") -> tuple[str, bool]:
        del query
        return (f"{head}\n{passage}" if head else passage), False

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        del query
        if self._error is not None:
            raise self._error
        self.asked += passages
        if isinstance(self._scores, Mapping):
            return [self._scores[passage] for passage in passages]
        return [self._scores] * len(passages)

    def relevance(self, score: float) -> float:
        return sigmoid(score)


class ScriptedSource:
    """Answers every query with the same reply, or raises it."""

    name = "scripted"
    prompt = PROMPT

    def __init__(self, reply: str | Exception, *, fingerprint: str = "1") -> None:
        self.fingerprint = f"scripted-{fingerprint}"
        self._reply = reply
        self.asked: list[str] = []

    def expand(self, query: str) -> list[ExpansionLine]:
        self.asked.append(query)
        if isinstance(self._reply, Exception):
            raise self._reply
        return parse_lines(self._reply)


class ScriptedLLM:
    """A language model that gives the same reply to everything."""

    name = identity = "scripted"
    context_tokens, reply_tokens = 4000, 100

    def __init__(self, reply: str) -> None:
        self.reply = reply

    def stream(self, messages: Sequence[Message], **_: Any) -> Iterator[ReplyPiece]:
        del messages
        yield ReplyPiece(self.reply)


def reword() -> ScriptedLLM:
    """Return a model that knows other words for swapping credentials."""
    return ScriptedLLM("lex: rotate API keys\nvec: how to rotate the API keys\n")


def write() -> ScriptedLLM:
    """Return a model that writes a workflow: one sentence about keys, and no evidence of more."""
    first, *others = SCHEMAS["workflow"]
    told = "Rotate the API keys every ninety days with the keys command [1]."
    more = "".join(f"\n\n{heading}\n\nNo evidence." for heading in others)
    return ScriptedLLM(f"{first}\n\n{told}{more}")
