"""The process that reads files: ``python -m catalog.ingest.readers.worker BYTES PARENT``.

It answers requests on its standard input until that ends. Before the first one it gives up
everything that reading does not need: memory over the limit, connections, programs, files opened
for writing.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NoReturn

from catalog.core.errors import ReadError
from catalog.ingest.readers import isolated
from catalog.ingest.readers.opening import open_regular
from catalog.ingest.readers.registry import read_open

_BASELINE_BYTES = 500_000_000  # address space of the interpreter and its libraries
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FORBIDDEN = (
    "socket.connect", "socket.bind", "socket.getaddrinfo", "urllib.Request", "subprocess.Popen",
    "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.remove", "os.rename",
    "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "shutil.",
)  # fmt: skip


def main() -> None:
    """Answer requests until the input ends."""
    requests, answers = own_pipes()
    drop_rights(int(sys.argv[1]))
    threading.Thread(target=exit_with, args=(int(sys.argv[2]),), daemon=True).start()
    while (request := isolated.receive_request(requests)) is not None:
        isolated.send(answers, _serve(request, answers))


def _serve(request: isolated.Request, answers: BinaryIO) -> isolated.Ended:
    """Send the format and the items of a file; return the end of the answer.

    Each of them may take ``limits.seconds``. The time that the parent takes does not count.
    """
    limits = request.limits
    root = None if request.root is None else Path(request.root)
    try:
        _set_alarm(limits.seconds)
        with open_regular(Path(request.absolute), root=root) as handle:
            for item in read_open(handle, request.path, limits=limits):
                _set_alarm(0)
                message = isolated.Began(item) if isinstance(item, str) else item
                isolated.send(answers, message)
                _set_alarm(limits.seconds)
    except ReadError as error:
        return isolated.Ended(type(error).__name__, str(error))
    except MemoryError:
        reason = f"reading needs more than {limits.memory_bytes:,} bytes of memory"
        return isolated.Ended("ReadError", reason)
    except RecursionError:
        return isolated.Ended("ReadError", "it is nested too deeply")
    except Exception as error:  # noqa: BLE001 - a library's defect on an odd file; reported
        reason = f"the reader failed: {type(error).__name__}: {error}"
        return isolated.Ended("TransientReadError", reason)  # a later release may do better
    finally:
        _set_alarm(0)
    return isolated.Ended("")


def _set_alarm(seconds: float) -> None:
    """Let the system end this process after that time, even within a library; 0 for never."""
    with suppress(AttributeError):  # not on Windows
        signal.setitimer(signal.ITIMER_REAL, seconds)


def own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Return standard input and output, separated from anything a library prints or reads."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    return requests, answers


def drop_rights(memory_bytes: int) -> None:
    """Bound the memory of this process, and refuse connections, programs and written files."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    with suppress(ImportError, ValueError, OSError):
        import resource

        limit = memory_bytes + _BASELINE_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open":
        mode, flags = arguments[1], arguments[2]
        writes = isinstance(flags, int) and flags & _WRITING
        if writes or (isinstance(mode, str) and set(mode) & set("wax+")):
            raise PermissionError("readers may not write files")
    elif event.startswith(_FORBIDDEN):
        raise PermissionError(f"readers may not do this: {event}")


def exit_with(parent: int) -> NoReturn:
    """End when the parent is gone, even while a file is being read."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    main()
