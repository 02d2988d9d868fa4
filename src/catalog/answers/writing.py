"""An answer that a language model writes: asked, read as it comes, checked sentence by sentence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from time import monotonic
from typing import Any, NamedTuple

from catalog.answers.claims import Claim, ClaimReader, check_claim
from catalog.answers.prompting import (
    JUDGE_RULES,
    RULES,
    ask_again,
    build_messages,
    choose_context,
    token_counter,
)
from catalog.core.agents import Agent
from catalog.core.answers import AnswerSentence, TokenCounts
from catalog.core.errors import LLMError
from catalog.core.results import SearchResult, SearchResults
from catalog.core.settings import AnswerSettings
from catalog.llm import LanguageModel, Message
from catalog.llm.replies import Reply, without_thoughts

_OF_VERDICT = 100  # tokens of a judge's reply
VERDICTS = ("no", "partly", "answers")
_VERDICT = re.compile(r"\W*(answers|partly|no)(?:\W*\Z|[\s*_]*[:.,\n–—-](.*))", re.I | re.S)
_MOST_REPEATED = 4  # sentences of a reply; it goes on for ever with more
_OF_FORM = 60  # tokens that the parts of a conversation take besides their text


class Verdict(NamedTuple):
    """A judge's verdict: 2 if the passages answer, 1 if partly, 0 if not, ``None`` for other words.

    ``missing`` is its text on the part that is missing; it may say anything.
    """

    level: int | None
    missing: str
    model: str
    tokens: TokenCounts


class Draft(NamedTuple):
    """A model's answer: its checked sentences, none if the model abstains.

    ``passages`` counts the passages given, ``dropped`` the sentences left out.
    ``cites_nothing``: it wrote sentences without any number.
    """

    sentences: tuple[AnswerSentence, ...]
    tokens: TokenCounts
    passages: int
    dropped: int = 0
    is_cut: bool = False
    cites_nothing: bool = False


def write_answer(
    llm: LanguageModel,
    question: str,
    results: SearchResults,
    settings: AnswerSettings,
    seconds: float,
    *,
    agent: Agent,
    tokens: TokenCounts | None = None,
) -> Generator[AnswerSentence, None, Draft]:
    """Yield each sentence once it is checked and may be shown, and return them all.

    The ``agent`` says as whom the model writes; ``tokens`` are those that it used before.
    Unsupported sentences at the beginning wait for the first that is supported. Raises
    :class:`LLMError` kinds for a model that fails, whatever it wrote before.
    """
    writer = CheckedWriter(llm, results.results, settings, seconds, agent)
    writer.tokens = tokens or writer.tokens
    messages, passages = writer.prompt(question)
    if settings.unsupported != "retry":
        sentences, reader = yield from _showing(writer, messages, settings.unsupported == "drop")
    else:
        sentences, reader = writer.checked(messages)
        if wrong := [one for one in sentences if not one.supported]:
            messages = ask_again(messages, reader.reply, wrong)
            sentences, reader = writer.checked(messages)
        yield from (one for one in sentences if one.supported)
    kept = sentences
    if settings.unsupported != "mark":
        kept = [one for one in sentences if one.supported]
    dropped = len(sentences) - len(kept)
    cites_nothing = bool(sentences) and not any(one.citations for one in sentences)
    return Draft(tuple(kept), writer.tokens, passages, dropped, writer.is_cut, cites_nothing)


def _showing(
    writer: CheckedWriter, messages: Sequence[Message], is_dropping: bool
) -> Generator[AnswerSentence, None, tuple[list[AnswerSentence], ClaimReader]]:
    """Yield the parts of a reply that may be shown, as they arrive; return the whole reply."""
    reader = ClaimReader()
    sentences: list[AnswerSentence] = []
    waiting: list[AnswerSentence] | None = []
    for sentence in writer.read(messages, reader):
        sentences.append(sentence)
        if is_dropping and not sentence.supported:
            continue
        if waiting is not None and not sentence.supported:
            waiting.append(sentence)
            continue
        yield from waiting or ()
        waiting = None
        yield sentence
    return sentences, reader


class CheckedWriter:
    """Ask a model about passages as an agent would, count its tokens, and check what it writes.

    ``is_cut``: its last reply was as long as it may be. All its calls together have ``whole``
    seconds, ``seconds`` without it.
    """

    def __init__(
        self,
        llm: LanguageModel,
        results: Sequence[SearchResult],
        settings: AnswerSettings,
        seconds: float,
        agent: Agent,
        whole: float | None = None,
    ) -> None:
        self._deadline = monotonic() + (whole or seconds)
        self._agent = agent
        self._llm, self._settings, self._seconds = llm, settings, seconds
        self._results = results
        self._given = {result.rank: result for result in results}
        self._count, self._estimates = token_counter(llm)
        self.tokens = TokenCounts(prompt=0, reply=0, is_estimate=self._estimates)
        self.is_cut = False

    def prompt(
        self, question: str, rules: str = RULES, *, parts: int = 1
    ) -> tuple[list[Message], int]:
        """Return the messages of a question, and how many passages they contain.

        Each of several ``parts`` of what is asked for may have as many passages as an answer.
        """
        rules = "\n\n".join(filter(None, [self._agent.persona, rules]))
        fixed = self._count(rules) + self._count(question) + _OF_FORM
        longest = self._agent.max_tokens or self._llm.reply_tokens
        room = self._llm.context_tokens - longest - fixed
        tokens = min(self._settings.context_tokens, room)
        most = self._settings.context_passages * parts
        passages = choose_context(self._results, self._count, most=most, tokens=tokens)
        if not passages:
            raise LLMError(
                f"the language model reads {self._llm.context_tokens} tokens at once, too few "
                "for a passage: use another model"
            )
        self._given = {one.number: self._given[one.number] for one in passages}
        return build_messages(question, passages, rules=rules), len(passages)

    def read(self, messages: Sequence[Message], reader: ClaimReader) -> Iterator[AnswerSentence]:
        """Yield the reply's sentences, checked; nothing if the model says it has no answer.

        A sentence that it repeats is left out, and a reply that only repeats itself is not read on.
        """
        reply = self._reply(messages, **self._agent.options())
        said: Counter[str] = Counter()
        with closing(iter(reply)) as pieces:
            for piece in pieces:
                for claim in reader.feed(piece):
                    said[claim.text] += 1
                    if said[claim.text] == 1 and not reader.says_no_answer:
                        yield self.check(claim)
                if said.total() - len(said) >= _MOST_REPEATED:
                    reply.is_cut = True
                    break
        self.is_cut = reply.is_cut
        self._add_tokens(reply, messages, reader.reply)
        if not reader.says_no_answer:
            for claim in reader.end(is_cut=reply.is_cut):
                if not said[claim.text]:
                    yield self.check(claim)

    def check(self, claim: Claim) -> AnswerSentence:
        """Check whether the passages that a sentence cites support it."""
        return check_claim(claim, self._given)

    def judge(self, question: str) -> Verdict:
        """Ask the model whether the passages answer a question."""
        messages, _ = self.prompt(question, JUDGE_RULES)
        said, _ = self._say(messages, max_tokens=_OF_VERDICT)
        word, missing = verdict.groups("") if (verdict := _VERDICT.match(said)) else ("", "")
        level = VERDICTS.index(word.casefold()) if word else None
        return Verdict(level, missing, self._llm.name, self.tokens)

    def checked(self, messages: Sequence[Message]) -> tuple[list[AnswerSentence], ClaimReader]:
        """Return all sentences of a reply."""
        reader = ClaimReader()
        return list(self.read(messages, reader)), reader

    def reply(self, messages: Sequence[Message]) -> str:
        """Return a whole reply, without the model's thoughts."""
        said, self.is_cut = self._say(messages, **self._agent.options())
        return said

    def _say(self, messages: Sequence[Message], **options: Any) -> tuple[str, bool]:
        reply = self._reply(messages, **options)
        said = "".join(reply)
        self._add_tokens(reply, messages, said)
        return without_thoughts(said).strip(), reply.is_cut

    def _reply(self, messages: Sequence[Message], **options: Any) -> Reply:
        return Reply(self._llm, messages, self._seconds, deadline=self._deadline, **options)

    def _add_tokens(self, reply: Reply, messages: Sequence[Message], said: str) -> None:
        prompt, written = reply.usage or (
            sum(self._count(message.content) for message in messages),
            self._count(said),
        )
        before = self.tokens
        self.tokens = TokenCounts(
            prompt=before.prompt + prompt,
            reply=before.reply + written,
            is_estimate=reply.usage is None and self._estimates,
        )
