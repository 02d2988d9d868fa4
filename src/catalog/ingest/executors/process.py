"""A worker process of an indexing run: ``python -m catalog.ingest.executors.process PARENT``.

It does the work sent to its standard input until that ends or the process ``PARENT`` is gone.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from typing import Any

from catalog.ingest.executors.base import attempt
from catalog.ingest.readers.worker import exit_with, own_pipes


def main() -> None:
    """Answer items until standard input ends."""
    parent = int(sys.argv[1])
    requests, answers = own_pipes()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    threading.Thread(target=exit_with, args=(parent,), daemon=True).start()
    work: Any = None
    while True:
        try:
            packed, item = pickle.load(requests)  # noqa: S301 - from the process that started this
        except EOFError:
            return
        work = work if packed is None else pickle.loads(packed)  # noqa: S301
        pickle.dump(attempt(work, item), answers)
        answers.flush()


if __name__ == "__main__":
    # If the parent has closed the pipe meanwhile, it does not need the answer.
    try:
        main()
    except BrokenPipeError:
        os._exit(1)
