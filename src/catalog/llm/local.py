"""A language model inside this process: any GGUF file, run by llama.cpp through xllamacpp."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseGen,
    LLMMetadata,
)
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.custom import CustomLLM
from pydantic import Field, PrivateAttr

from catalog.core.errors import LLMError, LLMTimeoutError, MissingExtraError, ModelUnavailableError
from catalog.models.model_files import ModelFiles
from catalog.models.packaged import SMOLLM2

_CONTEXT = 2048  # tokens of prompt and reply together
_SEED = 1
_EDGE = 2**20  # bytes at either end of a file that name it


class LocalLLM(CustomLLM):
    """A GGUF model, or the packaged SmolLM2-135M-Instruct; greedy, so a prompt has one reply.

    It loads at its first use and answers one call at a time; calls of several threads queue. A call
    that lasts longer than ``timeout_seconds`` is stopped at its next token. One thread by default:
    idle llama.cpp threads spin, and two on a busy machine are far slower than one. With
    ``reuse_prompt`` the start that a prompt shares with the last one is not read again: that is
    faster, but through rounding a reply may then depend on earlier prompts.

    xllamacpp cannot run a model without its HTTP server. It listens on a Unix socket in a
    private folder which is removed as soon as it listens, so that nobody can connect to it.
    """

    takes_grammar: ClassVar[bool] = True

    path: str | None = Field(None, description="GGUF file; unset: the packaged model.")
    threads: int = Field(1, ge=1)
    max_tokens: int = Field(400, ge=1)
    timeout_seconds: float = Field(10.0, gt=0.0)
    reuse_prompt: bool = False
    _server: Any = PrivateAttr(None)
    _fingerprint: str | None = PrivateAttr(None)
    _loading: Lock = PrivateAttr(default_factory=Lock)

    def __init__(self, path: str | None = None, **settings: Any) -> None:
        super().__init__(path=path, **settings)

    @classmethod
    def class_name(cls) -> str:
        """Return the name LlamaIndex serialises."""
        return "LocalLLM"

    @property
    def metadata(self) -> LLMMetadata:
        """Its context window, longest reply, and the name of its file."""
        return LLMMetadata(
            context_window=_CONTEXT,
            num_output=self.max_tokens,
            is_chat_model=True,
            model_name=Path(self.path or SMOLLM2.weights).name,
        )

    @property
    def fingerprint(self) -> str:
        """Names the weights: equal ones reply alike.

        A file of one's own is known by the SHA-256 of its size, first MiB and last MiB, read
        once; while it cannot be read, by its name and that.
        """
        if self.path is None or self.path == SMOLLM2.name:
            return SMOLLM2.sha256[SMOLLM2.weights]
        if self._fingerprint is None:
            try:
                self._fingerprint = _hash_of_edges(Path(self.path))
            except OSError:
                return f"{Path(self.path).name}, unreadable"
        return self._fingerprint

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Reply to a conversation, in the model's own chat format; see :meth:`complete`."""
        conversation = [
            {"role": message.role.value, "content": message.content or ""} for message in messages
        ]
        text = self._reply("chat", {"messages": conversation}, **kwargs)
        return ChatResponse(message=ChatMessage(role="assistant", content=text))

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Reply to a prompt, put as a message of the user unless it is ``formatted`` already.

        ``grammar`` (GBNF) binds the reply, ``max_tokens`` shortens it. Raises
        :class:`LLMTimeoutError`, :class:`LLMError` for a prompt that is too long or a grammar
        that is wrong, and a :class:`~catalog.core.errors.ConfigError` when there is no model.
        """
        if formatted:
            return CompletionResponse(text=self._reply("text", {"prompt": prompt}, **kwargs))
        message = {"role": "user", "content": prompt}
        return CompletionResponse(text=self._reply("chat", {"messages": [message]}, **kwargs))

    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """Yield the reply of :meth:`chat`, in one piece."""
        yield self.chat(messages, **kwargs)

    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseGen:
        """Yield the reply of :meth:`complete`, in one piece."""
        yield self.complete(prompt, formatted=formatted, **kwargs)

    def _reply(
        self,
        form: str,
        request: dict[str, Any],
        *,
        grammar: str | None = None,
        max_tokens: int | None = None,
        temperature: float = 0.0,
        **_: Any,
    ) -> str:
        deadline = time.monotonic() + self.timeout_seconds
        server = self._loaded()
        request |= {"max_tokens": max_tokens or self.max_tokens, "seed": _SEED}
        request["temperature"] = temperature
        request["cache_prompt"] = self.reuse_prompt
        request["stream"] = True  # the only form that can be stopped
        if grammar is not None:
            request["grammar"] = grammar
        chunks: list[dict[str, Any]] = []

        def take(chunk: dict[str, Any]) -> bool:
            chunks.append(chunk)
            return time.monotonic() > deadline

        ask = server.handle_chat_completions if form == "chat" else server.handle_completions
        ask(request, take)
        return _text(chunks, self.timeout_seconds)

    def _loaded(self) -> Any:
        with self._loading:
            if self._server is None:
                self._server = _start(self.path, self.threads)
            return self._server


def _hash_of_edges(file: Path) -> str:
    size = file.stat().st_size
    digest = hashlib.sha256(f"{size} bytes:".encode())
    with file.open("rb") as opened:
        digest.update(opened.read(_EDGE))
        opened.seek(max(0, size - _EDGE))
        digest.update(opened.read(_EDGE))
    return digest.hexdigest()


def _start(path: str | None, threads: int) -> Any:
    try:
        import xllamacpp
    except ImportError as error:
        raise MissingExtraError("a language model in this process", "local-llm") from error
    files = ModelFiles("language model", "llama_cpp", path or SMOLLM2.name)
    files.require()
    files.verify()
    file = files.weights_file
    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.n_ctx = _CONTEXT
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.warmup = params.ui = params.endpoint_slots = False
    params.cache_ram_mib = 0
    params.verbosity = -1
    with tempfile.TemporaryDirectory(prefix="llm-", ignore_cleanup_errors=True) as folder:
        params.hostnames = [str(Path(folder) / "model.sock")]
        try:
            return xllamacpp.Server(params)
        except RuntimeError as error:
            raise ModelUnavailableError(f"llama.cpp cannot load {file}: {error}") from error


def _text(chunks: Sequence[dict[str, Any]], seconds: float) -> str:
    for chunk in chunks:
        if "error" in chunk:
            raise LLMError(f"the language model refused: {chunk['error'].get('message')}")
    choices = [choice for chunk in chunks for choice in chunk.get("choices", ())]
    if not choices or choices[-1].get("finish_reason") is None:
        raise LLMTimeoutError(f"the language model was stopped after {seconds:g} s")
    parts = (part.get("text") or part.get("delta", {}).get("content") for part in choices)
    return "".join(part or "" for part in parts)
