"""Files behind documents: recordings to play, and drawn pages of PDFs.

A file is given out only if it is in the folder of a dataset and is still as it was when it was
indexed, and if the caller may see every document that was made of it. A role also has to see the
file's own level of confidentiality, and is not led by links.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Semaphore
from typing import TYPE_CHECKING, Any, NamedTuple

from catalog.core.errors import DocumentNotFoundError, NotReadyError, ReadError
from catalog.core.kept import LRUCache
from catalog.core.text import nfc
from catalog.ingest.readers.opening import digest_file
from catalog.ingest.sidecars import Sidecars, find_beside
from catalog.library.names import levels_seen
from catalog.store import manifest
from catalog.store.chunks import find_root
from catalog.store.document_names import DocumentNames

if TYPE_CHECKING:
    from catalog.interfaces.calls import LocalEngine
    from catalog.store.manifest import ManifestEntry

MEDIA = {
    ".mp3": "audio/mpeg", ".m4a": "audio/mp4", ".wav": "audio/wav", ".ogg": "audio/ogg",
    ".oga": "audio/ogg", ".opus": "audio/ogg", ".flac": "audio/flac", ".aac": "audio/aac",
    ".mp4": "video/mp4", ".m4v": "video/mp4", ".webm": "video/webm", ".mov": "video/mp4",
    ".mkv": "video/webm", ".ogv": "video/ogg",
}  # fmt: skip
FRAMED = (".html", ".htm")  # shown in a frame
_CACHE_BYTES = 20_000_000
_SECONDS = 10
_DRAWING, _WAIT = Semaphore(2), 1.0  # pages at once; seconds that others wait
_COMPARED = 50_000_000  # bytes of a file of another date that are compared
_FAILED: LRUCache[tuple[Any, ...], float] = LRUCache(1000)  # when a page could not be drawn
_AGAIN = 60.0  # seconds until such a page is tried again
_NEEDED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT", "LD_LIBRARY_PATH")
"""Variables of the drawing process, which reads hostile files: no settings, tokens or keys."""


class DrawnPage(NamedTuple):
    """A page as PNG, its size in pixels, and left, top, width and height of its cited lines."""

    png: bytes
    width: int
    height: int
    boxes: list[tuple[int, int, int, int]]


_DRAWN: LRUCache[tuple[Any, ...], DrawnPage] = LRUCache(_CACHE_BYTES, lambda one: len(one.png))


def find_document_file(engine: LocalEngine, source_doc_id: str) -> Path:
    """Return the file of a document; for a transcript, the recording.

    Raises :class:`DocumentNotFoundError` for a file that is missing, changed, outside the dataset's
    folder or not for the caller's role, and as ``get`` does for a document that the caller may not
    see.
    """
    library = engine.library
    document = engine.ask("get", {"reference": source_doc_id, "max_bytes": 1})
    dataset, _, path = document["source_doc_id"].partition(":")
    original = document["metadata"].get("media_file")
    with library.database.read() as connection:
        root = Path(find_root(connection, dataset) or os.devnull)
        others = DocumentNames(connection, dataset).made_of(original) if original else []
    for other in others:
        engine.ask("get", {"reference": f"{dataset}:{other}", "max_bytes": 1})
    folder = (root.parent if root.is_file() else root).resolve()
    name = str(original or path)
    given = _find_on_disk(folder, name)
    file = given.resolve()
    if not file.is_relative_to(folder) or not file.is_file():
        raise DocumentNotFoundError(f"the file of {source_doc_id} is not in the dataset's folder")
    listed = nfc(file.relative_to(folder).as_posix())
    with library.database.read() as connection:
        entry = manifest.entries(connection, dataset, listed).get(listed)
    if entry is not None and not _is_as_read(entry, file, folder):
        told = f"{name} has changed since it was indexed"
        raise DocumentNotFoundError(f"{told}: run 'catalog index update'")
    seen = levels_seen(library.settings, None)
    if seen is not None and not (
        entry is not None
        and file == given
        and (not original or _is_open(folder, file.relative_to(folder).as_posix(), seen))
    ):
        raise DocumentNotFoundError(f"the file of {source_doc_id} is not for this role")
    return file


def _find_on_disk(folder: Path, name: str) -> Path:
    """Return the path of a file by its name in the index; on disk letters may be decomposed."""
    path = folder
    for part in name.split("/"):
        whole = path / part
        if not whole.exists() and path.is_dir():
            whole = next((one for one in path.iterdir() if nfc(one.name) == nfc(part)), whole)
        path = whole
    return path


def _is_as_read(entry: ManifestEntry, file: Path, folder: Path) -> bool:
    """Return whether a file is the one that was indexed: by size and time, else by its bytes."""
    status = file.stat()
    if entry.state == "kept" or entry.size != status.st_size:
        return False  # kept: the present file could not be read
    if entry.mtime_ns == status.st_mtime_ns:
        return True
    with suppress(ReadError):
        return status.st_size < _COMPARED and entry.digest == digest_file(file, root=folder)
    return False


def _is_open(folder: Path, recording: str, seen: frozenset[str]) -> bool:
    """Return whether a role may have the file from which an indexed text was made.

    That is a recording whose own level, if it has one, is among those ``seen``. What other files
    say inside of their confidentiality is not known: their text was not read.
    """
    with suppress(OSError, ReadError):
        sidecars = Sidecars(find_beside(folder, recording), folder)
        return bool(media_kind(Path(recording))) and sidecars.levels_of(recording) <= seen
    return False


def media_kind(file: Path) -> str:
    """Return the media type of a recording, ``""`` for any other file."""
    return MEDIA.get(file.suffix.lower(), "")


def draw_page(file: Path, page: int, cited: str = "") -> DrawnPage:
    """Return a page (from 1) of a PDF with the boxes of the cited text, drawn or remembered.

    Raises :class:`DocumentNotFoundError` for a page that cannot be drawn.
    """
    status = file.stat()
    key = (file, status.st_mtime_ns, status.st_size, page)
    if (drawn := _DRAWN.get((*key, cited))) is None:
        message = f"page {page} of {file.name} cannot be drawn"
        if time.monotonic() - (_FAILED.get(key) or -_AGAIN) < _AGAIN:
            raise DocumentNotFoundError(message)
        if not _DRAWING.acquire(timeout=_WAIT):
            raise NotReadyError("other pages are being drawn: try again in a moment")
        try:
            drawn = _draw(file, page, cited)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            _FAILED.put(key, time.monotonic())
            raise DocumentNotFoundError(message) from error
        finally:
            _DRAWING.release()
        _DRAWN.put((*key, cited), drawn)
        _DRAWN.put((*key, ""), drawn)  # the picture, which the browser asks for next
    return drawn


def _draw(file: Path, page: int, cited: str) -> DrawnPage:
    module = "catalog.interfaces.server.page.drawing"
    needed = {name: os.environ[name] for name in _NEEDED if name in os.environ}
    done = subprocess.run(  # noqa: S603 - this interpreter and our own module
        [sys.executable, "-PB", "-m", module, str(page)],
        input=json.dumps(cited).encode() + b"\n" + file.read_bytes(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=_SECONDS,
        check=True,
        env=needed | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    line, _, png = done.stdout.partition(b"\n")
    return DrawnPage(png=png, **json.loads(line))
