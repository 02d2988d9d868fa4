"""A language model as the reranker."""

import re
from collections.abc import Sequence
from functools import cached_property

from catalog.core.bounded_calls import BoundedCalls
from catalog.core.errors import RerankError
from catalog.core.tokens import CharTokenCounter
from catalog.embedding.encoder import make_fingerprint
from catalog.llm import LanguageModel, complete
from catalog.retrieval.rerank.scoring import cut_query, fit_pair

SCALE = 10.0  # what the prompt asks for
_VERSION = "1"  # raise it when the reading of answers changes
_PROMPT_TOKENS = 400  # the prompt around the passages, generously
_MIN_ROOM = 32
_ABANDONED = 2  # hanging calls; with more, the model is not asked until one of them ends
_THOUGHT = re.compile(r"<think>(?:(?!<think>).)*?</think>", re.DOTALL | re.IGNORECASE)
_NUMBER = r"-?\d+(?:\.\d+)?"
_JUDGEMENT = re.compile(
    rf"""\bdoc(?:ument)?\b\W*(?:(?:number|no)\b\W*)?(?P<document>\d+)\b
         (?:(?!\bdoc(?:ument)?\b)[\s\S]){{0,200}}?
         \b(?:relevance|score)\b(?:\s+(?:score|rating|is|of))*[^\w-]{{0,6}}
         (?P<value>{_NUMBER})(?:\s*(?:/|out\s+of)\s*(?P<whole>{_NUMBER}))?""",
    re.IGNORECASE | re.VERBOSE,
)

# That of LlamaIndex's LLMRerank, which models are known to follow.
PROMPT = """\
A list of documents is shown below. Each document has a number next to it along with a summary of \
the document. A question is also provided.
Respond with the numbers of the documents you should consult to answer the question, in order of \
relevance, as well as the relevance score. The relevance score is a number from 1-10 based on how \
relevant you think the document is to the question.
Do not include any documents that are not relevant to the question.
Example format:
Document 1:
<summary of document 1>

Document 2:
<summary of document 2>

...

Document 10:
<summary of document 10>

Question: <question>
Answer:
Doc: 9, Relevance: 7
Doc: 3, Relevance: 4
Doc: 7, Relevance: 3

Let's try this now:

"""


class LLMReranker:
    """Any language model that says which of ``batch_size`` passages answer, and how well, of 10.

    A passage that the reply leaves out gets 0, because the prompt asks to leave out irrelevant
    ones. A late reply is an :class:`~catalog.core.errors.LLMTimeoutError`.
    """

    def __init__(
        self,
        llm: LanguageModel,
        *,
        batch_size: int = 10,
        max_tokens: int = 512,
        timeout_seconds: float = 30.0,
    ) -> None:
        self._llm, self._timeout, self._max_tokens = llm, timeout_seconds, max_tokens
        self._calls = BoundedCalls(_ABANDONED)
        self.name, self.batch_size = llm.name, batch_size

    @cached_property
    def fingerprint(self) -> str:
        """Return a name for language model, prompt, and how answers are read."""
        read = (_VERSION, PROMPT, self.batch_size, self._max_tokens)
        return make_fingerprint("llm-rerank", self._llm.identity, *read)

    def fit(self, query: str, passage: str, *, head: str = "") -> tuple[str, bool]:
        """Return the part of a passage that is shown, and whether it was cut.

        A batch shares the model's context; four characters count as a token.
        """
        room = self._llm.context_tokens - self._llm.reply_tokens - _PROMPT_TOKENS
        each = min(self._max_tokens, max(_MIN_ROOM, room // self.batch_size))
        return fit_pair(query, passage, CharTokenCounter(), each, head)

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """Score each passage, in order, 0 to 10, by one request."""
        asked = cut_query(query, CharTokenCounter(), self._max_tokens)
        numbered = enumerate(passages, start=1)
        shown = "\n\n".join(f"Document {number}:\n{passage}" for number, passage in numbered)
        prompt = f"{PROMPT}{shown}\nQuestion: {asked}\nAnswer:\n"
        answer = self._calls.call(lambda: complete(self._llm, prompt), self._timeout)
        relevances = parse_answer(answer, len(passages))
        return [relevances.get(number, 0.0) for number in range(1, len(passages) + 1)]

    def relevance(self, score: float) -> float:
        """Return a tenth of the score."""
        return score / SCALE


def parse_answer(answer: str, count: int) -> dict[int, float]:
    """Read the relevance (0..10) of documents, by number (1..``count``), from an LLM's reply.

    ``Doc: 2, Relevance: 7`` may have prose around it; ``7/10`` works, too. If no bare value is
    above 1 and one has a decimal point, the scale ends at 1: ``0.8`` counts as 8. Raises
    :class:`RerankError` if nothing usable is left, or for a value off the scale.
    """
    matches = list(_JUDGEMENT.finditer(_THOUGHT.sub("", answer)))
    bare = [match["value"] for match in matches if match["whole"] is None]
    are_fractions = any("." in value for value in bare) and all(float(value) <= 1 for value in bare)
    relevances: dict[int, float] = {}
    for match in matches:
        number, value = int(match["document"]), float(match["value"])
        if 1 <= number <= count and number not in relevances:
            top = float(match["whole"] or (1 if are_fractions else SCALE))
            if not 0 <= value <= top or top == 0:
                problem = f"a relevance of {value:g} on a scale to {top:g}"
                raise RerankError(f"the language model returned {problem}")
            relevances[number] = value / top * SCALE
    if not relevances:
        raise RerankError("the language model's reply has no passage with a relevance")
    return relevances
