"""Environment variables: a misspelled name and an invalid key are errors."""

from __future__ import annotations

import os
from difflib import get_close_matches
from functools import cache, partial, reduce
from typing import Annotated, Any, TypeGuard

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from catalog.core.errors import ConfigError

PREFIX = "IDX_"
CONFIG = "IDX_CONFIG"  # names the file with the settings
_LIKE = 0.85  # similarity (0 to 1) from which a name may be a misspelling of another
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class SettingsSection(BaseModel):
    """Settings of one section: no unknown names, and errors without values."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True
    )


def is_section(kind: Any) -> TypeGuard[type[BaseModel]]:
    """Return whether a setting's type is a section of settings."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


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


def read_environment(model: type[BaseModel]) -> dict[str, Any]:
    """Return the settings that variables give, nested like TOML; an empty variable is unset.

    Raises :class:`ConfigError` for a variable whose name resembles a setting's, or extends one.
    """
    known, values = _variables(PREFIX, model), dict[str, Any]()
    sections = {name.rpartition("__")[0] for name in known} - {""}
    ours = (CONFIG, *(f"{name}_" for name in sections), *(f"{name}__" for name in known))
    for variable, text in os.environ.items():
        name = variable.upper()
        if name in known or name == CONFIG:
            if variable != name:
                raise ConfigError(f"{variable} must be in capitals: {name}")
            if text and name in known:
                *path, last = known[name]
                reduce(lambda inner, one: inner.setdefault(one, {}), path, values)[last] = text
        elif variable.startswith(PREFIX):
            near = get_close_matches(name, sorted(known), 1, _LIKE)
            if near or name in sections or name.startswith(ours):
                meant = f"did you mean {near[0]}? " if near else ""
                raise ConfigError(
                    f"{variable} is not a setting; {meant}unset it; catalog config lists all"
                )
    return values


@cache
def _variables(prefix: str, model: type[BaseModel]) -> dict[str, tuple[str, ...]]:
    """Return the name of each setting and of the sections that it is in, by its variable."""
    paths: dict[str, tuple[str, ...]] = {}
    for name, field in model.model_fields.items():
        inner: dict[str, tuple[str, ...]] = {"": ()}
        if is_section(field.annotation):
            inner = _variables("__", field.annotation)
        paths |= {f"{prefix}{name.upper()}{rest}": (name, *path) for rest, path in inner.items()}
    return paths
