"""The process that reads files: ``python -m catalog.ingest.readers.worker BYTES PARENT``."""

import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, NoReturn

from catalog.core.errors import ReadError
from catalog.ingest.readers import isolated
from catalog.ingest.readers.base import ReadLimits
from catalog.ingest.readers.opening import open_regular
from catalog.ingest.readers.registry import read_open

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FORBIDDEN = (
    "socket.connect", "socket.bind", "socket.getaddrinfo", "urllib.Request", "subprocess.Popen",
    "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.remove", "os.rename",
    "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "shutil.",
)  # fmt: skip


def main() -> None:
    """Give up what reading does not need, then answer requests until the input ends."""
    requests, answers = own_pipes()
    drop_rights(int(sys.argv[1]))
    threading.Thread(target=_exit_with, args=(int(sys.argv[2]),), daemon=True).start()
    for line in requests:
        absolute, root, path, limits = json.loads(line)
        told = partial(isolated.send_attached, answers)
        allowed = replace(ReadLimits(*limits), starting=told)
        request = isolated.Request(absolute, root, path, allowed)
        isolated.send(answers, _serve(request, answers))


def _serve(request: isolated.Request, answers: BinaryIO) -> isolated.Ended:
    """Send the format and the items of a file, each within the limit of time; return the end."""
    limits, root = request.limits, None if request.root is None else Path(request.root)
    # The system ends this process, even within a library. Windows has no such alarm.
    alarm = getattr(signal, "setitimer", lambda *_: None)
    try:
        alarm(0, limits.seconds)
        with open_regular(Path(request.absolute), root=root) as handle:
            for item in read_open(handle, request.path, limits=limits):
                alarm(0, 0)  # the time that the parent takes does not count
                isolated.send(answers, item)
                alarm(0, limits.seconds)
    except ReadError as error:
        return isolated.Ended(type(error).__name__, str(error))
    except (MemoryError, RecursionError) as error:
        large = f"reading needs more than {limits.memory_bytes:,} bytes of memory"
        is_deep = isinstance(error, RecursionError)
        return isolated.Ended("ReadError", "it is nested too deeply" if is_deep else large)
    except Exception as error:  # noqa: BLE001 - a defect that a later release may mend; reported
        reason = f"the reader failed: {type(error).__name__}: {error}"
        return isolated.Ended("TransientReadError", reason)
    finally:
        alarm(0, 0)
    return isolated.Ended("")


def own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Return standard input and output, separated from anything a library prints or reads."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    for standard in (0, 1):
        os.dup2(os.open(os.devnull, os.O_RDWR), standard)
    return requests, answers


def drop_rights(memory_bytes: int) -> None:
    """Bound the memory of this process, and refuse connections, programs and written files."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    with suppress(ImportError, ValueError, OSError):
        import resource

        limit = memory_bytes + 500_000_000  # address space of the interpreter and its libraries
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    mode, flags = arguments[1:3] if event == "open" else ("", 0)
    if (isinstance(flags, int) and flags & _WRITING) or set(str(mode or "")) & set("wax+"):
        raise PermissionError("readers may not write files")
    if event.startswith(_FORBIDDEN):
        raise PermissionError(f"readers may not do this: {event}")


def _exit_with(parent: int) -> NoReturn:
    """End when the parent is gone, even while a file is being read."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    main()
