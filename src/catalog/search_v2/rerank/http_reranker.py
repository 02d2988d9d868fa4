"""A rerank server: the request of Cohere v2, which Jina, vLLM and llama.cpp's server speak too."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any
from urllib.parse import SplitResult, urlsplit

from catalog.core.bounded_calls import BoundedCalls
from catalog.core.errors import ConfigError, LLMError, LLMTimeoutError, RerankError
from catalog.core.tokens import CharTokenCounter
from catalog.embedding.encoder import make_fingerprint
from catalog.search_v2.rerank.base import check_scores, sigmoid
from catalog.search_v2.rerank.excerpts import fit_pair

_BATCH = 100
_MOST_BYTES = 20_000_000  # of an answer; 100 scores take some kilobytes
_ABANDONED = 8  # requests left behind, before the server is left alone until one of them ends


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
        parts = _split(url)
        self._url = url
        self._host = parts.netloc.rpartition("@")[2]
        self._public_url = parts._replace(netloc=self._host).geturl()
        self._model = model
        self._api_key = api_key
        self._timeout = timeout_seconds
        self._max_tokens = max_tokens
        self._calls = BoundedCalls(_ABANDONED)
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
        return make_fingerprint("http-rerank", self._public_url, self._model, self._max_tokens)

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
        return f"the reranker at {self._host}"

    def _request(self, body: Mapping[str, Any], seconds: float) -> Any:
        try:  # the whole request, for httpx bounds only each wait of it
            content = self._calls.call(lambda: self._post(body, seconds), seconds)
        except LLMTimeoutError as error:
            raise RerankError(f"{self._label} gave no answer in {seconds:g} s") from error
        except LLMError as error:
            raise RerankError(f"{self._label} cannot be asked: {error}") from error
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise RerankError(
                f"{self._label} answered, but not in JSON that can be read"
            ) from error

    def _post(self, body: Mapping[str, Any], seconds: float) -> bytes:
        import httpx

        deadline = time.monotonic() + seconds
        headers = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else {}
        content = bytearray()
        try:
            with httpx.stream(
                "POST",
                self._url,
                json=body,
                headers=headers,
                timeout=seconds,
                follow_redirects=False,
            ) as response:
                if not response.is_success:
                    raise RerankError(f"{self._label} answered with status {response.status_code}")
                for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) > _MOST_BYTES:
                        raise RerankError(f"{self._label} answered with over {_MOST_BYTES} bytes")
                    if time.monotonic() > deadline:
                        raise RerankError(f"{self._label} gave no answer in {seconds:g} s")
        except httpx.TimeoutException as error:
            raise RerankError(f"{self._label} gave no answer in {seconds:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise RerankError(f"{self._label} cannot be asked: {type(error).__name__}") from error
        return bytes(content)

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


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:  # outside the handler: the ValueError may quote a password
        raise ConfigError("IDX_RAG_V2__RERANK_URL must be an http:// or https:// address")
    return parts
