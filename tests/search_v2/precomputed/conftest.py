"""The design's fixtures: folders of embeddings as a file store writes them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

DIM = 1536


def name_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def write_cache(folder: Path, vectors: Any, metadata: dict[int, Any] | None = None) -> list[str]:
    """Write vectors as files; their names, in the order of the vectors."""
    folder.mkdir(exist_ok=True)
    names = [name_of(f"chunk {number}") for number in range(len(vectors))]
    for number, vector in enumerate(vectors):
        (folder / names[number]).write_text(json.dumps([float(x) for x in vector]))
        if metadata is not None and number in metadata:
            sidecar = folder / f"{names[number]}.meta.json"
            sidecar.write_text(json.dumps(metadata[number]))
    return names


def directions(count: int, seed: int = 5) -> Any:
    vectors = np.random.default_rng(seed).normal(size=(count, DIM))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def fixture_metadata() -> dict[str, Any]:
    return {
        "source_file": "guide.md",
        "line_number": 2,
        "tags": ["python", "best-practices"],
        "chunk_index": 0,
        "chunk_length": 12,
    }


@pytest.fixture
def fixture_embeddings_small(tmp_path: Path, fixture_metadata: dict[str, Any]) -> Path:
    """Ten chunks of 1536 dimensions; the even ones are tagged python, and 3 nothing but odd."""
    folder = tmp_path / ".emb_cache"
    tagged = dict.fromkeys(range(0, 10, 2), fixture_metadata)
    write_cache(folder, directions(10), {**tagged, 3: {"tags": ["odd"]}})
    return folder


@pytest.fixture(scope="session")
def fixture_embeddings_large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A thousand chunks of 1536 dimensions."""
    folder = tmp_path_factory.mktemp("large") / ".emb_cache"
    write_cache(folder, directions(1000, seed=6))
    return folder


@pytest.fixture
def fixture_query_vector() -> Any:
    """Nearest to the chunk 4 of the small fixture."""
    return directions(10)[4] + 0.01 * directions(10, seed=9)[0]
