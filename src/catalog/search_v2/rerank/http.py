"""A rerank server: the request of Cohere v2, which Jina, vLLM and llama.cpp's server speak too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from catalog.core.errors import ConfigError, RerankError
from catalog.core.tokens import CharTokenCounter
from catalog.embedding.encoder import fingerprint
from catalog.search_v2.rerank.base import checked, sigmoid
from catalog.search_v2.rerank.windows import fit_pair

_BATCH = 100


class HttpReranker:
    """Posts query and documents to ``url`` and reads one score for each document.

    Understands ``{"results": [{"index", "relevance_score"}]}``, with ``data`` for ``results``
    (Voyage), ``score`` for ``relevance_score``, and the bare list (text-embeddings-inference).
    Raw scores are 0..1; an answer with any score outside is taken for logits, and raw scores are
    then their sigmoids. No redirect is followed, and no message holds the key or the documents.
    ``timeout_seconds`` bounds each of connecting, sending and waiting. Tokens are taken to have
    four characters, and ``max_tokens`` of them are sent of query and passage.
    """

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
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("IDX_RAG_V2__RERANK_URL must be an http:// or https:// address")
        self._url = url
        self._host = parts.netloc.rpartition("@")[2]
        self._path = parts.path
        self._model = model
        self._api_key = api_key
        self._timeout = timeout_seconds
        self._max_tokens = max_tokens

    @property
    def name(self) -> str:
        """See :class:`~catalog.search_v2.rerank.base.Reranker`."""
        return self._model

    @property
    def fingerprint(self) -> str:
        """See :class:`~catalog.search_v2.rerank.base.Reranker`: address, model's name, window.

        Weights that the server changes under the same name go unnoticed.
        """
        return fingerprint("http-rerank", self._host, self._path, self._model, self._max_tokens)

    def fitted(self, query: str, passage: str, *, head: str = "") -> tuple[str, bool]:
        """See :class:`~catalog.search_v2.rerank.base.Reranker`."""
        return fit_pair(query, passage, CharTokenCounter(), self._max_tokens, head)

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """See :class:`~catalog.search_v2.rerank.base.Reranker`; one request for all passages."""
        if not passages:
            return []
        body = {
            "model": self._model,
            "query": query,
            "documents": list(passages),
            "top_n": len(passages),
        }
        given = self._by_index(self._post(body), len(passages))
        numbers = checked([given[i] for i in range(len(passages))], len(passages), self._at)
        if all(0 <= number <= 1 for number in numbers):
            return numbers
        return [sigmoid(number) for number in numbers]

    def relevance(self, score: float) -> float:
        """See :class:`~catalog.search_v2.rerank.base.Reranker`; the score itself."""
        return score

    @property
    def _at(self) -> str:
        return f"the reranker at {self._host}"

    def _post(self, body: Mapping[str, Any]) -> Any:
        import httpx

        headers = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else {}
        try:
            response = httpx.post(
                self._url,
                json=body,
                headers=headers,
                timeout=self._timeout,
                follow_redirects=False,
            )
        except httpx.TimeoutException as error:
            raise RerankError(f"{self._at} gave no answer in {self._timeout:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise RerankError(f"{self._at} cannot be asked: {type(error).__name__}") from error
        if not response.is_success:
            raise RerankError(f"{self._at} answered with status {response.status_code}")
        try:
            return response.json()
        except ValueError as error:
            raise RerankError(
                f"{self._at} answered with status {response.status_code}, but not in JSON"
            ) from error

    def _by_index(self, answer: Any, count: int) -> dict[int, Any]:
        """The answer's scores by document; each of ``count`` documents must be there once."""
        rows = answer
        if isinstance(answer, Mapping):
            rows = answer.get("results", answer.get("data"))
        if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
            raise RerankError(f"{self._at} answered without a list of results")
        indexes = [row.get("index") for row in rows]
        if sorted(map(str, indexes)) != sorted(map(str, range(count))):
            raise RerankError(f"{self._at} did not score each of {count} documents once")
        return {int(row["index"]): row.get("relevance_score", row.get("score")) for row in rows}
