"""Run by test_path_safety: a build that tells every file it opened in a folder not given to it."""

import json
import os
import sys
from pathlib import Path

from catalog.library.indexing import Indexer
from catalog.store.chunks import read_documents
from fakes import WordEncoder, open_library

folder, home, outside = map(Path, sys.argv[1:])
opened: set[str] = set()


def watch(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and isinstance(
        arguments[0], str | os.PathLike
    ):
        path = os.fspath(arguments[0])
        if isinstance(path, str) and os.path.realpath(path).startswith(str(outside)):
            opened.add(path)


def watch_open(path, flags, mode=0o777, *, dir_fd=None, really=os.open):
    """The hook is not told the folder that a name is opened in."""
    if dir_fd is not None:
        watch("open", (Path(f"/proc/self/fd/{dir_fd}").readlink() / path,))
    return really(path, flags, mode, dir_fd=dir_fd)


sys.addaudithook(watch)
if Path("/proc/self/fd").exists():
    os.supports_dir_fd.add(watch_open)
    os.open = watch_open
with open_library(home, WordEncoder()) as library:
    report = Indexer(library).build(folder, "vault")
    with library.database.read() as connection:
        texts = {document.path: document.text for document in read_documents(connection, "vault")}
failed = {failure.path: failure.reason for failure in report.failed}
print(json.dumps({"opened_outside": sorted(opened), "texts": texts, "failed": failed}))
