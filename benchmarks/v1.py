"""The frozen baseline v1 as a system to measure, over the passages of our store.

It has no index of its own to read: ``build`` makes it from a store that is built already.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from catalog.core.settings import load_settings
from catalog.search.embed_model import ResilientEmbedding
from catalog.search.service import SearchService
from given import Given
from ours import DATASET, MODES, model, questions
from step import latency, memory, seconds


def build(folder: Path) -> dict[str, float]:
    """Make v1's index in a copy of our store."""
    if not (folder / "v1").exists():
        shutil.copytree(folder / "ours", folder / "v1")
    service = _open(folder, asks_model=True)
    return {"build s": seconds(lambda: service.index(DATASET))}


def serve(folder: Path, count: int, *, is_given: bool = False) -> dict[str, float]:
    """Open what was built and query it."""
    texts = questions(Given(folder / "given"), count)
    service = _open(folder, asks_model=not is_given)
    found = {"open s": seconds(lambda: service.search(texts[0], dataset=DATASET))}
    for mode in MODES:
        found |= latency(
            mode, lambda text, mode=mode: service.search(text, dataset=DATASET, mode=mode), texts
        )
    return found | memory()


def _open(folder: Path, *, asks_model: bool) -> SearchService:
    settings = load_settings(overrides={"home": folder / "v1"}).settings
    embedding = model(Given(folder / "given"), asks_model=asks_model)
    return SearchService(settings, embed_model=ResilientEmbedding(embedding))
