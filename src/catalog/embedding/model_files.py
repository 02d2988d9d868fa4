"""Where the files of an ONNX model are, which weights they hold, and whether they are known."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from catalog.core.errors import ModelUnavailableError
from catalog.core.ids import sha256_hex
from catalog.embedding import packaged
from catalog.embedding.packaged import PackagedModel


class ModelFiles:
    """The folder of a model: given as such, or of an installed package, or else from the hub.

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
        return packaged.locate(self._known) if self._known else None

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
        if self._known is None or packaged.locate(self._known) != self.folder:
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
        return hash_of(self.weights_file)

    def verify(self) -> None:
        """Raise :class:`ModelUnavailableError` if a packaged file is not the known one."""
        if self.known is not None:
            packaged.verify(self.known, self.folder)


def hash_of(weights: Path) -> str:
    """SHA-256 of a weights file; of the hashes, where ``model.onnx_data`` and the like go with it.

    Large ONNX models keep only the graph in the ``.onnx`` file.
    """
    parts = sorted(path for path in weights.parent.iterdir() if path.name.startswith(weights.name))
    hashes = [packaged.sha256_of(path) for path in parts]
    return hashes[0] if len(hashes) == 1 else sha256_hex("|".join(hashes))


def unavailable(model: str, extra: str) -> ModelUnavailableError:
    """What to raise for a model that is nowhere; ``extra`` is the one that brings its files."""
    return ModelUnavailableError(
        f"the model {model} is neither installed nor downloadable here; "
        f"install its files: pip install 'catalog[{extra}]'"
    )
