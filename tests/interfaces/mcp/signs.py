"""Signs between a test and a server process: named pipes, so that either can wait for the other."""

import os
import select
from contextlib import suppress

DEADLINE = 30


def give(sign):
    """Give a sign, once the other side waits for it."""
    _make(sign)
    sign.write_bytes(b".")


def wait_for(sign):
    """Return when the sign is given."""
    _make(sign)
    pipe = os.open(sign, os.O_RDONLY | os.O_NONBLOCK)
    try:
        ready, _, _ = select.select([pipe], [], [], DEADLINE)
        assert ready, f"nobody gave the sign {sign.name}"
        assert os.read(pipe, 1) == b"."
    finally:
        os.close(pipe)


def _make(sign):
    with suppress(FileExistsError):
        os.mkfifo(sign)
