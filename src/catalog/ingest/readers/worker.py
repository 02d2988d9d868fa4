"""The process that reads hostile formats: ``python -m catalog.ingest.readers.worker BYTES``.

It answers requests on its standard input until that ends. Before the first one it gives up
everything that reading does not need: memory over the limit, connections, programs, files opened
for writing.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import BinaryIO, NoReturn

from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.ingest.readers import isolated
from catalog.ingest.readers.registry import load_reader

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
    threading.Thread(target=exit_with, args=(os.getppid(),), daemon=True).start()
    while (received := isolated.receive_request(requests)) is not None:
        isolated.send(answers, _serve(*received, answers))


def _serve(request: isolated.Request, data: bytes, answers: BinaryIO) -> isolated.Ended:
    try:
        reader = load_reader(request.format)
        for item in reader.read(io.BytesIO(data), request.path, limits=request.limits):
            isolated.send(answers, item)
    except EmptyDocumentError as error:
        return isolated.Ended("empty", str(error))
    except ReadError as error:
        return isolated.Ended("unreadable", str(error))
    except MemoryError:
        limit = request.limits.memory_bytes
        return isolated.Ended("unreadable", f"reading needs more than {limit:,} bytes of memory")
    except RecursionError:
        return isolated.Ended("unreadable", "it is nested too deeply")
    except Exception as error:  # noqa: BLE001 - a library's defect on an odd file; reported
        return isolated.Ended("defect", f"the reader failed: {type(error).__name__}: {error}")
    return isolated.Ended("done")


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
