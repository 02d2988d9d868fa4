"""Which models the settings name, and whether their files can be had."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, get_args

from catalog.core.settings import Profile, Settings
from catalog.models.model_files import ModelFiles, runs_here
from catalog.models.packaged import SMOLLM2, Kind


class ConfiguredModel(NamedTuple):
    """A model that the settings name; ``is_on``: searches or answers use it as they are set."""

    kind: Kind
    provider: str
    name: str
    is_on: bool
    offline: bool

    @property
    def files(self) -> ModelFiles | None:
        """Its files; ``None`` for one that runs elsewhere, or in somebody's own code."""
        if not runs_here(self.kind, self.provider):
            return None
        return ModelFiles(self.kind, self.provider, self.name, offline=self.offline)


def list_configured(settings: Settings) -> Iterator[ConfiguredModel]:
    """Yield the embedding model, the reranker, and the language models of all profiles, each once.

    A reranker that is a language model is not one of its own.
    """
    yield embedding_model(settings)
    if settings.rag_v2.rerank_provider != "llm":
        yield reranker(settings, is_on=settings.rag_v2.rerank_enabled)
    llm = settings.llm
    if llm.provider == "none":
        return
    chosen = [llm, *(llm.of_profile(profile) for profile in get_args(Profile))]
    for provider, model in dict.fromkeys((one.provider, one.model) for one in chosen):
        name = model or (SMOLLM2.name if provider == SMOLLM2.provider else provider)
        yield ConfiguredModel("language model", provider, name, True, settings.embedding.offline)


def embedding_model(settings: Settings) -> ConfiguredModel:
    """Return the embedding model that the settings name."""
    chosen = settings.embedding
    return ConfiguredModel("embedding", chosen.provider, chosen.model, True, chosen.offline)


def reranker(settings: Settings, *, is_on: bool) -> ConfiguredModel:
    """Return the reranker that the settings name."""
    rag = settings.rag_v2
    offline = settings.embedding.offline
    return ConfiguredModel("reranker", rag.rerank_provider, rag.rerank_model, is_on, offline)


def require_models(settings: Settings, *, mode: str = "hybrid", rerank: bool | None = None) -> None:
    """Raise :class:`~catalog.core.errors.ModelUnavailableError` if a search would lack a model.

    Imports nothing that runs one, and fetches nothing. ``rerank``: as the settings say if unset.
    """
    needed = [] if mode == "lexical" else [embedding_model(settings)]
    if settings.rag_v2.rerank_enabled if rerank is None else rerank:
        needed.append(reranker(settings, is_on=True))
    for model in needed:
        if files := model.files:
            files.require()
