"""Made-up models: folders with the files that providers ask for, and a package that carries one."""

import hashlib
from pathlib import Path

import pytest

from catalog.models import packaged
from catalog.models.packaged import PackagedModel

WEIGHTS = b"weights of a made-up model"
NAME = "made/up"


def make_folder(folder: Path, weights: str = "model.onnx") -> Path:
    """Write a folder with all that a model needs; nobody could run it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / weights).write_bytes(WEIGHTS)
    (folder / "config.json").write_text('{"hidden_size": 12}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


def install_package(folder: Path, patch: pytest.MonkeyPatch, **changes: str) -> PackagedModel:
    """Install a package that carries ``made/up``, the only one known; importing it fails."""
    made = make_folder(folder / "made_up_package" / "data")
    (made.parent / "__init__.py").write_text("raise RuntimeError('imported')")
    patch.syspath_prepend(str(folder))
    fields = {
        "name": NAME, "kind": "embedding", "provider": "fastembed", "package": "made-up-package",
        "folder": "data", "weights": "model.onnx", "extra": "made-up",
    } | changes  # fmt: skip
    names = ("model.onnx", "tokenizer.json")
    hashes = {name: hashlib.sha256((made / name).read_bytes()).hexdigest() for name in names}
    model = PackagedModel(**fields, sha256=hashes, batch_invariant=True)
    patch.setattr(packaged, "PACKAGED", (model,))
    return model
