"""An engine without a store, whose document ``hold`` waits, ``noise`` prints and ``fail`` fails."""

import os
import subprocess
import sys
import threading

ABOUT = {"docid": "0", "numbers": [1], "notes": [], "title": "", "metadata": {}}


class StubEngine:
    """Has a document for each name that is asked for, and tells when calls may end."""

    def __init__(self, datasets=()):
        self.datasets = datasets
        self.go = threading.Event()

    def ask(self, verb, arguments):
        if verb == "status":
            return {"datasets": list(self.datasets), "notes": []}
        word = arguments["reference"].removeprefix("notes:")
        if word == "hold":
            self.hold()
        if word == "noise":
            make_noise()
        if word == "fail":
            raise ValueError(word.upper())
        return ABOUT | {"source_doc_id": f"notes:{word}", "path": word, "text": f"echo: {word}"}

    def close(self):
        pass

    def hold(self):
        self.go.wait()


def make_noise():
    """Print in every way a library may."""
    print("NOISE of print", flush=True)
    print("NOISE left in the buffer")
    sys.__stdout__.write("NOISE of the first sys.stdout\n")
    os.write(1, b"NOISE of a C library\n")
    subprocess.run(["echo", "NOISE of a child"], check=True)
