"""List the models of this machine, find their files, and compare these with their hashes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from catalog.core.errors import ModelUnavailableError
from catalog.core.files import describe_os_error
from catalog.core.settings import Settings
from catalog.models import hub, packaged
from catalog.models.model_files import ModelFiles, Origin, fetch_command, list_configured
from catalog.models.packaged import Kind

HashState = Literal["known", "of the hub", "unknown", "sound", "wrong"]
_HASHES: dict[Origin, HashState] = {"package": "known", "hub cache": "of the hub"}


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model and the state of its files.

    ``used`` says whether the settings name it, and ``is_on`` whether searches or answers use it
    under these settings. ``origin`` is ``None`` if the files are not on this machine; ``problem``
    then says how to get them. ``source`` is the package with its version, or else the folder.
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

    @property
    def is_failure(self) -> bool:
        """Whether its files are wrong, or missing although searches or answers use them."""
        return self.hashes == "wrong" or (self.problem is not None and self.is_on)


def list_models(settings: Settings) -> list[ModelEntry]:
    """Return the models that the settings name, and those that packages carry.

    No file of weights is read, nothing is fetched, and no code that runs a model is imported.
    """
    entries = [_describe(files, used=True) for files in list_configured(settings)]
    named = {(entry.kind, entry.provider, entry.name) for entry in entries}
    others = ((it.kind, it.provider, it.name) for it in packaged.PACKAGED)
    entries += [_describe(ModelFiles(*it, is_on=False)) for it in others if it not in named]
    return entries


def named_models(settings: Settings, name: str) -> list[ModelEntry]:
    """Return the models of that name; an unlisted name is treated as the embedding model."""
    chosen = settings.embedding
    unlisted = ModelFiles("embedding", chosen.provider, name, offline=chosen.offline, is_on=False)
    entries = [entry for entry in list_models(settings) if entry.name == name]
    return entries or [_describe(unlisted)]


def find_files(settings: Settings, name: str) -> ModelFiles:
    """Return the files of the first model of that name; see :func:`named_models`.

    Raises :class:`ModelUnavailableError` for one that runs elsewhere.
    """
    entry = named_models(settings, name)[0]
    if entry.origin == "elsewhere":
        raise ModelUnavailableError(f"{name} runs elsewhere, so it has no files on this machine")
    return ModelFiles(entry.kind, entry.provider, name, offline=settings.embedding.offline)


def check_model(entry: ModelEntry, advance: Callable[[int], None]) -> ModelEntry:
    """Return the entry after comparing its files' hashes.

    ``advance`` is called with the number of bytes read since its last call. If no hash is known,
    that of the weights is computed for the user to compare.
    """
    if entry.path is None:
        return entry
    folder = Path(entry.path)
    files = ModelFiles(entry.kind, entry.provider, entry.name, offline=True)
    try:
        if files.known:
            wrong = list(packaged.find_wrong_files(files.known.sha256, folder, advance))
            remedy = packaged.reinstall(files.known)
        elif entry.origin == "folder" or (of_hub := hub.find_wrong_cached(folder, advance)) is None:
            return replace(
                entry, hashes="unknown", sha256=packaged.hash_file(files.weights_file, advance)
            )
        else:
            wrong, remedy = of_hub, f"delete {folder}, then: {fetch_command(entry.name)}"
    except OSError as error:
        problem = describe_os_error(Path(error.filename or folder), error)
        return replace(entry, hashes="wrong", problem=problem)
    if not wrong:
        return replace(entry, hashes="sound")
    problem = f"these files differ from the published ones: {', '.join(wrong)}; {remedy}"
    return replace(entry, hashes="wrong", problem=problem)


def _describe(files: ModelFiles, *, used: bool = False) -> ModelEntry:
    """Return the model with origin, path and size, or the problem; the weights are not read."""
    entry = ModelEntry(files.kind, files.provider, files.name, used, files.is_on)
    if not files.runs_here:
        return replace(entry, origin="elsewhere")
    try:
        if files.found is None:
            files.require()
            problem = f"fetched from the hub at its first use, or with: {fetch_command(entry.name)}"
            return replace(entry, problem=problem)
        origin, folder = files.found
        parts = [folder / name for name in files.known.sha256] if files.known else folder.rglob("*")
        return replace(
            entry,
            origin=origin,
            source=packaged.with_version(files.known) if files.known else str(folder),
            path=str(folder),
            bytes=sum(file.stat().st_size for file in parts if file.is_file()),
            dim=files.dimension if entry.kind == "embedding" else None,
            hashes=_HASHES.get(origin, "unknown"),
        )
    except ModelUnavailableError as error:
        return replace(entry, problem=str(error))
