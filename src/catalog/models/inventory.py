"""List the models on this machine, the missing ones, and whether their files are intact."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from catalog.core.errors import ModelUnavailableError
from catalog.core.files import describe_os_error
from catalog.core.settings import Settings
from catalog.models import hub, packaged
from catalog.models.model_files import (
    ConfiguredModel,
    ModelFiles,
    Origin,
    fetch_command,
    find_table,
    list_configured,
)
from catalog.models.packaged import Kind, PackagedModel
from catalog.models.published import PUBLISHED, PublishedModel

HashState = Literal["known", "of the hub", "unknown", "sound", "wrong"]
_HASHES: Mapping[Origin, HashState] = {
    "package": "known",
    "hub cache": "of the hub",
    "folder": "unknown",
}


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model and the state of its files.

    ``used`` says whether the settings name it, and ``is_on`` whether searches or answers use it
    under these settings. ``origin`` is ``None`` if the files are not on this machine; ``problem``
    then says how to get them; for a model of :func:`list_published`, ``published`` what is known of
    it. ``source`` is the package with its version, or else the folder.
    ``hashes`` says where the expected hashes of the files come from, and after a comparison its
    result; ``unknown`` without expected hashes.
    """

    kind: Kind
    provider: str
    name: str
    used: bool = False
    is_on: bool = False
    origin: Origin | Literal["elsewhere"] | None = None
    source: str | None = None
    path: str | None = None
    bytes: int | None = None
    dim: int | None = None
    hashes: HashState = "unknown"
    sha256: str | None = None
    problem: str | None = None
    published: PublishedModel | None = None

    @property
    def is_failure(self) -> bool:
        """Whether its files are wrong, or missing although searches or answers use them."""
        return self.hashes == "wrong" or (self.problem is not None and self.is_on)


def list_models(settings: Settings) -> list[ModelEntry]:
    """Return the models that the settings name, those of packages, and those in the hub's cache.

    No file of weights is read, nothing is fetched, and no code that runs a model is imported
    unless the cache holds some.
    """
    configured = list(list_configured(settings))
    entries = [_describe_configured(model) for model in configured]
    seen = {(entry.kind, entry.provider, entry.name) for entry in entries}
    others = [(model.kind, model.provider, model.name) for model in packaged.PACKAGED]
    entries += [
        _describe(ModelEntry(*key), ModelFiles(*key, offline=True))
        for key in dict.fromkeys([*others, *_list_cached()])
        if key not in seen
    ]
    return entries


def list_published(listed: Iterable[ModelEntry]) -> list[ModelEntry]:
    """Return the known models that are not among those listed."""
    seen = {entry.name for entry in listed}
    return [
        ModelEntry(model.kind, model.provider, name, published=model)
        for name, model in PUBLISHED.items()
        if name not in seen
    ]


def named_models(settings: Settings, name: str) -> list[ModelEntry]:
    """Return the models of that name; an unlisted name is treated as the embedding model."""
    entries = [entry for entry in list_models(settings) if entry.name == name]
    if entries:
        return entries
    chosen, known = settings.embedding, PUBLISHED.get(name)
    kind, provider = (known.kind, known.provider) if known else ("embedding", chosen.provider)
    model = ConfiguredModel(kind, provider, name, False, chosen.offline)
    return [replace(_describe_configured(model), used=False)]


def find_files(settings: Settings, name: str) -> ModelFiles:
    """Return the files of the first model of that name; see :func:`named_models`.

    Raises :class:`ModelUnavailableError` for one that runs elsewhere.
    """
    entry = named_models(settings, name)[0]
    offline = settings.embedding.offline
    files = ConfiguredModel(entry.kind, entry.provider, name, entry.is_on, offline).files
    if files is None:
        raise ModelUnavailableError(f"{name} runs elsewhere, so it has no files on this machine")
    return files


def count_bytes(entries: Iterable[ModelEntry]) -> int:
    """Return the number of bytes that a check of these reads."""
    return sum(entry.bytes or 0 for entry in entries if entry.origin)


def check_model(entry: ModelEntry, advance: Callable[[int], None]) -> ModelEntry:
    """Return the entry after comparing its files' hashes.

    ``advance`` is called with the number of bytes read since its last call. If no hash is known,
    that of the weights is computed for the user to compare.
    """
    if entry.origin in (None, "elsewhere") or entry.path is None:
        return entry
    files = ModelFiles(entry.kind, entry.provider, entry.name, offline=True)
    try:
        if files.known and files.found:
            known, folder = files.known, files.found[1]
            wrong = list(packaged.find_wrong_files(known.sha256, folder, advance))
            remedy = packaged.reinstall(known)
        elif entry.origin == "hub cache" and hub.published_hashes(files.folder):
            wrong = list(hub.find_wrong_cached(files.folder, advance))
            remedy = f"delete {files.folder}, then: {fetch_command(entry.name)}"
        else:
            digest = packaged.hash_file(files.weights_file, advance)
            return replace(entry, hashes="unknown", sha256=digest)
    except OSError as error:
        place = Path(error.filename or entry.path)
        return replace(entry, hashes="wrong", problem=describe_os_error(place, error))
    if wrong:
        problem = f"these files differ from the published ones: {', '.join(wrong)}; {remedy}"
        return replace(entry, hashes="wrong", problem=problem)
    return replace(entry, hashes="sound")


def _describe_configured(model: ConfiguredModel) -> ModelEntry:
    entry = ModelEntry(model.kind, model.provider, model.name, used=True, is_on=model.is_on)
    files = model.files
    return replace(entry, origin="elsewhere") if files is None else _describe(entry, files)


def _describe(entry: ModelEntry, files: ModelFiles) -> ModelEntry:
    """Return the entry with origin, path and size, or the problem; the weights are not read."""
    try:
        found = files.found
        if found is None:
            files.require()
            problem = f"fetched from the hub at its first use, or with: {fetch_command(entry.name)}"
            return replace(entry, problem=problem)
        origin, folder = found
        path = files.weights_file if entry.kind == "language model" else folder
        return replace(
            entry,
            origin=origin,
            source=_source_of(files.known) if files.known else str(folder),
            path=str(path),
            bytes=sum(file.stat().st_size for file in _files_of(files, path)),
            dim=_dimension(files, folder) if entry.kind == "embedding" else None,
            hashes=_HASHES[origin],
        )
    except ModelUnavailableError as error:
        return replace(entry, problem=str(error))


def _source_of(model: PackagedModel) -> str:
    version = packaged.find_version(model)
    return model.package if version is None else f"{model.package} {version}"


def _files_of(files: ModelFiles, path: Path) -> list[Path]:
    if files.known and files.found:
        return [files.found[1] / name for name in files.known.sha256]
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]


def _dimension(files: ModelFiles, folder: Path) -> int | None:
    """Return the length of the model's vectors according to its files, ``None`` if unknown."""
    if files.provider == "static":
        return find_table(files.weights_file).shape[1]
    for name, key in (("2_Dense/config.json", "out_features"), ("config.json", "hidden_size")):
        try:
            value = json.loads((folder / name).read_text(encoding="utf-8"))[key]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        return value if isinstance(value, int) else None
    return None


def _list_cached() -> Iterator[tuple[Kind, str, str]]:
    """Yield kind, provider and name of the models whose files are in the hub's cache."""
    if hub.list_cached(hub.cache_folder("fastembed")):
        for kind, name in hub.list_exports():
            if ModelFiles(kind, "fastembed", name, offline=True).found:
                yield kind, "fastembed", name
    for name in hub.list_cached(hub.cache_folder()):
        found = ModelFiles("embedding", "huggingface", name, offline=True).found
        if found is None:
            continue
        config = (found[1] / "config.json").read_text(encoding="utf-8", errors="replace")
        if "ForSequenceClassification" in config:
            yield "reranker", "sentence_transformers", name
        else:
            yield "embedding", "huggingface", name
