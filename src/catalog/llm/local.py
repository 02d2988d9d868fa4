"""A language model inside this process: any GGUF file, run by llama.cpp through xllamacpp."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from catalog.core.errors import LLMError, LLMTimeoutError, MissingExtraError, ModelUnavailableError
from catalog.llm.model import Message, ReplyPiece
from catalog.models.model_files import ModelFiles
from catalog.models.packaged import SMOLLM2

_CONTEXT = 2048  # tokens of prompt and reply together
_SEED = 1
_EDGE = 2**20  # bytes at either end of a file that name it


class LocalLLM:
    """A GGUF model, or the packaged SmolLM2-135M-Instruct; greedy, so a prompt has one reply.

    It loads at its first use and answers one call at a time; calls of several threads queue. A call
    that lasts longer than ``timeout_seconds`` is stopped at its next token. One thread by default:
    idle llama.cpp threads spin, and two on a busy machine are far slower than one. With
    ``reuse_prompt`` the start that a prompt shares with the last one is not read again: that is
    faster, but through rounding a reply may then depend on earlier prompts.

    xllamacpp cannot run a model without its HTTP server. It listens on a Unix socket in a
    private folder which is removed as soon as it listens, so that nobody can connect to it.
    """

    takes = "grammar"
    context_tokens = _CONTEXT

    def __init__(
        self,
        path: str | None = None,
        *,
        threads: int = 1,
        max_tokens: int = 400,
        timeout_seconds: float = 10.0,
        reuse_prompt: bool = False,
    ) -> None:
        """Set the GGUF file, ``None`` for the packaged model; nothing is loaded yet."""
        self.name = Path(path or SMOLLM2.weights).name
        self.reply_tokens, self.threads = max_tokens, threads
        self._path, self._seconds, self._reuse_prompt = path, timeout_seconds, reuse_prompt
        self._server: Any = None
        self._fingerprint: str | None = None
        self._loading = Lock()

    @property
    def identity(self) -> str:
        """Name the weights: equal ones reply alike.

        A file of one's own is known by the SHA-256 of its size, first MiB and last MiB, read
        once; while it cannot be read, by its name and that.
        """
        return f"{type(self).__name__} {self._weights()}"

    def _weights(self) -> str:
        if self._path is None or self._path == SMOLLM2.name:
            return SMOLLM2.sha256[SMOLLM2.weights]
        if self._fingerprint is None:
            try:
                self._fingerprint = _hash_of_edges(Path(self._path))
            except OSError:
                return f"{Path(self._path).name}, unreadable"
        return self._fingerprint

    def stream(self, messages: Sequence[Message], **options: Any) -> Iterator[ReplyPiece]:
        """Yield the reply in one piece, in the model's own chat format.

        Raises :class:`LLMTimeoutError`, :class:`LLMError` for a prompt that is too long or a
        grammar that is wrong, and a :class:`~catalog.core.errors.ConfigError` when there is no
        model.
        """
        deadline = time.monotonic() + self._seconds
        server = self._loaded()
        request = {
            "messages": [message._asdict() for message in messages],
            "max_tokens": self.reply_tokens,
            "seed": _SEED,
            "temperature": 0.0,
            "cache_prompt": self._reuse_prompt,
            "stream": True,  # the only form that can be stopped
            **options,
        }
        chunks: list[dict[str, Any]] = []

        def take(chunk: dict[str, Any]) -> bool:
            chunks.append(chunk)
            return time.monotonic() > deadline

        server.handle_chat_completions(request, take)
        yield _read(chunks, self._seconds)

    def _loaded(self) -> Any:
        with self._loading:
            if self._server is None:
                self._server = _start(self._path, self.threads)
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


def _read(chunks: Sequence[dict[str, Any]], seconds: float) -> ReplyPiece:
    for chunk in chunks:
        if "error" in chunk:
            raise LLMError(f"the language model refused: {chunk['error'].get('message')}")
    said = [chunk for chunk in chunks if chunk.get("choices")]
    if not said or said[-1]["choices"][-1].get("finish_reason") is None:
        raise LLMTimeoutError(f"the language model was stopped after {seconds:g} s")
    parts = (choice["delta"].get("content") for chunk in said for choice in chunk["choices"])
    return ReplyPiece.of("".join(part or "" for part in parts), said[-1])
