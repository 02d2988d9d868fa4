"""What an export, backup or restore leaves behind that is ended by a signal."""

import os
import shlex
import signal
import subprocess
import sys

import pytest

from catalog.library.health import diagnose
from catalog.library.indexing import Indexer
from catalog.store.backup import back_up, draft_beside, find_stale_drafts
from catalog.store.portable import export_chunks
from fakes import open_library, write
from processes import Forked

COMMAND = """
import os, sys
from catalog.interfaces.cli import main
from catalog.store import portable
from catalog.store import backup

number = int(sys.argv.pop(1))
portable._End = backup._require_sound = lambda *_, **__: os.kill(os.getpid(), number)
main()
"""
COMMANDS = {
    "export": ("export", "out/new.jsonl"),
    "backup": ("backup", "out/new.db"),
    "restore": ("restore", "copy.db"),
}


@pytest.fixture
def place(tmp_path):
    """A folder with a store in ``home`` and a copy of it."""
    write(tmp_path / "notes", a_dot_md="# Walrus\n\nThe secret walrus.\n")
    (tmp_path / "out").mkdir()
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(tmp_path / "notes", "notes")
    back_up(tmp_path / "home" / "catalog.db", tmp_path / "copy.db")
    return tmp_path


def end_midway(place, command, number):
    """Run a command that a signal ends once its copy is written; return its exit code."""
    name, file = COMMANDS[command]
    variables = {"IDX_HOME": str(place / "home"), "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = Forked(
        ["-c", COMMAND, str(int(number)), name, str(place / file)],
        env={**os.environ, **variables},
        stderr=subprocess.DEVNULL,
    )
    return ended.wait(60)


def listed(place):
    return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_told_to_end_removes_its_draft(place, command, number):
    if signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip("this run ignores the signal, as under nohup")
    before = listed(place)
    assert end_midway(place, command, number) == 128 + number
    new = listed(place) - before
    assert new <= {f"{file}-{kind}" for file in before for kind in ("wal", "shm")}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_next_command_removes_the_draft_of_one_that_was_killed(place, command):
    assert end_midway(place, command, signal.SIGKILL) == -signal.SIGKILL
    folder = place / ("home" if command == "restore" else "out")
    assert len(find_stale_drafts(folder)) == 1
    with open_library(place / "home") as library:
        if command == "export":
            export_chunks(library.database, folder / "other.jsonl")
        else:
            back_up(library.database.file, folder / "other.db")
    assert [name for name in listed(folder) if "draft" in name] == []


def test_doctor_names_the_draft_of_a_killed_restore_and_the_fix_removes_it(place):
    end_midway(place, "restore", signal.SIGKILL)
    with open_library(place / "home") as library:
        (check,) = [check for check in diagnose(library) if not check.ok]
        (draft,) = find_stale_drafts(place / "home")
        assert draft.name in check.detail
        assert shlex.split(check.fix) == ["rm", "-f", f"{draft}*"]
        subprocess.run(check.fix, shell=True, check=True)
        assert [check for check in diagnose(library) if not check.ok] == []
    assert [name for name in listed(place / "home") if "draft" in name] == []


def test_the_texts_of_a_removed_dataset_are_in_no_draft(place):
    end_midway(place, "restore", signal.SIGKILL)
    with open_library(place / "home") as library:
        Indexer(library).remove("notes")
    assert find_stale_drafts(place / "home") == []


def test_the_draft_of_a_running_command_stays(place):
    with draft_beside(place / "out" / "mine.db") as draft:
        back_up(place / "home" / "catalog.db", place / "out" / "other.db")
        assert draft.exists()
        assert find_stale_drafts(place / "out") == []
    assert listed(place / "out") == {"other.db"}
