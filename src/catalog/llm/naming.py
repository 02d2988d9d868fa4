"""What names a language model, and addresses without the user and password in them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llama_index.core.llms import LLM

# The user's part ends at the last @ of the authority; a password may hold a bare / ? or #.
_USERINFO = re.compile(r"(?<=://)(?:[^/?#]*@|[^/?#:@]*:.*@)", re.DOTALL)


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


def without_userinfo(address: str) -> str:
    """``scheme://user:password@host/…`` as ``scheme://host/…``; any other text as it is.

    Where a password that is not percent-encoded makes this ambiguous, too much is left out
    rather than too little.
    """
    return _USERINFO.sub("", address, count=1)
