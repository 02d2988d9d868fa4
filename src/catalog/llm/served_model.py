"""A language model on a server that speaks OpenAI's form, such as Ollama, llama.cpp and vLLM."""

from __future__ import annotations

import json
import re
import weakref
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from catalog.core.errors import LLMError
from catalog.core.text import strip_userinfo
from catalog.embedding.json_server import guarded_client, split_address
from catalog.llm.model import Message, ReplyPiece
from catalog.llm.replies import explain_failure

if TYPE_CHECKING:
    import httpx

_READ_OF_ERROR = 10_000  # characters of a refusal that are looked at
_BAD_REQUEST = (400, 422)
# Words of refusals for parts of a request that may be left out, by the part. OpenAI's reasoning
# models refuse a temperature, and want ``max_completion_tokens`` in place of ``max_tokens``.
_MAY_BE_REFUSED = {
    "max_tokens": "max_completion_tokens",
    "stream_options": "stream_options",
    "temperature": "temperature",
    "stream": "stream",
}


class ServedModel:
    """A model behind ``POST {url}/chat/completions``, greedy unless a call sets a temperature.

    No redirect is followed, no compressed reply read, and the key is sent to ``url`` alone. A
    server that does not stream is read as well, and one that refuses a part of the request that
    can be left out is asked again without it.
    """

    context_tokens = 3900  # no server says, and most read this many

    def __init__(
        self,
        model: str,
        url: str,
        *,
        api_key: str | None = None,
        max_tokens: int = 400,
        timeout_seconds: float = 10.0,
    ) -> None:
        """Set the address; raise :class:`ConfigError` if it is invalid."""
        parts = split_address(url, "IDX_LLM__URL", api_key)
        path = f"{parts.path.rstrip('/')}/chat/completions"
        self.name, self._url = model, parts._replace(path=path).geturl()
        self.identity = f"{type(self).__name__} {model} {strip_userinfo(url)}"
        self.reply_tokens, self._seconds = max_tokens, timeout_seconds
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._refused: frozenset[str] = frozenset()

    def stream(self, messages: Sequence[Message], **options: Any) -> Iterator[ReplyPiece]:
        """Yield the reply; ``options`` become fields of the request.

        Raises :class:`LLMError` kinds, without the server's words.
        """
        import httpx

        has_begun = False
        try:
            for piece in self._stream(messages, options):
                has_begun |= bool(piece.text)
                yield piece
        except (httpx.HTTPError, _ServerError) as error:
            raise explain_failure(error, self._seconds, has_begun=has_begun) from error

    def _stream(self, messages: Sequence[Message], options: dict[str, Any]) -> Iterator[ReplyPiece]:
        while True:
            body = self._request(messages, options)
            with self._client.stream(
                "POST", self._url, json=body, headers=self._headers, timeout=self._seconds
            ) as response:
                if response.is_success:
                    yield from _pieces(response)
                    return
                refusal = "".join(response.iter_text())[:_READ_OF_ERROR]
            named, parts = set(re.findall(r"\w+", refusal)), _MAY_BE_REFUSED.items()
            found = (part for part, sign in parts if sign in named and part not in self._refused)
            refused = next(found, None)
            if response.status_code not in _BAD_REQUEST or refused is None:
                raise _ServerError(refusal, response.status_code)
            self._refused |= {refused}

    def _request(self, messages: Sequence[Message], options: dict[str, Any]) -> dict[str, Any]:
        """Return the request without the fields that the server refused before."""
        request = {
            "model": self.name,
            "messages": [message._asdict() for message in messages],
            "temperature": 0.0,
            "max_tokens": self.reply_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            **options,
        }
        for name in self._refused:
            value = request.pop(name)
            if name == "max_tokens":
                request["max_completion_tokens"] = value
        return request

    @cached_property
    def _client(self) -> httpx.Client:
        client = guarded_client(_unreadable)
        weakref.finalize(self, client.close)
        return client


class _ServerError(Exception):
    """A refusal in the server's words; ``status_code`` is 500 for one amid a reply."""

    def __init__(self, words: str, status_code: int) -> None:
        super().__init__(words)
        self.status_code = status_code


def _unreadable(problem: str) -> LLMError:
    return LLMError(f"the language model's server {problem}: check IDX_LLM__URL")


def _pieces(response: httpx.Response) -> Iterator[ReplyPiece]:
    """Yield the pieces of a reply that comes as events, or whole."""
    if response.headers.get("Content-Type", "").startswith("application/json"):
        yield _piece("".join(response.iter_text()))
        return
    for line in response.iter_lines():
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        if data and line.startswith("data:"):
            yield _piece(data)


def _piece(data: str) -> ReplyPiece:
    """Read an event, or a whole reply; an event has a ``delta`` in place of a ``message``."""
    try:
        found = json.loads(data)
        if error := found.get("error"):
            raise _ServerError(str(error), 500)
        choice = found["choices"][0] if found.get("choices") else {}
        said = choice.get("delta") or choice.get("message") or {}
        return ReplyPiece.of(str(said.get("content") or ""), found)
    except (ValueError, RecursionError, AttributeError, LookupError, TypeError) as error:
        raise _unreadable("sent an invalid reply") from error
