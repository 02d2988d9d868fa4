"""A rerank server: the request of Cohere v2, which Jina, vLLM and llama.cpp's server speak too."""

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
    """Posts query and documents to ``url`` and reads one score for each document.

    Understands ``{"results": [{"index", "relevance_score"}]}``, with ``data`` for ``results``
    (Voyage), ``score`` for ``relevance_score``, and the bare list (text-embeddings-inference).
    Raw scores are the server's own numbers. Relevance is the same number, until one outside 0..1
    is seen: from then on the server is taken to give logits, and relevance is their sigmoid. What
    was called relevant before that is not taken back, but the raw scores stay comparable.
    No redirect is followed, and no message holds the key or the documents. ``timeout_seconds``
    bounds a request as a whole; an answer of over 20 MB is not read. Tokens are taken to have
    four characters, and ``max_tokens`` of them are sent of query and passage.
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
        """Return the model's name, as the server knows it."""
        return self._model

    @property
    def fingerprint(self) -> str:
        """Return a name for address, model's name and window.

        The address is the whole of it but user and password. Weights that the server changes
        under the same name go unnoticed.
        """
        return make_fingerprint(
            "http-rerank", self._server.public_url, self._model, self._max_tokens
        )

    def fit(self, query: str, passage: str, *, head: str = "") -> tuple[str, bool]:
        """Return the part of a passage that is sent, and whether any was cut."""
        return fit_pair(query, passage, CharTokenCounter(), self._max_tokens, head)

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """Score each passage, in order, by one request for all."""
        return self.scores_within(query, passages, self._timeout)

    def scores_within(self, query: str, passages: Sequence[str], seconds: float) -> list[float]:
        """Score as :meth:`scores` within ``seconds``, or the time-out where that is less."""
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
        """Take the server to give logits, for good, if any of its scores lies outside 0..1."""
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
            raise RerankError(f"{self._label} answered with status {reply.status}")
        return self._server.read(reply)

    def _parse(self, answer: Any, count: int) -> list[Any]:
        """Read the documents' scores, in order; each of ``count`` must be there once."""
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
