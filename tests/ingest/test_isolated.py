"""The process that reads files: what it may not do or cost."""

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from functools import cache
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.documents import Heading, ParsedDocument, Segment
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.ingest.readers import ReadFailure, isolated, read_file
from catalog.ingest.readers.base import DEFAULT_LIMITS
from tables import read_cases

NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {},
    "cells": [{"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# Walrus"}],
}


def read(data, limits=DEFAULT_LIMITS, name="a.ipynb"):
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return list(read_file(Path(file.name), name, limits=limits))


def readable():
    (document,) = read(json.dumps(NOTEBOOK).encode())
    return document.text


def workers():
    return [
        child
        for child in psutil.Process().children()
        if child.status() != psutil.STATUS_ZOMBIE
        and "catalog.ingest.readers.worker" in child.cmdline()
    ]


@cache
def slow_notebook():
    """A notebook that takes a second to read: a hundred thousand cells."""
    (cell,) = (json.dumps(cell) for cell in NOTEBOOK["cells"])
    return f'{{"nbformat": 4, "cells": [{", ".join([cell] * 100_000)}]}}'.encode()


@pytest.mark.slow
def test_one_worker_serves_file_after_file():
    assert readable() == "# Walrus"
    (first,) = workers()
    assert readable() == "# Walrus"
    assert workers() == [first]


@pytest.mark.slow
def test_a_file_over_the_limit_of_time_is_a_read_error_and_the_next_one_is_read():
    with pytest.raises(ReadError, match=r"takes longer than 0\.2 s"):
        read(slow_notebook(), replace(DEFAULT_LIMITS, seconds=0.2))
    assert readable() == "# Walrus"


@pytest.mark.slow
def test_a_file_over_the_limit_of_memory_is_a_read_error_and_the_next_one_is_read():
    greedy = b'{"cells": [' + b"0," * 60_000_000 + b"0]}"
    with pytest.raises(ReadError, match="memory"):
        read(greedy, replace(DEFAULT_LIMITS, memory_bytes=1))
    assert readable() == "# Walrus"


def test_a_file_over_the_limit_of_size_is_not_read():
    with pytest.raises(ReadError, match="too large: over 10 bytes"):
        read(b"x" * 11, replace(DEFAULT_LIMITS, document_bytes=10))


@pytest.mark.slow
def test_a_crash_of_the_reader_is_a_read_error_and_the_next_file_is_read():
    slow = slow_notebook()
    readable()
    (worker,) = workers()
    threading.Timer(0.3, worker.send_signal, [signal.SIGSEGV]).start()
    with pytest.raises(ReadError, match=r"the reader crashed \(exit -11\)"):
        read(slow)
    assert readable() == "# Walrus"


@pytest.mark.slow
def test_a_worker_that_died_between_two_files_is_replaced():
    readable()
    (worker,) = workers()
    worker.kill()
    worker.wait()
    assert readable() == "# Walrus"
    assert workers() != [worker]


@pytest.mark.slow
def test_an_interrupted_read_does_not_answer_the_next_request(monkeypatch):
    def interrupt(line):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(isolated, "receive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            readable()
    (document,) = read(json.dumps(NOTEBOOK).replace("Walrus", "Otter").encode())
    assert document.text == "# Otter"


@pytest.mark.parametrize("name", ["a.md", "a.csv", "a.json", "a.html"])
def test_text_of_any_format_is_read_in_the_worker(name):
    (document,) = (item for item in read(b"# Walrus\n\nIt sleeps.\n", name=name) if has_text(item))
    assert "Walrus" in document.text
    assert len(workers()) == 1


def has_text(item):
    return isinstance(item, ParsedDocument)


@pytest.mark.slow
def test_records_are_sent_as_they_are_read():
    lines = b"".join(b'{"_id": "%d", "text": "walrus %s"}\n' % (n, b"a" * 900) for n in range(999))
    limits = replace(DEFAULT_LIMITS, seconds=5)
    with tempfile.NamedTemporaryFile() as file:
        file.write(lines + b"\n" * 10**7 + b"{")
        file.flush()
        items = read_file(Path(file.name), "a.jsonl", limits=limits)
        assert next(items).path == "0"
        assert next(items).path == "1"
        items.close()
    assert workers() == [], "what it would still send meets no other request"
    assert readable() == "# Walrus"


def test_two_files_are_read_at_once():
    with tempfile.NamedTemporaryFile() as file:
        file.write(b'{"_id": "1", "text": "a"}\n' * 2)
        file.flush()
        items = read_file(Path(file.name), "a.jsonl")
        assert next(items).path == "1"
        assert readable() == "# Walrus"
        assert [item.path for item in items] == ["a.jsonl:2"]
    assert len(workers()) == 1


def test_deep_nesting_is_a_read_error():
    with pytest.raises(ReadError):
        read(b'{"cells":' + b"[" * 500_000)
    assert readable() == "# Walrus"


def test_a_file_without_text_is_told_from_a_broken_one():
    with pytest.raises(EmptyDocumentError):
        read(json.dumps({**NOTEBOOK, "cells": []}).encode())
    with pytest.raises(ReadError) as broken:
        read(b'{"cells": ')
    assert not isinstance(broken.value, EmptyDocumentError)


FORBIDDEN = read_cases(__file__)["forbidden"]
TRYING = """
import json, sys
from catalog.ingest.readers.worker import drop_rights
drop_rights(10**9)
for action in json.loads(sys.argv[1]):
    try:
        eval(action)
        print("done", action)
    except OSError as error:
        print(repr(error), action)
"""


def test_the_worker_may_not(tmp_path):
    (tmp_path / "a").write_text("x")
    command = [sys.executable, "-c", TRYING, json.dumps(FORBIDDEN)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    told = done.stdout.splitlines()
    assert len(told) == len(FORBIDDEN)
    for line in told:
        assert "PermissionError('readers" in line or "urlopen error readers" in line, line
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


PARENT = """
import sys
from pathlib import Path

import psutil

from catalog.ingest.readers import isolated, read_file

send_request = isolated.send_request


def send_and_tell(*arguments):
    send_request(*arguments)
    print(psutil.Process().children()[0].pid, flush=True)


isolated.send_request = send_and_tell
list(read_file(Path(sys.argv[1]), "slow.ipynb"))
"""


@pytest.mark.slow
def test_the_worker_does_not_outlive_its_parent(tmp_path):
    (tmp_path / "slow.ipynb").write_bytes(slow_notebook())
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "slow.ipynb")], stdout=subprocess.PIPE
    )
    worker = psutil.Process(int(parent.stdout.readline()))  # it has the file now, and reads it
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    gone, _ = psutil.wait_procs([worker], timeout=30)
    assert gone


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
OFFSETS = st.integers(0, 10**6)
VALUES = st.one_of(TEXTS, st.integers(-(2**53), 2**53), st.booleans(), st.floats(-1e9, 1e9))
DOCUMENTS = st.builds(
    ParsedDocument,
    path=TEXTS,
    text=TEXTS,
    title=TEXTS,
    file_type=TEXTS,
    metadata=st.dictionaries(TEXTS, VALUES | st.lists(VALUES).map(tuple), max_size=3),
    headings=st.lists(st.builds(Heading, OFFSETS, OFFSETS, OFFSETS, TEXTS), max_size=2).map(tuple),
    atomic=st.lists(st.tuples(OFFSETS, OFFSETS), max_size=2).map(tuple),
    pages=st.lists(OFFSETS, max_size=3).map(tuple),
    segments=st.lists(
        st.builds(
            Segment,
            OFFSETS,
            OFFSETS,
            st.just("video_frame"),
            st.none() | st.floats(0, 1e6),
            st.none() | st.floats(0, 1e6),
            st.none() | TEXTS,
        ),
        max_size=2,
    ).map(tuple),
)


@given(
    DOCUMENTS | st.builds(ReadFailure, TEXTS, TEXTS) | st.builds(isolated.Ended, st.just("empty"))
)
def test_sent_messages_are_received_unchanged(message):
    pipe = io.BytesIO()
    isolated.send(pipe, message)
    assert pipe.getvalue().count(b"\n") == 1
    received = isolated.receive(pipe.getvalue())
    assert received == message
    assert repr(received) == repr(message)  # 1, 1.0 and True are equal and not the same


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b'{"document": {}}', b'{"format": 1}'])
def test_a_line_that_is_no_answer_is_refused(line):
    with pytest.raises(ValueError):
        isolated.receive(line)
