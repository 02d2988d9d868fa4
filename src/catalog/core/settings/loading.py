"""Load settings: defaults, presets, files, environment, and the origin of each value."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from copy import deepcopy
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_settings import EnvSettingsSource, SettingsError

from catalog.core.errors import ConfigError
from catalog.core.files import default_home, home_folder, read_toml, settings_file, settings_key
from catalog.core.settings.rag import RAGv2Settings
from catalog.core.settings.sections import Settings
from catalog.core.settings.variables import PREFIX, refuse_unknown_variables

_MAX_SHOWN = 60  # characters of a wrong value


class LoadedSettings(NamedTuple):
    """Effective settings, and the origin of each value by its dotted name."""

    settings: Settings
    origins: Mapping[str, str]


def get_settings() -> Settings:
    """Return the effective settings, the same object until environment or settings file change."""
    own = sorted(item for item in os.environ.items() if item[0].startswith(PREFIX))
    return _settings_of(settings_key(home_folder(), None), tuple(own))


@lru_cache(maxsize=8)
def _settings_of(*_: object) -> Settings:
    return load_settings().settings


def load_settings(
    *, preset: str | None = None, overrides: Mapping[str, Any] | None = None
) -> LoadedSettings:
    """Merge overrides (nested like TOML), environment, TOML file, preset and defaults."""
    refuse_unknown_variables(PREFIX, Settings)
    try:
        environment = EnvSettingsSource(Settings)()
    except SettingsError as error:
        raise ConfigError(f"the settings cannot be read: {error}") from error
    arguments = {**(overrides or {}), **({} if preset is None else {"preset": preset})}
    layers = [("argument", arguments), ("environment", environment)]
    file = settings_file(home_folder(arguments.get("home")))
    if file is not None:
        layers.append((str(file), _read_toml(file)))
    name = next((layer["preset"] for _, layer in layers if "preset" in layer), None)
    if name is not None:
        layers.append((f"preset {name}", load_preset(name)))
    # without these, pydantic would read an empty variable
    layers.append(("default", {"home": default_home(), "preset": None}))
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, layer in reversed(layers):
        _merge(merged, {name: value for name, value in layer.items() if name != "agents"})
        merged.setdefault("agents", {}).update(layer.get("agents", {}))  # each as a whole
        origins.update({name: origin for name, _ in flatten(layer)})
    return LoadedSettings(_validate(merged, origins), origins)


def with_section(settings: Settings, section: str, changes: Mapping[str, Any]) -> Settings:
    """Return settings with changes in a section; raises :class:`ConfigError` like loading."""
    values = settings.model_dump()
    return _validate({**values, section: {**values[section], **changes}})


def find_presets() -> dict[str, Path]:
    """Return presets by name: the files of ``configs/``, as installed or in a checkout."""
    package = Path(__file__).parents[2] / "configs"
    folder = package if package.is_dir() else Path(__file__).parents[4] / "configs"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load_preset(name: object) -> dict[str, Any]:
    """Return the settings of a preset or ``FILE.toml``, nested; raise :class:`ConfigError`."""
    if isinstance(name, str) and name.endswith(".toml"):
        return _read_toml(Path(name))
    presets = find_presets()
    if not isinstance(name, str) or name not in presets:
        known = ", ".join(presets) or "none"
        raise ConfigError(f"no preset {_shown(name)}; presets: {known}")
    return _read_toml(presets[name])


def needs_rebuild(name: str) -> bool:
    """Return whether a setting, by dotted name, shapes the index; ``False`` if unknown."""
    return bool((getattr(find_field(name), "json_schema_extra", None) or {}).get("rebuild"))


@lru_cache(maxsize=1)
def default_shaping() -> dict[str, Any]:
    """Return the defaults of the settings that shape passages, by name."""
    fields = RAGv2Settings.model_fields.items()
    return {name: field.default for name, field in fields if needs_rebuild(f"rag_v2.{name}")}


def describe_shaping(preset: str | None, values: Mapping[str, Any]) -> str:
    """Return the preset's name and the settings that differ from their defaults."""
    defaults = default_shaping().items()
    changed = [f"{name} {values[name]}" for name, own in defaults if values.get(name, own) != own]
    named = "no preset" if preset is None else f"preset {preset}"
    return f"{named} ({', '.join(changed)})" if changed else named


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every dotted name and value of nested settings."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def find_field(name: str) -> Any:
    """Return the pydantic field behind a dotted name, ``None`` if there is none."""
    field: Any = None
    model: Any = Settings
    for part in name.split("."):
        field = getattr(model, "model_fields", {}).get(part)
        model = getattr(field, "annotation", None)
    return field


def _read_toml(path: Path) -> dict[str, Any]:
    tree = read_toml(path, "settings file")
    if "agents" in tree:
        from catalog.core.agents import check_agent_tables

        check_agent_tables(tree, path)
    return tree


def _merge(into: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for name, value in layer.items():
        if name in into and isinstance(value, Mapping) != isinstance(into[name], dict):
            raise ConfigError(f"setting {name} has a value but is a section: set those in it")
        if isinstance(value, Mapping) and name in into:
            _merge(into[name], value)
        else:
            into[name] = deepcopy(value)


def _validate(
    merged: dict[str, Any], origins: Mapping[str, str] = MappingProxyType({})
) -> Settings:
    try:
        return Settings(**merged)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise ConfigError(_describe_unknown(name, origins)) from None
        field, given = find_field(name), first["input"]
        why = first["msg"].removeprefix("Value error, ")
        is_value = first["type"] != "model_type" and not isinstance(given, Mapping | BaseModel)
        if is_value and (field is None or field.repr):
            why += f", not {_shown(given)}"  # a single value, and no secret
        # without the cause, whose text holds the values of other settings
        raise ConfigError(f"setting {name}: {why}") from None


def _describe_unknown(name: str, origins: Mapping[str, str]) -> str:
    """Say that there is no such setting, where it is set, and which name is nearest."""
    at = next((origins[one] for one in origins if f"{one}.".startswith(f"{name}.")), None)
    values = flatten(Settings.model_construct().model_dump())
    near = get_close_matches(name, [*Settings.model_fields, *(one for one, _ in values)], 1)
    meant = f"did you mean {near[0]}?" if near else "catalog config lists them"
    return f"no setting {name}{f' ({at})' if at else ''}: {meant}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
