"""For tests of other processes' ends: a try or an adoption of a model that is killed."""

import contextlib
from pathlib import Path

from catalog.core.errors import InputError
from catalog.core.settings import RAGv2Settings, Settings
from catalog.library.library import Library
from catalog.library.trial import adopt_tried, try_model
from reliability.killed_build import kill_on_call

NEW = {"embedding.model": "new"}


def open_static(place: Path, model: str, home: str | Path = "home", **rag: object) -> Library:
    """Open a store in the folder, with small chunks and a static model that is in it, too.

    Models are named by their folders: the caller works in ``place``.
    """
    quick = {"chunk_size": 100, "chunk_overlap": 10, "chunk_min_size": 8, "vector_engine": "exact"}
    return Library(
        Settings(
            home=place / home,
            embedding={"provider": "static", "model": model},
            rag_v2=RAGv2Settings(**{**quick, **rag}),
        )
    )


def try_and_adopt(place: Path, where: str, moment: str) -> None:
    """Try the model ``new`` beside ``old`` and adopt it; die before or after the named call."""
    if where != "nowhere":
        kill_on_call(where, 1, after=moment == "after")
    with contextlib.chdir(place), open_static(place, "old", vector_engine="qdrant") as library:
        if library.adoption is None:
            try_model(library, NEW)
        with contextlib.suppress(InputError):  # it was adopted before the end of the last run
            adopt_tried(library)
