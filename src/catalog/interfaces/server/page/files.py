"""Files behind documents: recordings to play, and drawn pages of PDFs.

A file is given out only if it is in the folder of a dataset, and if the caller may see every
document that was made of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from catalog.core.errors import DocumentNotFoundError
from catalog.core.lru_cache import LRUCache
from catalog.store.chunks import find_root
from catalog.store.document_names import DocumentNames

if TYPE_CHECKING:
    from catalog.interfaces.calls import LocalEngine


MEDIA = {
    ".mp3": "audio/mpeg", ".m4a": "audio/mp4", ".wav": "audio/wav", ".ogg": "audio/ogg",
    ".oga": "audio/ogg", ".opus": "audio/ogg", ".flac": "audio/flac", ".aac": "audio/aac",
    ".mp4": "video/mp4", ".m4v": "video/mp4", ".webm": "video/webm", ".mov": "video/mp4",
    ".mkv": "video/webm", ".ogv": "video/ogg",
}  # fmt: skip
_CACHE_BYTES = 20_000_000
_SECONDS = 15


class DrawnPage(NamedTuple):
    """A page as PNG, its size in pixels, and left, top, width and height of its cited lines."""

    png: bytes
    width: int
    height: int
    boxes: list[tuple[int, int, int, int]]


_DRAWN: LRUCache[tuple[Any, ...], DrawnPage] = LRUCache(_CACHE_BYTES, lambda one: len(one.png))


def find_document_file(engine: LocalEngine, source_doc_id: str) -> Path:
    """Return the file of a document; for a transcript, the recording.

    Raises :class:`DocumentNotFoundError` for a file that is missing or outside the dataset's
    folder, and as ``get`` does for a document that the caller may not see.
    """
    document = engine.ask("get", {"reference": source_doc_id, "max_bytes": 1})
    dataset, _, path = document["source_doc_id"].partition(":")
    original = document["metadata"].get("media_file")
    with engine.library.database.read() as connection:
        root = Path(find_root(connection, dataset) or os.devnull)
        others = DocumentNames(connection, dataset).made_of(original) if original else []
    for other in others:
        engine.ask("get", {"reference": f"{dataset}:{other}", "max_bytes": 1})
    folder = (root if root.is_dir() else root.parent).resolve()
    file = (folder / str(original or path)).resolve()
    if not file.is_relative_to(folder) or not file.is_file():
        raise DocumentNotFoundError(f"the file of {source_doc_id} is not in the dataset's folder")
    return file


def media_kind(file: Path) -> str:
    """Return the media type of a recording, ``""`` for any other file."""
    return MEDIA.get(file.suffix.lower(), "")


def draw_page(file: Path, page: int, cited: str = "") -> DrawnPage:
    """Return a page (from 1) of a PDF with the boxes of the cited text, drawn or remembered.

    Raises :class:`DocumentNotFoundError` for a page that cannot be drawn.
    """
    status = file.stat()
    key = (file, status.st_mtime_ns, status.st_size, page)
    drawn = _DRAWN.get((*key, cited))
    if drawn is None:
        drawn = _draw(file, page, cited)
        _DRAWN.put((*key, cited), drawn)
        _DRAWN.put((*key, ""), drawn)  # the picture, which the browser asks for next
    return drawn


def _draw(file: Path, page: int, cited: str) -> DrawnPage:
    module = "catalog.interfaces.server.page.drawing"
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter and our own module
            [sys.executable, "-PB", "-m", module, str(page)],
            input=json.dumps(cited).encode() + b"\n" + file.read_bytes(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        line, _, png = done.stdout.partition(b"\n")
        return DrawnPage(png=png, **json.loads(line))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise DocumentNotFoundError(f"page {page} of {file.name} cannot be drawn") from error
