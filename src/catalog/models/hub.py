"""The model hub: look up models in its cache on this disk, and fetch missing ones."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import NamedTuple
from urllib.parse import urlsplit

from catalog.models.packaged import Kind, hash_file

_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
_RERANKER_EXPORTS = {  # the ONNX exports that fastembed knows
    "cross-encoder/ms-marco-MiniLM-L-6-v2": "Xenova/ms-marco-MiniLM-L-6-v2",
    "cross-encoder/ms-marco-MiniLM-L-12-v2": "Xenova/ms-marco-MiniLM-L-12-v2",
}
_TORCH_FILES = ("*.json", "*.jinja", "*.txt", "*.model", "*.safetensors")
_SIDE_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


class HubModel(NamedTuple):
    """A model on the hub, the folder of fetched models, and the files wanted.

    ``weights`` may be a pattern; ``export`` is fastembed's name of the model.
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
    if provider != "fastembed":
        return HubModel(cache_folder(provider), name, _TORCH_FILES, "*.safetensors")
    if kind == "reranker":
        from fastembed.rerank.cross_encoder import TextCrossEncoder as Models

        name = _RERANKER_EXPORTS.get(name, name)
    else:
        from fastembed import TextEmbedding as Models  # type: ignore[assignment]
    for known in Models.list_supported_models():
        if known["model"].casefold() == name.casefold() and known["sources"]["hf"]:
            weights, source = known["model_file"], known["sources"]["hf"]
            files = (weights, *known["additional_files"], *_SIDE_FILES)
            return HubModel(cache_folder(provider), source, files, weights, known["model"])
    return None


def cache_folder(provider: str) -> Path:
    """Return the cache folder of hub models (``HF_HUB_CACHE``, ``HF_HOME``).

    Those of fastembed have their own folder if ``FASTEMBED_CACHE_PATH`` is set.
    """
    from huggingface_hub import constants

    own = os.environ.get("FASTEMBED_CACHE_PATH") if provider == "fastembed" else None
    return Path(own or constants.HF_HUB_CACHE)


def find_cached(model: HubModel) -> Path | None:
    """Return the folder of the model's latest fetched state, if its weights are in it."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(model.repository, "config.json", cache_dir=model.cache)
    folder = Path(config).parent if isinstance(config, str) else None
    return folder if folder and any(map(Path.is_file, folder.rglob(model.weights))) else None


def fetch(model: HubModel) -> Path:
    """Fetch the model's files into the cache and return their folder; raises :class:`OSError`."""
    import httpx
    from huggingface_hub import snapshot_download

    files = list(model.files)
    try:
        folder = snapshot_download(model.repository, allow_patterns=files, cache_dir=model.cache)
    except (ValueError, httpx.HTTPError) as error:
        raise OSError(str(error)) from error
    return Path(folder)


def is_reachable(seconds: float = 0.5) -> bool:
    """Return whether the hub, or a proxy to it, accepts a connection within that time.

    Without this, fastembed tries for 42 s before it says that there is no network.
    """
    from urllib.request import getproxies, proxy_bypass

    from huggingface_hub import constants

    address, proxies = urlsplit(constants.ENDPOINT), getproxies()
    proxy = proxies.get(address.scheme) or proxies.get("all")
    if proxy and not proxy_bypass(address.hostname or ""):
        address = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    place = address.hostname or "", address.port or (80 if address.scheme == "http" else 443)
    answered = []

    def connect() -> None:
        with suppress(OSError):
            socket.create_connection(place, seconds).close()
            answered.append(True)

    thread = Thread(target=connect, name="hub-probe", daemon=True)  # a name lookup has no limit
    thread.start()
    thread.join(seconds)
    return bool(answered)


def find_wrong_cached(folder: Path, advance: Callable[[int], None]) -> list[str] | None:
    """Return the names of the files of a cached folder that differ from the hub's.

    The cache stores a file under its hash and links to it: large files by their SHA-256, small ones
    as Git hashes. ``None`` on a disk without links, where no hash is known.
    """
    files = [file for file in sorted(folder.rglob("*")) if file.is_symlink()]
    hashes = {file: file.resolve().name for file in files if _HASH.fullmatch(file.resolve().name)}
    wrong = (file for file, expected in hashes.items() if not _has_hash(file, expected, advance))
    return [file.relative_to(folder).as_posix() for file in wrong] if hashes else None


def _has_hash(file: Path, expected: str, advance: Callable[[int], None]) -> bool:
    from huggingface_hub.utils.sha import git_hash

    if not file.is_file():
        return False
    if len(expected) == 64:
        return hash_file(file, advance) == expected
    advance(file.stat().st_size)
    return git_hash(file.read_bytes()) == expected
