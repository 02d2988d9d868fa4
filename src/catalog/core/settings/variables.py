"""Environment variables: a misspelled name is an error, never ignored, and so is an odd key."""

from __future__ import annotations

import os
from difflib import get_close_matches
from functools import cache
from typing import Annotated

from pydantic import AfterValidator, BaseModel

from catalog.core.errors import ConfigError

V2_PREFIX = "IDX_RAG_V2__"
PREFIX = "IDX_"
_NO_SETTINGS = ("IDX_CONFIG", "IDX_TEST_")  # where the settings are; what this project's tests read
_LIKE = 0.75  # how alike two names are, 0 to 1, of which one may be meant by the other


def _sendable(key: str | None) -> str | None:
    """Refuse what no header can hold; an empty key is none."""
    if key is not None and not (key.isascii() and key.isprintable() and key == key.strip()):
        raise ValueError("a key is printable ASCII without blanks at its ends")
    return key or None


ApiKey = Annotated[str | None, AfterValidator(_sendable)]


def refuse_unknown_variables(prefix: str, model: type[BaseModel]) -> None:
    """Raise :class:`ConfigError` for a variable under the prefix that names no setting."""
    known = _known_variables(prefix, model)
    for variable in os.environ:
        name = variable.upper()
        if not variable.startswith(prefix) or name in known or name.startswith(_NO_SETTINGS):
            continue
        near = get_close_matches(name, sorted(known), 1, _LIKE)
        meant = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(f"{variable} names no setting; {meant}'catalog config' lists them")


@cache
def _known_variables(prefix: str, model: type[BaseModel]) -> frozenset[str]:
    names: set[str] = set()
    for name, field in model.model_fields.items():
        nested = field.annotation
        if isinstance(nested, type) and issubclass(nested, BaseModel):
            names |= _known_variables(f"{prefix}{name.upper()}__", nested)
        names.add(f"{prefix}{name.upper()}")
    return frozenset(names)
