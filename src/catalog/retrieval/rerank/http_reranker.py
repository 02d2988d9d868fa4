"""A rerank server with Cohere's v2 request, which Jina, vLLM and llama.cpp's server use, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

from catalog.core.errors import RerankError
from catalog.core.tokens import CharTokenCounter
from catalog.embedding.encoder import make_fingerprint
from catalog.embedding.json_server import JsonServer
from catalog.retrieval.rerank.base import check_scores, sigmoid
from catalog.retrieval.rerank.excerpts import fit_pair

_BATCH = 100


class HttpReranker:
    """Post query and documents to ``url`` and read one score for each document.

    Accepted replies are ``{"results": [{"index", "relevance_score"}]}``, with ``data`` instead of
    ``results`` (Voyage), ``score`` instead of ``relevance_score``, or the bare list
    (text-embeddings-inference). Raw scores are the server's numbers. Relevance is the same number
    until one outside 0..1 arrives. From then on, the server's numbers are taken for logits, and
    relevance is their sigmoid. Earlier relevances stay as they were; the raw scores remain
    comparable. Redirects are not followed, and messages contain neither the key nor documents.
    ``timeout_seconds`` limits a whole request; a reply of over 20 MB is refused. Four characters
    count as a token, and ``max_tokens`` of query and passage are sent.
    """

    chooses_sentences = True

    batch_size = _BATCH

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
        self._model = model
        self._timeout = timeout_seconds
        self._max_tokens = max_tokens
        self._gives_logits = False
        self._learning = Lock()

    @property
    def name(self) -> str:
        """Return the model's name on the server."""
        return self._model

    @property
    def fingerprint(self) -> str:
        """Identify address (without user and password), model name and window.

        If the server changes the weights under the same name, this does not change.
        """
        return make_fingerprint(
            "http-rerank", self._server.public_url, self._model, self._max_tokens
        )

    def fit(self, query: str, passage: str, *, head: str = "") -> tuple[str, bool]:
        """Return the part of a passage that is sent, and whether any was cut."""
        return fit_pair(query, passage, CharTokenCounter(), self._max_tokens, head)

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """Score all passages, in order, in one request."""
        return self.scores_within(query, passages, self._timeout)

    def scores_within(self, query: str, passages: Sequence[str], seconds: float) -> list[float]:
        """Score like :meth:`scores` within ``seconds``, or within the timeout if it is shorter."""
        if not passages:
            return []
        body = {
            "model": self._model,
            "query": query,
            "documents": list(passages),
            "top_n": len(passages),
        }
        answer = self._request(body, min(seconds, self._timeout))
        scores = check_scores(self._parse(answer, len(passages)), len(passages), self._label)
        self.learn(scores)
        return scores

    def learn(self, scores: Iterable[float]) -> None:
        """Treat the server's numbers as logits for good if any score is outside 0..1."""
        if any(not 0 <= score <= 1 for score in scores):
            with self._learning:
                self._gives_logits = True

    def relevance(self, score: float) -> float:
        """Return the score itself, or the sigmoid of a logit."""
        self.learn([score])
        with self._learning:
            return sigmoid(score) if self._gives_logits else score

    @property
    def _label(self) -> str:
        return self._server.label

    def _request(self, body: Mapping[str, Any], seconds: float) -> Any:
        reply = self._server.post(body, seconds)
        if not reply.is_success:
            raise RerankError(f"{self._label} answered with status {reply.status_code}")
        return self._server.read(reply)

    def _parse(self, answer: Any, count: int) -> list[Any]:
        """Read the documents' scores, in order; each of ``count`` must occur once."""
        rows = answer
        if isinstance(answer, Mapping):
            rows = answer.get("results", answer.get("data"))
        if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
            raise RerankError(f"{self._label} answered without a list of results")
        indexes = [row.get("index") for row in rows]
        if sorted(map(str, indexes)) != sorted(map(str, range(count))):
            raise RerankError(f"{self._label} did not score each of {count} documents once")
        rows = sorted(rows, key=lambda row: int(row["index"]))
        return [row.get("relevance_score", row.get("score")) for row in rows]
