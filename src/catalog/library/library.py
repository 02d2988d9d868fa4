"""An opened home: its settings, store, indexes and models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from catalog.core.errors import ConfigError, InputError, UnknownDatasetError
from catalog.core.settings import Profile, Settings, load_settings
from catalog.core.text import storable
from catalog.library.indexes import Indexes
from catalog.library.query_log import QueryLog
from catalog.store import Database
from catalog.store.chunks import list_dataset_names, require_dataset
from catalog.store.embedding_cache import StoredModel
from catalog.store.filter_sql import DatasetNames

if TYPE_CHECKING:
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.llms import LLM

    from catalog.embedding.resilient import ResilientEmbedding


class Library:
    """Open the store at once, and models and indexes when first needed; close it, or use ``with``.

    ``model``, any LlamaIndex one, and ``llm`` stand in for those that the settings name.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        model: BaseEmbedding | None = None,
        llm: LLM | None = None,
    ) -> None:
        self.settings = settings
        self._model, self._llm = model, llm
        self._llms: dict[str | None, LLM | None] = {}
        self.database = (
            Database(settings.database_url) if settings.database_url else Database.at(settings.home)
        )
        self.indexes = Indexes(settings, self.database, lambda: self.wanted_model)
        self.log = QueryLog(self.database, settings)

    @classmethod
    def open(
        cls,
        *,
        preset: str | None = None,
        overrides: Mapping[str, Any] | None = None,
        model: BaseEmbedding | None = None,
        llm: LLM | None = None,
    ) -> Library:
        """Open the library of the effective settings; see ``load_settings``."""
        settings = load_settings(preset=preset, overrides=overrides).settings
        return cls(settings, model=model, llm=llm)

    @cached_property
    def model(self) -> ResilientEmbedding:
        """The embedding model; its weights load at its first use."""
        from catalog.embedding import get_embed_model
        from catalog.embedding.resilient import ResilientEmbedding

        if self._model is None:
            return get_embed_model(self.settings.embedding, rag=self.settings.rag_v2)
        if isinstance(self._model, ResilientEmbedding):
            return self._model
        return ResilientEmbedding(self._model)

    @cached_property
    def optional_llm(self) -> LLM | None:
        """The language model, ``None`` if none is set; raises as ``get_llm`` does."""
        from catalog.llm import get_llm

        return self._llm or get_llm(self.settings.llm)

    def llm_of(self, profile: Profile) -> LLM | None:
        """Return the model of a profile, kept once made; raises as ``get_llm`` does."""
        from catalog.llm import get_llm

        settings = self.settings.llm.of_profile(profile)
        if self._llm is not None or settings is self.settings.llm:
            return self.optional_llm
        named = getattr(self.settings.llm, profile)
        if named not in self._llms:
            self._llms[named] = get_llm(settings)
        return self._llms[named]

    @property
    def llm(self) -> LLM:
        """The language model; raises :class:`ConfigError` without one."""
        llm = self.optional_llm
        if llm is None:
            raise ConfigError(
                "this needs a language model: set IDX_LLM__PROVIDER, or leave expansion and the "
                "llm reranker off"
            )
        return llm

    @property
    def wanted_model(self) -> StoredModel:
        """The embedding model, as a store remembers it."""
        encoder = self.model.encoder
        return StoredModel(encoder.model, encoder.fingerprint, encoder.dim)

    def datasets(self) -> list[str]:
        """Return the names of the datasets there are."""
        with self.database.read() as connection:
            return list_dataset_names(connection)

    def require_dataset(self, name: str) -> None:
        """Raise :class:`UnknownDatasetError`, listing what there is, unless it exists."""
        with self.database.read() as connection:
            require_dataset(connection, name)

    def chosen_dataset(self, name: str | None) -> str:
        """Return the name, or that of the only dataset; raises :class:`UnknownDatasetError`."""
        if name is not None:
            self.require_dataset(name)
            return name
        names = self.datasets()
        if len(names) == 1:
            return names[0]
        known = ", ".join(names) or "none yet; 'catalog index build FOLDER --dataset NAME'"
        raise UnknownDatasetError(f"say which dataset; datasets: {known}")

    def chosen_datasets(self, names: str | Iterable[str] | None) -> DatasetNames:
        """Return what a call names, each once and in order, or all datasets if it names none.

        A single one is its name. Raises :class:`UnknownDatasetError` for a name that is none, or
        where there is no dataset yet, and :class:`InputError` for an empty list.
        """
        if names is None:
            chosen = self.datasets()
            if not chosen:
                return self.chosen_dataset(None)
        else:
            chosen = sorted(set(map(storable, [names] if isinstance(names, str) else names)))
            if not chosen:
                raise InputError("dataset is an empty list: name one, or leave it out for all")
            for name in chosen:
                self.require_dataset(name)
        return chosen[0] if len(chosen) == 1 else tuple(chosen)

    def close(self) -> None:
        """Release indexes, locks and connections; safe to call twice."""
        self.indexes.close()
        self.log.close()
        self.database.close()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
