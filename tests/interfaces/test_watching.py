"""``catalog index update --watch``: what changes, whatever happens to the folder."""

import os
import shutil
import threading
from dataclasses import replace
from itertools import islice

import pytest

from catalog.core.errors import StoreBusyError
from catalog.interfaces.cli import folder_watch
from catalog.interfaces.cli.folder_watch import FolderWatch, follow
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from fakes import WordEncoder, open_library, write
from tables import table


def test_what_changes_while_texts_are_embedded_is_found_by_words_before_the_rest_is(
    tmp_path, monkeypatch
):
    folder, seen, reports = tmp_path / "notes", {}, []
    for day, name in enumerate("abcdefgh"):
        write(folder, **{f"{name}_dot_md": f"# {name}\n\nwalrus of {name}."})
        os.utime(folder / f"{name}.md", (1_600_000_000 + day * 86_400,) * 2)
    changed, taken, over = threading.Event(), threading.Event(), threading.Event()

    def watch(root, **_):
        yield set()
        changed.wait()
        yield {("modified", root / "a.md")}
        taken.set()
        over.wait()

    class Encoder(WordEncoder):
        calls = 0

        def encode(self, texts):
            self.calls += 1
            if self.calls == 1:
                write(folder, a_dot_md="# a\n\nAn otter, all of a sudden.")
                changed.set()
                taken.wait()
            if self.calls == 2:
                with open_library(tmp_path / "home") as other:
                    results = SearchServiceV2(other).search("otter", dataset="notes")
                seen["by words"], seen["note"] = [one.path for one in results], results.notes[0]
                seen["first"] = " ".join(texts)
            return super().encode(texts)

    monkeypatch.setattr("watchfiles.watch", watch)
    encoder = Encoder()
    with open_library(tmp_path / "home", encoder) as library:
        library.model = replace(library.model, batch_size=2)
        encoder.down = True
        encoder.calls = -100
        Indexer(library).build(folder, "notes")
        encoder.down, encoder.calls = False, 0
        reports.extend(islice(follow(Indexer(library), "notes", {"reread": False}), 2))
        over.set()
        assert Indexer(library).stats("notes").vectors == 8
    assert seen["by words"][0] == "a.md"
    assert seen["note"].startswith("by meaning: 25 %")
    assert "otter" in seen["first"]
    assert len(encoder.texts) == len(set(encoder.texts)) == 8
    assert [(report.updated, report.incomplete) for report in reports] == [(0, 6), (1, 0)]


class Script:
    """Stand in for ``watchfiles.watch``: each look at the folder takes the next step.

    A step changes files, and returns the paths that the system reports of it. With the last one
    the watch is silent.
    """

    def __init__(self, monkeypatch, *steps):
        self.watched, self._steps, self.is_over = [], list(steps), threading.Event()
        monkeypatch.setattr("watchfiles.watch", self._watch)
        monkeypatch.setattr(folder_watch, "TICK_SECONDS", 0.0)
        monkeypatch.setattr(folder_watch, "RETRY_SECONDS", 0.0)

    def _watch(self, folder, *, recursive, stop_event, **_):
        self.watched.append((folder.name, recursive))
        if not folder.exists():
            raise FileNotFoundError(f"No such file: {folder}")
        yield set()
        while self._steps:
            step = self._steps.pop(0)
            yield {("modified", str(path)) for path in step() or ()}
        self.is_over.set()
        stop_event.wait()


def after(script, folder):
    """Return whether something has changed, once the script is over."""
    with FolderWatch(folder) as watched:
        script.is_over.wait(10)
        return watched.has_changed()


def replace_folder(folder):
    folder.rename(folder.with_name("old"))
    shutil.copytree(folder.with_name("old"), folder)


def take_away(folder):
    folder.rename(folder.with_name("away"))


def bring_back(folder):
    folder.with_name("away").rename(folder)


def make_anew(folder):
    """Delete the folder and make another, which may get the same number."""
    shutil.rmtree(folder)
    write(folder, a_dot_md="An otter.")
    return [folder]


@pytest.mark.parametrize("happens", [replace_folder, make_anew])
def test_a_folder_that_takes_the_place_of_the_watched_one_is_watched(
    tmp_path, monkeypatch, happens
):
    folder = tmp_path / "notes"
    write(folder, a_dot_md="A walrus.")
    script = Script(monkeypatch, lambda: happens(folder))
    assert after(script, folder)
    assert script.watched == [("notes", True), ("notes", True)]


def test_a_folder_that_is_away_for_a_while_is_watched_again(tmp_path, monkeypatch):
    folder = tmp_path / "notes"
    write(folder, a_dot_md="A walrus.")
    script = Script(monkeypatch, lambda: take_away(folder), lambda: bring_back(folder))
    assert after(script, folder)
    assert script.watched == [("notes", True), (tmp_path.name, False), ("notes", True)]


def test_a_single_file_is_watched_by_its_folder_so_that_another_may_take_its_place(
    tmp_path, monkeypatch
):
    write(tmp_path, a_dot_md="A walrus.", draft="An otter.")

    def save():
        (tmp_path / "draft").replace(tmp_path / "a.md")
        return [tmp_path / "a.md"]

    script = Script(monkeypatch, save)
    assert after(script, tmp_path / "a.md")
    assert script.watched == [(tmp_path.name, False)]


@table("path, is_read")
def test_what_may_be_read_wakes_the_watch_though_the_folder_lies_in_a_hidden_one(
    tmp_path, monkeypatch, path, is_read
):
    folder = tmp_path / ".venv" / "notes"
    folder.mkdir(parents=True)
    script = Script(monkeypatch, lambda: [folder / path])
    assert after(script, folder) is is_read


def test_a_system_that_cannot_watch_is_named_once_and_the_folder_looked_at_all_the_same(
    tmp_path, monkeypatch, capsys
):
    write(tmp_path / "notes", a_dot_md="A walrus.")

    def watch(*_, **__):
        raise OSError("OS file watch limit reached")

    monkeypatch.setattr("watchfiles.watch", watch)
    monkeypatch.setattr(folder_watch, "RETRY_SECONDS", 0.0)
    with open_library(tmp_path / "home") as library:
        indexer = Indexer(library)
        indexer.build(tmp_path / "notes", "notes")
        reports = follow(indexer, "notes", {})
        next(reports)
        for text in ("An otter.", "A mole of another size."):
            write(tmp_path / "notes", a_dot_md=text)
            assert next(reports).updated == 1
        reports.close()
    assert capsys.readouterr().err.count("OS file watch limit reached") == 1


def test_while_the_folder_or_most_files_are_away_the_index_stays_and_the_watch_goes_on(
    tmp_path, monkeypatch, capsys
):
    folder = tmp_path / "notes"
    write(folder, a_dot_md="A walrus.", b_dot_md="An otter.")
    Script(monkeypatch)
    with open_library(tmp_path / "home") as library:
        indexer, real, done = Indexer(library), Indexer.update, []

        def update(self, dataset, **told):
            done.append(told.get("allow_deletions"))
            if len(done) == 1:
                take_away(folder)
            elif len(done) == 3:
                folder.mkdir()  # most files are away now, and at the fourth update
            elif len(done) == 5:
                folder.rmdir()
                bring_back(folder)
                write(folder, c_dot_md="A mole.")
            elif len(done) == 2:
                raise StoreBusyError("another process is indexing 'notes'")
            assert indexer.stats(dataset).documents == 2
            return real(self, dataset, **told)

        indexer.build(folder, "notes")
        monkeypatch.setattr(Indexer, "update", update)
        [report] = islice(follow(indexer, "notes", {"allow_deletions": False}), 1)
        assert (report.added, report.unchanged, report.removed) == (1, 2, 0)
        assert indexer.stats("notes").documents == 3
    told = capsys.readouterr().err
    assert told.count("2 of 2 indexed files are gone") == 1
    assert done == [False] * 5


@pytest.mark.slow
def test_an_update_without_news_is_not_reported_and_a_failure_is_told_once(tmp_path, monkeypatch):
    folder = tmp_path / "notes"
    write(folder, a_dot_md="A walrus.", b_dot_bin="\0")
    Script(monkeypatch)
    monkeypatch.setattr(folder_watch, "LOOK_SECONDS", 0.0)
    with open_library(tmp_path / "home") as library:
        indexer, real, calls = Indexer(library), Indexer.update, []

        def update(self, dataset, **told):
            calls.append(dataset)
            if len(calls) == 4:
                write(folder, c_dot_md="A mole.", d_dot_bin="\0")
            return real(self, dataset, **told)

        indexer.build(folder, "notes")
        monkeypatch.setattr(Indexer, "update", update)
        first, second = islice(follow(indexer, "notes", {}), 2)
        assert (first.added, second.added, len(calls)) == (0, 1, 4)
        failures = [[one.path for one in report.failed] for report in (first, second)]
        assert failures == [["b.bin"], ["d.bin"]]  # a failure is told once
