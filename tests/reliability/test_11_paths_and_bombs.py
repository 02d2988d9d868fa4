"""No name that anybody asks for leads out of the store, and no text is a bomb.

What else files hold is in tests/ingest.
"""

import os
import resource
import subprocess
import sys

import pytest

from catalog.core.errors import InputError
from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.tools import TOOLS
from catalog.library.indexing import Indexer
from fakes import open_library, write

SECRET = "zqoutside"
CPU_SECONDS, MEMORY_BYTES = 60, 450_000_000
INDEX = """
import re, sys
from pathlib import Path
from catalog.library.indexing import Indexer
from fakes import open_library

with open_library(Path(sys.argv[2]), chunk_size=800, chunk_overlap=120) as library:
    report = Indexer(library).build(Path(sys.argv[1]), "notes")
    peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())  # since exec
    print(report.documents, len(report.failed), peak[1])
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paths")
    write(folder, outside_dot_txt=SECRET, notes__a_dot_md="# Kettle\n\nThe kettle.\n")
    (folder / "notes" / "link.txt").symlink_to(folder / "outside.txt")
    (folder / "notes" / "loop").symlink_to(folder / "notes")
    with LocalEngine(open_library(folder / "home")) as engine:
        Indexer(engine.library).build(folder / "notes", "notes")
        yield engine


@pytest.mark.parametrize(
    "name",
    [
        "../outside.txt", "notes:../outside.txt", "/etc/passwd", "link.txt", "loop/loop/a.md",
        "//server/share/a.md", "\\\\server\\share\\a.md", "C:\\a.md", "file:///etc/passwd",
        "/dev/zero", "a.md\x00.txt", "%2e%2e/outside.txt", "$(cat outside.txt)", "`id`; ls |",
        "~/a.md", "a/" * 3_000, "x" * 100_000, ".", "..",
    ],
    ids=lambda name: repr(name[:24]),
)  # fmt: skip
def test_a_name_is_looked_up_among_documents_and_never_opened(engine, name):
    for verb, arguments in (
        ("get", {"reference": name}),
        ("multi_get", {"patterns": [name]}),
        ("search", {"query": "kettle", "docs": [name]}),
    ):
        with pytest.raises(InputError) as raised:
            engine.ask(verb, arguments)
        assert SECRET not in str(raised.value)
    for tool, argument in (("get", "reference"), ("multi_get", "patterns")):
        answer = TOOLS[tool].call(engine, {argument: name})
        assert answer.is_error
        assert SECRET not in answer.text
        assert len(answer.text) < 2_000


def test_what_is_linked_from_outside_was_not_indexed(engine):
    assert [entry["path"] for entry in engine.ask("browse", {})["entries"]] == ["a.md"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text"),
    [("page.html", "<" * 1_000_000), ("line.txt", "word " * 200_000)],
    ids=["a megabyte of <", "a megabyte on one line"],
)
def test_no_text_takes_time_or_memory_beyond_its_length(tmp_path, name, text):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / name).write_text(text)
    limit = (CPU_SECONDS, CPU_SECONDS)
    run = subprocess.run(
        [sys.executable, "-c", INDEX, str(folder), str(tmp_path / "home")],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, limit),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, f"{run.returncode}: {run.stderr[-500:]}"
    documents, failed, kilobytes = map(int, run.stdout.split())
    assert (documents, failed) == (1, 0)
    assert kilobytes * 1024 < MEMORY_BYTES
