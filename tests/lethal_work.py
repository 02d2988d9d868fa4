"""Work that may end its process; it imports next to nothing, so that one starts quickly."""

import os
import signal
import time
from typing import Any


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def work(item: int | str) -> Any:
    """Return the square of a number, or do what the word says."""
    match item:
        case "fatal":
            die()
        case "wrong":
            raise ValueError("it is wrong")
        case "sleep":
            time.sleep(600)
        case "pid":
            return os.getpid()
    return item * item


def node(_: int) -> str:
    """Return on which node of a Ray cluster this runs."""
    import ray

    time.sleep(0.3)  # so that no node does it all
    return str(ray.get_runtime_context().get_node_id())
