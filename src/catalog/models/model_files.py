"""Find the files of models, and the models that the settings name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from glob import escape
from pathlib import Path
from shlex import quote
from typing import Literal, get_args

from catalog.core.errors import ModelUnavailableError
from catalog.core.files import describe_os_error
from catalog.core.ids import sha256_hex
from catalog.core.params import Profile
from catalog.core.settings import Settings
from catalog.core.settings.sections import EMBEDDING_PROVIDERS
from catalog.models import hub, packaged
from catalog.models.hub import HubModel
from catalog.models.packaged import CONVERTED, Kind, PackagedModel, hash_file

Origin = Literal["folder", "package", "hub cache"]
_TYPES = {"F16": "<f2", "F32": "<f4"}  # of safetensors, and numpy's names of them
_MAX_HEADER = 100_000_000  # bytes, as the format's own reader takes
_ON_HUB = ("fastembed", "huggingface", "sentence_transformers")
# By kind and provider: a pattern of the weights, and the further files that are needed.
_NEEDS: dict[tuple[Kind, str], tuple[str, tuple[str, ...]]] = {
    ("embedding", "fastembed"): ("*.onnx", ("config.json", "tokenizer.json")),
    ("embedding", "huggingface"): ("*.safetensors", ("config.json", "tokenizer.json")),
    ("embedding", "static"): ("*.safetensors", ("tokenizer.json",)),
    ("reranker", "fastembed"): ("*.onnx", ("tokenizer.json", "tokenizer_config.json")),
    ("reranker", "sentence_transformers"): ("*.safetensors", ("config.json",)),
}


def find_table(file: Path) -> tuple[str, int, tuple[int, int]]:
    """Return dtype, first byte and shape ``(tokens, dim)`` of a safetensors file's only table.

    Eight bytes have the header's length; the header is JSON with type, shape and place of each
    tensor. Raises :class:`ModelUnavailableError` without one.
    """
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(length)) if length <= _MAX_HEADER else {}
        tables = [it for name, it in header.items() if name != "__metadata__"]
        [table] = [it for it in tables if len(it["shape"]) == 2 and it["dtype"] in _TYPES]
        tokens, dim = table["shape"]
        return _TYPES[table["dtype"]], 8 + length + table["data_offsets"][0], (tokens, dim)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelUnavailableError(f"{file} is not a single table of vectors") from error


class ModelFiles:
    """Find the files of a model for a provider of this kind. Cheap to make.

    ``name`` is a folder, a model in an installed package, or one of the hub: from its cache, or
    fetched unless ``offline``. A model that is not available raises
    :class:`ModelUnavailableError`. ``is_on``: searches or answers use the model under the settings.
    """

    def __init__(
        self, kind: Kind, provider: str, name: str, *, offline: bool = False, is_on: bool = True
    ) -> None:
        self.kind, self.provider, self.name, self.is_on = kind, provider, name, is_on
        self.packaged = packaged.find_packaged(kind, provider, name)
        self.runs_here = (kind, provider) in _NEEDS  # else on a server, or in a user's own code
        self._weights, self._others = _NEEDS.get((kind, provider), ("", ()))
        self._offline = offline

    @cached_property
    def found(self) -> tuple[Origin, Path] | None:
        """The origin and folder on this machine, with readable files; ``None`` if not here."""
        path = Path(self.name)
        if self._is_path(path):
            self._require_files(path)
            return "folder", path
        folder = packaged.locate(self.packaged) if self.packaged else None
        if folder is not None:
            return "package", folder
        # fastembed is slow to name the files of a model, so it is asked only if any was fetched
        if self.provider in _ON_HUB and any(hub.cache_folder(self.provider).glob("models--*/")):
            cached = hub.find_cached(self._hub_model) if self._hub_model else None
            if cached and all((cached / name).is_file() for name in self._others):
                return "hub cache", cached
        return None

    @cached_property
    def folder(self) -> Path:
        """The folder; fetched from the hub if it is nowhere else, converted if need be."""
        if self.known is not None and self.known.converted and self.found:
            return packaged.convert(self.known, self.found[1])
        return self.found[1] if self.found else self.fetch()

    def require(self) -> None:
        """Raise at once, without fetching anything, if the files are not available anywhere."""
        if self.runs_here and not self.found:
            self._require_hub()

    def fetch(self, *, is_patient: bool = False) -> Path:
        """Return the folder of the hub's files after fetching them.

        The hub must answer within half a second unless ``is_patient``.
        """
        self._require_hub(is_patient=is_patient)
        if self._hub_model is None:
            install = f"{self.packaged.install}, or " if self.packaged else ""
            other = "sentence_transformers" if self.kind == "reranker" else "huggingface"
            raise ModelUnavailableError(
                f"{self.provider} knows no model {self.name}, and there is no such folder: "
                f"{install}name a folder with its files, a model from 'catalog models list', or "
                f"the provider {other}"
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
        if self.known is not None:
            return self.folder / (CONVERTED if self.known.converted else self.known.weights)
        if self.export and self._hub_model:
            return self.folder / self._hub_model.weights
        files = self.folder.rglob(self._weights)
        found = min(files, key=lambda file: (len(file.parts), file), default=None)
        if found is None:  # of a package or the cache; a named folder was looked through
            raise ModelUnavailableError(f"the folder {self.folder} has no {self._weights}")
        return found

    @cached_property
    def weights_hash(self) -> str:
        """SHA-256 of the weights: known for a packaged model, else computed."""
        if self.known is not None:
            return self.known.converted.get(CONVERTED) or self.known.sha256[self.known.weights]
        return hash_weights(self.weights_file)

    @property
    def dimension(self) -> int | None:
        """The length of the model's vectors according to its files, ``None`` if unknown."""
        if self.provider == "static":
            return find_table(self.weights_file)[2][1]
        folder = self.found[1] if self.found else Path()
        for name, key in (("2_Dense/config.json", "out_features"), ("config.json", "hidden_size")):
            with suppress(OSError, ValueError, KeyError, TypeError):
                return int(json.loads((folder / name).read_text(encoding="utf-8"))[key])
        return None

    def verify(self) -> None:
        """Raise :class:`ModelUnavailableError` if a packaged file is not the known one."""
        if self.known is not None and not self.known.converted:  # those are compared when found
            packaged.verify(self.known, self.folder)

    def _is_path(self, path: Path) -> bool:
        """Return whether the name is that of a folder, or can be nothing else."""
        could_be_on_hub = self.provider in _ON_HUB and hub.is_repository_name(self.name)
        return path.is_dir() or (self.packaged is None and not could_be_on_hub)

    def _require_files(self, path: Path) -> None:
        """Raise :class:`ModelUnavailableError` unless the files needed are there and readable."""
        if not path.is_dir():
            raise ModelUnavailableError(
                f"there is no folder {path} with a model for {self.provider}, and no installed "
                f"package has {self.name}: see 'catalog models list'"
            )
        try:
            os.scandir(path).close()  # a search below a folder that cannot be read finds nothing
            weights = next(path.rglob(self._weights), path / self._weights)
            for needed in (*(path / name for name in self._others), weights):
                needed.open("rb").close()
        except OSError as error:
            place = Path(error.filename or path)
            absent = f"the folder {path} holds no {place.name}, which {self.provider} needs"
            is_absent = isinstance(error, FileNotFoundError)
            problem = absent if is_absent else describe_os_error(place, error)
            raise ModelUnavailableError(problem) from error

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
        from huggingface_hub import constants

        is_offline = self._offline or bool(constants.HF_HUB_OFFLINE)
        if self.provider in _ON_HUB and not is_offline and (is_patient or hub.is_reachable()):
            return
        if self.packaged is not None:
            raise ModelUnavailableError(
                f"the model {self.name} is not installed, and cannot be downloaded here: install "
                f"its files: {self.packaged.install}"
            )
        raise ModelUnavailableError(
            f"no folder, installed package or cached model is named {self.name}, and the model "
            f"hub {'may not be used' if is_offline else 'does not answer'}: name a folder with its "
            f"files or, with a network, run: {fetch_command(self.name)}"
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
    hashes = [hash_file(path) for path in sorted(found)]
    return hashes[0] if len(hashes) == 1 else sha256_hex("|".join(hashes))


def list_configured(settings: Settings) -> Iterator[ModelFiles]:
    """Yield the embedding model, a reranker that is none of the language models, and these."""
    yield embedding_model(settings)
    if settings.rag_v2.rerank_provider != "llm":
        yield reranker(settings, is_on=settings.rag_v2.rerank_enabled)
    if settings.llm.provider != "none":
        models = [settings.llm, *map(settings.llm.of_profile, get_args(Profile))]
        for provider, model in dict.fromkeys((one.provider, one.model) for one in models):
            yield ModelFiles("language model", provider, model or provider)


def embedding_model(settings: Settings) -> ModelFiles:
    """Return the embedding model that the settings name."""
    chosen = settings.embedding
    return ModelFiles("embedding", chosen.provider, chosen.model, offline=chosen.offline)


def reranker(settings: Settings, *, is_on: bool) -> ModelFiles:
    """Return the reranker that the settings name."""
    provider, name = settings.rag_v2.rerank_provider, settings.rag_v2.rerank_model
    offline = settings.embedding.offline
    return ModelFiles("reranker", provider, name, offline=offline, is_on=is_on)


def require_models(settings: Settings, *, mode: str = "hybrid", rerank: bool | None = None) -> None:
    """Raise :class:`~catalog.core.errors.ModelUnavailableError` if a search would lack a model.

    Imports nothing that runs one, and fetches nothing. ``rerank``: as the settings say if unset.
    """
    if mode != "lexical":
        embedding_model(settings).require()
    if settings.rag_v2.rerank_enabled if rerank is None else rerank:
        reranker(settings, is_on=True).require()
