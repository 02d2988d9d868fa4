"""The model hub: look up models in its cache on this disk, and fetch missing ones."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

from catalog.models.packaged import Kind, hash_file

CONNECT_SECONDS = 0.5  # fastembed alone tries for 42 s before it says that there is no network
TORCH_FILES = ("*.json", "*.jinja", "*.txt", "*.model", "*.safetensors")
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
_RERANKER_EXPORTS = {  # the ONNX exports that fastembed knows
    "cross-encoder/ms-marco-MiniLM-L-6-v2": "Xenova/ms-marco-MiniLM-L-6-v2",
    "cross-encoder/ms-marco-MiniLM-L-12-v2": "Xenova/ms-marco-MiniLM-L-12-v2",
}
_ONNX_SIDE_FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
)


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model on the hub: the repository, the files wanted from it, and its weights.

    ``cache`` is the folder of the fetched files; ``weights`` may be a pattern; ``export`` is
    fastembed's name of the model.
    """

    cache: Path
    repository: str
    files: tuple[str, ...]
    weights: str
    export: str | None = None


def is_repository_name(name: str) -> bool:
    """Return whether the hub could have a model of this name: ``owner/model`` or ``model``."""
    return _REPOSITORY.fullmatch(name) is not None and ".." not in name and "--" not in name


def find_on_hub(kind: Kind, provider: str, name: str) -> HubModel | None:
    """Return the hub model that the provider uses for this name, ``None`` without one.

    For fastembed it must be a model that fastembed lists; other providers take any repository.
    """
    if provider == "fastembed":
        return _find_export(kind, name)
    return HubModel(cache_folder(), name, TORCH_FILES, "*.safetensors")


def _find_export(kind: Kind, name: str) -> HubModel | None:
    if kind == "reranker":
        from fastembed.rerank.cross_encoder import TextCrossEncoder as Models

        name = _RERANKER_EXPORTS.get(name, name)
    else:
        from fastembed import TextEmbedding as Models  # type: ignore[assignment]
    for known in Models.list_supported_models():
        if known["model"].casefold() == name.casefold() and known["sources"]["hf"]:
            files = (known["model_file"], *known["additional_files"])
            return HubModel(
                cache_folder("fastembed"),
                known["sources"]["hf"],
                (*files, *_ONNX_SIDE_FILES),
                files[0],
                known["model"],
            )
    return None


def list_exports() -> Iterator[tuple[Kind, str]]:
    """Yield kind and name of the models that fastembed knows."""
    from fastembed import TextEmbedding
    from fastembed.rerank.cross_encoder import TextCrossEncoder

    for model in TextEmbedding.list_supported_models():
        yield "embedding", model["model"]
    for model in TextCrossEncoder.list_supported_models():
        yield "reranker", model["model"]


def cache_folder(provider: str = "") -> Path:
    """Return the cache folder of hub models (``HF_HUB_CACHE``, ``HF_HOME``).

    Those of fastembed have their own folder if ``FASTEMBED_CACHE_PATH`` is set.
    """
    from huggingface_hub import constants

    own = os.environ.get("FASTEMBED_CACHE_PATH") if provider == "fastembed" else None
    return Path(own or constants.HF_HUB_CACHE)


def is_set_offline() -> bool:
    """Return whether ``HF_HUB_OFFLINE`` forbids asking the hub."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def list_cached(cache: Path) -> list[str]:
    """Return the names of the models in a cache, in order; some may lack files."""
    folders = cache.glob("models--*/snapshots")
    names = (folder.parent.name.removeprefix("models--") for folder in folders)
    return sorted(name.replace("--", "/") for name in names)


def find_cached(model: HubModel) -> Path | None:
    """Return the folder of the model's latest fetched state, if its weights are in it."""
    folder = model.cache / f"models--{model.repository.replace('/', '--')}"
    with suppress(OSError, ValueError):
        revision = (folder / "refs" / "main").read_text(encoding="ascii").strip()
        snapshot = folder / "snapshots" / revision
        if re.fullmatch(r"\w+", revision) and any(
            file.is_file() for file in snapshot.rglob(model.weights)
        ):
            return snapshot
    return None


def fetch(model: HubModel) -> Path:
    """Fetch the model's files into the cache and return their folder; raises :class:`OSError`."""
    import httpx
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(
            model.repository, allow_patterns=list(model.files), cache_dir=model.cache
        )
    except (ValueError, httpx.HTTPError) as error:
        raise OSError(str(error)) from error
    return Path(folder)


def is_reachable(seconds: float = CONNECT_SECONDS) -> bool:
    """Return whether the hub, or a proxy to it, accepts a connection within that time."""
    from urllib.request import getproxies, proxy_bypass

    from huggingface_hub import constants

    address = urlsplit(constants.ENDPOINT)
    proxies = getproxies()
    proxy = proxies.get(address.scheme) or proxies.get("all")
    if proxy and not proxy_bypass(address.hostname or ""):
        address = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    port = address.port or (80 if address.scheme == "http" else 443)
    answered = []

    def connect() -> None:
        with suppress(OSError):
            socket.create_connection((address.hostname or "", port), seconds).close()
            answered.append(True)

    thread = Thread(target=connect, name="hub-probe", daemon=True)  # a name lookup has no limit
    thread.start()
    thread.join(seconds)
    return bool(answered)


def published_hashes(folder: Path) -> dict[str, str]:
    """Return the expected hash of each file in a cached folder, by its name there.

    The cache stores a file under its hash and links to it: large files by their SHA-256, small ones
    as Git hashes. On a disk without links no hashes are known.
    """
    hashes = {
        file.relative_to(folder).as_posix(): file.resolve().name
        for file in sorted(folder.rglob("*"))
        if file.is_symlink()
    }
    is_hash = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}").fullmatch
    return {name: value for name, value in hashes.items() if is_hash(value)}


def find_wrong_cached(folder: Path, advance: Callable[[int], None]) -> Iterator[str]:
    """Yield the name of each file of a cached folder that differs from the hub's."""
    for name, expected in published_hashes(folder).items():
        file = folder / name
        if not file.is_file() or _hash_like(expected, file, advance) != expected:
            yield name


def _hash_like(expected: str, file: Path, advance: Callable[[int], None]) -> str:
    if len(expected) == 64:
        return hash_file(file, advance)
    content = file.read_bytes()
    advance(len(content))
    head = f"blob {len(content)}\0".encode()
    return hashlib.sha1(head + content, usedforsecurity=False).hexdigest()
