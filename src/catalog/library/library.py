"""An opened home: its settings, store, indexes and models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from catalog.core.errors import ConfigError, InputError, StoreError
from catalog.core.params import Profile
from catalog.core.scope import Scope
from catalog.core.settings import Settings, load_settings
from catalog.core.text import storable
from catalog.library.indexes import Indexes
from catalog.library.logs import QueryLog, RetrievalFile
from catalog.library.names import role_scope
from catalog.store import Database
from catalog.store.chunks import list_dataset_names, require_dataset, unknown_dataset
from catalog.store.embedding_cache import StoredModel, read_stored_model
from catalog.store.filter_sql import DatasetNames

if TYPE_CHECKING:
    from catalog.embedding.model import EmbeddingModel, GivenModel
    from catalog.llm import GivenLLM, LanguageModel


class Library:
    """Open the store at once, models and indexes at first use; close it, or use ``with``.

    ``model`` and ``llm``, any of LlamaIndex, stand in for those that the settings name.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        model: EmbeddingModel | GivenModel | None = None,
        llm: LanguageModel | GivenLLM | None = None,
    ) -> None:
        self.settings = settings
        self.is_closed = False
        self._model, self._llm = model, llm
        self._llms: dict[str | None, LanguageModel | None] = {}
        url, home = settings.database_url, settings.home
        self.database = Database(url, home) if url else Database.at(home)
        self.indexes = Indexes(settings, self.database, lambda: self.wanted_model)
        self.log = QueryLog(self.database, settings)
        self._events = RetrievalFile(settings.home) if settings.log.retrieval else None

    @classmethod
    def open(
        cls,
        *,
        preset: str | None = None,
        overrides: Mapping[str, Any] | None = None,
        model: EmbeddingModel | GivenModel | None = None,
        llm: LanguageModel | GivenLLM | None = None,
    ) -> Library:
        """Open the library of the effective settings; see ``load_settings``."""
        settings = load_settings(preset=preset, overrides=overrides).settings
        return cls(settings, model=model, llm=llm)

    @cached_property
    def model(self) -> EmbeddingModel:
        """The embedding model; its weights load at its first use.

        The length of its vectors is the store's if only the model's server knows it, because that
        server may be down during a search by words.
        """
        from catalog.embedding import SERVERS, as_model, get_model

        if self._model is not None:
            return as_model(self._model)
        settings, rag = self.settings.embedding, self.settings.rag_v2
        model = get_model(settings, rag=rag)
        if settings.provider in SERVERS and settings.dim is None:
            stored = read_stored_model(self.database)
            if stored is not None and stored.fingerprint == model.encoder.fingerprint:
                return get_model(settings.model_copy(update={"dim": stored.dim}), rag=rag)
        return model

    def llm_of(self, profile: Profile | None) -> LanguageModel | None:
        """Return the model of a profile, or the usual one, if one is set; raises as ``get_llm``."""
        from catalog.llm import as_language_model, get_llm

        settings = self.settings.llm
        named = getattr(settings, profile) if profile and self._llm is None else None
        if named not in self._llms:
            settings = settings.of_profile(profile) if profile else settings
            given = self._llm
            self._llms[named] = get_llm(settings) if given is None else as_language_model(given)
        return self._llms[named]

    @property
    def llm(self) -> LanguageModel:
        """The language model; raises :class:`ConfigError` without one."""
        if (llm := self.llm_of(None)) is None:
            raise ConfigError(
                "this needs a language model: set IDX_LLM__PROVIDER, or switch expansion and the "
                "llm reranker off"
            )
        return llm

    @cached_property
    def wanted_model(self) -> StoredModel:
        """The embedding model in the form in which a store records it."""
        encoder = self.model.encoder
        return StoredModel(encoder.model, encoder.fingerprint, encoder.dim)

    def require_models(self, mode: str, *, rerank: bool | None) -> None:
        """Raise :class:`ModelUnavailableError` if a search lacks a model, without importing one."""
        from catalog.models.model_files import require_models

        require_models(self.settings, mode="lexical" if self._model else mode, rerank=rerank)

    def datasets(self) -> list[str]:
        """Return the names of all datasets."""
        with self.database.read() as connection:
            return list_dataset_names(connection)

    def require_dataset(self, name: str) -> None:
        """Raise :class:`UnknownDatasetError`, with the names of all datasets, unless it exists."""
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
        raise unknown_dataset(None, names)

    def seen_datasets(
        self, role: str | None, names: str | Iterable[str] | None = None
    ) -> tuple[DatasetNames, Scope]:
        """Return the datasets that a call names, or all, and which documents its role may see.

        They come sorted, a single one as its name. For a role, a dataset without a document that it
        may see does not exist.
        """
        known = self.datasets()
        given = [names] if isinstance(names, str) else known if names is None else names
        asked = sorted(set(map(storable, given)))
        if not asked and names is not None:
            raise InputError("dataset is an empty list: name one, or leave it out for all")
        seen = role_scope(self.database, self.settings, role, asked)
        own = [one for one in asked if one in (known if seen.is_all else seen.datasets())]
        missing = [one for one in asked if one not in own] if names is not None else []
        if missing or not own:
            every = role_scope(self.database, self.settings, role, known)
            shown = known if every.is_all else sorted(every.datasets())
            raise unknown_dataset(missing[0] if missing else None, shown)
        return (own[0] if len(own) == 1 else tuple(own)), seen

    def __reduce__(self) -> NoReturn:
        raise InputError(
            "a service holds the store of its process and cannot be pickled: leave service out"
        )

    def close(self) -> None:
        """Release indexes, locks and connections; safe to call twice, and in a forked child."""
        if self.database.is_of_parent:
            return
        self.is_closed = True
        self.indexes.close()
        self.log.close()
        if self._events is not None:
            self._events.close()
        self.database.close()

    def require_open(self) -> None:
        """Raise :class:`StoreError` after :meth:`close`."""
        if self.is_closed:
            raise StoreError("this search service is closed: open another one")

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
