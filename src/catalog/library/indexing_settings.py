"""Choose how a dataset is cut and embedded: by its own settings, unless a call says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from catalog.core.errors import ConfigError
from catalog.core.settings import RAGv2Settings
from catalog.core.settings.loading import default_shaping, describe_shaping, with_rag
from catalog.embedding import document_prefix
from catalog.ingest.pipeline import (
    Pipeline,
    pipeline_fingerprint,
)
from catalog.library.library import Library
from catalog.store.document_names import DocumentNames
from catalog.store.manifest import (
    DatasetSettings,
    count_pipelines,
    known_documents,
    read_dataset_settings,
)

if TYPE_CHECKING:
    from catalog.embedding.model import EmbeddingModel


class IndexingSettings:
    """Choose the settings of a run over a dataset, and build its pipeline.

    ``settings`` are the dataset's own; with ``apply_settings``, or if there are no documents yet,
    they are the library's. Raises :class:`ConfigError` if the dataset's own are lost and no
    document was made with the library's.
    """

    def __init__(self, library: Library, dataset: str, *, apply_settings: bool = False) -> None:
        self._library, self._dataset = library, dataset
        rag = library.settings.rag_v2
        self._wanted = DatasetSettings(
            library.settings.preset, {name: getattr(rag, name) for name in default_shaping()}
        )
        with library.database.read() as connection:
            self._noted = read_dataset_settings(connection, dataset)
            self._made_by = count_pipelines(connection, dataset)
        is_free = apply_settings or not self._made_by
        if is_free or (self._noted is None and self._fingerprint(self._wanted) in self._made_by):
            self.settings = self._wanted
        elif self._noted is None:
            raise ConfigError(
                f"the record of the settings of {dataset!r} is missing, and the settings now are "
                f"different: use the ones it was made with, or cut its {self._made_by.total()} "
                "documents again with 'catalog index update --apply-settings' (or 'catalog index "
                "rebuild')"
            )
        else:
            self.settings = self._noted

    def build(self) -> Pipeline:
        """Build the pipeline by these settings."""
        return Pipeline.of(*self._made_of(self.settings))

    @cached_property
    def fingerprint(self) -> str:
        """Identify how documents are cut and embedded by these settings."""
        return self._fingerprint(self.settings)

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
        wanted = self._fingerprint(self._wanted)
        with self._library.database.read() as connection:
            known = known_documents(connection, self._dataset)
            names = DocumentNames(connection, self._dataset)
            others = [path for path, made in known.items() if made["pipeline"] != wanted]
            recut, total = (
                names.count([f"{self._dataset}:{path}" for path in paths])
                for paths in (others, known)
            )
        return recut, total

    def notes(self) -> tuple[str, ...]:
        """Return notes on the changes that the call's settings made, or would make."""
        made = describe_shaping(self.settings.preset, self.settings.values)
        if self._noted and self._made_by and self._fingerprint(self._noted) != self.fingerprint:
            before = describe_shaping(self._noted.preset, self._noted.values)
            return (f"the dataset now has the settings {made}; before: {before}",)
        if not self.differences:
            return ()
        recut, total = self.count_recut()
        listed = ", ".join(
            f"{name} {_shown(ours)} instead of {_shown(theirs)}"
            for name, (ours, theirs) in self.differences.items()
        )
        return (
            (
                f"the dataset keeps the settings it was made with ({made}); these settings would "
                f"cut {recut} of {total} documents again ({listed}): to do so, add "
                "--apply-settings"
            ),
        )

    def _fingerprint(self, settings: DatasetSettings) -> str:
        return pipeline_fingerprint(*self._made_of(settings))

    def _made_of(self, settings: DatasetSettings) -> tuple[RAGv2Settings, EmbeddingModel]:
        """Return v2's settings with these, and the library's model with their prefix."""
        library = self._library
        if settings.values == self._wanted.values:
            return library.settings.rag_v2, library.model
        rag = with_rag(library.settings, _complete(settings.values)).rag_v2
        if rag.embed_prefix_doc == library.settings.rag_v2.embed_prefix_doc:
            return rag, library.model
        prefix = document_prefix(library.settings.embedding, rag)
        return rag, replace(library.model, document_prefix=prefix)


def _complete(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value for every setting that shapes passages: the default for a missing one."""
    return {name: values.get(name, default) for name, default in default_shaping().items()}


def _shown(value: object) -> str:
    return "unset" if value is None else repr(value) if isinstance(value, str) else str(value)
