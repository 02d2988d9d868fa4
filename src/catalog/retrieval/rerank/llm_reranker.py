"""A language model as the reranker, through LlamaIndex's ``LLMRerank``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from catalog.core.bounded_calls import BoundedCalls
from catalog.core.errors import LLMError, RerankError
from catalog.core.tokens import CharTokenCounter
from catalog.embedding.encoder import make_fingerprint
from catalog.llm import llm_identity, llm_name
from catalog.retrieval.rerank.base import check_scores
from catalog.retrieval.rerank.excerpts import cut_query, fit_pair

if TYPE_CHECKING:
    from llama_index.core.llms import LLM
    from llama_index.core.postprocessor import LLMRerank


SCALE = 10.0  # the highest grade, as in the prompt
_VERSION = "1"  # raise it when the parser of replies changes
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


class LLMReranker:
    """Any LlamaIndex LLM that grades, from 0 to 10, how well ``batch_size`` passages answer.

    A passage that the reply leaves out gets 0, because the prompt asks to leave out irrelevant
    ones. Grades are relative to the other passages of the batch. A reply after more than
    ``timeout_seconds`` is an :class:`~catalog.core.errors.LLMTimeoutError`.
    """

    def __init__(
        self,
        llm: LLM,
        *,
        batch_size: int = 10,
        max_tokens: int = 512,
        timeout_seconds: float = 30.0,
    ) -> None:
        self._llm, self._timeout = llm, timeout_seconds
        self._calls = BoundedCalls(_ABANDONED)
        self._max_tokens = max_tokens
        self.batch_size = batch_size

    @property
    def name(self) -> str:
        """Return the language model's name."""
        return llm_name(self._llm)

    @property
    def fingerprint(self) -> str:
        """Identify language model, prompt, and the version of the parser."""
        prompt = self._reranker(1).choice_select_prompt.get_template(self._llm)
        return make_fingerprint(
            "llm-rerank",
            *llm_identity(self._llm),
            _VERSION,
            prompt,
            self.batch_size,
            self._max_tokens,
        )

    def fit(self, query: str, passage: str, *, head: str = "") -> tuple[str, bool]:
        """Return the part of a passage that is shown, and whether it was cut.

        A batch shares the model's context; four characters count as a token.
        """
        context = self._llm.metadata
        room = context.context_window - max(context.num_output, 0) - _PROMPT_TOKENS
        each = min(self._max_tokens, max(_MIN_ROOM, room // self.batch_size))
        return fit_pair(query, passage, CharTokenCounter(), each, head)

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """Score each passage, in order, 0 to 10."""
        return self.scores_within(query, passages, self._timeout)

    def scores_within(self, query: str, passages: Sequence[str], seconds: float) -> list[float]:
        """Score like :meth:`scores` within ``seconds``, or within the timeout if it is shorter."""
        if not passages:
            return []
        from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

        bundle = QueryBundle(cut_query(query, CharTokenCounter(), self._max_tokens))
        nodes = [
            NodeWithScore(node=TextNode(text=passage, id_=str(index)))
            for index, passage in enumerate(passages)
        ]
        try:
            ranked = self._calls.call(
                lambda: self._reranker(len(nodes)).postprocess_nodes(nodes, bundle),
                min(seconds, self._timeout),
            )
        except (RerankError, LLMError):
            raise
        except Exception as error:
            raise RerankError(f"{self.name} failed: {type(error).__name__}: {error}") from error
        scores = {node.node_id: node.score or 0.0 for node in ranked}
        return check_scores(
            [scores.get(node.node_id, 0.0) for node in nodes], len(nodes), self.name
        )

    def relevance(self, score: float) -> float:
        """Return a tenth of the score."""
        return score / SCALE

    def _reranker(self, top_n: int) -> LLMRerank:
        from llama_index.core.postprocessor import LLMRerank

        return LLMRerank(
            llm=self._llm,
            choice_batch_size=self.batch_size,
            parse_choice_select_answer_fn=parse_answer,
            top_n=top_n,
        )


def parse_answer(answer: str, count: int) -> tuple[list[int], list[float]]:
    """Read document numbers (1..``count``) and their relevance (0..10) from an LLM's reply.

    ``Doc: 2, Relevance: 7`` may be in any case, with bullets, bold marks or prose around it;
    ``7/10`` works, too. If no bare value is above 1 and one has a decimal point, the scale ends at
    1: ``0.8`` counts as 8. Unknown numbers and all but the first grade of a document are ignored.
    Raises :class:`RerankError` if nothing usable is left, or for a value off the scale.
    """
    matches = list(_JUDGEMENT.finditer(_THOUGHT.sub("", answer)))
    bare = [match["value"] for match in matches if match["whole"] is None]
    are_fractions = any("." in value for value in bare) and all(float(value) <= 1 for value in bare)
    relevances: dict[int, float] = {}
    for match in matches:
        number = int(match["document"])
        if 1 <= number <= count and number not in relevances:
            top = match["whole"] or ("1" if are_fractions else str(SCALE))
            relevances[number] = _rescale(match["value"], top)
    if not relevances:
        raise RerankError("the language model's answer names no passage and relevance")
    return list(relevances), list(relevances.values())


def _rescale(value: str, top: str) -> float:
    if not 0 <= float(value) <= float(top) or float(top) == 0:
        raise RerankError(f"the language model gave a relevance of {value} on a scale to {top}")
    return float(value) / float(top) * SCALE
