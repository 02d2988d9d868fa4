"""Choose how a dataset is cut and embedded: by its own settings, unless a call says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from catalog.core.errors import ConfigError
from catalog.core.settings import RAGv2Settings
from catalog.core.settings.loading import default_shaping, with_section
from catalog.embedding import document_prefix
from catalog.ingest.pipeline import Pipeline, pipeline_fingerprint
from catalog.library.library import Library
from catalog.store import manifest
from catalog.store.document_names import DocumentNames

if TYPE_CHECKING:
    from catalog.embedding.model import EmbeddingModel


class IndexingSettings:
    """Choose the settings of a run over a dataset, and build its pipeline.

    ``settings`` are the dataset's own; with ``apply_settings``, or if there are no documents yet,
    they are the library's. ``to_note`` are those to store, if the dataset has others.
    """

    def __init__(self, library: Library, dataset: str, *, apply_settings: bool = False) -> None:
        self._library, self._dataset, rag = library, dataset, library.settings.rag_v2
        ours = {name: getattr(rag, name) for name in default_shaping()}
        self._wanted = manifest.DatasetSettings(library.settings.preset, ours)
        with library.database.read() as connection:
            noted = manifest.read_dataset_settings(connection, dataset, in_use=True)
            known = {} if noted else manifest.known_documents(connection, dataset)
        made_by = {one["pipeline"].partition(":")[0] for one in known.values()}
        self.settings = (None if apply_settings else noted) or self._wanted
        self.to_note = None if self.settings == noted else self.settings
        self.fingerprint = self._fingerprint(self.settings)
        if made_by and not apply_settings and self.fingerprint not in made_by:
            lost = f"the record of the settings of {dataset!r} is missing"
            raise ConfigError(f"{lost}: use those it was made with, or --apply-settings")

    def build(self) -> Pipeline:
        """Build the pipeline by these settings."""
        return Pipeline.of(*self._made_of(self.settings))

    @property
    def differences(self) -> dict[str, tuple[Any, Any]]:
        """Return the settings that differ: by name, the call's value and the dataset's.

        Empty if the call's would give the same passages.
        """
        if self._fingerprint(self._wanted) == self.fingerprint:
            return {}
        ours, theirs = self._wanted.values, _complete(self.settings.values)
        return {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}

    def count_recut(self) -> tuple[int, int]:
        """Count the documents that the call's settings would cut differently, and all documents."""
        wanted, prefix = self._fingerprint(self._wanted), f"{self._dataset}:"
        with self._library.database.read() as connection:
            known = manifest.known_documents(connection, self._dataset)
            names = DocumentNames(connection, self._dataset)
            made_by = {path: one["pipeline"].partition(":")[0] for path, one in known.items()}
            others = [f"{prefix}{path}" for path in known if made_by[path] != wanted]
            return names.count(others), names.count([f"{prefix}{path}" for path in known])

    def notes(self) -> tuple[str, ...]:
        """Return a note on what the call's settings would change."""
        if not (differences := self.differences):
            return ()
        recut, total = self.count_recut()
        values = (f"{name} {us} instead of {them}" for name, (us, them) in differences.items())
        return (
            f"the dataset keeps the settings it was made with; these settings would cut {recut} of "
            f"{total} documents again ({', '.join(values)}): to do so, add --apply-settings",
        )

    def _fingerprint(self, settings: manifest.DatasetSettings) -> str:
        return pipeline_fingerprint(*self._made_of(settings))

    def _made_of(self, settings: manifest.DatasetSettings) -> tuple[RAGv2Settings, EmbeddingModel]:
        """Return v2's settings with these, and the library's model with their prefix."""
        given, model = self._library.settings, self._library.model
        if settings.values == self._wanted.values:
            return given.rag_v2, model
        rag = with_section(given, "rag_v2", _complete(settings.values)).rag_v2
        if rag.embed_prefix_doc != given.rag_v2.embed_prefix_doc:
            model = replace(model, document_prefix=document_prefix(given.embedding, rag))
        return rag, model


def _complete(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value for every setting that shapes passages: the default for a missing one."""
    return {name: values.get(name, default) for name, default in default_shaping().items()}
