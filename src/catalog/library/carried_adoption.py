"""The model of ``chunks.jsonl``, and the note of its adoption, carried to another store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from catalog.core.errors import ConfigError, EmbeddingMismatchError, InputError
from catalog.core.portable_lines import AdoptionPart, HeaderLine
from catalog.core.settings import Settings, with_values
from catalog.library.library import Library, read_model_settings
from catalog.store.embedding_cache import Adoption, StoredModel, require_model

_URL = "embedding.url"


def write_adoption(adoption: Adoption | None) -> AdoptionPart | None:
    """Return the note as a file may hold it: without addresses, in which a key may stand."""
    if adoption is None:
        return None
    before = tuple(dict(each) for each in adoption.replaced if not each.get(_URL))
    try:
        return AdoptionPart(
            settings={**adoption.settings, _URL: None}, replaced=before, at=adoption.at
        )
    except ValidationError:  # damaged
        return None


def bind_model(library: Library, line: HeaderLine, file: Path) -> Iterator[str]:
    """Bind the store to a file's model, or see that it is bound to it; yield what to say of it.

    Raises :class:`EmbeddingMismatchError` for another model than the store's, or than that of the
    settings if there are no vectors, and :class:`InputError` for an adoption that is none.
    """
    model, carried = line.model, line.adoption
    adoption = _read_adoption(carried, library.settings) if carried else None
    if not line.vectors:
        wanted = library.wanted_model
        if wanted.fingerprint != model.fingerprint:
            told = _list(carried.settings) if carried else "IDX_EMBEDDING__MODEL"
            raise EmbeddingMismatchError(
                f"{file} has no vectors, and its passages were cut for {model.model} "
                f"({model.fingerprint}), not for {wanted.model}: set {told}, or "
                "export it with --vectors"
            )
    require_model(library.database, StoredModel(**model.model_dump()), adoption)
    if library.follow_adoption():
        yield library.adoption_note
    elif carried and not _are_set(carried.settings, library.settings):
        told = _list(carried.settings)
        yield f"the vectors are of a model that the settings do not name: set {told}"


def _read_adoption(part: AdoptionPart, settings: Settings) -> Adoption | None:
    """Return the note that a new store may follow; ``None`` for a model on a server.

    No file may say where texts and a key are sent: that is set by whoever imports it. Raises
    :class:`InputError` for settings that make no model.
    """
    from catalog.embedding import SERVERS

    known = read_model_settings(settings).keys()
    for each in (part.settings, *part.replaced):
        if unknown := each.keys() - known:
            raise InputError(f"adoption: {', '.join(sorted(unknown))} makes no model")
        if each.get(_URL):
            raise InputError(f"adoption: {_URL} is not taken from a file")
    try:
        made = with_values(settings, part.settings)
    except ConfigError as error:
        raise InputError(f"adoption: {error}") from None
    if made.embedding.provider in SERVERS:
        return None
    return Adoption(part.settings, part.replaced, part.at)


def _list(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items() if value is not None)


def _are_set(made: Mapping[str, Any], settings: Settings) -> bool:
    """Tell whether the settings name the model that others make, wherever its server is."""
    named = read_model_settings(settings)
    return all(named[name] == value for name, value in made.items() if name != _URL)
