"""Stores of small documents: built once in a process for the same files and settings."""

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import update

from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.search_v2.service import SearchServiceV2
from catalog.store import Database
from catalog.store.schema import datasets
from fakes import WordEncoder, open_library

Files = Mapping[str, str | bytes]
"""Contents by path; the first part of a path is the dataset: ``{"notes/a.md": "A walrus."}``."""

_OF_FILE = Database.__dict__["at"]  # tests on Postgres put a server in its place
_made: dict[str, Path] = {}
_open: dict[str, SearchServiceV2] = {}


def store_of(files: Files, **settings: Any) -> Path:
    """Return the home of a store of these files, which no test may change."""
    return _folder_of(files, settings) / "home"


def service_of(files: Files, **settings: Any) -> SearchServiceV2:
    """Return an open search over :func:`store_of`, which no test may change or close."""
    key = repr((files, settings))
    if key not in _open:
        _open[key] = SearchServiceV2(open_library(store_of(files, **settings), **settings))
    return _open[key]


def open_store(
    files: Files, folder: Path, encoder: WordEncoder | None = None, **settings: Any
) -> Library:
    """Open a store of these files in ``folder / "home"``; the files are in ``folder``, too.

    The store is a copy: a test may change it and the files. ``encoder`` opens it; another made it.
    """
    if Database.__dict__["at"] is not _OF_FILE:
        _build(files, folder, settings)
        return open_library(folder / "home", encoder, **settings)
    shutil.copytree(_folder_of(files, settings), folder, dirs_exist_ok=True)
    library = open_library(folder / "home", encoder, **settings)
    with library.database.write() as connection:
        for name in {name.partition("/")[0] for name in files}:
            root = str((folder / name).resolve())
            connection.execute(update(datasets).where(datasets.c.name == name).values(root=root))
    return library


def close() -> None:
    """Close the searches of :func:`service_of`."""
    while _open:
        _open.popitem()[1].close()


def _folder_of(files: Files, settings: Mapping[str, Any]) -> Path:
    key = repr((files, settings))
    if key not in _made:
        folder = Path(tempfile.mkdtemp(prefix="stores-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _build(files, folder, settings)
        _made[key] = folder
    return _made[key]


def _build(files: Files, folder: Path, settings: Mapping[str, Any]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with open_library(folder / "home", **settings) as library:
        for dataset in dict.fromkeys(name.partition("/")[0] for name in files):
            Indexer(library).build(folder / dataset, dataset)
