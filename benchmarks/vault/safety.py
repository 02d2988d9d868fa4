"""Does a build read anything outside the folder it was given: a hostile vault, watched."""

from __future__ import annotations

import os
from pathlib import Path

from homes import build, held, open_home
from rows import Row

SECRET = "the walrus password is swordfish"
LONG_AGO = (1_000_000, 2_000_000)


def safety_row(folder: Path) -> Row:
    """A vault of links, names and paths that lead out, built by the command line and watched.

    The watch is a hook on every open and listing in every process of the build, and the times of
    access of the files outside: opening a name beside an open folder tells the hook no path.
    """
    outside, vault, watch = folder / "outside", folder / "hostile", folder / "watch"
    for one in (outside, vault, watch):
        one.mkdir(parents=True)
    _write_hostile(vault, outside)
    (watch / "sitecustomize.py").write_text(_WATCH, encoding="utf-8")
    log = folder / "opened.txt"
    env = {"PYTHONPATH": str(watch), "WATCHED": str(outside), "WATCH_LOG": str(log)}
    build(folder / "hostile-home", vault, env)
    opened = set(log.read_text().splitlines()) | _accessed(outside)
    with open_home(folder / "hostile-home") as library:
        stored = held(library)
    leaked = [chunk.path for chunk in stored.chunks if SECRET in chunk.text]
    build(folder / "outside-home", outside, env)
    can_see = str(outside.resolve()) in log.read_text().splitlines()
    return Row.of(
        "path safety",
        f"{len(opened)} read, {len(leaked)} stored",
        "0 reads outside",
        not opened and not leaked and can_see and bool(stored.chunks),
        f"{len(list(vault.iterdir()))} hostile files (links, climbing names, includes, entities); "
        + ("the watch sees a build of the folder outside" if can_see else "the watch sees nothing")
        + ("" if _accessed(outside) else "; times of access do not move here"),
    )


def _accessed(folder: Path) -> set[str]:
    return {str(path) for path in folder.iterdir() if path.stat().st_atime != LONG_AGO[0]}


def _write_hostile(vault: Path, outside: Path) -> None:
    for name in ("secret.txt", "secret.md", "page.html", "rules"):
        (outside / name).write_text(SECRET)
        os.utime(outside / name, LONG_AGO)  # reading moves the time of access
    secret = outside / "secret.txt"
    (vault / "plain.md").write_text("# Plain\n\nAn ordinary note.\n")
    (vault / "absolute.txt").symlink_to(secret)
    (vault / "relative.txt").symlink_to("../outside/secret.txt")
    (vault / "chain.txt").symlink_to("relative.txt")
    (vault / "folder").symlink_to(outside)
    (vault / "device.txt").symlink_to("/dev/zero")
    (vault / ".gitignore").symlink_to(outside / "rules")
    (vault / "..%2foutside%2fsecret.txt").write_text("a name is only a name")
    (vault / "..\\outside\\secret.txt").write_text("a name is only a name")
    os.mkfifo(vault / "pipe.txt")
    (vault / "talk.md").write_text(
        f"# Visual Frame at 00:10\n\n---\nvideo_source: `{secret}`\n---\n![](../outside/secret.md)"
    )
    (vault / "names.rst").write_text(f"Text\n\n.. include:: {secret}\n")
    (vault / "entity.html").write_text(
        f'<!DOCTYPE html [<!ENTITY x SYSTEM "file://{secret}">]><p>Entity &x; here</p>'
    )
    (vault / "frame.html").write_text(f'<p>Visible.</p><object data="file://{secret}"></object>')
    (vault / "book.ipynb").write_text(
        '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"cell_type": "markdown", '
        f'"id": "a", "metadata": {{}}, "source": "![x]({secret}) text"}}]}}'
    )


_WATCH = """
import os, sys

_OUTSIDE = os.path.realpath(os.environ["WATCHED"])
_LOG = os.open(os.environ["WATCH_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def _watch(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and arguments:
        try:
            path = os.path.realpath(os.fsdecode(arguments[0]))
        except TypeError:  # a number of an open file
            return
        if (path + os.sep).startswith(_OUTSIDE + os.sep) and os.path.exists(path):
            os.write(_LOG, (path + "\\n").encode())


sys.addaudithook(_watch)
"""
