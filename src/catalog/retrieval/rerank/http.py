"""A rerank server with Cohere's v2 request, which Jina, vLLM and llama.cpp's server use, too."""

from collections.abc import Mapping, Sequence
from functools import cached_property

from catalog.core.errors import RerankError
from catalog.core.tokens import CharTokenCounter
from catalog.embedding.encoder import make_fingerprint
from catalog.embedding.json_server import JsonServer
from catalog.retrieval.rerank.scoring import check_scores, fit_pair, sigmoid


class HttpReranker:
    """Post query and documents to ``url`` and read one score for each document.

    Accepted replies are ``{"results": [{"index", "relevance_score"}]}``, with ``data`` instead of
    ``results`` (Voyage), ``score`` instead of ``relevance_score``, or the bare list
    (text-embeddings-inference). Once a number outside 0..1 is seen, the server's numbers are taken
    for logits. ``timeout_seconds`` limits a whole request. Four characters count as a token.
    """

    batch_size = 100

    def __init__(
        self,
        url: str,
        *,
        model: str,
        api_key: str | None = None,
        timeout_seconds: float = 30.0,
        max_tokens: int = 512,
    ) -> None:
        self._server = JsonServer(
            url,
            name="the reranker",
            setting="IDX_RAG_V2__RERANK_URL",
            error=RerankError,
            api_key=api_key,
        )
        self.name = model
        self._timeout, self._max_tokens = timeout_seconds, max_tokens
        self._gives_logits = False

    @cached_property
    def fingerprint(self) -> str:
        """Identify address (without user and password), model name and window."""
        return make_fingerprint("http-rerank", self._server.public_url, self.name, self._max_tokens)

    def fit(self, query: str, passage: str, *, head: str = "") -> tuple[str, bool]:
        """Return the part of a passage that is sent, and whether any was cut."""
        return fit_pair(query, passage, CharTokenCounter(), self._max_tokens, head)

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """Score all passages, in order, in one request."""
        count, label = len(passages), self._server.label
        body = {"model": self.name, "query": query, "documents": list(passages), "top_n": count}
        reply = self._server.post(body, self._timeout)
        if not reply.is_success:
            raise RerankError(f"{label} answered with status {reply.status_code}")
        rows = self._server.read(reply)
        if isinstance(rows, Mapping):
            rows = rows.get("results", rows.get("data"))
        if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
            raise RerankError(f"{label} answered without a list of results")
        values = {str(row.get("index")): row for row in rows}
        if len(rows) != count or values.keys() != set(map(str, range(count))):
            raise RerankError(f"{label} did not score each of {count} documents once")
        ordered = (values[str(index)] for index in range(count))
        numbers = [row.get("relevance_score", row.get("score")) for row in ordered]
        scores = check_scores(numbers, count, label)
        self._gives_logits |= any(not 0 <= score <= 1 for score in scores)
        return scores

    def relevance(self, score: float) -> float:
        """Return the score itself, or the sigmoid of a logit."""
        self._gives_logits |= not 0 <= score <= 1
        return sigmoid(score) if self._gives_logits else score
