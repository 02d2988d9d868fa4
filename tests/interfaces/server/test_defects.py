"""What is logged when the loop that answers has trouble."""

import errno
import logging
import os

from catalog.interfaces.server.crash_log import ScarceResourceHandler


class Loop:
    """Keeps what the handler leaves to it."""

    def __init__(self):
        self.left = []

    def default_exception_handler(self, context):
        self.left.append(context)


def accepting(code):
    return {"message": "accept", "exception": OSError(code, os.strerror(code)), "socket": object()}


def test_want_of_handles_is_one_line_a_minute(caplog):
    now, loop = [100.0], Loop()
    tell = ScarceResourceHandler(lambda: now[0])
    with caplog.at_level(logging.ERROR):
        for moment in (100.0, 100.5, 159.9, 160.0, 160.1):
            now[0] = moment
            tell(loop, accepting(errno.EMFILE))
    assert [one.getMessage() for one in caplog.records] == [
        "new connections wait: Too many open files; raise the limit on open files (ulimit -n)"
    ] * 2
    assert all(one.exc_info is None for one in caplog.records)
    assert loop.left == []


def test_lack_of_memory_is_reported_in_the_same_way(caplog):
    with caplog.at_level(logging.ERROR):
        ScarceResourceHandler(lambda: 0.0)(Loop(), accepting(errno.ENOMEM))
    assert caplog.messages == ["new connections wait: Cannot allocate memory"]


def test_anything_else_is_the_loops_own_matter(caplog):
    loop, others = Loop(), []
    others.append(accepting(errno.EINVAL))
    others.append({"message": "a task failed", "exception": ValueError("x"), "socket": object()})
    others.append({"message": "a task failed", "exception": OSError(errno.EMFILE, "files")})
    others.append({"message": "nothing is known"})
    for context in others:
        ScarceResourceHandler()(loop, context)
    assert loop.left == others
    assert not caplog.records
