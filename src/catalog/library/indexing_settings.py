"""How a dataset is cut and embedded: as it was made, unless a call says otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from catalog.core.errors import ConfigError
from catalog.core.ids import sha1_hex
from catalog.core.settings import (
    RAGv2Settings,
    default_shaping,
    describe_shaping,
    shaping_settings,
    with_rag,
)
from catalog.embedding import document_prefix
from catalog.ingest.pipeline import (
    TEXTS_VERSION,
    Pipeline,
    pipeline_fingerprint,
)
from catalog.library.library import Library
from catalog.store.dataset_settings import (
    DatasetSettings,
    count_pipelines,
    read_dataset_settings,
)
from catalog.store.document_names import DocumentNames
from catalog.store.manifest import known_documents
from catalog.store.model_adoption import NewWay

if TYPE_CHECKING:
    from catalog.embedding.model import EmbeddingModel


# What stores were made with while datasets had no note: these never change any more.
_DEFAULTS_WITHOUT_NOTE: Mapping[str, Any] = {
    "chunk_size": 800,
    "chunk_overlap": 120,
    "chunk_min_size": 64,
    "transcript_window_seconds": 60.0,
    "transcript_part_seconds": 20.0,
    "embed_prefix_doc": None,
    "embed_context": True,
}
_PRESETS_WITHOUT_NOTE: Mapping[str | None, Mapping[str, Any]] = {
    None: {},
    "vault": {"chunk_min_size": 300, "chunk_overlap": 60},
    "projects": {"chunk_size": 1000, "chunk_min_size": 700},
}


class IndexingSettings:
    """Choose the settings that a run over a dataset goes by, and build its pipeline.

    ``settings`` are those it was made with, or the library's own with ``apply_settings`` or where
    there is no document yet. Raises :class:`ConfigError` for documents of an older release of which
    nobody can tell how they were made.
    """

    def __init__(self, library: Library, dataset: str, *, apply_settings: bool = False) -> None:
        self._library, self._dataset = library, dataset
        rag = library.settings.rag_v2
        self._wanted = DatasetSettings(library.settings.preset, shaping_settings(rag))
        with library.database.read() as connection:
            self._noted = read_dataset_settings(connection, dataset)
            self._made_by = count_pipelines(connection, dataset)
        is_free = apply_settings or not self._made_by
        self.settings = self._wanted if is_free else self._noted or self._recover()

    def build(self) -> Pipeline:
        """Build the pipeline by these settings."""
        return Pipeline.of(*self._made_of(self.settings))

    @cached_property
    def fingerprint(self) -> str:
        """Names how documents are cut and embedded by these settings."""
        return self._fingerprint(self.settings)

    def with_model(self, library: Library) -> tuple[NewWay, Pipeline]:
        """Return how the dataset is made once the model of another library is the store's.

        Beside that stands the pipeline by which it is. ``library`` is of the same store.
        """
        prefix = library.settings.rag_v2.embed_prefix_doc
        values = _complete(self.settings.values) | {"embed_prefix_doc": prefix}
        rag = with_rag(library.settings, values).rag_v2
        made_with = DatasetSettings(self.settings.preset, values)
        pipeline = Pipeline.of(rag, library.model)
        return NewWay(self.fingerprint, pipeline.fingerprint, made_with), pipeline

    @property
    def differences(self) -> dict[str, tuple[Any, Any]]:
        """Return the settings in which the call differs: by name, its value and the one noted.

        Empty if the call's would give the same passages.
        """
        if self._fingerprint(self._wanted) == self.fingerprint:
            return {}
        ours, theirs = self._wanted.values, _complete(self.settings.values)
        return {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}

    def count_recut(self) -> tuple[int, int]:
        """Count the documents that the call's settings would cut anew, and all documents."""
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
        """Say what the call's settings would do, or what they replaced, if they are others."""
        made = describe_shaping(self.settings.preset, self.settings.values)
        if self._noted and self._made_by and self._fingerprint(self._noted) != self.fingerprint:
            before = describe_shaping(self._noted.preset, self._noted.values)
            return (f"the dataset is made with {made} from now on; before, with {before}",)
        if not self.differences:
            return ()
        recut, total = self.count_recut()
        listed = ", ".join(
            f"{name} {_shown(ours)} instead of {_shown(theirs)}"
            for name, (ours, theirs) in self.differences.items()
        )
        return (
            f"the dataset stays as it was made, with {made}; these settings would cut {recut} of "
            f"{total} documents anew ({listed}): --apply-settings does that",
        )

    def _recover(self) -> DatasetSettings:
        """Return the settings that most documents were made with, as far as that can be told."""
        candidates = list(self._candidates())
        fitting = [sum(self._made_by[name] for name in self._names(one)) for one in candidates]
        if not any(fitting):
            raise ConfigError(
                f"an older release made {self._dataset!r}, with settings that are neither these "
                "nor a preset's: give those it was made with, or cut its "
                f"{self._made_by.total()} documents by these with 'catalog index update "
                "--apply-settings' (or 'catalog index rebuild')"
            )
        return candidates[fitting.index(max(fitting))]

    def _candidates(self) -> Iterator[DatasetSettings]:
        yield self._wanted
        for preset, changes in _PRESETS_WITHOUT_NOTE.items():
            yield DatasetSettings(preset, _complete({**_DEFAULTS_WITHOUT_NOTE, **changes}))

    def _names(self, settings: DatasetSettings) -> set[str]:
        """Return the fingerprints that documents made with these settings may have."""
        rag, model = self._made_of(settings)
        older = {_fingerprint_without_note(v, rag, model) for v in range(1, TEXTS_VERSION + 1)}
        return {pipeline_fingerprint(rag, model), *older}

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
    """Return a value for every setting that shapes passages: the default for what is not said."""
    return {name: values.get(name, default) for name, default in default_shaping().items()}


def _fingerprint_without_note(version: int, rag: RAGv2Settings, model: EmbeddingModel) -> str:
    """Return the fingerprint as it was while datasets had no note; it never changes any more."""
    parts = (
        version,
        rag.chunk_size,
        rag.chunk_overlap,
        rag.chunk_min_size,
        rag.transcript_window_seconds,
        rag.transcript_part_seconds,
        rag.embed_context,
        model.document_prefix,
        model.encoder.fingerprint,
        model.encoder.counter.name,
    )
    return sha1_hex("|".join(str(part) for part in parts))[:16]


def _shown(value: object) -> str:
    return "unset" if value is None else repr(value) if isinstance(value, str) else str(value)
