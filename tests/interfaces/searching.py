"""Run by test_many_processes: search one store over and over until a file appears.

Arguments: home, the file, and ``serve`` to be the server of the store instead.
"""

import os
import sys
from pathlib import Path

from catalog.interfaces import home_socket
from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.home_socket import NearestEngine
from fakes import open_library

KEY = "the same settings"
ANSWERS = 4  # while the store is updated; after them the process says so with a file


def search_until(home: Path, stop: Path) -> None:
    home_socket._GREETING_SECONDS = 60.0  # a server of a busy machine is not lost
    with open_library(home) as library:
        settings = library.settings
    made = []

    def make_local() -> LocalEngine:
        made.append(LocalEngine(open_library(home)))
        return made[-1]

    engine = NearestEngine(settings, KEY, make_local)
    print("ready", flush=True)
    count = 0
    while not stop.exists():
        answer = engine.ask("search", {"query": "alpha version", "top_k": 10})
        failed = [stage for stage in answer["stages"] if stage["status"] == "failed"]
        assert not failed, failed
        hits = answer["results"]
        versions = {hit["text"].split()[-1] for hit in hits if hit["path"] == "changing.md"}
        assert len(versions) == 1, f"not one revision in one answer: {versions} {answer['stages']}"
        assert {hit["path"] for hit in hits} >= {"changing.md", "still.md"}
        count += 1
        if count == ANSWERS:
            stop.with_name(f"answered-{os.getpid()}").touch()
    print(count, "alone" if made else "served")
    engine.close()


def serve(home: Path) -> None:
    from catalog.interfaces.server.asgi import serve
    from catalog.interfaces.server.security import Address

    serve(LocalEngine(open_library(home)), Address("127.0.0.1", 0), home, KEY)


if __name__ == "__main__":
    if sys.argv[3:] == ["serve"]:
        serve(Path(sys.argv[1]))
    else:
        search_until(*map(Path, sys.argv[1:3]))
