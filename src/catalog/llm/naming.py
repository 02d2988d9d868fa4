"""What names a language model: for explanations, and for what is kept of its replies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog.core.text import without_userinfo

if TYPE_CHECKING:
    from llama_index.core.llms import LLM


def llm_name(llm: LLM) -> str:
    """The model as explanations name it, or its class where it has no name of its own."""
    name = llm.metadata.model_name
    return type(llm).__name__ if name in ("", "unknown") else name


def llm_identity(llm: LLM) -> tuple[str, str, str]:
    """Class, weights and server: models with equal ones are taken to reply alike.

    The weights are the attribute ``fingerprint`` where that is a text, else :func:`llm_name`;
    the server is ``api_base`` without user and password, empty where there is none.
    """
    weights = getattr(llm, "fingerprint", None)
    server = getattr(llm, "api_base", None)
    return (
        type(llm).__name__,
        weights if isinstance(weights, str) else llm_name(llm),
        without_userinfo(server) if isinstance(server, str) else "",
    )
