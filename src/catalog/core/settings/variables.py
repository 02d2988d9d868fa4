"""Environment variables: a misspelled name is an error or a warning, an invalid key an error."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from catalog.core.errors import ConfigError

_log = logging.getLogger(__name__)
V2_PREFIX = "IDX_RAG_V2__"
PREFIX = "IDX_"
CONFIG = "IDX_CONFIG"  # names the file with the settings
_TESTS = "IDX_TEST_"  # begins the names of variables of this package's tests
_LIKE = 0.85  # similarity (0 to 1) from which a name may be a misspelling of another


class SettingsSection(BaseModel):
    """Settings of one section: no unknown names, and errors without values."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def setting(
    default: Any,
    about: str,
    between: tuple[float | None, float | None] = (None, None),
    *,
    rebuild: bool = False,
    only_with: Mapping[str, JsonValue] | None = None,
    **more: Any,
) -> Any:
    """Declare a setting: its default, what it is for, and its least and greatest value.

    A change of one with ``rebuild`` cuts or embeds the documents again. One with ``only_with`` does
    something only while another setting of its section has this value.
    """
    extra: dict[str, JsonValue] = {"rebuild": True} if rebuild else {}
    if only_with is not None:
        extra["acts_only_with"] = dict(only_with)
    bounds = dict(zip(("ge", "le"), between, strict=True))
    return Field(default, description=about, json_schema_extra=extra, **{**bounds, **more})


def _sendable(key: str | None) -> str | None:
    """Refuse a key that no header can contain; return ``None`` for an empty key."""
    if key is not None and not (key.isascii() and key.isprintable() and key == key.strip()):
        raise ValueError("a key must be printable ASCII, without blanks at its start or end")
    return key or None


ApiKey = Annotated[str | None, AfterValidator(_sendable)]


def refuse_unknown_variables(prefix: str, model: type[BaseModel]) -> None:
    """Raise :class:`ConfigError` for a variable whose name resembles a setting's, or extends one.

    Other variables with the prefix may belong to other programs: each is named once in the log.
    """
    known = _known_variables(prefix, model)
    sections = {name.rpartition("__")[0] for name in known} - {""}
    ours = (CONFIG, *(f"{name}_" for name in sections), *(f"{name}__" for name in known))
    for variable in os.environ:
        name = variable.upper()
        if name in known or name == CONFIG:
            if variable != name:  # pydantic would read it, other parts would not
                raise ConfigError(f"{variable} must be in capitals: {name}")
        elif variable.startswith(prefix):
            near = get_close_matches(name, sorted(known), 1, _LIKE)
            if near or name.startswith(ours):
                meant = f"did you mean {near[0]}? " if near else ""
                raise ConfigError(
                    f"{variable} is not a setting; {meant}unset it; catalog config lists all"
                )
            if prefix == PREFIX and not name.startswith((_TESTS, V2_PREFIX)):
                _warn_once(variable, known)


@cache
def _warn_once(variable: str, known: frozenset[str]) -> None:
    own = [name for name in known if "__" not in name]
    near = get_close_matches(variable.upper(), own, 1, 0)
    _log.warning("%s is not a setting and is ignored; the nearest is %s", variable, near[0])


@cache
def _known_variables(prefix: str, model: type[BaseModel]) -> frozenset[str]:
    names: set[str] = set()
    for name, field in model.model_fields.items():
        names.add(f"{prefix}{name.upper()}")
        nested = field.annotation
        if isinstance(nested, type) and issubclass(nested, BaseModel):
            names |= _known_variables(f"{prefix}{name.upper()}__", nested)
    return frozenset(names)
