"""How servers want to be asked for embeddings, and how they answer: OpenAI's form and Cohere's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

Side = Literal["query", "document"]


class ServerForm(Protocol):
    """The form of requests to a kind of servers, and of their answers."""

    path: str
    """What follows the base address."""
    base: str | None
    """The base address, where there is one for all."""
    most_texts: int
    """How many texts a request may hold."""

    def request(self, model: str, texts: Sequence[str], side: Side) -> dict[str, Any]:
        """Return the body of a request."""
        ...

    def rows(self, answer: Any, count: int) -> list[Any] | None:
        """Return the vectors in the order of the texts, ``None`` unless ``count`` are there."""
        ...

    def tokens(self, answer: Any) -> int | None:
        """Return how many tokens the server counted, ``None`` where it does not say."""
        ...


class OpenAIForm:
    """``POST …/embeddings``, as OpenAI, vLLM, Ollama, llama.cpp, TEI and many others have it."""

    path = "/embeddings"
    base: str | None = None  # nothing is sent to anybody who was not named
    most_texts = 2048

    def request(self, model: str, texts: Sequence[str], side: Side) -> dict[str, Any]:  # noqa: ARG002
        """Return the body; both sides are alike but for the prefix that a text already has."""
        return {"model": model, "input": list(texts), "encoding_format": "float"}

    def rows(self, answer: Any, count: int) -> list[Any] | None:
        """Return the vectors by the ``index`` of each, in order where none has one."""
        rows = _get(answer, "data")
        if not isinstance(rows, list) or len(rows) != count:
            return None
        indexes = [_get(row, "index") for row in rows]
        if all(index is None for index in indexes):
            indexes = list(range(count))
        by_index = {
            index: _get(row, "embedding")
            for index, row in zip(indexes, rows, strict=True)
            if isinstance(index, int)
        }
        return [by_index[at] for at in range(count)] if by_index.keys() == {*range(count)} else None

    def tokens(self, answer: Any) -> int | None:
        """Return ``usage.total_tokens``."""
        usage = _get(answer, "usage")
        return _whole(_get(usage, "total_tokens") or _get(usage, "prompt_tokens"))


class CohereForm:
    """``POST …/embed`` of Cohere's second version; that of the first one's answers is read, too."""

    path = "/embed"
    base: str | None = "https://api.cohere.com/v2"
    most_texts = 96

    def request(self, model: str, texts: Sequence[str], side: Side) -> dict[str, Any]:
        """Return the body, which has the side; what is too long shall be refused, not cut."""
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
