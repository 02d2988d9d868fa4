"""Language models: the configured one as a LlamaIndex ``LLM``, and what names a model."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from catalog.core.errors import ConfigError, LLMError, MissingExtraError
from catalog.core.settings import LLMSettings, get_settings
from catalog.core.text import strip_userinfo

if TYPE_CHECKING:
    from llama_index.core.llms import LLM

__all__ = ["PROVIDERS", "get_llm", "llm_identity", "llm_name"]

_MOST_BYTES = 20_000_000  # of a reply
PROVIDERS = ("none", "openai", "openai-like", "llama_cpp")  # any other names a module and function


def get_llm(settings: LLMSettings | None = None) -> LLM | None:
    """Return the configured model, ``None`` for provider ``none``; a local one loads later.

    Raises :class:`ConfigError` for a provider that is unknown or lacks its settings, and
    :class:`MissingExtraError` when its package is absent.
    """
    settings = settings or get_settings().llm
    if settings.provider == "none":
        return None
    if settings.provider == "openai":
        return _openai_like(settings)
    if settings.provider == "llama_cpp":
        from catalog.llm.local import LocalLLM

        return LocalLLM(
            settings.model,
            threads=settings.threads,
            max_tokens=settings.max_tokens,
            timeout_seconds=settings.timeout_seconds,
        )
    return _load_plugin(settings.provider)


def _openai_like(settings: LLMSettings) -> LLM:
    if not settings.url or not settings.model:
        raise ConfigError("provider openai needs IDX_LLM__URL and IDX_LLM__MODEL")
    try:
        from llama_index.llms.openai_like import OpenAILike
    except ImportError as error:
        raise MissingExtraError("a language model on a server", "llm") from error
    from catalog.embedding.json_server import guarded_async_client, guarded_client

    llm: LLM = OpenAILike(
        model=settings.model,
        api_base=settings.url,
        api_key=settings.api_key or "none",  # unset, a key for another server would be sent
        is_chat_model=True,
        temperature=0.0,
        max_tokens=settings.max_tokens,
        timeout=settings.timeout_seconds,
        max_retries=0,  # a query that waits is better off without
        http_client=guarded_client(_unreadable, most_bytes=_MOST_BYTES),
        async_http_client=guarded_async_client(_unreadable, most_bytes=_MOST_BYTES),
    )
    return llm


def _unreadable(problem: str) -> LLMError:
    return LLMError(f"the language model's server {problem}: check IDX_LLM__URL")


def _load_plugin(spec: str) -> LLM:
    from llama_index.core.llms import LLM

    from catalog.core.user_search import load_object

    if ":" not in spec:
        raise ConfigError(
            f"no language model provider {spec!r}; "
            "providers: none, openai, llama_cpp, module:function"
        )
    try:
        llm = load_object(spec, "")
        if not isinstance(llm, LLM) and not inspect.iscoroutinefunction(llm):
            llm = llm()
    except (Exception, SystemExit) as error:  # somebody else's code may raise anything
        raise ConfigError(
            f"no language model {spec!r} ({type(error).__name__}: {error})"
        ) from error
    if not isinstance(llm, LLM):
        raise ConfigError(f"{spec!r} gives a {type(llm).__name__}, not a LlamaIndex LLM")
    return llm


def llm_name(llm: LLM) -> str:
    """Return the model as explanations name it, or its class where it has no name."""
    name = llm.metadata.model_name
    return type(llm).__name__ if name in ("", "unknown") else name


def llm_identity(llm: LLM) -> tuple[str, str, str]:
    """Return class, weights and server: models with equal ones are taken to reply alike.

    The weights are the attribute ``fingerprint`` where that is a text, else :func:`llm_name`; the
    server is ``api_base`` without user and password, empty without one.
    """
    weights = getattr(llm, "fingerprint", None)
    server = getattr(llm, "api_base", None)
    return (
        type(llm).__name__,
        weights if isinstance(weights, str) else llm_name(llm),
        strip_userinfo(server) if isinstance(server, str) else "",
    )
