"""A language model as this product uses it, and a LlamaIndex ``LLM`` as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast

from catalog.core.errors import LLMError
from catalog.core.text import strip_userinfo

if TYPE_CHECKING:
    from pydantic import BaseModel


BROKEN_OFF = "the language model's reply broke off: try again"


class Message(NamedTuple):
    """A turn of a conversation with a language model."""

    role: Literal["system", "user", "assistant"]
    content: str


class ReplyPiece(NamedTuple):
    """A piece of a reply, which may be empty.

    ``finish`` is why the reply ends here, such as ``stop`` or ``length``, empty where it goes on,
    ``None`` where the model does not say. ``usage`` are the tokens of prompt and reply so far.
    """

    text: str
    finish: str | None = None
    usage: tuple[int, int] | None = None

    @classmethod
    def of(cls, text: str, raw: Any) -> ReplyPiece:
        """Return a text with finish and usage of ``raw``, a server's JSON or an object like it."""
        choices, usage = _get(raw, "choices"), _get(raw, "usage")
        finish = str(_get(choices[0], "finish_reason") or "") if choices else None
        counts = _get(usage, "prompt_tokens"), _get(usage, "completion_tokens")
        are_known = all(isinstance(count, int) for count in counts)
        return cls(text, finish, counts if are_known else None)


class LanguageModel(Protocol):
    """A language model that replies to a conversation.

    It may also have ``count_tokens(text)``, and ``takes_schema``: whether :meth:`stream` takes a
    pydantic class as ``schema`` and replies in JSON of that form.
    """

    @property
    def name(self) -> str:
        """Return the model's name for explanations."""
        ...

    @property
    def identity(self) -> str:
        """Name class, weights and server, without a password; equal ones reply alike."""
        ...

    @property
    def context_tokens(self) -> int:
        """Return how many tokens prompt and reply may have together."""
        ...

    @property
    def reply_tokens(self) -> int:
        """Return how many tokens a reply may have, at least 1."""
        ...

    def stream(self, messages: Sequence[Message], **options: Any) -> Iterator[ReplyPiece]:
        """Yield the reply; ``options`` are ``temperature`` and ``max_tokens``, unset: its own.

        Raises whatever goes wrong; :class:`~catalog.llm.replies.Reply` puts it in plain words.
        """
        ...


def complete(llm: LanguageModel, prompt: str, **options: Any) -> str:
    """Return the whole reply to one message; errors of the model pass through."""
    pieces = list(llm.stream([Message("user", prompt)], **options))
    finishes = [piece.finish for piece in pieces if piece.finish is not None]
    if finishes and not any(finishes):
        raise LLMError(BROKEN_OFF)
    return "".join(piece.text for piece in pieces)


class GivenLLM(Protocol):
    """A language model of the caller's own; any ``LLM`` of LlamaIndex is one."""

    @property
    def metadata(self) -> Any:
        """Return its name, context window, longest reply and kind."""
        ...

    def stream_chat(self, messages: Any, **kwargs: Any) -> Any:
        """Yield the reply to a conversation."""
        ...


def as_language_model(given: LanguageModel | GivenLLM) -> LanguageModel:
    """Return a model of ours unchanged, or the caller's own as ours."""
    if hasattr(given, "stream_chat"):
        return AdaptedModel(cast(GivenLLM, given))
    return given


def llm_of_settings() -> Any:
    """Return the language model set in LlamaIndex's ``Settings``, ``None`` if none is."""
    from llama_index.core import Settings
    from llama_index.core.llms import MockLLM

    llm = Settings._llm  # Settings.llm would look for OpenAI
    is_off = isinstance(llm, MockLLM) and llm.max_tokens is None  # as Settings.llm = None leaves it
    return None if is_off else llm


class AdaptedModel:
    """The caller's own LlamaIndex ``LLM``, which is ``given``.

    Its weights are named by the attribute ``fingerprint`` where that is a text, else by its name;
    its server by ``api_base``. Tokens are counted by its tokenizer, if it has one.
    """

    def __init__(self, given: GivenLLM) -> None:
        self.given: Any = given

    @property
    def name(self) -> str:
        """Return the model's name, or its class where it has none."""
        name: str = self.given.metadata.model_name
        return type(self.given).__name__ if name in ("", "unknown") else name

    @property
    def identity(self) -> str:
        """Name class, weights and server; see :class:`LanguageModel`."""
        weights = getattr(self.given, "fingerprint", None)
        server = getattr(self.given, "api_base", None)
        parts = [type(self.given).__name__, weights if isinstance(weights, str) else self.name]
        parts += [strip_userinfo(server)] if isinstance(server, str) else []
        return " ".join(filter(None, parts))

    @property
    def context_tokens(self) -> int:
        """Return its context window."""
        window: int = self.given.metadata.context_window
        return window

    @property
    def reply_tokens(self) -> int:
        """Return its longest reply, 1 where it has no bound."""
        return max(int(self.given.metadata.num_output), 1)

    @property
    def takes_schema(self) -> bool:
        """Return whether it fills a schema, as models that call functions do."""
        return bool(self.given.metadata.is_function_calling_model)

    @property
    def count_tokens(self) -> Callable[[str], int] | None:
        """Return what counts the tokens of a text, ``None`` without a tokenizer."""
        llm = self.given
        count: Callable[[str], int] | None = getattr(llm, "count_tokens", None)
        if callable(count):
            return count
        try:
            tokenizer: Any = getattr(llm, "_tokenizer", None) or getattr(llm, "tokenizer", None)
        except Exception:  # noqa: BLE001 - it may have to be loaded, and its package be absent
            return None
        encode = getattr(tokenizer, "encode", tokenizer)
        return (lambda text: len(encode(text))) if callable(encode) else None

    def stream(
        self, messages: Sequence[Message], *, schema: type[BaseModel] | None = None, **options: Any
    ) -> Iterator[ReplyPiece]:
        """Yield the reply, in one piece where the model cannot stream."""
        if schema is not None:
            from llama_index.core.prompts import PromptTemplate

            prompt, text = PromptTemplate("{text}"), messages[-1].content
            filled = self.given.structured_predict(schema, prompt, text=text)
            yield ReplyPiece(str(filled.model_dump_json()))
            return
        from llama_index.core.llms import ChatMessage

        llm, said = self.given, ""
        asked: Any = [ChatMessage(role=it.role, content=it.content) for it in messages]
        kind = "chat"
        if len(messages) == 1 and not llm.metadata.is_chat_model:
            asked, kind = messages[0].content, "complete"
        try:
            for part in getattr(llm, f"stream_{kind}")(asked, **options):
                whole = _text(part)
                piece = whole[len(said) :] if part.delta is None else part.delta
                said += piece
                yield ReplyPiece.of(piece, part.raw)
        except NotImplementedError:
            if said:
                raise
            answer = getattr(llm, kind)(asked, **options)
            yield ReplyPiece.of(_text(answer), answer.raw)


def _text(response: Any) -> str:
    message = getattr(response, "message", None)
    return str((response.text if message is None else message.content) or "")


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)
