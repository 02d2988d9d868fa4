"""Environment variables: a misspelled name is an error, never ignored, and so is an odd key."""

from __future__ import annotations

import os
from functools import cache
from typing import Annotated

from pydantic import AfterValidator, BaseModel

from catalog.core.errors import ConfigError

V2_PREFIX = "IDX_RAG_V2__"
PREFIX = "IDX_"


def _sendable(key: str | None) -> str | None:
    """Refuse what no header can hold; an empty key is none."""
    if key is not None and not (key.isascii() and key.isprintable() and key == key.strip()):
        raise ValueError("a key is printable ASCII without blanks at its ends")
    return key or None


ApiKey = Annotated[str | None, AfterValidator(_sendable)]


def refuse_unknown_variables(prefix: str, model: type[BaseModel]) -> None:
    """Raise :class:`ConfigError` for a variable under the prefix that names no setting."""
    for variable in os.environ:
        if variable.startswith(prefix) and not is_known_variable(variable, prefix, model):
            raise ConfigError(f"{variable} names no setting; see 'catalog config'")


def is_known_variable(variable: str, prefix: str, model: type[BaseModel]) -> bool:
    """Return whether a setting, or a section of settings, has this variable."""
    return variable.upper() in _known_variables(prefix, model)


@cache
def _known_variables(prefix: str, model: type[BaseModel]) -> frozenset[str]:
    names: set[str] = set()
    for name, field in model.model_fields.items():
        nested = field.annotation
        if isinstance(nested, type) and issubclass(nested, BaseModel):
            names |= _known_variables(f"{prefix}{name.upper()}__", nested)
        names.add(f"{prefix}{name.upper()}")
    return frozenset(names)
