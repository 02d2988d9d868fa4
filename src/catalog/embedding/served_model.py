"""Embedding models on servers: request in the server's form, retry, check and count."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_before_delay,
    wait_random_exponential,
)
from tenacity.wait import wait_random

from catalog.core.bounded_calls import read_retry_after
from catalog.core.errors import CatalogError, ConfigError, EmbeddingError, EmbeddingServerError
from catalog.core.retrieval_events import tell_retry
from catalog.core.settings import EmbeddingSettings
from catalog.core.text import storable
from catalog.core.tokens import EstimatedTokenCounter
from catalog.embedding.encoder import PROBE, EmbeddingUsage, make_fingerprint
from catalog.embedding.json_server import JsonServer
from catalog.embedding.profiles import PROFILES, ProfiledEncoder, published_name

if TYPE_CHECKING:
    import httpx

    from catalog.embedding.encoder import Vector

Side = Literal["query", "document"]


class OpenAIForm:
    """``POST …/embeddings`` as in OpenAI, vLLM, Ollama, llama.cpp and TEI.

    A form has the end of its address, a base address if there is one for all, and how many texts a
    request may hold.
    """

    path = "/embeddings"
    base: str | None = None  # no default: texts are sent only to a named server
    most_texts = 2048

    def request(self, model: str, texts: Sequence[str], side: Side) -> dict[str, Any]:  # noqa: ARG002
        """Return the body; the sides differ only in the prefix that a text already has."""
        return {"model": model, "input": list(texts), "encoding_format": "float"}

    def rows(self, answer: Any) -> Any:
        """Return the vectors by the ``index`` of each, or in order if none has an index."""
        if not isinstance(rows := _get(answer, "data"), list):
            return None
        places = [str(_get(row, "index")) for row in rows]
        if set(places) != {"None"}:
            if sorted(places) != sorted(map(str, range(len(rows)))):
                return None
            rows = sorted(rows, key=lambda row: int(row["index"]))
        return [_get(row, "embedding") for row in rows]

    def tokens(self, answer: Any) -> Any:
        """Return ``usage.total_tokens``."""
        return _get(answer, "usage", "total_tokens") or _get(answer, "usage", "prompt_tokens")


class CohereForm:
    """``POST …/embed`` of Cohere's second version; replies of the first version are read, too."""

    path = "/embed"
    base: str | None = "https://api.cohere.com/v2"
    most_texts = 96

    def request(self, model: str, texts: Sequence[str], side: Side) -> dict[str, Any]:
        """Return the body with the side; it asks to refuse long texts instead of cutting them."""
        told = {"model": model, "texts": list(texts), "input_type": f"search_{side}"}
        return {**told, "embedding_types": ["float"], "truncate": "NONE"}

    def rows(self, answer: Any) -> Any:
        """Return the vectors, which are in the order of the texts."""
        return _get(answer, "embeddings", "float") or _get(answer, "embeddings")

    def tokens(self, answer: Any) -> Any:
        """Return ``meta.billed_units.input_tokens``."""
        return _get(answer, "meta", "billed_units", "input_tokens")


def _get(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


FORMS: dict[str, OpenAIForm | CohereForm] = {"openai": OpenAIForm(), "cohere": CohereForm()}
TRIES = 6  # of a request, with pauses that grow at random, or that the server asks for
_backoff = wait_random_exponential(multiplier=1, max=30.0, min=0.2)
_spread = wait_random(0, 1)  # so that clients with the same wait do not all retry at once
_log = logging.getLogger(__name__)
_QUERY_SECONDS = 2.0  # after which a search does not retry
_MAX_TOKENS = 512  # of an unknown model
_MOST_BYTES = 400_000  # of an answer, for each text and once more: 8,192 numbers, and blanks
_SAME, _ASKED_AGAIN = 0.999, 5  # likeness of vectors that differ by rounding alone; requests
_WAIT = (408, 409, 425, 429)
_TOO_LONG = (b"too long", b"too large", b"maximum context", b"context length", b"too many tokens")


class ServedEncoder(ProfiledEncoder):
    """A model behind an address, with requests in the form of ``settings.provider``.

    Vectors are scaled to length 1. ``side`` is that of the texts: Cohere's models embed queries and
    documents differently. The fingerprint is the same for both sides, and for a published model the
    same on every server; any other name is only valid for its server. A request with a temporary
    failure is repeated for ``settings.retry_seconds``, that of a query for two seconds. After a
    final failure, requests are tried once until one succeeds.
    """

    def __init__(
        self,
        settings: EmbeddingSettings,
        *,
        side: Side = "document",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take the settings; raise :class:`ConfigError` if one is missing."""
        super().__init__(settings)
        self._side, self._form = side, FORMS[settings.provider]
        base = settings.url or self._form.base
        if base is None:
            raise ConfigError(f"provider {settings.provider} needs IDX_EMBEDDING__URL")
        if not settings.url and not settings.api_key:
            raise ConfigError(f"provider {settings.provider} needs IDX_EMBEDDING__API_KEY")
        path, mark, query = base.partition("?")
        path = path.rstrip("/").removesuffix(self._form.path) + self._form.path
        self._server = JsonServer(
            f"{path}{mark}{query}",
            name="the embedding server",
            setting="IDX_EMBEDDING__URL",
            error=EmbeddingServerError,
            api_key=settings.api_key,
        )
        seconds = _QUERY_SECONDS if side == "query" else settings.retry_seconds
        is_late = stop_after_attempt(TRIES) | stop_before_delay(seconds)
        self._is_failing = False
        self._retrying = Retrying(
            retry=retry_if_exception_type(EmbeddingServerError),
            stop=lambda state: self._is_failing or is_late(state),
            wait=_wait,
            sleep=sleep,
            before_sleep=self._note_retry,
            reraise=True,
        )
        self.usage = EmbeddingUsage()  # of all requests so far
        self._counting = Lock()
        self._first: tuple[str, str, Vector] | None = None  # a model's name, a text and its vector
        self.counter = EstimatedTokenCounter()

    @property
    def fingerprint(self) -> str:
        """Identify form, model and window, and the server of a model that is not published."""
        name = published_name(self.model)
        server = "" if name in PROFILES else self._server.public_url
        parts = self._settings.provider, name, self.max_tokens, server
        return make_fingerprint("server", *parts, *self._cut_mark())

    @cached_property
    def dim(self) -> int:
        """Length of every vector; the server is asked once if it is unknown."""
        if self._profile.dim:
            return self._chosen_dim(self._profile.dim)
        return self._settings.dim or len(self.encode([PROBE])[0])

    @property
    def max_tokens(self) -> int:
        """Tokens the model reads."""
        return self._settings.max_tokens or self._profile.max_tokens or _MAX_TOKENS

    def encode(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector of length 1 for each text, in order.

        Raises :class:`EmbeddingServerError` for a failing server, :class:`EmbeddingError` for texts
        that it refuses and for a meaningless reply, and :class:`ConfigError` if no further try
        could help.
        """
        vectors: list[Vector] = []
        for start in range(0, len(texts), self._form.most_texts):
            part = texts[start : start + self._form.most_texts]
            name, found = self._embed(part)
            if name is not None:
                self._require_same_model(name, part[0], found[0])
            vectors += found
        return self._profile.cut(vectors, self.dim) if self._profile.shorter else vectors

    def _embed(self, texts: Sequence[str]) -> tuple[str | None, list[Vector]]:
        """Return the name of the model by the server's answer, and the vectors in it."""
        body = self._form.request(self.model, [storable(text) for text in texts], self._side)
        try:
            answer = self._retrying(self._ask, body, len(texts))
        except CatalogError as error:
            self._is_failing = isinstance(error, EmbeddingServerError)
            raise
        self._is_failing = False
        self._add_tokens(self._form.tokens(answer), texts)
        rows, name = self._form.rows(answer), _get(answer, "model")
        if not isinstance(rows, list) or len(rows) != len(texts):
            raise EmbeddingError(f"{self._server.label} did not return one vector for each text")
        vectors = [_unit(row) for row in rows]
        return published_name(name) if isinstance(name, str) else None, vectors

    def _require_same_model(self, name: str, text: str, vector: Vector) -> None:
        """Raise :class:`ConfigError` if the server answers by another model, as after a failover.

        A model with another name counts as the same if it gives the first text the same vector.
        """
        self._first = self._first or (name, text, vector)
        known, text, vector = self._first
        if name == known:
            return
        asked = (self._embed([text]) for _ in range(_ASKED_AGAIN))  # two models may take turns
        again = next((found for other, [found] in asked if other == name), None)
        if again is not None and again.shape == vector.shape and again @ vector >= _SAME:
            self._first = (name, text, vector)
            return
        raise ConfigError(
            f"{self._server.label} now uses another model than at the start, and vectors of two "
            "models cannot be compared: correct the server, or embed everything again with "
            "'catalog index rebuild --keep-settings'"
        )

    def _ask(self, body: dict[str, Any], texts: int) -> Any:
        self._add(EmbeddingUsage(requests=1))
        most_bytes = (texts + 1) * _MOST_BYTES
        reply = self._server.post(body, self._settings.timeout_seconds, most_bytes=most_bytes)
        if not reply.is_success:
            raise self._refusal(reply)
        return self._server.read(reply)

    def _refusal(self, reply: httpx.Response) -> Exception:
        """Return the error that explains the status; it quotes a reply only where nothing is."""
        label, status = self._server.label, reply.status_code
        said = reply.content[:10_000].lower()
        if status in (401, 403):
            return ConfigError(f"{label} refused the key ({status}): check IDX_EMBEDDING__API_KEY")
        if status in (404, 405, 410) or 300 <= status < 400:
            words = " ".join(reply.text[:200].split()).replace(self._settings.api_key or "\0", "…")
            advice = "check IDX_EMBEDDING__MODEL, and IDX_EMBEDDING__URL, which often ends in /v1"
            return ConfigError(f"{label} has no such model or address ({status} {words}): {advice}")
        if status == 402 or (status == 429 and b"insufficient_quota" in said):
            return ConfigError(f"{label} demands a payment first ({status})")
        if status == 413 or (status not in _WAIT and any(words in said for words in _TOO_LONG)):
            problem = f"the server says the text is too long for the model ({status})"
            return EmbeddingError(f"{problem}: lower IDX_EMBEDDING__MAX_TOKENS")
        if status not in _WAIT and status < 500:
            return EmbeddingError(f"{label} refused it ({status})")
        wait = read_retry_after(reply.headers.get("retry-after"))
        asks = "" if wait is None else f", and asks to wait {wait:.0f} s"
        return EmbeddingServerError(f"{label} answered with status {status}{asks}", wait, status)

    def _note_retry(self, state: RetryCallState) -> None:
        error, waited = _error(state), state.upcoming_sleep
        tell_retry("embedding", state.attempt_number, error, waited)
        _log.warning("%s; trying again in %.1f s", error, waited)
        self._add(EmbeddingUsage(retries=1, waited_seconds=waited))

    def _add_tokens(self, told: Any, texts: Sequence[str]) -> None:
        is_told = isinstance(told, int | float) and 0 <= told < math.inf
        tokens = int(told) if is_told else sum(len(self.counter.spans(it)) for it in texts)
        cost = tokens * self._settings.price / 1_000_000 if self._settings.price else None
        self._add(EmbeddingUsage(estimated=int(not is_told), tokens=tokens, cost=cost))

    def _add(self, usage: EmbeddingUsage) -> None:
        with self._counting:
            self.usage += usage


def _error(state: RetryCallState) -> BaseException | None:
    return None if state.outcome is None else state.outcome.exception()


def _wait(state: RetryCallState) -> float:
    asked = getattr(_error(state), "retry_after", None)
    return _backoff(state) if asked is None else asked + _spread(state)


def _unit(row: Any) -> Vector:
    """Return a vector of length 1; raise :class:`EmbeddingError` if that is impossible."""
    import numpy as np

    wrong = EmbeddingError("the server did not return a vector")
    if not isinstance(row, list) or not {type(number) for number in row} <= {int, float}:
        raise wrong
    try:
        vector = np.asarray(row, dtype=np.float64)
    except OverflowError as error:
        raise wrong from error
    norm = np.linalg.norm(vector)
    if not np.isfinite(norm) or norm == 0.0:
        raise EmbeddingError("the server returned a vector that is zero or not finite")
    return (vector / norm).astype(np.float32)
