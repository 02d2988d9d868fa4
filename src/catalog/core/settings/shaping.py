"""The settings that shape passages: a change of one cuts or embeds documents again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.core.settings.loading import needs_rebuild
from catalog.core.settings.rag import RAGv2Settings


def shaping_settings(rag: RAGv2Settings) -> dict[str, Any]:
    """Return the settings that shape passages, by name."""
    return {name: getattr(rag, name) for name in default_shaping()}


def default_shaping() -> dict[str, Any]:
    """Return the defaults of the settings that shape passages, by name."""
    fields = RAGv2Settings.model_fields.items()
    return {name: field.default for name, field in fields if needs_rebuild(f"rag_v2.{name}")}


def describe_shaping(preset: str | None, values: Mapping[str, Any]) -> str:
    """Return the preset's name and the settings that differ from their defaults."""
    defaults = default_shaping().items()
    listed = ", ".join(
        f"{name} {values[name]}"
        for name, default in defaults
        if values.get(name, default) != default
    )
    named = "no preset" if preset is None else f"preset {preset}"
    return f"{named} ({listed})" if listed else named
