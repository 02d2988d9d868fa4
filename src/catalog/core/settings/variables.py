"""Environment variables: a misspelled name and an invalid key are errors."""

from __future__ import annotations

import os
from difflib import get_close_matches
from functools import cache, partial
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_settings import SettingsConfigDict

from catalog.core.errors import ConfigError

V2_PREFIX = "IDX_RAG_V2__"
PREFIX = "IDX_"
CONFIG = "IDX_CONFIG"  # names the file with the settings
_LIKE = 0.85  # similarity (0 to 1) from which a name may be a misspelling of another
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class SettingsSection(BaseModel):
    """Settings of one section: no unknown names, and errors without values."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def read_environment(prefix: str) -> SettingsConfigDict:
    """Return the configuration of settings whose variables have a prefix."""
    return SettingsConfigDict(
        env_prefix=prefix,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        **SettingsSection.model_config,  # type: ignore[typeddict-item]
    )


def setting(
    default: Any, about: str, between: tuple[float | None, float | None] = (None, None), **more: Any
) -> Any:
    """Declare a setting: its default, what it is for, and its least and greatest value."""
    more = {"ge": between[0], "le": between[1]} | more
    return Field(default, description=about, **more)


shaping = partial(setting, json_schema_extra={"rebuild": True})
"""Declare a setting whose change cuts or embeds the documents again."""


def _sendable(key: str | None) -> str | None:
    """Refuse a key that no header can contain; return ``None`` for an empty key."""
    if key is not None and not (key.isascii() and key.isprintable() and key == key.strip()):
        raise ValueError("a key must be printable ASCII, without blanks at its start or end")
    return key or None


ApiKey = Annotated[str | None, AfterValidator(_sendable)]


def refuse_unknown_variables(prefix: str, model: type[BaseModel]) -> None:
    """Raise an error for a variable whose name resembles a setting's, or extends one."""
    known = _known_variables(prefix, model)
    short = {prefix + name.rpartition("__")[2]: name for name in known}  # without its section
    sections = {name.rpartition("__")[0] for name in known} - {""}
    ours = (CONFIG, *(f"{name}_" for name in sections), *(f"{name}__" for name in known))
    for variable in os.environ:
        name = variable.upper()
        if name in known or name == CONFIG:
            if variable != name:  # pydantic would read it, other parts would not
                raise ConfigError(f"{variable} must be in capitals: {name}")
        elif variable.startswith(prefix):
            near = get_close_matches(name, sorted(known | short.keys()), 1, _LIKE)
            if near or name.startswith(ours):
                meant = f"did you mean {short.get(near[0], near[0])}? " if near else ""
                why = f"is not a setting; {meant}unset it; catalog config lists all"
                raise ConfigError(f"{variable} {why}")


@cache
def _known_variables(prefix: str, model: type[BaseModel]) -> frozenset[str]:
    names = {f"{prefix}{name.upper()}" for name in model.model_fields}
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            names |= _known_variables(f"{prefix}{name.upper()}__", field.annotation)
    return frozenset(names)
