"""Embedding models on servers: request in the server's form, retry, check and count."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential
from tenacity.wait import wait_random

from catalog.core.bounded_calls import read_retry_after
from catalog.core.errors import CatalogError, ConfigError, EmbeddingError, EmbeddingServerError
from catalog.core.retrieval_events import tell_retry
from catalog.core.settings import EmbeddingSettings
from catalog.core.text import storable
from catalog.core.tokens import EstimatedTokenCounter
from catalog.embedding.encoder import PROBE, EmbeddingUsage, make_fingerprint
from catalog.embedding.json_server import JsonServer
from catalog.embedding.profiles import PROFILES, chosen_dim, cut_mark, profile_of, published_name

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

    def rows(self, answer: Any, count: int) -> list[Any] | None:
        """Return the vectors by the ``index`` of each, or in order if none has an index.

        ``None`` unless there are ``count`` of them.
        """
        rows = _get(answer, "data")
        if not isinstance(rows, list) or len(rows) != count:
            return None
        places = [_get(row, "index") for row in rows]
        places = list(range(count)) if set(places) <= {None} else places
        if sorted(map(str, places)) != sorted(map(str, range(count))):
            return None
        by_place = zip(map(int, places), rows, strict=True)
        return [_get(row, "embedding") for _, row in sorted(by_place, key=lambda it: it[0])]

    def tokens(self, answer: Any) -> int | None:
        """Return ``usage.total_tokens``."""
        usage = _get(answer, "usage")
        return _whole(_get(usage, "total_tokens") or _get(usage, "prompt_tokens"))


class CohereForm:
    """``POST …/embed`` of Cohere's second version; replies of the first version are read, too."""

    path = "/embed"
    base: str | None = "https://api.cohere.com/v2"
    most_texts = 96

    def request(self, model: str, texts: Sequence[str], side: Side) -> dict[str, Any]:
        """Return the body with the side; it asks to refuse long texts instead of cutting them."""
        return {
            "model": model,
            "texts": list(texts),
            "input_type": f"search_{side}",
            "embedding_types": ["float"],
            "truncate": "NONE",
        }

    def rows(self, answer: Any, count: int) -> list[Any] | None:
        """Return the vectors, which are in the order of the texts."""
        rows = _get(answer, "embeddings")
        rows = _get(rows, "float") if isinstance(rows, Mapping) else rows
        return rows if isinstance(rows, list) and len(rows) == count else None

    def tokens(self, answer: Any) -> int | None:
        """Return ``meta.billed_units.input_tokens``."""
        return _whole(_get(_get(_get(answer, "meta"), "billed_units"), "input_tokens"))


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _whole(value: Any) -> int | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and 0 <= value < float("inf") else None


ResultT = TypeVar("ResultT")

TRIES = 6
_LONGEST = 30.0  # seconds between two tries, unless the server asks for more
_backoff = wait_random_exponential(multiplier=1, max=_LONGEST, min=0.2)
_spread = wait_random(0, 1)  # so that clients with the same wait do not all retry at once


class Retries:
    """Repeat a call that raises :class:`EmbeddingServerError`, up to :data:`TRIES` in all.

    The wait between two tries is the one the server asks for, or else a random time with a growing
    limit ("full jitter"). No try begins later than ``seconds`` after the first; if the wait would
    be too long, there is no further try. After a call that failed in the end, calls are not
    repeated until one succeeds.
    """

    def __init__(self, seconds: float, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._seconds, self._sleep = seconds, sleep
        self._is_failing = False

    def call(
        self,
        function: Callable[[], ResultT],
        on_retry: Callable[[BaseException | None, float], None],
    ) -> ResultT:
        """Call the function; ``on_retry`` is called with each error and the seconds to wait."""

        def tell(state: RetryCallState) -> None:
            tell_retry("embedding", state.attempt_number, _error(state), state.upcoming_sleep)
            on_retry(_error(state), state.upcoming_sleep)

        def is_over(state: RetryCallState) -> bool:
            passed = max(state.idle_for, state.seconds_since_start or 0.0)
            is_late = passed + state.upcoming_sleep > self._seconds
            return state.attempt_number >= (1 if self._is_failing else TRIES) or is_late

        is_busy = retry_if_exception_type(EmbeddingServerError)
        retrying = Retrying(
            retry=is_busy,
            stop=is_over,
            wait=_wait,
            sleep=self._sleep,
            before_sleep=tell,
            reraise=True,
        )
        try:
            result = retrying(function)
        except CatalogError as error:
            self._is_failing = isinstance(error, EmbeddingServerError)
            raise
        self._is_failing = False
        return result


def _error(state: RetryCallState) -> BaseException | None:
    return None if state.outcome is None else state.outcome.exception()


def _wait(state: RetryCallState) -> float:
    asked = getattr(_error(state), "retry_after", None)
    return _backoff(state) if asked is None else asked + _spread(state)


_log = logging.getLogger(__name__)
FORMS: dict[str, OpenAIForm | CohereForm] = {"openai": OpenAIForm(), "cohere": CohereForm()}
QUERY_RETRY_SECONDS = 2.0  # seconds after which a search does not retry
_MAX_TOKENS = 512  # of an unknown model
_MOST_BYTES = 400_000  # of an answer, for each text and once more: 8,192 numbers, and blanks
_SAME, _ASKED_AGAIN = 0.999, 5  # likeness of vectors that differ by rounding alone; requests
_WAIT = (408, 409, 425, 429)
_TOO_LONG = (b"too long", b"too large", b"maximum context", b"context length", b"too many tokens")


class ServedEncoder:
    """A model behind an address, with requests in the form of ``settings.provider``.

    Vectors are scaled to length 1. ``side`` is that of the texts: Cohere's models embed queries and
    documents differently. The fingerprint is the same for both sides, and for a published model the
    same on every server; any other name is only valid for its server. A request with a temporary
    failure is repeated for ``retry_seconds``, by default ``settings.retry_seconds``. After a final
    failure, requests are tried once until one succeeds.
    """

    def __init__(
        self,
        settings: EmbeddingSettings,
        *,
        side: Side = "document",
        retry_seconds: float | None = None,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Take the settings; raise :class:`ConfigError` if one is missing."""
        self.model, self._settings, self._side = settings.model, settings, side
        self._form = FORMS[settings.provider]
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
        self._profile = profile_of(settings.model)
        seconds = settings.retry_seconds if retry_seconds is None else retry_seconds
        self._retries = Retries(seconds, sleep=sleep)
        self._now = now
        self._usage = EmbeddingUsage()
        self._first: tuple[str, str, Vector] | None = None  # a model's name, a text and its vector
        self._counting = Lock()
        self.counter = EstimatedTokenCounter()

    def __reduce__(self) -> tuple[type[ServedEncoder], tuple[EmbeddingSettings]]:
        """Return how to pickle the encoder: by its settings, for documents, without its counts."""
        return ServedEncoder, (self._settings,)

    @property
    def fingerprint(self) -> str:
        """Identify form, model and window, and the server of a model that is not published."""
        name = published_name(self.model)
        server = "" if name in PROFILES else self._server.public_url
        parts = self._settings.provider, name, self.max_tokens, server
        return make_fingerprint("server", *parts, *cut_mark(self._settings))

    @cached_property
    def dim(self) -> int:
        """Length of every vector; the server is asked once if it is unknown."""
        if self._profile.dim:
            return chosen_dim(self._settings, self._profile.dim)
        return self._settings.dim or len(self.encode([PROBE])[0])

    @property
    def max_tokens(self) -> int:
        """Tokens the model reads."""
        return self._settings.max_tokens or self._profile.max_tokens or _MAX_TOKENS

    @property
    def usage(self) -> EmbeddingUsage:
        """The counts of all requests so far."""
        return self._usage

    def encode(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector of length 1 for each text, in order.

        Raises :class:`EmbeddingServerError` for a failing server, :class:`EmbeddingError` for texts
        that it refuses and for a meaningless reply, and :class:`ConfigError` if no further try
        could help.
        """
        vectors: list[Vector] = []
        for start in range(0, len(texts), self._form.most_texts):
            vectors += self._encode(texts[start : start + self._form.most_texts])
        return self._profile.cut(vectors, self.dim) if self._profile.shorter else vectors

    def _encode(self, texts: Sequence[str]) -> list[Vector]:
        body = self._form.request(self.model, [storable(text) for text in texts], self._side)
        answer = self._retries.call(lambda: self._ask(body, len(texts)), self._note_retry)
        self._note_tokens(self._form.tokens(answer), texts)
        vectors = self._read(answer, len(texts))
        if (name := _name_of(answer)) is not None:
            self._require_same_model(name, texts[0], vectors[0])
        return vectors

    def _read(self, answer: Any, count: int) -> list[Vector]:
        rows = self._form.rows(answer, count)
        if rows is None:
            raise EmbeddingError(f"{self._server.label} did not return one vector for each text")
        return [_unit(row) for row in rows]

    def _require_same_model(self, name: str, text: str, vector: Vector) -> None:
        """Raise :class:`ConfigError` if the server answers by another model, as after a failover.

        A model with another name counts as the same if it gives the first text the same vector.
        """
        if self._first is None:
            self._first = (name, text, vector)
        known, text, vector = self._first
        if name == known:
            return
        body = self._form.request(self.model, [storable(text)], self._side)
        asked = (
            self._retries.call(lambda: self._ask(body, 1), self._note_retry)
            for _ in range(_ASKED_AGAIN)
        )
        answer = next((it for it in asked if _name_of(it) == name), None)  # two may take turns
        [again] = [vector * 0] if answer is None else self._read(answer, 1)
        if again.shape == vector.shape and float(again @ vector) >= _SAME:
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
        """Return the error that explains the status, without any text of the reply."""
        label, status = self._server.label, reply.status_code
        said = reply.content[:10_000].lower()
        if status in (401, 403):
            return ConfigError(f"{label} refused the key ({status}): check IDX_EMBEDDING__API_KEY")
        if status in (404, 405, 410) or 300 <= status < 400:
            advice = "check IDX_EMBEDDING__MODEL and IDX_EMBEDDING__URL"
            return ConfigError(f"{label} has no such model or address ({status}): {advice}")
        if status == 402 or (status == 429 and b"insufficient_quota" in said):
            return ConfigError(f"{label} demands a payment first ({status})")
        if status == 413 or (status not in _WAIT and any(words in said for words in _TOO_LONG)):
            problem = f"the server says the text is too long for the model ({status})"
            return EmbeddingError(f"{problem}: lower IDX_EMBEDDING__MAX_TOKENS")
        if status not in _WAIT and status < 500:
            return EmbeddingError(f"{label} refused it ({status})")
        wait = read_retry_after(reply.headers.get("retry-after"), self._now())
        asks = "" if wait is None else f", and asks to wait {wait:.0f} s"
        return EmbeddingServerError(f"{label} answered with status {status}{asks}", wait, status)

    def _note_retry(self, error: BaseException | None, waited: float) -> None:
        _log.warning("%s; trying again in %.1f s", error, waited)
        self._add(EmbeddingUsage(retries=1, waited_seconds=waited))

    def _note_tokens(self, tokens: int | None, texts: Sequence[str]) -> None:
        count = tokens if tokens is not None else sum(len(self.counter.spans(it)) for it in texts)
        price = self._settings.price
        cost = count * price / 1_000_000 if price else None
        self._add(EmbeddingUsage(estimated=int(tokens is None), tokens=count, cost=cost))

    def _add(self, usage: EmbeddingUsage) -> None:
        with self._counting:
            self._usage += usage


def _name_of(answer: Any) -> str | None:
    """Return the name of the model in the server's answer, ``None`` without one."""
    name = answer.get("model") if isinstance(answer, dict) else None
    return published_name(name) if isinstance(name, str) else None


def _unit(row: Any) -> Vector:
    """Return a vector of length 1; raise :class:`EmbeddingError` if that is impossible."""
    import numpy as np

    wrong = EmbeddingError("the server did not return a vector")
    if isinstance(row, list) and not {type(number) for number in row} <= {int, float}:
        raise wrong
    try:
        vector = np.asarray(row, dtype=np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise wrong from error
    if vector.ndim != 1 or not len(vector):
        raise wrong
    norm = np.linalg.norm(vector)
    if not np.isfinite(norm) or norm == 0.0:
        raise EmbeddingError("the server returned a vector that is zero or not finite")
    return (vector / norm).astype(np.float32)
