"""After any history of a folder and its store, an update gives the same as a new build.

Files are written, renamed, swapped, touched, removed and put back; the store is exported, imported
whole or in part, backed up and restored. ``IDX_TEST_CHAOS_SECONDS`` draws fresh histories as long.
"""

import json
import os
import random
import shutil

import pytest
from sqlalchemy import select

from catalog.interfaces.calls import LocalEngine
from catalog.library.health import diagnose
from catalog.library.importing import import_chunks
from catalog.library.indexing import Indexer
from catalog.store import portable, publish
from catalog.store.backup import back_up, restore
from catalog.store.portable import export_chunks
from catalog.store.schema import chunks, documents, manifest
from fakes import open_library
from reliability.chaos import seeds

NAMES = ("a.jsonl", "b.jsonl", "m.jsonl", "one.md", "two.md", "sub/three.md", "sub/z.jsonl")
IDS = ("1", "2", "3", "4", "one.md")  # of records; one is the name of a file as well
WORDS = ("walrus", "kettle", "harbour", "lantern", "meadow")
BASE = 1_600_000_000  # seconds; files seem to be old: they did not change while they were read


class Stopped(Exception):
    """Stands for a process that ends."""


class History:
    """A folder, a store of it, and what may happen to both; every choice is the seed's."""

    def __init__(self, place, seed):
        self.place, self.chance, self.done = place, random.Random(seed), []
        self.folder, self.home = place / "notes", place / "home"
        self.exports, self.backups, self.copies, self.time = [], [], [], BASE
        (self.folder / "sub").mkdir(parents=True)
        (self.folder / "keep.md").write_text("# Kept\n\nThe lantern is kept.\n")
        self.write()
        self.write()
        self.library = self.open()
        self.update()

    def open(self, home=None):
        return open_library(home or self.home, ingest={"group_chars": 60})

    def close(self):
        self.library.close()

    # Of files.

    def files(self):
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    def free(self):
        return self.folder / self.chance.choice(NAMES)

    def date(self, path):
        self.time += 10
        os.utime(path, (self.time, self.time))

    def write(self):
        path = self.free()
        said = f"{self.chance.choice(WORDS)} {self.chance.choice(WORDS)} {self.chance.randrange(9)}"
        if path.suffix == ".md":
            path.write_text(f"# {said}\n\nThe {said} of {path.name}.\n")
        else:
            ids = self.chance.sample(IDS, self.chance.randrange(1, 5))
            lines = [json.dumps({"_id": one, "text": f"{said} of {one}"}) for one in ids]
            path.write_text("\n".join(lines) + "\n")
        self.date(path)

    def remove(self):
        self.chance.choice(self.files()).unlink()

    def rename(self):
        old = self.chance.choice(self.files())
        same_kind = [name for name in NAMES if name.endswith(old.suffix)]
        old.replace(self.folder / self.chance.choice(same_kind))

    def swap(self, *, alike=False):
        """Swap two files of a kind, which keep their sizes and dates."""
        first = self.chance.choice(self.files())
        others = [path for path in self.files() if path.suffix == first.suffix and path != first]
        if others:
            second, aside = self.chance.choice(others), self.place / "aside"
            if alike:
                size = max(first.stat().st_size, second.stat().st_size)
                for path in (first, second):
                    path.write_text(path.read_text().ljust(size))
                    os.utime(path, (self.time, self.time))
                self.update()
            first.replace(aside)
            second.replace(first)
            aside.replace(second)

    def swap_alike(self):
        """Swap two files of one kind, one size and one date."""
        self.time += 10
        self.swap(alike=True)

    def touch(self):
        self.date(self.chance.choice(self.files()))

    def keep_copy(self):
        self.copies.append(shutil.copytree(self.folder, self.place / f"copy{len(self.copies)}"))

    def put_back(self):
        """Put some files back as they were, their dates included, or all."""
        if self.copies:
            copy = self.chance.choice(self.copies)
            whole = self.chance.random() < 0.5
            if whole:
                shutil.rmtree(self.folder)
            for path in sorted(path for path in copy.rglob("*") if path.is_file()):
                target = self.folder / path.relative_to(copy)
                if whole or self.chance.random() < 0.5:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(path, target)
            (self.folder / "sub").mkdir(parents=True, exist_ok=True)

    # Of the store.

    def export(self):
        file = self.place / f"export{len(self.exports)}.jsonl"
        vectors = self.chance.random() < 0.7
        export_chunks(self.library.database, file, vectors=vectors)
        self.exports.append(file)

    def take_in(self):
        """Import an export; some end early."""
        if not self.exports:
            self.export()
        file = self.chance.choice(self.exports)
        ends = self.chance.choice((None, None, *range(1, 5)))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(portable, "_TOGETHER", 1)
            patched.setattr(publish, "publish_all", self.ending(publish.publish_all, ends))
            try:
                import_chunks(self.library, file)
            except Stopped:
                self.done[-1] += f" ended after {ends}"

    def ending(self, publish, ends):
        calls = []

        def ending(connection, new, now):
            publish(connection, new, now)
            calls.append(now)
            if len(calls) == ends:
                self.library.database.close()  # nothing more is written
                raise Stopped

        return ending

    def back_up(self):
        self.backups.append(self.place / f"backup{len(self.backups)}.db")
        back_up(self.library.database.file, self.backups[-1])

    def restore(self):
        if self.backups:
            copy, store = self.chance.choice(self.backups), self.library.database.file
            restore(copy, store, locks=self.home / "locks", force=True)

    def update(self, *, reread=False):
        if self.done:
            Indexer(self.library).update("notes", allow_deletions=True, reread=reread)
        else:
            Indexer(self.library).build(self.folder, "notes")

    def reread(self):
        self.update(reread=True)

    OF_FILES = (write, write, write, remove, rename, rename, swap, swap_alike, touch, keep_copy,
                put_back)  # fmt: skip
    OF_STORES = (export, export, take_in, take_in, take_in, back_up, restore, update, reread)

    def step(self):
        act = self.chance.choice(self.chance.choice((self.OF_FILES, self.OF_STORES)))
        if len(self.files()) < 2:
            act = History.write
        self.done.append(act.__name__)
        act(self)

    def require_fresh(self, number):
        """Update, and compare with a build of the same folder in a new home."""
        self.update()
        with self.open(self.place / f"new{number}") as fresh:
            Indexer(fresh).build(self.folder, "notes")
            assert told_by(self.library) == told_by(fresh)
        assert [check for check in diagnose(self.library) if not check.ok] == []


def told_by(library):
    """Every document, passage and note on a file, and some answers."""
    of_documents = [documents.c[name] for name in ("path", "file", "title", "revision_id")]
    of_files = [manifest.c[name] for name in ("file", "size", "mtime_ns", "state", "documents")]
    told = {}
    with library.database.read() as connection:
        for columns in (of_documents, [chunks.c.chunk_id, chunks.c.text], of_files):
            rows = connection.execute(select(*columns).order_by(*columns)).all()
            told[str(columns[0])] = [tuple(row) for row in rows]
    engine = LocalEngine(library)
    for mode in ("lexical", "vector"):
        asked = {"query": "walrus kettle harbour", "mode": mode, "top_k": 20, "strict": True}
        found = engine.ask("search", asked)["results"]
        told[mode] = sorted(
            (round(hit["score"], 3 if mode == "vector" else 9), hit["path"]) for hit in found
        )
    return told


def play(place, seed, steps=12):
    history = History(place, seed)
    try:
        for number in range(steps):
            history.step()
            if history.chance.random() < 0.4 or number == steps - 1:
                history.require_fresh(number)
    except BaseException as error:
        error.add_note(f"replay with IDX_TEST_SEED={seed}: {', '.join(history.done)}")
        raise
    finally:
        history.close()


@pytest.mark.slow
def test_after_any_history_an_update_has_what_a_new_build_has(tmp_path):
    for seed in seeds(2):
        play(tmp_path / str(seed), seed)
        shutil.rmtree(tmp_path / str(seed))
