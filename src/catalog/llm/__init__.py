"""Language models: the configured one, behind the small interface that all code here uses."""

from __future__ import annotations

import inspect
from typing import Any

from catalog.core.errors import ConfigError
from catalog.core.settings import LLMSettings, get_settings
from catalog.llm.model import GivenLLM as GivenLLM
from catalog.llm.model import LanguageModel as LanguageModel
from catalog.llm.model import Message as Message
from catalog.llm.model import ReplyPiece as ReplyPiece
from catalog.llm.model import as_language_model as as_language_model
from catalog.llm.model import complete as complete
from catalog.llm.model import llm_of_settings as llm_of_settings

PROVIDERS = ("none", "openai", "ollama")  # any other names a module and function
_OLLAMA = "http://127.0.0.1:11434/v1"  # where it listens unless told otherwise


def get_llm(settings: LLMSettings | None = None) -> LanguageModel | None:
    """Return the configured model, ``None`` for provider ``none``.

    Raises :class:`ConfigError` for a provider that is unknown or lacks its settings.
    """
    settings = settings or get_settings().llm
    if settings.provider == "none":
        return None
    if settings.provider not in PROVIDERS:
        return _load_plugin(settings.provider)
    from catalog.llm.served_model import ServedModel

    is_ollama = settings.provider == "ollama"
    url = settings.url or (_OLLAMA if is_ollama else None)
    if not url or not settings.model:
        needed = "IDX_LLM__MODEL" if is_ollama else "IDX_LLM__URL and IDX_LLM__MODEL"
        raise ConfigError(f"provider {settings.provider} needs {needed}")
    return ServedModel(
        settings.model,
        url,
        api_key=settings.api_key,
        max_tokens=settings.max_tokens,
        timeout_seconds=settings.timeout_seconds,
    )


def _load_plugin(spec: str) -> LanguageModel:
    from catalog.core.user_search import load_object

    if ":" not in spec:
        names = ", ".join((*PROVIDERS, "module:function"))
        raise ConfigError(f"no language model provider {spec!r}; providers: {names}")
    try:
        llm = load_object(spec, "")
        if not _is_model(llm) and not inspect.iscoroutinefunction(llm):
            llm = llm()
    except (Exception, SystemExit) as error:  # somebody else's code may raise anything
        problem = f"no language model {spec!r} ({type(error).__name__}: {error})"
        raise ConfigError(problem) from error
    if not _is_model(llm):
        kind = type(llm).__name__
        raise ConfigError(f"{spec!r} returns a {kind}, not a LlamaIndex LLM or a LanguageModel")
    return as_language_model(llm)


def _is_model(found: Any) -> bool:
    methods = (getattr(found, name, None) for name in ("stream", "stream_chat"))
    return not isinstance(found, type) and any(map(callable, methods))
