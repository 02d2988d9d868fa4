"""Find the files of models, and the models that the settings name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cached_property
from glob import escape
from pathlib import Path
from shlex import quote
from typing import Literal, NamedTuple, get_args

from catalog.core.errors import ModelUnavailableError
from catalog.core.files import describe_os_error
from catalog.core.ids import sha256_hex
from catalog.core.settings import EMBEDDING_PROVIDERS, Profile, Settings
from catalog.models import hub, packaged
from catalog.models.hub import HubModel
from catalog.models.packaged import CONVERTED, SMOLLM2, Kind, PackagedModel, hash_file

_TYPES = {"F16": "<f2", "F32": "<f4"}  # of safetensors, and numpy's names of them
_MAX_HEADER = 100_000_000  # bytes, as the format's own reader takes


class StaticTable(NamedTuple):
    """The place of the vectors by token number: shape ``(tokens, dim)``, dtype, first byte."""

    shape: tuple[int, int]
    dtype: str
    offset: int


def find_table(file: Path) -> StaticTable:
    """Return the place of the only table; raise :class:`ModelUnavailableError` without one.

    A safetensors file has the length of its header in eight bytes, the header as JSON with type,
    shape and place of each tensor, and the tensors.
    """
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(length)) if length <= _MAX_HEADER else {}
        tables = [it for name, it in header.items() if name != "__metadata__"]
        tables = [it for it in tables if len(it["shape"]) == 2 and it["dtype"] in _TYPES]
        (table,) = tables
        tokens, dim = table["shape"]
        return StaticTable(
            (tokens, dim), _TYPES[table["dtype"]], 8 + length + table["data_offsets"][0]
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelUnavailableError(f"{file} is not a single table of vectors") from error


Origin = Literal["folder", "package", "hub cache"]


class _Needs(NamedTuple):
    """The files that a provider needs: a pattern of its weights, and further files by name."""

    weights: str
    others: tuple[str, ...] = ()


_NEEDS = {
    ("embedding", "fastembed"): _Needs("*.onnx", ("config.json", "tokenizer.json")),
    ("embedding", "huggingface"): _Needs("*.safetensors", ("config.json", "tokenizer.json")),
    ("embedding", "static"): _Needs("*.safetensors", ("tokenizer.json",)),
    ("reranker", "fastembed"): _Needs("*.onnx", ("tokenizer.json", "tokenizer_config.json")),
    ("reranker", "sentence_transformers"): _Needs("*.safetensors", ("config.json",)),
    ("language model", "llama_cpp"): _Needs("*.gguf"),
}
_ON_HUB = ("fastembed", "huggingface", "sentence_transformers")


def runs_here(kind: Kind, provider: str) -> bool:
    """Return whether the provider runs models from files on this machine."""
    return (kind, provider) in _NEEDS


class ModelFiles:
    """Find the files of a model for a provider of this kind. Cheap to make.

    ``name`` is a folder (a file for a language model), a model in an installed package, or one of
    the hub: from its cache, or fetched unless ``offline``. A model that is not available raises
    :class:`ModelUnavailableError`.
    """

    def __init__(self, kind: Kind, provider: str, name: str, *, offline: bool = False) -> None:
        self.kind, self.provider, self.name = kind, provider, name
        self.packaged = packaged.find_packaged(kind, provider, name)
        self._offline = offline

    @cached_property
    def found(self) -> tuple[Origin, Path] | None:
        """The origin and folder on this machine, with readable files; ``None`` if not here."""
        path = Path(self.name)
        if self._is_path(path):
            self._require_files(path)
            return "folder", path.parent if path.is_file() else path
        folder = packaged.locate(self.packaged) if self.packaged else None
        if folder is not None:
            return "package", folder
        cached = (
            hub.find_cached(self._hub_model) if self._may_be_cached and self._hub_model else None
        )
        others = _NEEDS[self.kind, self.provider].others
        if cached is None or not all((cached / name).is_file() for name in others):
            return None
        return "hub cache", cached

    @cached_property
    def folder(self) -> Path:
        """The folder; fetched from the hub if it is nowhere else, converted if need be."""
        if self.known is not None and self.known.converted and self.found:
            return packaged.convert(self.known, self.found[1])
        return self.found[1] if self.found else self.fetch()

    def require(self) -> None:
        """Raise at once, without fetching anything, if the files are not available anywhere."""
        if not self.found:
            self._require_hub()

    def fetch(self, *, is_patient: bool = False) -> Path:
        """Return the folder of the hub's files after fetching them.

        The hub must answer within half a second unless ``is_patient``.
        """
        self._require_hub(is_patient=is_patient)
        if self._hub_model is None:
            raise ModelUnavailableError(
                f"{self.provider} knows no model {self.name}, and there is no such folder: "
                + (f"{self.packaged.install}, or name" if self.packaged else "name")
                + " a folder with its files, a model from 'catalog models list', or the provider "
                + ("sentence_transformers" if self.kind == "reranker" else "huggingface")
            )
        try:
            return hub.fetch(self._hub_model)
        except OSError as error:
            raise ModelUnavailableError(
                f"{self.name} cannot be fetched from the model hub: {error}"
            ) from error

    @property
    def known(self) -> PackagedModel | None:
        """The packaged model to which these files belong, if any."""
        return self.packaged if self.found and self.found[0] == "package" else None

    @property
    def export(self) -> str | None:
        """The model's name in fastembed, if the files are those that fastembed fetches."""
        is_from_hub = not self.found or self.found[0] == "hub cache"
        return self._hub_model.export if is_from_hub and self._hub_model else None

    @cached_property
    def weights_file(self) -> Path:
        """The file of the weights; of several the least nested one, then the first by name."""
        folder, pattern = self.folder, _NEEDS[self.kind, self.provider].weights
        if self.known is not None:
            return folder / (CONVERTED if self.known.converted else self.known.weights)
        if self.kind == "language model":
            return Path(self.name)
        if self.export and self._hub_model:
            return folder / self._hub_model.weights
        files = sorted(folder.rglob(pattern), key=lambda file: (len(file.parts), file))
        if not files:  # of a package or the cache; a named folder was looked through
            raise ModelUnavailableError(f"the folder {folder} has no {pattern}")
        return files[0]

    @cached_property
    def weights_hash(self) -> str:
        """SHA-256 of the weights: known for a packaged model, else computed."""
        if self.known is not None:
            return self.known.converted.get(CONVERTED) or self.known.sha256[self.known.weights]
        return hash_weights(self.weights_file)

    def verify(self) -> None:
        """Raise :class:`ModelUnavailableError` if a packaged file is not the known one."""
        if self.known is not None and not self.known.converted:  # those are compared when found
            packaged.verify(self.known, self.folder)

    def _is_path(self, path: Path) -> bool:
        """Return whether the name is that of a folder or file, or can be nothing else."""
        try:
            if path.is_dir() or (self.kind == "language model" and path.is_file()):
                return True
        except ValueError as error:  # a character that no path has
            raise ModelUnavailableError(f"{self.name!r} is not a name of a model") from error
        could_be_on_hub = self.provider in _ON_HUB and hub.is_repository_name(self.name)
        return self.packaged is None and not could_be_on_hub

    def _require_files(self, path: Path) -> None:
        """Raise :class:`ModelUnavailableError` unless the files needed are there and readable."""
        if self.kind != "language model" and not path.is_dir():
            raise ModelUnavailableError(
                f"there is no folder {path} with a model for {self.provider}, and no installed "
                f"package has {self.name}: see 'catalog models list'"
            )
        try:
            for needed in self._list_needed(path):
                needed.open("rb").close()
        except FileNotFoundError as error:
            absent = Path(error.filename).name
            raise ModelUnavailableError(
                f"there is no language model file {path}"
                if self.kind == "language model"
                else f"the folder {path} holds no {absent}, which {self.provider} needs"
            ) from None
        except OSError as error:
            place = Path(error.filename or path)
            raise ModelUnavailableError(describe_os_error(place, error)) from error

    def _list_needed(self, path: Path) -> Iterator[Path]:
        if self.kind == "language model":
            yield path
            return
        weights, others = _NEEDS[self.kind, self.provider]
        os.scandir(path).close()  # a search below a folder that cannot be read finds nothing
        yield from (path / name for name in others)
        yield next(path.rglob(weights), path / weights)

    @property
    def _may_be_cached(self) -> bool:
        """Return whether to ask fastembed, which is slow, for the names of the files."""
        if self.provider not in _ON_HUB:
            return False
        return self.provider != "fastembed" or bool(hub.list_cached(hub.cache_folder("fastembed")))

    @cached_property
    def _hub_model(self) -> HubModel | None:
        return hub.find_on_hub(self.kind, self.provider, self.name)

    def _require_hub(self, *, is_patient: bool = False) -> None:
        """Raise :class:`ModelUnavailableError` unless the hub may be asked and answers."""
        if self.name in EMBEDDING_PROVIDERS:
            raise ModelUnavailableError(
                f"{self.name} is a provider, not a model: --provider {self.name} NAME, or "
                f"IDX_EMBEDDING__PROVIDER={self.name} with IDX_EMBEDDING__MODEL=NAME"
            )
        if self.provider in _ON_HUB:
            if not (is_offline := self._offline or hub.is_set_offline()) and (
                is_patient or hub.is_reachable()
            ):
                return
            reason = "may not be used" if is_offline else "does not answer"
        if self.packaged is not None:
            raise ModelUnavailableError(
                f"the model {self.name} is not installed, and cannot be downloaded here: install "
                f"its files: {self.packaged.install}"
            )
        raise ModelUnavailableError(
            f"no folder, installed package or cached model is named {self.name}, and the model "
            f"hub {reason}: name a folder with its files or, with a network, run: "
            f"{fetch_command(self.name)}"
        )


def fetch_command(name: str) -> str:
    """Return the command that fetches a model from the hub, for the provider that is set."""
    return f"catalog models path {quote(name)} --fetch"


def hash_weights(weights: Path) -> str:
    """Return the SHA-256 of a weights file, or of all hashes if files belong to it.

    Large ONNX models have only the graph in the ``.onnx`` file and the rest in ``model.onnx_data``
    and the like; large ``.safetensors`` models are several files, and have those of layers after
    the pooling in folders below.
    """
    is_torch, folder = weights.suffix == ".safetensors", weights.parent
    found = folder.rglob("*.safetensors") if is_torch else folder.glob(f"{escape(weights.name)}*")
    parts = sorted(found)
    hashes = [hash_file(path) for path in parts]
    return hashes[0] if len(hashes) == 1 else sha256_hex("|".join(hashes))


class ConfiguredModel(NamedTuple):
    """A model of the settings; ``is_on`` if searches or answers use it under these settings."""

    kind: Kind
    provider: str
    name: str
    is_on: bool
    offline: bool

    @property
    def files(self) -> ModelFiles | None:
        """Its files; ``None`` if it runs elsewhere, or in a user's own code."""
        if not runs_here(self.kind, self.provider):
            return None
        return ModelFiles(self.kind, self.provider, self.name, offline=self.offline)


def list_configured(settings: Settings) -> Iterator[ConfiguredModel]:
    """Yield the embedding model, the reranker, and the language models of all profiles, each once.

    A reranker that is a language model is not listed separately.
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
